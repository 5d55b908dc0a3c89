"""A kernel's qualified name in lower case, from a C++ name: mangled, demangled with types and arguments, or plain."""

from __future__ import annotations

import re
from functools import lru_cache

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|`anonymous namespace'::", re.IGNORECASE)
_MANGLED = re.compile(r"(?:typeinfo name for )?(_{1,2}Z(?:TS|TI)?L?\w+)")
_LENGTH = re.compile(r"\d+")
_MOST = 1 << 14  # characters of a name that are looked at
_MOST_QUALIFIED = 256  # characters of a qualified name: its end; patterns are tried on no more


@lru_cache(maxsize=1 << 16)
def qualified_name(name: str) -> str:
    """Return ``namespace::name`` of a kernel in lower case.

    ``void vllm::reduce_kernel<float, 2>(vllm::Data*)``, ``_ZN4vllm13reduce_kernelIfLi2EEEvPNS_4DataE`` and
    ``vllm::reduce_kernel.kd`` are all ``vllm::reduce_kernel``. A name cut off in the middle gives what is there.
    """
    text = name.strip()[:_MOST].removeprefix("typeinfo name for ")
    if _MANGLED.match(text):
        parts = _components(text)
        if parts:
            return "::".join(parts).lower()[-_MOST_QUALIFIED:]
    text = _without_brackets(_ANONYMOUS.sub("", text))
    head = text.partition("(")[0].partition(" [")[0].strip()
    last = head.split()[-1] if head.split() else ""
    return last.lstrip("*&").removesuffix(".kd").lower()[-_MOST_QUALIFIED:]


def _without_brackets(text: str) -> str:
    """Drop template arguments, nested ones included; an arrow or an ``operator<`` is no bracket."""
    if "<" not in text:
        return text
    kept, depth, inside = [], 0, 0  # inside: round brackets within template arguments, where > compares
    for position, character in enumerate(text):
        if depth and character in "()":
            inside = max(0, inside + (1 if character == "(" else -1))
        elif inside:
            continue
        elif character == "<" and not text.endswith("operator", 0, position):
            depth += 1
        elif character == ">" and depth and text[position - 1] != "-":
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)


def _components(mangled: str) -> list[str]:
    """Return the names of an Itanium-mangled function, outermost first (Itanium C++ ABI, 5.1 External Names)."""
    position = mangled.index("Z") + 1
    position += 2 * mangled.startswith(("TS", "TI"), position)
    nested = mangled.startswith("N", position)
    position += nested
    parts: list[str] = []
    while position < len(mangled):
        character = mangled[position]
        if character.isdigit():
            name, position = _source_name(mangled, position)
            if not name.startswith("_GLOBAL__N_"):
                parts.append(name)
            if not nested:
                break
        elif mangled.startswith("St", position):
            parts.append("std")
            position += 2
        elif character == "S":
            position = mangled.find("_", position) + 1 or len(mangled)
        elif character == "I" and parts:
            position = _after_arguments(mangled, position)
        elif character in "rVKLRO" and (character == "L" or not parts):
            position += 1
        else:
            break
    return parts


def _source_name(mangled: str, position: int) -> tuple[str, int]:
    digits = _LENGTH.match(mangled, position)
    if not digits:
        return "", position + 1
    end = digits.end() + int(digits[0][:6])
    return mangled[digits.end() : end], end


def _after_arguments(mangled: str, position: int) -> int:
    """Return where the template arguments that begin here end; literals (``Li2E``) are skipped whole."""
    depth = 0
    while position < len(mangled):
        character = mangled[position]
        if character.isdigit():
            _, position = _source_name(mangled, position)
            continue
        if character == "L" and not mangled.startswith(("LN", "L_Z"), position) and depth:
            end = mangled.find("E", position)
            position = end + 1 if end >= 0 else len(mangled)
            continue
        if character == "S" and position + 1 < len(mangled) and mangled[position + 1] not in "tabsiod":
            position = mangled.find("_", position) + 1 or len(mangled)
            continue
        if character == "S":
            position += 2
            continue
        depth += (character in "INXJF") - (character == "E")
        position += 1
        if depth == 0:
            break
    return position
