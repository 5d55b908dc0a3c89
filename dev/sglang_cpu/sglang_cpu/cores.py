"""Cores of a CPU "card" for each worker: SGLang binds its threads through its kernel package, which a CPU has not.

``ANCHORMATRIX_CARD_CORES`` holds one set of cores a rank (``0,1;2,3``). Workers are called after their rank
(SGLang 0.5.23, ``multimodal_gen/runtime/launch_server.py:157``).
"""

import multiprocessing
import os
import re
from pathlib import Path


def bind():
    """Bind a worker to its rank's cores; SGLang calls this once in each of its processes."""
    cards = [card for card in os.environ.get("ANCHORMATRIX_CARD_CORES", "").split(";") if card]
    rank = re.search(r"(\d+)$", multiprocessing.current_process().name)
    if not cards or multiprocessing.parent_process() is None or rank is None or int(rank[1]) >= len(cards):
        return
    cores = {int(core) for core in cards[int(rank[1])].split(",")}
    for thread in Path("/proc/self/task").iterdir():  # torch's threads are there already
        os.sched_setaffinity(int(thread.name), cores)
