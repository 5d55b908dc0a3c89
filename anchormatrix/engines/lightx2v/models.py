"""Which of LightX2V's model classes can be measured, and why another cannot (commit f8aee98, 21 August 2026).

Both tiers are requests to one server, so a class must take the number of steps from the request. Those whose scheduler
keeps the number of the launch run it whatever a request asks.
"""

from __future__ import annotations

import re
from types import MappingProxyType

COMMIT = "f8aee98"
RELEASE = f"LightX2V {COMMIT}"

# The files of the classes that were read, below lightx2v/: where they take the steps of a request.
MEASURED = MappingProxyType(
    {
        "qwen_image": "models/schedulers/qwen_image/scheduler.py:611",
        "z_image": "models/schedulers/z_image/scheduler.py:419",
    }
)
# Its scheduler keeps its generator of random numbers from one request to the next, as no clear() takes it away.
UNSEEDED, UNSEEDED_PLACE = "z_image", "models/schedulers/z_image/scheduler.py:446"
_FIXED = (
    (re.compile(r"wan2\.[12](?!.*audio)"), "models/schedulers/wan/scheduler.py:15, :108"),
    (re.compile(r"hunyuan_video_1\.5"), "models/schedulers/hunyuan_video/scheduler.py:49"),
    (re.compile(r"flux2"), "models/schedulers/flux2/scheduler.py:79, :108"),
    (re.compile(r"ltx2"), "models/schedulers/ltx2/scheduler.py:324, :448"),
    (re.compile(r"minimax_h3"), "models/schedulers/minimax_h3/scheduler.py:46"),
    (re.compile(r"lingbot_video"), "models/schedulers/lingbot_video/scheduler.py:13"),
)


def why_not(model_class: str) -> str:
    """Why a class cannot be measured; empty for one that can."""
    if model_class in MEASURED:
        return ""
    for pattern, place in _FIXED:
        if pattern.match(model_class):
            return f"{RELEASE} runs {model_class} with the steps of its launch, whatever a request asks ({place})"
    return f"{model_class} of {RELEASE} has not been read; those that were: {', '.join(MEASURED)}"
