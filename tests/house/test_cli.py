"""How every command begins and ends, whatever its standard streams are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ran(body: str, **how) -> subprocess.CompletedProcess[bytes]:
    """Run a command made of ``body``; ``how`` goes to subprocess."""
    source = f"import sys\nfrom anchormatrix.cli.command import run\n{body}\nrun(main)"
    return subprocess.run([sys.executable, "-c", source], check=False, timeout=60, **how)


def test_letters_that_a_terminal_lacks_are_escaped():
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = ran("def main(): print('0–3')", env=env, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\\u20133\n", b"")


def test_closed_streams_are_no_failure():
    done = ran("def main(): print(1); print(2, file=sys.stderr)", preexec_fn=lambda: [os.close(n) for n in range(3)])
    assert done.returncode == 0


def test_a_reader_that_left_is_exit_code_2_without_words():
    reading, writing = os.pipe()
    os.close(reading)
    done = ran("def main(): print('x' * 100_000)", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (2, b"")


def test_an_expected_error_is_one_line():
    fails = "raise InputError('is\\nbad', where='f', todo='mend it')"
    body = f"from anchormatrix.errors import InputError\ndef main(): {fails}"
    done = ran(body, capture_output=True)
    assert (done.returncode, done.stderr) == (2, b"-c: f: is bad; mend it\n")


def test_an_interrupted_command_says_so_and_no_more():
    done = ran(f"import os\ndef main(): os.kill(os.getpid(), {signal.SIGINT.value})", capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"-c: interrupted\n")
