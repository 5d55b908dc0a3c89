"""A log file's text, and whether it is a serving log at all: what else it looks like is said by name."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from anchormatrix.engines.timing import ServeLog
from anchormatrix.errors import InputError
from anchormatrix.measure.causes import failure_of

_HEAD = 1 << 16
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_WIDE = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # a redirect of Windows PowerShell 5
# SGLang diffusion 0.5.23, ``multimodal_gen/runtime/utils/perf_logger.py``: its stages and their ends
_SGLANG = re.compile(
    r"^(?:\[[\d :-]{1,40}\] )?\[\w{1,80}Stage\] (?:started\.\.\.|finished in )|\bsglang/multimodal_gen/", re.MULTILINE
)
# LightX2V f8aee98, ``utils/profiler.py:165``
_LIGHTX2V = re.compile(r"\[Profile\] (?:Rank \d{1,6}|Single GPU) - |\| lightx2v\.server\.")


def log_text(path: Path) -> tuple[str, int]:
    """The text of a log file and how many characters of it could not be decoded. Raises :class:`InputError`."""
    if path.exists() and not path.is_file():
        raise InputError("is no regular file", where=str(path), expected="a serving log")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path)) from None
    packed = next((kind for magic, kind in _PACKED.items() if data.startswith(magic)), "")
    if packed:
        raise InputError(f"is packed with {packed}", where=str(path), expected="text", todo="unpack it first")
    wide = next((codec for bom, codec in _WIDE.items() if data.startswith(bom)), "utf-8-sig")
    text = data.decode(wide, "replace")
    return text, text.count("\N{REPLACEMENT CHARACTER}")


def no_serving_log(text: str, log: ServeLog, engine: str) -> str:
    """Why a text is no serving log of the engine; empty when it is one, or one of a server of its that failed."""
    if log.stage_lines:
        return ""
    if not text.strip():
        return "the file is empty"
    if engine != "sglang" and _SGLANG.search(text):
        return "this is a log of SGLang's diffusion server, read as another engine's: set engine.kind to sglang"
    if log.requests or log.ranks:
        return ""
    if engine != "lightx2v" and _LIGHTX2V.search(text):
        return "this is a log of LightX2V's server, read as another engine's: set engine.kind to lightx2v"
    if failure_of(text).line:
        return ""
    if "\0" in text[:_HEAD]:
        return "this is binary data"
    seen = f"{log.lines} lines and {log.bars} progress bars"
    return f"of its {seen} none is a request, a stage or a worker's: not a log of a known grammar"
