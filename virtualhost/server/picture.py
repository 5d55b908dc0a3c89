"""The picture a request computes, as a PNG, or as an MP4 that shows it for the whole time.

vllm-omni sends H.264 in MP4, which the standard library cannot encode. A still picture needs no encoder: MP4 carries
PNG samples by registration (object type 0x6D of ISO/IEC 14496-1, mp4ra.org), and every FFmpeg reads them.

A picture follows from what was asked and from the order of summation: tensor and ring parallelism add up partial
results, so that they round otherwise than one rank does, by 2.5 of 255 levels on average (measured on a served bf16
model over gloo, where Ulysses equals one rank pixel by pixel).
"""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache

_BLOCK = 16  # pixels
_ROUNDING = (-3, -2, 2, 3)  # levels


@dataclass(frozen=True)
class Picture:
    """What a request computes. ``subject`` is all that makes another picture, ``rounding`` only another last digit.

    ``seconds`` is how long a video shows it; 0 for an image. ``black``: every value is zero, as where NaN was cast.
    """

    subject: str
    width: int
    height: int
    seconds: float = 0.0
    rounding: str = ""
    black: bool = False

    def encoded(self) -> bytes:
        """The file's bytes."""
        return _encoded(self)


@lru_cache(maxsize=16)
def _encoded(picture: Picture) -> bytes:
    png = _png(picture.width, picture.height, _rows(picture))
    return _mp4(png, picture.width, picture.height, picture.seconds) if picture.seconds else png


def _rows(picture: Picture) -> list[bytes]:
    """The rows of pixels: blocks of one colour each."""
    width, columns = picture.width, -(-picture.width // _BLOCK)
    paint, digits = random.Random(picture.subject), random.Random(picture.rounding)
    rows: list[bytes] = []
    for _ in range(0, picture.height, _BLOCK):
        levels = [paint.randrange(16, 240) for _ in range(3 * columns)]
        if picture.rounding:
            levels = [level + digits.choice(_ROUNDING) for level in levels]
        if picture.black:
            levels = [0] * len(levels)
        row = b"".join(bytes(levels[at : at + 3]) * _BLOCK for at in range(0, len(levels), 3))[: 3 * width]
        rows += [row] * _BLOCK
    return rows[: picture.height]


def _png(width: int, height: int, rows: list[bytes]) -> bytes:
    """Eight bits each of red, green and blue; every row but those that repeat the one above is stored as it is."""
    lines, above = [], b""
    same = bytes(3 * width)
    for row in rows:
        lines.append(b"\x02" + same if row == above else b"\x00" + row)  # filter 2: the difference to the row above
        above = row

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(lines), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


_SCALE = 1000  # units of time in a second
_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)


def _box(kind: bytes, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack(">I", 8 + len(data)) + kind + data


def _full(kind: bytes, *parts: bytes, flags: int = 0) -> bytes:
    """A box with a version, always 0, and flags."""
    return _box(kind, struct.pack(">I", flags), *parts)


def _mp4(png: bytes, width: int, height: int, seconds: float) -> bytes:
    """One video track of one sample (ISO/IEC 14496-12)."""
    lasts = max(1, round(seconds * _SCALE))
    head = _box(b"ftyp", b"mp42", struct.pack(">I", 0), b"mp42isom")
    decoder = bytes([0x04, 13, 0x6D, 0x11]) + bytes(11)  # DecoderConfigDescriptor: PNG, visual stream
    stream = bytes([0x03, 3 + len(decoder) + 3, 0, 1, 0]) + decoder + bytes([0x06, 1, 2])
    size = struct.pack(">HH", width, height)
    resolution = struct.pack(">IIIH", 0x480000, 0x480000, 0, 1)  # 72 dpi, one frame in a sample
    name_and_depth = bytes(32) + struct.pack(">Hh", 24, -1)
    entry = _box(
        b"mp4v", bytes(6), struct.pack(">H", 1), bytes(16), size, resolution, name_and_depth, _full(b"esds", stream)
    )
    table = _box(
        b"stbl",
        _full(b"stsd", struct.pack(">I", 1), entry),
        _full(b"stts", struct.pack(">III", 1, 1, lasts)),
        _full(b"stsc", struct.pack(">IIII", 1, 1, 1, 1)),
        _full(b"stsz", struct.pack(">II", len(png), 1)),
        _full(b"stco", struct.pack(">II", 1, len(head) + 8)),
    )
    where = _box(b"dinf", _full(b"dref", struct.pack(">I", 1), _full(b"url ", flags=1)))
    media = _box(
        b"mdia",
        _full(b"mdhd", struct.pack(">IIIIHH", 0, 0, _SCALE, lasts, 0x55C4, 0)),  # language: undetermined
        _full(b"hdlr", bytes(4), b"vide", bytes(12), b"\x00"),
        _box(b"minf", _full(b"vmhd", bytes(8), flags=1), where, table),
    )
    track = (
        struct.pack(">IIIII", 0, 0, 1, 0, lasts) + bytes(16) + _MATRIX + struct.pack(">II", width << 16, height << 16)
    )
    film = struct.pack(">IIIIIH", 0, 0, _SCALE, lasts, 0x10000, 0x100) + bytes(10) + _MATRIX + bytes(24)
    return (
        head
        + _box(b"mdat", png)
        + _box(
            b"moov",
            _full(b"mvhd", film, struct.pack(">I", 2)),
            _box(b"trak", _full(b"tkhd", track, flags=3), media),
        )
    )
