"""A sweep that no test can make is empty and says why: it holds nothing else up."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving_world import World, rig_of, small_settings, whole_host

from anchormatrix.errors import SpaceError
from anchormatrix.hosts.base import Completed
from anchormatrix.measure.bandwidth.plan import SweepOrder
from anchormatrix.measure.bandwidth.sweep import last_line, run_sweep


def test_where_every_test_fails_the_sweep_is_empty_and_names_the_reason(tmp_path: Path) -> None:
    rig = rig_of(World(tmp_path))
    order = SweepOrder("all_to_all", (0, 1, 2, 3), "UB", 1, (1_000_000,), 3)
    sweep = run_sweep([order], whole_host(), rig.host, rig.device, small_settings(), lambda _: None)
    assert sweep.points == ()
    assert sweep.source.startswith("hccl-test; all_to_all over 4 ranks (UB), 1 at once: ")


def test_a_full_disk_of_the_host_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(World(tmp_path))
    order = SweepOrder("all_to_all", (0, 1, 2, 3), "UB", 1, (1_000_000,), 3)
    said = Completed(("hccl-test",), 1, "", "OSError: [Errno 28] No space left on device: '/tmp/hccl'\n", 0.1)
    others = rig.host.run
    monkeypatch.setattr(rig.host, "run", lambda argv, **how: said if argv[0] == "hccl-test" else others(argv, **how))
    with pytest.raises(SpaceError, match="a disk ran full while it was measured"):
        run_sweep([order], whole_host(), rig.host, rig.device, small_settings(), lambda _: None)


def test_a_failed_test_is_named_by_its_error_though_ranks_print_at_once() -> None:
    head = "Traceback (most recent call last):\n"
    said = f"{head}  File 'x.py', line 3, in <module>\nModuleNotFoundError: No module named 't'\n"
    done = Completed(("x.py",), 1, "", said + head, 0.1)
    assert last_line(done) == "ModuleNotFoundError: No module named 't'"
    assert last_line(Completed(("x.py",), 1, "", "", 0.1)) == "no output"
