"""The collector of a model's files: finds the folder and prints its small files and the sizes of its weights as JSON.

Standard library only, Python 3.8 or later: its source is handed to the Python of the engine, which sees the files as
the engine does, in a container too. It opens no weight, only the header in front of them.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

MOST_TEXT = 4 << 20
MOST_HEADER = 100_000_000  # what safetensors itself allows (safetensors/src/tensor.rs, MAX_HEADER_SIZE)
_MOST_FILES = 2000


def locate(model: str) -> tuple[str, list[str]]:
    """The folder of a model and the places that were looked at: a folder as it stands, a Hub name in the Hub's cache.

    The cache's place follows huggingface_hub 2.4.0, constants.py:160-181.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path.absolute()), [str(path.absolute())]
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        return "", [str(path.absolute())]
    env = os.environ.get
    cache = Path(env("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(env("HF_HOME") or cache / "huggingface").expanduser()
    hub = Path(env("HF_HUB_CACHE") or env("HUGGINGFACE_HUB_CACHE") or home / "hub").expanduser()
    stored = hub / ("models--" + model.replace("/", "--"))
    try:
        revision = (stored / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return "", [str(path.absolute()), str(stored)]
    found = stored / "snapshots" / revision
    inside = found.parent == stored / "snapshots"
    return (str(found) if inside and found.is_dir() else ""), [str(path.absolute()), str(found)]


def collect(model: str) -> dict[str, Any]:
    """What a model's folder holds: the texts of its configuration files, and the tensors of each weight file."""
    folder, looked = locate(model)
    texts: dict[str, str] = {}
    weights: dict[str, Any] = {}
    problems: dict[str, str] = {}
    names: list[str] = []
    try:
        names = _names(Path(folder)) if folder else []
    except OSError as error:
        problems["model_index.json"] = f"cannot be read ({error.filename}: {error.strerror})"
    for name in names:
        path = Path(folder) / name
        try:
            if not path.is_file():
                problems[name] = "is no file"
            elif name.endswith(".safetensors"):
                weights[name] = {"bytes": path.stat().st_size, "counts": header_counts(path)}
            elif path.stat().st_size > MOST_TEXT:
                problems[name] = f"is larger than {MOST_TEXT >> 20} MiB"
            else:
                texts[name] = path.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            problems[name] = f"cannot be read ({error.strerror or error})"
        except (ValueError, RecursionError, MemoryError) as error:
            problems[name] = str(error)[:200]
    return {"folder": folder, "looked": looked, "texts": texts, "weights": weights, "problems": problems}


def header_counts(path: Path) -> dict[str, int]:
    """The number of values of each type that a safetensors file says it holds. Raises ``ValueError`` for another file.

    The file begins with the length of its header (eight bytes, little-endian) and the header, a JSON map of tensors.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(8)
        if len(start) < 8:
            raise ValueError("is no safetensors file: it ends within its first eight bytes")
        length = struct.unpack("<Q", start)[0]
        if length > min(MOST_HEADER, size - 8):
            raise ValueError(f"is no whole safetensors file: a header of {length} bytes in a file of {size}")
        header = json.loads(stream.read(length).decode("utf-8"))
    if not isinstance(header, dict):
        raise ValueError("is no safetensors file: its header is no map of tensors")
    counts: dict[str, int] = {}
    end = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        try:
            kind, values = str(tensor["dtype"])[:40], 1
            for side in tensor["shape"]:
                values *= int(side)
                if not 0 <= values <= 8 * size:
                    raise ValueError(f"is no safetensors file: tensor {name[:40]!r} is larger than the file")
            counts[kind] = counts.get(kind, 0) + values
            end = max(end, int(tensor["data_offsets"][1]))
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"is no safetensors file: tensor {name[:40]!r} has no {error}") from None
    if end != size - 8 - length:
        raise ValueError(f"is cut off: its tensors end at byte {8 + length + end} of {size}")
    return counts


def _names(folder: Path) -> list[str]:
    """The files that are read: configurations, indexes and weights, at most one folder deep."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            found += [f"{path.name}/{inner.name}" for inner in path.iterdir() if _wanted(inner.name)]
        elif _wanted(path.name):
            found.append(path.name)
    return sorted(found)[:_MOST_FILES]


def _wanted(name: str) -> bool:
    return name in ("model_index.json", "config.json", "scheduler_config.json") or name.endswith(
        (".safetensors", ".safetensors.index.json")
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(collect(sys.argv[1])) + "\n")
