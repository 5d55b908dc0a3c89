"""What other users put into the lease folder is looked at, named and never believed: no card is lost to it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lease_tables import printed

from anchormatrix.errors import HostError, LeaseError
from anchormatrix.hosts import locks
from anchormatrix.hosts.holdings import holdings, problems
from anchormatrix.hosts.lease_folder import notes
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings

ROOT = Path(__file__).resolve().parents[2]
STRANGER, SECOND = 12345, 12346
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="other users can only be played by root")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of leases that every user can reach."""
    above = Path(tempfile.mkdtemp(prefix="leases-"))
    above.chmod(0o755)
    (above / "leases").mkdir()
    (above / "leases").chmod(0o1777)
    yield above / "leases"
    shutil.rmtree(above)


@pytest.fixture
def host(folder: Path) -> Iterator[LocalHost]:
    opened = LocalHost(HostSettings("here", lease_dir=str(folder)))
    yield opened
    opened.close()


def stranger(path: Path, uid: int = STRANGER) -> Path:
    """A path given to another user, where we may."""
    if os.geteuid() == 0:
        os.chown(path, uid, uid, follow_symlinks=False)
    return path


BECOME = """if True:
    import os, sys
    from anchormatrix.hosts import locks
    from anchormatrix.hosts.lease_folder import notes
    folder, uid = sys.argv[1], int(sys.argv[2])
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
"""


def as_user(uid: int, code: str, folder: Path) -> str:
    """Run Python as another user, who need not be able to read this project: it is loaded before."""
    argv = [sys.executable, "-c", BECOME + code, str(folder), str(uid)]
    return subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def a_link(path: Path) -> None:
    (path.parent.parent / "precious").write_text('{"user": "keep"}')
    path.symlink_to(path.parent.parent / "precious")


STRANGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "a FIFO"),
    "socket": (a_socket, "a socket"),
    "folder": (Path.mkdir, "a folder"),
    "link": (a_link, "a symbolic link"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
    "link to itself": (lambda path: path.symlink_to(path.name), "a symbolic link"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_file_is_named_with_its_owner_and_the_other_cards_are_listed(
    host: LocalHost, folder: Path, kind: str
):
    make, name = STRANGE[kind]
    make(folder / "card-0.lock")
    stranger(folder / "card-0.lock")
    owner = "uid 12345" if os.geteuid() == 0 else ""
    begin = time.monotonic()
    with pytest.raises(LeaseError) as caught:
        host.lease([0], holder={}, wait_s=0.5)
    assert f"card-0.lock is {name} of {owner}" in str(caught.value)
    with host.lease([1], holder={"what": "goes on"}, wait_s=0):
        found = holdings(host)
        assert [(one.card, one.held, one.what) for one in found] == [(0, False, "?"), (1, True, "goes on")]
        assert f"card-0.lock is {name} of {owner}" in found[0].problem
        header, row, problem = printed(folder.parent).splitlines()
        assert (header.split()[0], row.split()[0]) == ("card", "1")
        assert problem.startswith(f"{folder}/card-0.lock is {name} of {owner}")
    assert time.monotonic() - begin < 10
    assert kind != "link" or (folder.parent / "precious").read_text() == '{"user": "keep"}'


NONSENSE = {
    "nested": b"[" * 8000,
    "5 MB": b"x" * 5_000_000,
    "a number of 5,000 digits": b'{"pid": ' + b"9" * 5000,
    "NUL": b"\0" * 100,
    "a list": b"[1, 2]",
    "a word": b'"suspect"',
}


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_in_a_lock_file_is_said_and_costs_no_card(host: LocalHost, folder: Path, text: bytes):
    path = folder / "card-0.lock"
    path.write_bytes(text)
    stranger(path).chmod(0o666)
    (line,) = problems(holdings(host))
    assert f"holds {len(text)} bytes that say nothing of a holder; the card is free" in line
    with host.lease([0], holder={"what": "mine"}, wait_s=0) as lease:
        assert lease.suspect == ()
        assert [one.what for one in holdings(host)] == ["mine"]


@pytest.mark.parametrize(
    "text",
    [
        '{"pid": NaN, "suspect": NaN}',
        '{"pid": ["me"], "since": {"a": 1}, "suspect": {"a": [1]}, "user": null}',
        '{"card": 7, "held": true, "locker": "me", "problem": "none"}',
    ],
)
def test_words_of_wrong_types_say_nothing(host: LocalHost, folder: Path, text: str):
    (folder / "card-0.lock").write_text(text)
    assert holdings(host) == ()
    with (folder / "card-0.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (found,) = holdings(host)
    assert (found.card, found.held, found.user, found.problem) == (0, True, "?", "")
    assert found.locker.startswith(f"pid {os.getpid()} of ")


@root_only
def test_a_strangers_word_in_a_lock_file_is_shown_as_theirs_and_not_believed(host: LocalHost, folder: Path):
    path = folder / "card-0.lock"
    path.write_text('{"suspect": "broken\\u001b[31m"}')
    stranger(path).chmod(0o666)
    assert printed(folder.parent).splitlines() == [
        "no card is leased",
        f"{path} of uid 12345 calls the card suspect («broken\\x1b[31m»), which is not believed",
    ]
    with host.lease([0], holder={}, wait_s=0) as lease:
        assert lease.suspect == ()


def test_what_others_wrote_is_shown_escaped(host: LocalHost, folder: Path):
    words = {"user": "\x1b]0;x\x07", "what": "two\nlines\u202e", "from": "\ud800"}
    with host.lease([0], holder=words, wait_s=0):
        shown = printed(folder.parent)
        with pytest.raises(LeaseError) as caught:
            host.lease([0], holder={}, wait_s=0)
    for text in (shown, str(caught.value)):
        assert r"\x1b]0;x\x07" in text
        assert r"two\nlines\u202e" in text
        assert r"\ud800" in text
        assert "\x1b" not in text


def test_names_that_are_no_cards_are_passed_over(host: LocalHost, folder: Path):
    for name in (
        "card-0000.lock",
        "card-\u0661.lock",
        "card-\u00b2.lock",
        "card-99999999999999999999.lock",
        "card-.lock",
    ):
        (folder / name).write_text('{"suspect": "x"}')
    assert holdings(host) == ()


def test_a_folder_of_ten_thousand_files_is_listed_in_time_and_in_few_lines(host: LocalHost, folder: Path):
    for number in range(10_000):
        (folder / f"card-{number}.lock").write_text("x" * 10)
        (folder / f"card-0.suspect.{number}").write_text("x")
    begin = time.monotonic()
    lines = printed(folder.parent).splitlines()
    assert time.monotonic() - begin < 20
    assert len(lines) == 23  # the suspect card's table, twenty problems, and how many more
    assert lines[-1] == "and 9980 more"
    host.lease([5], holder={}, wait_s=0).release()


def test_a_shared_lock_of_somebody_who_may_only_read_ends_the_wait_and_is_named(host: LocalHost, folder: Path):
    host.lease([0], holder={"what": "long ago"}, wait_s=0).release()
    reader = os.open(folder / "card-0.lock", os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    begin = time.monotonic()
    with pytest.raises(
        LeaseError, match=rf"card 0 is held by pid {os.getpid()} of \w+, who has not said what for after"
    ):
        host.lease([0], holder={}, wait_s=0.5)
    assert 0.4 < time.monotonic() - begin < 5
    (found,) = holdings(host)
    assert (found.held, found.user) == (True, "?")
    assert found.locker.startswith(f"pid {os.getpid()} of ")
    os.close(reader)
    assert holdings(host) == ()


def test_a_holder_whose_words_were_taken_away_is_named_by_the_kernel(host: LocalHost, folder: Path):
    with host.lease([0], holder={"what": "mine"}, wait_s=0):
        for text in ("", "[" * 8000, json.dumps({"user": "alice", "what": "hers", "agent": "1"})):
            (folder / "card-0.lock").write_text(text)
            (found,) = holdings(host)
            assert found.held
            assert found.locker.startswith("pid ")
            with pytest.raises(LeaseError, match="card 0 is held by pid "):
                host.lease([0], holder={}, wait_s=0)


@root_only
def test_files_that_may_not_be_opened_are_named_and_those_that_may_be_read_are_locked(folder: Path):
    for card, mode in ((0, 0o000), (1, 0o444)):
        path = folder / f"card-{card}.lock"
        path.write_text("")
        path.chmod(mode)
        stranger(path)
    code = """
    print([one.get("problem") for one in locks.holders(folder)])
    files = locks.take(folder, [1], {"what": "read only"}, 0, None)
    print([(one["card"], one["held"]) for one in locks.holders(folder)])
    try:
        locks.take(folder, [0], {}, 0, None)
    except OSError as error:
        print(error)"""
    said = f"{folder}/card-0.lock is a file of uid 12345, mode 000: it may not be opened"
    assert as_user(SECOND, code, folder).splitlines() == [
        f"[{said!r}]",
        "[(0, False), (1, True)]",
        said,
    ]


# --- notes against cards --------------------------------------------------------------------------------------------

NOTE = "    notes.note(folder, 0, 'killed')"
TRUST = "    notes.trust(folder, 0)"
AGAINST = "    print({card: notes.in_words(said) for card, said in notes.against(folder).items()})"


@root_only
def test_a_note_of_another_user_asks_for_one_smoke_of_each_and_only_its_writers_takes_it_away(folder: Path):
    as_user(STRANGER, NOTE, folder)
    assert as_user(STRANGER, AGAINST, folder) == "{0: 'killed'}\n"
    assert as_user(SECOND, AGAINST, folder) == "{0: 'killed, said by uid 12345'}\n"
    as_user(SECOND, TRUST, folder)
    assert as_user(SECOND, AGAINST, folder) == "{}\n"
    assert as_user(STRANGER, AGAINST, folder) == "{0: 'killed'}\n"
    time.sleep(0.05)
    as_user(STRANGER, NOTE, folder)  # another kill
    assert as_user(SECOND, AGAINST, folder) == "{0: 'killed, said by uid 12345'}\n"
    as_user(STRANGER, TRUST, folder)
    assert as_user(SECOND, AGAINST, folder) == "{}\n"


def test_notes_take_the_place_of_one_another_and_leave_nothing(folder: Path):
    notes.note(str(folder), 3, "first")
    notes.note(str(folder), 3, "second")
    assert {card: notes.in_words(said) for card, said in notes.against(str(folder)).items()} == {3: "second"}
    notes.trust(str(folder), 3)
    assert list(folder.iterdir()) == []


def test_a_note_that_anybody_can_write_or_that_is_no_file_is_nobodys(folder: Path):
    (folder / "card-0.suspect.a").write_text('{"suspect": "x"}')
    (folder / "card-0.suspect.a").chmod(0o666)
    os.mkfifo(folder / "card-0.suspect.b")
    (folder / "card-0.suspect.c").symlink_to("nowhere")
    (folder / "card-0.suspect.d").mkdir()
    assert notes.against(str(folder)) == {}


@root_only
def test_a_note_filled_with_nonsense_is_shown_without_a_word(host: LocalHost, folder: Path):
    (folder / "card-0.suspect.x").write_bytes(b"[" * 8000)
    stranger(folder / "card-0.suspect.x")
    (found,) = holdings(host)
    assert found.suspect == "noted without a word, said by uid 12345"


# --- the folder itself ----------------------------------------------------------------------------------------------


@root_only
def test_a_folder_out_of_which_others_can_take_locks_is_refused(folder: Path):
    stranger(folder).chmod(0o777)
    host = LocalHost(HostSettings("here", lease_dir=str(folder)))
    with pytest.raises(
        LeaseError, match=r"leases is a folder of uid 12345, mode 777: anybody can take another's locks"
    ):
        host.lease([0], holder={}, wait_s=0)
    folder.chmod(0o1777)
    host.lease([0], holder={}, wait_s=0).release()
    host.close()


def test_our_own_folder_gets_what_it_lacks(host: LocalHost, folder: Path):
    folder.chmod(0o777)
    host.lease([0], holder={}, wait_s=0).release()
    assert folder.stat().st_mode & 0o7777 == 0o1777


@root_only
def test_a_strangers_link_to_a_folder_is_not_followed_and_ours_is(folder: Path):
    link = folder.parent / "link"
    link.symlink_to(folder)
    host = LocalHost(HostSettings("here", lease_dir=str(link)))
    host.lease([0], holder={}, wait_s=0).release()
    stranger(link)
    with pytest.raises(LeaseError, match="link is a symbolic link of uid 12345"):
        host.lease([0], holder={}, wait_s=0)
    host.close()


def test_a_file_in_place_of_the_folder_is_an_error_for_a_look_too(folder: Path):
    (folder.parent / "file").write_text("")
    host = LocalHost(HostSettings("here", lease_dir=str(folder.parent / "file")))
    with pytest.raises(HostError, match="leases cannot be read"):
        holdings(host)
    host.close()


def test_a_lock_that_is_replaced_again_and_again_ends_the_wait(folder: Path, monkeypatch):
    monkeypatch.setattr(locks, "_is_still", lambda path, file: False)
    begin = time.monotonic()
    with pytest.raises(OSError, match="is replaced again and again"):
        locks.take(str(folder), [0], {}, 0.3, time.sleep)
    assert time.monotonic() - begin < 5
