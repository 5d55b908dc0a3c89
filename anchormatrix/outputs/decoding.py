"""The decoding of an output into frames of numbers: pictures by Pillow, videos by PyAV, latents as they are.

Both libraries are imported only when such an output is read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchormatrix.errors import InputError

Frame = NDArray[np.uint8] | NDArray[np.float32]

_LATENTS = "application/octet-stream"
_CODING = 3  # levels by which an encoder may spoil a picture of one colour


@dataclass(frozen=True)
class Output:
    """What a request brought: the bytes of its answer and their media type.

    ``application/octet-stream`` are latents as little-endian float32, which the dummy run answers with for a video.
    """

    data: bytes
    media: str

    @property
    def are_latents(self) -> bool:
        """Whether these are numbers before they are decoded to pixels."""
        return self.media == _LATENTS


def frames(output: Output) -> Iterator[Frame]:
    """Every frame, one at a time: height × width × 3 levels of 0–255, or all latents as one frame of real numbers.

    Raises :class:`InputError` saying why the output cannot be read.
    """
    if output.are_latents:
        yield np.frombuffer(output.data[: len(output.data) // 4 * 4], dtype="<f4")
    elif output.media.startswith("video/"):
        yield from _video(output.data)
    else:
        yield _image(output.data)


def broken(output: Output) -> str:
    """Why an output is no picture: empty, of one colour (black where NaN was cast to pixels), or not finite; or ``""``.

    A video is broken when all of it is: a film may begin in the dark. Raises :class:`InputError` like :func:`frames`.
    """
    low, high, count = np.inf, -np.inf, 0
    for frame in frames(output):
        if output.are_latents and not np.isfinite(frame).all():
            return "holds values that are no numbers"
        low, high, count = min(low, float(frame.min())), max(high, float(frame.max())), count + 1
        if high - low > (0 if output.are_latents else _CODING):
            return ""
    if not count:
        return "holds no frame"
    if output.are_latents:
        return f"holds {high:g} everywhere"
    return "is black" if high <= _CODING else f"has one colour everywhere (levels {low:.0f} to {high:.0f})"


def _image(data: bytes) -> NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise InputError(f"not a picture that can be read ({error})") from None


def _video(data: bytes) -> Iterator[NDArray[np.uint8]]:
    try:
        import av  # noqa: PLC0415
    except ImportError:
        raise InputError("videos cannot be decoded without PyAV", todo="pip install av") from None

    try:
        with av.open(io.BytesIO(data), mode="r") as container:
            if not container.streams.video:
                raise InputError("a file without a video track")
            for frame in container.decode(video=0):
                yield frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
    except (av.error.FFmpegError, ValueError) as error:
        raise InputError(f"not a video that can be decoded ({error})") from None
