"""Whether forms compute the same picture: pictures of one colour and a patch, so that every PSNR can be seen by eye."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

from anchormatrix.errors import InputError
from anchormatrix.outputs.comparison import Computed, compare, least_psnr_db, psnr_db
from anchormatrix.outputs.decoding import Output, broken
from anchormatrix.outputs.said import not_compared, products
from anchormatrix.records.outputs import Outputs

LIMIT_DB = 24.0


def picture(level: int, *, size: tuple[int, int] = (20, 10), corner: int = 30) -> Output:
    """All pixels of one level but for the first, so that it is not of one colour."""
    pixels = np.full((size[1], size[0], 3), level, dtype=np.uint8)
    pixels[0, 0] = corner
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return Output(stream.getvalue(), "image/*")


def latents(*values: float) -> Output:
    return Output(struct.pack(f"<{len(values)}f", *values), "application/octet-stream")


def judged(*forms: Sequence[Output | None], by_design: Sequence[str] = ()) -> Outputs:
    """Forms A, B, C … with their outputs by window."""
    computed = [
        Computed(name, window, output)
        for name, outputs in zip("ABCDE", forms, strict=False)
        for window, output in enumerate(outputs, 1)
    ]
    return compare("c2", computed, limit_db=LIMIT_DB, by_design=by_design)


def statuses(outputs: Outputs) -> list[str]:
    return [f"{one.form}{one.window} {one.status}" for one in outputs.sessions]


def test_levels_ten_apart_are_28_db_apart():
    assert psnr_db(picture(100), picture(110)) == pytest.approx(28.15, abs=0.03)  # 20 log10(255 ÷ 10) = 28.13


def test_equal_pictures_are_infinitely_close_and_pictures_of_another_size_are_no_picture_of_the_same():
    assert psnr_db(picture(100), picture(100)) == float("inf")
    assert psnr_db(picture(100), picture(100, size=(20, 20))) == float("-inf")


def test_latents_one_percent_apart_are_40_db_apart():
    assert psnr_db(latents(1.0, -1.0), latents(1.01, -1.01)) == pytest.approx(40.0, abs=0.01)


@pytest.mark.parametrize(("width", "limit"), [(4, 40), (2, 24), (2.5, 24), (1, 20), (0.5, 20), (8, 40)])
def test_the_limit_is_that_of_the_precision(width: float, limit: float):
    assert least_psnr_db({1: 20, 2: 24, 4: 40}, width) == limit


def test_the_default_limit_passes_what_was_measured_of_tensor_parallelism_in_bf16():
    """2.5 of 255 levels on average: 40.2 dB if alike everywhere, 38.2 dB if normally distributed."""
    assert psnr_db(picture(100), picture(102)) > psnr_db(picture(100), picture(103)) > 38 > LIMIT_DB


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (picture(0, corner=0), "is black"),
        (picture(2, corner=0), "is black"),
        (picture(90, corner=90), "has one colour everywhere (levels 90 to 90)"),
        (latents(0.0, 0.0), "holds 0 everywhere"),
        (latents(1.0, float("nan")), "holds values that are no numbers"),
        (picture(90), ""),
        (latents(1.0, 1.5), ""),
    ],
)
def test_an_output_without_a_picture_says_why(output: Output, why: str):
    assert broken(output) == why


def test_forms_that_compute_the_same_picture_are_the_same():
    found = judged([picture(100), picture(100)], [picture(103), picture(103)])
    assert statuses(found) == ["A1 same", "A2 same", "B1 same", "B2 same"]
    assert (found.reference, found.sessions[2].psnr_db) == ("A", 38.61)


def test_the_odd_one_of_three_is_void():
    found = judged([picture(200)], [picture(100)], [picture(103)])
    assert statuses(found) == ["A1 void", "B1 same", "C1 same"]
    assert "another picture than B in window 1: PSNR 8.2 dB, at least 24 dB are asked" in found.sessions[0].text


def test_of_two_that_disagree_neither_can_be_trusted():
    found = judged([picture(100), picture(100)], [picture(200), picture(200)])
    assert statuses(found) == ["A1 void", "A2 void", "B1 void", "B2 void"]
    assert found.reference is None
    assert found.sessions[0].text.endswith("nothing tells which is right")


def test_a_form_that_computes_two_pictures_is_void_where_it_leaves_the_one_that_others_repeat():
    found = judged([picture(100), picture(100)], [picture(100), picture(200)])
    assert statuses(found) == ["A1 same", "A2 same", "B1 same", "B2 void"]


def test_where_no_form_repeats_its_own_picture_nothing_is_said():
    found = judged([picture(10), picture(90)], [picture(170), picture(250)])
    assert statuses(found) == ["A1 not_compared", "A2 not_compared", "B1 not_compared", "B2 not_compared"]
    said = not_compared(found.sessions)
    assert len(said) == 1
    assert said[0].startswith("Whether A, B computes the same picture: outputs not compared, because no form repeats")


def test_a_black_output_is_void_and_the_other_form_counts():
    found = judged([picture(0, corner=0)], [picture(100)])
    assert statuses(found) == ["A1 void", "B1 same"]
    assert found.sessions[0].text == "the output is black"


def test_an_output_that_cannot_be_read_or_never_came_is_an_unknown():
    found = judged([Output(b"not a picture", "image/*")], [None], [picture(100)])
    assert statuses(found) == ["A1 not_compared", "B1 not_compared", "C1 same"]
    assert found.sessions[0].text.startswith("outputs not compared, because not a picture that can be read")


def test_a_form_that_differs_by_design_is_another_product():
    found = judged([picture(100)], [picture(200)], by_design=["B"])
    assert statuses(found) == ["A1 same", "B1 other_product"]
    assert products(found.sessions) == ["B is another product than A by design: PSNR 8.2 dB, at least 24 dB are asked."]


def test_a_form_that_should_differ_by_design_and_does_not_is_not_active():
    found = judged([picture(100)], [picture(100)], by_design=["B"])
    assert statuses(found) == ["A1 same", "B1 void"]
    assert found.sessions[1].text.endswith("it is not active")


def video(*levels: int) -> Output:
    """An H.264 video, as vllm-omni sends it: one frame of each level."""
    av = pytest.importorskip("av")
    stream = io.BytesIO()
    with av.open(stream, mode="w", format="mp4") as container:
        track = container.add_stream("libx264", rate=16)
        track.width, track.height, track.pix_fmt = 64, 48, "yuv420p"
        for level in levels:
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), level, dtype=np.uint8), format="rgb24")
            container.mux(track.encode(frame))
        container.mux(track.encode())
    return Output(stream.getvalue(), "video/mp4")


def test_the_worst_frame_of_a_video_counts():
    """Nine of ten frames are equal: their mean PSNR would hide the tenth, 80 levels away: 20 log10(255 ÷ 80) = 10."""
    assert psnr_db(video(*[100] * 9, 100), video(*[100] * 9, 180)) == pytest.approx(10.07, abs=0.5)


def test_a_video_is_broken_only_when_all_of_it_is():
    assert broken(video(0, 0, 0)) == "is black"
    assert broken(video(0, 0, 90)) == ""


def test_a_cut_video_cannot_be_decoded():
    whole = video(10, 90)
    with pytest.raises(InputError, match=r"without a video track|not a video"):
        broken(Output(whole.data[: len(whole.data) // 2], whole.media))
