"""The supervision agent as the program it is: whatever ends it, what it started is stopped first."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anchormatrix.hosts import locks, processes
from anchormatrix.hosts.bundle import agent_command


def started(tmp_path: Path, silence_s: float = 0) -> tuple[subprocess.Popen[bytes], int]:
    """An agent that holds card 3 and runs a server; returns both process and server id."""
    words, sources = agent_command(sys.executable, silence_s)
    agent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert agent.stdin is not None
    lease = {"directory": str(tmp_path / "leases"), "cards": [3], "holder": {"what": "test"}, "wait_s": 0}
    server = {"argv": ["sleep", "60"], "env": {}, "path": [], "log": str(tmp_path / "log"), "token": str(tmp_path)}
    # The token is this test's own: an agent stops whatever carries it, also what another test started meanwhile.
    start = request(op="start", grace_s=5, stop_command=[], **server)
    # All at once: however slow this test is, the agent hears nothing but silence only after the server has started.
    agent.stdin.write(sources + request(op="lease", **lease) + start)
    agent.stdin.flush()
    assert answer(agent)["suspect"] == [False]
    return agent, answer(agent)["pid"]


def request(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def answer(agent: subprocess.Popen[bytes]) -> dict:
    assert agent.stdout is not None
    return json.loads(agent.stdout.readline())


def asked(agent: subprocess.Popen[bytes], **fields: object) -> dict:
    assert agent.stdin is not None
    agent.stdin.write(request(**fields))
    agent.stdin.flush()
    return answer(agent)


def assert_all_is_over(agent: subprocess.Popen[bytes], server: int, tmp_path: Path) -> None:
    agent.wait(15)
    assert processes.entry(server) is None
    assert locks.holders(str(tmp_path / "leases")) == []
    assert json.loads((tmp_path / "log.stop.json").read_text())["how"] == "sigint"


def test_silence_ends_it(tmp_path: Path):
    agent, server = started(tmp_path, 0.5)
    with agent:
        assert_all_is_over(agent, server, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it(tmp_path: Path, number: int):
    agent, server = started(tmp_path)
    with agent:
        agent.send_signal(number)
        assert_all_is_over(agent, server, tmp_path)


@pytest.mark.parametrize("line", [b"not JSON\n", b"[]\n", b'{"op": "no such thing"}\n', b'{"op": "stop"}\n', b"\xff\n"])
def test_a_request_it_does_not_understand_ends_it(tmp_path: Path, line: bytes):
    agent, server = started(tmp_path)
    with agent:
        assert agent.stdin is not None
        agent.stdin.write(line)
        agent.stdin.flush()
        assert_all_is_over(agent, server, tmp_path)


def test_a_beat_keeps_it_alive_and_has_no_answer(tmp_path: Path):
    agent, server = started(tmp_path, 30)
    with agent:
        assert agent.stdin is not None
        agent.stdin.write(b'{"op": "beat"}\n')
        assert asked(agent, op="poll", id=7) == {"exit": None, "id": 7}
        assert server in asked(agent, op="tree")["pids"]
        agent.stdin.close()
        assert_all_is_over(agent, server, tmp_path)
