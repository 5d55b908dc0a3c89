"""Secrets: which values of a configuration are secret, what stands in their place, and how a command gets them.

A configuration that is read holds a reference ``{secret:engine.env.HF_TOKEN}`` where its file holds the value, so that
nothing above knows the value and nothing can write it. The values travel in this process's environment, which its
commands inherit, and take the place of their references where a host runs a command.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from anchormatrix.errors import ConfigError

VARIABLE = "ANCHORMATRIX_SECRETS"
"""The values by their places in the configuration, as JSON; never given to a command on a host."""

_REFERENCE = re.compile(r"\{secret:([^{}\s]+)\}")
_MARK = "{secret}"
_SHORTEST = 6  # shorter ones stand in ordinary text by chance
# Parts of a name, as in HF_TOKEN, --api-key or clientSecret. Some say so anywhere, others only at the end: KEY_FRAMES
# are none. A name that ends in one of the last is of a file or an address, not of what is in it.
_ANYWHERE = {"secret", "password", "passwd", "passphrase", "credential", "authorization", "bearer"}
_AT_THE_END = {"token", "key", "pass", "pwd", "auth", "cookie", "pat"}
_SAYING_NOTHING = {"id", "ro", "rw"}
_GLUED = ("password", "passwd", "secret", "token", "apikey", "accesskey", "secretkey", "privatekey", "sshpass")
_OF_A_PLACE = {"file", "path", "dir", "folder", "url", "endpoint", "name"}
_OF_A_SHELL = {("pwd",), ("oldpwd",)}
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PROMPTS = (("workload", "prompt"), ("workload", "negative_prompt"))  # text that means nothing but itself
# NAME=value, "name": "value", Name: Bearer value, ?name=value: anywhere in a text but in a reference
_NAMED = re.compile(r"""(?<!\{(?=secret:))(?P<name>-{0,2}[A-Za-z_][\w.-]*)["']?\s?(?P<sign>[=:])\s?["']?""")
_VALUE = re.compile(r"""\{secret(?::[^{}\s]+)?\}|(?:(?:Bearer|Basic|Token)\s+)?[^\s"';,&{}]+""")
_USERS = ("-u", "--user", "--proxy-user")
# An address with a login in it, or one that is a secret as a whole
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^/\s:@]*:[^/\s@]+|[^/\s:@]{16,})@|https?://(?:hooks\.|\S*/webhooks?/)", re.IGNORECASE
)


def looks_secret(name: str, value: Any = "") -> bool:
    """Whether what a variable, key or option of this name holds is likely a secret; of MAX_TOKENS a number is none."""
    number = isinstance(value, (int, float)) or (isinstance(value, str) and value.replace(".", "", 1).isdigit())
    if number and name.lower().endswith("s"):
        return False
    parts = tuple(part.lower() for part in _PART.findall(name))
    if not parts or parts[-1] in _OF_A_PLACE or parts in _OF_A_SHELL:
        return False
    if any(part.endswith(_GLUED) for part in parts) or any(map(_one_of(_ANYWHERE), parts)):
        return True
    telling = [part for part in parts if part not in _SAYING_NOTHING and not part.isdigit()]
    return bool(telling) and _one_of(_AT_THE_END)(telling[-1])


def _one_of(words: Collection[str]) -> Callable[[str], bool]:
    """A test for one of the words, or several of its kind."""
    return lambda part: part in words or (part.endswith("s") and part[:-1] in words)


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration with a reference in the place of every secret, which is kept for the commands.

    Secret is text under a name that looks so or that the configuration lists under ``secrets``, also as the value of an
    option or variable in a list of arguments; an address with a password in it; and whatever is written ``{secret}``,
    which stands for the environment variable of its name. Raises :class:`ConfigError` when ``secrets`` is no list.
    """
    listed = values.get("secrets", [])
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"{listed!r} is no list of names", where="secrets", expected="a list such as [MY_VARIABLE]")
    search = _Search(set(listed))
    hidden = {key: value if key == "secrets" else search.hidden(value, (key,)) for key, value in values.items()}
    if search.found:
        os.environ[VARIABLE] = json.dumps({**_known(), **search.found})
    return hidden


def revealed(text: str) -> str:
    """Text for a command on a host: references become what they stand for.

    Raises :class:`ConfigError` that names a reference for which nothing is known: the file was read by another process
    and no environment variable of that name is set.
    """
    return _REFERENCE.sub(lambda found: _value(found[1]), text) if "{secret:" in text else text


def revealed_all(words: Sequence[str]) -> list[str]:
    """The words of a command line for a host."""
    return [revealed(word) for word in words]


def revealed_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command for a host; what this process knows of secrets besides is taken from it."""
    return {name: revealed(value) for name, value in env.items()}


def revealed_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of any depth for the body of a request to a server."""
    return {key: _revealed(value) for key, value in values.items()}


def without_values(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a program that is not to know the secrets."""
    return {name: value for name, value in environment.items() if name != VARIABLE}


def masked(text: str) -> str:
    """Text from outside, such as a server's log that names its arguments, with a reference for every known secret."""
    for place, value in _known().items():
        if len(value) >= _SHORTEST:
            for written in {value, json.dumps(value)[1:-1], repr(value)[1:-1]}:
                text = text.replace(written, f"{{secret:{place}}}")
    return text


def shell_assignment(name: str, value: str) -> str:
    """A variable as a shell takes it before a command; of one that looks secret only its name is shown."""
    secret = looks_secret(name, value) and not _REFERENCE.search(value)
    return f"{name}={shell_word(f'{{secret:{name}}}' if secret else value)}"


def shell_word(word: str) -> str:
    """A word as a shell takes it; a reference in it is the variable of its name, to be filled in there."""
    parts = _REFERENCE.split(word)  # text, place, text, place, …
    if len(parts) == 1:
        return shlex.quote(word)
    named = (f'"${re.sub(r"[^A-Za-z0-9_]", "_", place.rpartition(".")[2])}"' for place in parts[1::2])
    quoted = (shlex.quote(part) if part else "" for part in parts[::2])
    return "".join(piece for pair in zip_longest(quoted, named, fillvalue="") for piece in pair)


class _Search:
    """A walk through a configuration that collects what is secret in it."""

    def __init__(self, listed: Collection[str]) -> None:
        self._listed = {_plain_name(name) for name in listed}
        self.found: dict[str, str] = {}

    def hidden(self, value: Any, path: tuple[str, ...], inside: bool = False) -> Any:
        """The value without what is secret; ``inside`` something secret all of it is."""
        inside = inside or self._secret(path[-1], value)
        if path in _PROMPTS or isinstance(value, bool):
            return value
        if isinstance(value, Mapping):
            return {key: self.hidden(item, (*path, str(key)), inside) for key, item in value.items()}
        if isinstance(value, list):
            pairs = zip(["", *value], value, strict=False)
            return [self._word(word, before, (*path, str(at)), inside) for at, (before, word) in enumerate(pairs)]
        if inside and isinstance(value, (int, float)):
            return self._kept(str(value), path)
        if not isinstance(value, str):
            return value
        return (
            self._kept(value, path) if inside or value == _MARK or _ADDRESS.search(value) else self._text(value, path)
        )

    def _word(self, word: Any, before: Any, path: tuple[str, ...], inside: bool) -> Any:
        """One of a list of arguments: what follows ``--api-key`` or ``-u`` is hidden as a map's value is."""
        if isinstance(word, str) and isinstance(before, str) and not inside:
            if before in _USERS and ":" in word:
                return self._kept(word, (*path, "user"))
            if (
                before.startswith("-")
                and "=" not in before
                and self._secret(before, word)
                and not word.startswith("--")
            ):
                return self._kept(word, (*path, before.lstrip("-")))
        return self.hidden(word, path, inside)

    def _text(self, text: str, path: tuple[str, ...]) -> str:
        """A text in which only some is secret: what is assigned to a name that looks so."""
        done, at = [], 0
        while found := _NAMED.search(text, at):
            done.append(text[at : found.end()])
            at, name = found.end(), found["name"]
            # A variable or option as a word of its own may hold anything up to its end.
            value = text[at:] if found.start() == 0 and found["sign"] == "=" else ""
            value = value or (part[0] if (part := _VALUE.match(text, at)) else "")
            if value and (self._secret(name, value) or value == _MARK):
                done.append(self._kept(value, (*path, name.lstrip("-"))))
                at += len(value)
        return "".join(done) + text[at:]

    def _secret(self, name: str, value: Any) -> bool:
        return _plain_name(name) in self._listed or looks_secret(name, value)

    def _kept(self, value: str, path: tuple[str, ...]) -> str:
        if not value or _REFERENCE.search(value):
            return value
        place = ".".join(re.sub(r"[{}\s]", "_", part) for part in path)
        while self.found.get(place, value) != value:
            place = f"_{place}"
        if value != _MARK:
            self.found[place] = value
        return f"{{secret:{place}}}"


def _plain_name(name: str) -> str:
    return name.lstrip("-").replace("-", "_").casefold()


def _revealed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return revealed_values(value)
    if isinstance(value, (list, tuple)):
        return [_revealed(item) for item in value]
    return revealed(value) if isinstance(value, str) else value


def _known() -> dict[str, str]:
    try:
        known = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    return {str(place): str(value) for place, value in known.items()} if isinstance(known, dict) else {}


def _value(place: str) -> str:
    name = place.rpartition(".")[2]
    value = _known().get(place, os.environ.get(name))
    if value is None:
        raise ConfigError(
            "the value of this secret is not known here", where=place,
            todo=f"export {name}, or start the run whose configuration file holds it",
        )  # fmt: skip
    return value
