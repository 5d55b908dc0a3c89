"""A command ends with the run that it belongs to, however that run ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = """
import signal, sys, time
from anchormatrix.hosts.owner import follow_owner
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended in order"))
follow_owner()
print("runs", flush=True)
time.sleep(60)
"""
# The shell between the two stays behind when its parent is killed, and goes on waiting for the command.
RUN = f"""
import subprocess, sys
from anchormatrix.hosts.owner import name_owner
name_owner()
subprocess.run(["sh", "-c", '"$0" -c "$1"; true', sys.executable, {COMMAND!r}])
"""


def test_a_command_is_asked_to_end_when_its_run_was_killed():
    run = subprocess.Popen([sys.executable, "-c", RUN], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout and run.stderr
    assert run.stdout.readline() == b"runs\n"
    run.kill()
    run.wait()
    # its pipes are open for as long as the command lives
    assert run.stderr.read() == b"ended in order\n"
    run.stdout.close()
    run.stderr.close()


def test_a_workflow_is_asked_to_end_when_its_sweep_was_killed():
    sweep = f"""
import pathlib, sys
from anchormatrix.nightly.sweep import run_workflow
run_workflow([sys.executable, "-c", {COMMAND!r}], pathlib.Path())
"""
    process = subprocess.Popen([sys.executable, "-c", sweep], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    assert process.stdout.readline() == b"runs\n"
    process.kill()
    process.wait()
    assert process.stderr.read() == b"ended in order\n"
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_sweep_that_is_asked_to_end_waits_for_its_workflow_and_ends(number, code):
    workflow = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print("ended", flush=True), sys.exit(7)))
print("runs", flush=True)
time.sleep(60)
"""
    sweep = f"""
import pathlib, sys
from anchormatrix.nightly.sweep import run_workflow
run_workflow([sys.executable, "-c", {workflow!r}], pathlib.Path())
"""
    process = subprocess.Popen([sys.executable, "-c", sweep], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"runs\n"
    process.send_signal(number)
    try:
        assert process.wait(20) == code
    finally:
        process.kill()
    assert process.stdout.read() == b"ended\n"
    process.stdout.close()


def test_a_handler_may_take_a_lock_that_the_main_thread_holds():
    program = """
import os, signal, threading, time
from anchormatrix.hosts.owner import answer_sigterm_aside
lock, told = threading.Lock(), threading.Event()
def handler(*_):
    with lock:
        told.set()
signal.signal(signal.SIGTERM, handler)
answer_sigterm_aside()
with lock:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
print(told.wait(20))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=30, check=False)
    assert done.stdout == b"True\n"


def test_a_command_started_too_late_ends_at_once():
    environment = {**os.environ, "ANCHORMATRIX_OWNER": f"{os.getpid()}:1"}  # our id, but another process's start
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], cwd=ROOT, env=environment, capture_output=True, timeout=30, check=False
    )
    assert done.stderr == b"ended in order\n"


def test_a_command_without_an_owner_is_nobodys():
    environment = {key: value for key, value in os.environ.items() if key != "ANCHORMATRIX_OWNER"}
    process = subprocess.Popen([sys.executable, "-c", COMMAND], cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"runs\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
