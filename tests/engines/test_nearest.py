"""A log in another release's words: nothing is timed, and the lines that look most like times are shown."""

from __future__ import annotations

from anchormatrix.engines.logs.nearest import nearest_lines
from anchormatrix.engines.vllm_omni.parse import parse_serve_log

OTHER_WORDS = """\
(APIServer pid=1) INFO:     Application startup complete.
(Worker pid=2) INFO 12-03 08:00:00 [profile.py:9] [StageTimer] WanPipeline.denoise: 20.125 s
(Worker pid=2) INFO 12-03 08:00:01 [profile.py:9] [StageTimer] WanPipeline.denoise: 20.250 s
(Worker pid=2) INFO 12-03 08:00:01 [memory.py:3] 61.2 GiB are free
(Worker pid=2) INFO 12-03 08:00:02 [profile.py:9] [StageTimer] WanPipeline.decode finished in 1.5 seconds
(APIServer pid=1) INFO 12-03 08:00:02 [serve.py:1] request done after 22 s, elapsed
(APIServer pid=1) INFO 12-03 08:00:03 [serve.py:1] pipeline stage queue took 3 ms
"""


def test_the_three_nearest_lines_are_shown_each_kind_once():
    assert nearest_lines(OTHER_WORDS) == (
        "(Worker pid=2) INFO 12-03 08:00:00 [profile.py:9] [StageTimer] WanPipeline.denoise: 20.125 s",
        "(Worker pid=2) INFO 12-03 08:00:02 [profile.py:9] [StageTimer] WanPipeline.decode finished in 1.5 seconds",
        "(APIServer pid=1) INFO 12-03 08:00:03 [serve.py:1] pipeline stage queue took 3 ms",
    )
    said = parse_serve_log(OTHER_WORDS).untimed
    assert said.startswith("the server logs no stage times; 0 requests, 0 stage lines and 0 progress bars were seen; ")
    assert "nearest lines: (Worker pid=2) INFO 12-03 08:00:00 [profile.py:9] [StageTimer] WanPipeline.denoise" in said


def test_a_log_without_anything_like_a_time_shows_none():
    assert nearest_lines("INFO loading weights\nINFO ready, 4 ranks\n\x1b[31mERROR\x1b[0m out of memory\n") == ()
