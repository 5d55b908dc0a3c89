"""One rank: device, process group, model, split, then requests until the server goes away.

Started by the server as ``python -m anchormatrix.engines.dummy_run.rank RANK WORLD STORE SOCKET_FD FLAGS…``; its cores
and thread count are set before the interpreter starts. It obeys its socket only: SIGINT and SIGTERM are the server's to
answer, and when the socket closes the rank leaves at once, whatever it is computing.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from anchormatrix.engines.dummy_run.arguments import parse_serve
from anchormatrix.engines.dummy_run.logs import open_log, worker_tag
from anchormatrix.engines.dummy_run.model.pipeline import Request
from anchormatrix.engines.dummy_run.worker import Rank


def main(argv: list[str]) -> int:
    """Serve the socket until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    rank, world, store, descriptor, flags = int(argv[0]), int(argv[1]), argv[2], int(argv[3]), argv[4:]
    link = socket.socket(fileno=descriptor)
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(link, orders), daemon=True).start()
    log = open_log(worker_tag({}, os.getpid()))
    try:
        state = Rank(rank, world, store, parse_serve(flags))
    except Exception as error:
        _log_failure(log, error)
        _answer(link, {"ok": False, "error": _text(error)})
        return 1
    for said in ("Initialization complete.", "Scheduler loop started."):  # diffusion_worker.py:316, :1642
        state.log.info("Worker %d: %s", rank, said)
    _answer(link, {"ok": True})
    while True:
        order = orders.get()
        try:
            values = _obey(state, order)
        except Exception as error:
            _log_failure(state.log, error)
            _answer(link, {"ok": False, "id": order["id"], "error": _text(error)})
        else:
            _answer(link, {"ok": True, "id": order["id"], **values})


def _obey(state: Rank, order: dict[str, Any]) -> dict[str, Any]:
    if order["op"] == "generate":
        return state.generate(Request(**order["request"]))
    if order["op"] == "start_profile":
        state.capture.start()
        state.log.info("Profiler armed")
        return {}
    result = state.capture.stop()
    state.log.info("Profiler stopped: %s step(s) in %s", result["steps"], result["file"])
    return result


def _listen(link: socket.socket, orders: queue.Queue[dict[str, Any]]) -> None:
    with link.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            orders.put(json.loads(line))
    os._exit(0)  # the server is gone or stops: a collective that waits for another rank must not keep this one alive


def _answer(link: socket.socket, values: dict[str, Any]) -> None:
    link.sendall((json.dumps(values) + "\n").encode())


def _log_failure(log: logging.Logger, error: Exception) -> None:
    """One line: a log that many ranks write keeps a line whole, but not a traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    log.error("%s (%s)", _text(error), where)


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
