"""Cards are used by one session at a time, whoever asks, and are free again whatever becomes of the holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lease_tables import printed

from anchormatrix.errors import LeaseError
from anchormatrix.hosts import locks
from anchormatrix.hosts.holdings import holdings
from anchormatrix.hosts.lease_folder import notes
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings

ROOT = Path(__file__).resolve().parents[2]

CONTENDER = """
import os, random, sys, time
from collections.abc import Iterator
from pathlib import Path
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings
folder, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
host, draw = LocalHost(HostSettings("here", lease_dir=str(folder / "leases"))), random.Random(seed)
for _ in range(rounds):
    cards = draw.sample(range(6), draw.choice([1, 2, 4]))
    with host.lease(cards, holder={"what": "contend"}, wait_s=60):
        for card in cards:  # exclusive by another means: creating a name that is there fails
            os.close(os.open(folder / f"used-{card}", os.O_CREAT | os.O_EXCL))
        for card in cards:
            os.unlink(folder / f"used-{card}")
print(rounds)
"""

HOLDER = """
import os, sys
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings
lease = LocalHost(HostSettings("here", lease_dir=sys.argv[1])).lease([1, 2], holder={"what": "hold"}, wait_s=0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    opened = LocalHost(HostSettings("here", lease_dir=str(tmp_path / "leases")))
    yield opened
    opened.close()


def test_a_held_card_is_refused_and_the_holder_named(host: LocalHost):
    with host.lease([2, 0], holder={"what": "c4-0123456789 tp1-usp4 w1"}, wait_s=0) as lease:
        assert lease.cards == (0, 2)
        with pytest.raises(LeaseError) as caught:
            host.lease([1, 2], holder={}, wait_s=0)
    text = str(caught.value)
    assert f"(pid {os.getpid()} on {os.uname().nodename}) since 2" in text
    assert text.startswith("here: card 2 is held by ")
    assert "c4-0123456789 tp1-usp4 w1; wait for them, or look with scripts/leases.py" in text


def test_a_refused_group_holds_none_of_its_cards(host: LocalHost):
    with host.lease([2], holder={}, wait_s=0):
        with pytest.raises(LeaseError):
            host.lease([0, 1, 2], holder={}, wait_s=0)
        host.lease([0, 1], holder={}, wait_s=0).release()


def test_waiting_is_bounded_and_said(host: LocalHost):
    with host.lease([0], holder={}, wait_s=0), pytest.raises(LeaseError, match=r"after waiting 0\.2 s"):
        host.lease([0], holder={}, wait_s=0.2)


def test_a_released_card_is_free_and_says_nothing_of_its_holder(host: LocalHost):
    lease = host.lease([0], holder={"what": "first"}, wait_s=0)
    lease.release()
    lease.release()
    assert holdings(host) == ()
    host.lease([0], holder={"what": "second"}, wait_s=0).release()


def test_everybody_sees_who_holds_what(host: LocalHost, tmp_path: Path):
    with host.lease([7], holder={"what": "nightly", "user": "alice\x1b[31m"}, wait_s=0):
        (found,) = holdings(host)
        assert (found.card, found.held, found.pid, found.what) == (7, True, str(os.getpid()), "nightly")
        assert found.user == r"alice\x1b[31m"
        header, line = printed(tmp_path).splitlines()
        assert header.split() == ["card", "user", "pid", "from", "since", "what", "suspect"]
        assert line.startswith("7     alice")
        folder = tmp_path / "leases"
        assert folder.stat().st_mode & 0o7777 == 0o1777
        assert (folder / "card-7.lock").stat().st_mode & 0o777 == 0o666


def test_an_empty_folder_has_no_holders(host: LocalHost, tmp_path: Path):
    assert holdings(host) == ()
    assert printed(tmp_path) == "no card is leased\n"


def test_what_is_known_of_a_suspect_card_is_shown(host: LocalHost, tmp_path: Path):
    host.lease([3], holder={}, wait_s=0).release()
    notes.note(str(tmp_path / "leases"), 3, "a job had to be killed at 2026-01-31T04:00:00")
    shown = printed(tmp_path).splitlines()[1].split(maxsplit=2)
    assert shown == ["3", "nobody", "a job had to be killed at 2026-01-31T04:00:00"]


def test_a_look_at_the_locks_never_makes_a_free_card_refuse(host: LocalHost, tmp_path: Path):
    host.lease([0], holder={}, wait_s=0).release()
    looking = "import sys\nfrom anchormatrix.hosts import locks\nwhile True: locks.holders(sys.argv[1])"
    looker = subprocess.Popen([sys.executable, "-c", looking, str(tmp_path / "leases")], cwd=ROOT)
    try:
        for _ in range(200):
            host.lease([0], holder={}, wait_s=0).release()
    finally:
        looker.kill()
        looker.wait()


def test_a_deleted_folder_is_made_again(host: LocalHost, tmp_path: Path):
    host.lease([0], holder={}, wait_s=0).release()
    (tmp_path / "leases" / "card-0.lock").unlink()
    (tmp_path / "leases").rmdir()
    with host.lease([0], holder={}, wait_s=0), pytest.raises(LeaseError):
        host.lease([0], holder={}, wait_s=0)


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LeaseError, match=r"the lease folder cannot be used .*correct host.lease_dir"):
        LocalHost(HostSettings("here", lease_dir=str(tmp_path / "file"))).lease([0], holder={}, wait_s=0)


def test_a_link_in_place_of_a_lock_is_not_followed(host: LocalHost, tmp_path: Path):
    (tmp_path / "leases").mkdir()
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "leases" / "card-0.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(LeaseError, match=r"cannot be used"):
        host.lease([0], holder={}, wait_s=0)
    assert (tmp_path / "precious").read_text() == "keep"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_holder_that_dies_in_any_way_frees_its_cards(host: LocalHost, tmp_path: Path, number: int):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "leases")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert [one.card for one in holdings(host)] == [1, 2]
        holder.send_signal(number)
    host.lease([1, 2], holder={}, wait_s=0).release()


def test_hundreds_of_contended_acquisitions_by_four_processes(tmp_path: Path):
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, str(tmp_path), str(seed), "50"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    done = [one.communicate(timeout=120)[0].strip() for one in crowd]
    assert done == ["50"] * 4
    assert [one.returncode for one in crowd] == [0] * 4
    assert locks.holders(str(tmp_path / "leases")) == []
    assert not list(tmp_path.glob("used-*"))
