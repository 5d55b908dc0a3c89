"""The pictures a virtual server answers with, read by the libraries that read those of a real one."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from virtualhost.host.split import Split
from virtualhost.server.exchange import Ask, parse_split, picture
from virtualhost.server.picture import Picture


def pixels(shown: Picture) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(shown.encoded())))


def test_an_image_is_a_png_of_the_size_asked_for():
    image = Image.open(io.BytesIO(Picture("lighthouse", 40, 24).encoded()))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (40, 24))


def test_a_video_is_an_mp4_that_shows_its_picture_for_the_time_asked_for():
    video = picture(Ask(4, width=40, height=24, frames=81, fps=16), Split(usp=4))
    av = pytest.importorskip("av")
    with av.open(io.BytesIO(video.encoded())) as container:
        assert "mp4" in container.format.name
        assert float(container.streams.video[0].duration * container.streams.video[0].time_base) == 5.062
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 1
    assert (frames[0] == pixels(Picture(video.subject, 40, 24))).all()


def test_tensor_parallelism_rounds_by_two_and_a_half_levels_on_average_and_ulysses_not_at_all():
    ask = Ask(4, endpoint="POST /v1/images/generations", width=320, height=320)
    shown = {name: pixels(picture(ask, parse_split(name))).astype(int) for name in ("tp1-usp1", "tp1-usp4", "tp2-usp2")}
    assert (shown["tp1-usp4"] == shown["tp1-usp1"]).all()
    apart = np.abs(shown["tp2-usp2"] - shown["tp1-usp1"])
    assert (apart.min(), apart.max()) == (2, 3)
    assert abs(apart.mean() - 2.5) < 0.05


def test_a_wrong_output_is_another_picture_and_a_black_one_is_black():
    ask = Ask(4, endpoint="POST /v1/images/generations", width=320, height=320)
    right, wrong, black = (
        pixels(picture(ask, Split(usp=4), **fault)).astype(int) for fault in ({}, {"wrong": True}, {"black": True})
    )
    assert np.abs(wrong - right).mean() > 50
    assert not black.any()
