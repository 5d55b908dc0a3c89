"""``python -m anchormatrix.engines.dummy_run serve MODEL …``: start ranks, serve, stop cleanly on SIGINT or SIGTERM.

Exit codes: 0 stopped as asked, 1 the engine did not start or failed, 2 the command line cannot be served.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import signal
import sys
import threading
from typing import Any

from anchormatrix.engines.dummy_run.arguments import ServeOptions, UsageError, parse_serve
from anchormatrix.engines.dummy_run.cards import VARIABLE, cores_of_ranks
from anchormatrix.engines.dummy_run.logs import open_log, server_tag
from anchormatrix.engines.dummy_run.server import WARM_UP, Application, Handler, Server
from anchormatrix.engines.dummy_run.workers import RequestError, Workers, WorkersError
from anchormatrix.errors import InputError

_USAGE = (
    "usage: python -m anchormatrix.engines.dummy_run {serve MODEL FLAGS… | --version}; serve --help lists the flags"
)
_WATCH_S = 0.5


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    if argv == ["--version"]:
        if _torch_is_missing():
            return 2
        print(_version())
        return 0
    if not argv or argv[0] != "serve":
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        options = parse_serve(argv[1:])
        cores = cores_of_ranks(os.environ.get(VARIABLE), options.world, os.sched_getaffinity(0))
    except (UsageError, InputError) as error:
        print(f"dummy_run: error: {error}", file=sys.stderr)
        return 2
    if _torch_is_missing():
        return 2
    return serve(options, argv[1:], cores)


def serve(options: ServeOptions, flags: list[str], cores: list[tuple[int, ...]]) -> int:
    """Serve until asked to stop or until the ranks fail."""
    log = open_log(server_tag())
    log.info("%s", _version())
    try:
        server = Server((options.host, options.port), Handler)
    except OSError as error:
        log.error("Cannot listen on %s:%d: %s", options.host, options.port, error.strerror or error)
        return 1
    log.info("Starting the dummy run of %s on http://%s:%d", options.model.name, options.host, options.port)
    workers = Workers(flags, cores, os.environ)
    application = server.application = Application(options, workers, log)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: application.stop.set())
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    threading.Thread(target=_start, args=(application,), daemon=True).start()
    try:
        while not application.stop.wait(_WATCH_S):
            gone = workers.dead() if application.ready.is_set() else None
            if gone:
                application.fail(gone)
    finally:
        log.info("Shutting down")
        workers.stop()
        server.shutdown()
        server.server_close()
    return 1 if application.failure else 0


def _start(application: Application) -> None:
    try:
        application.workers.wait_ready()
        application.log.info("dummy run to warm up the model")
        application.workers.ask("generate", request=WARM_UP)
    except (WorkersError, RequestError) as error:
        application.fail(str(error))
    else:
        application.log.info("Application startup complete.")
        application.ready.set()


def _torch_is_missing() -> bool:
    """Say in one line what this interpreter lacks, and which command makes one that does not."""
    missing = [name for name in ("torch", "diffusers") if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"dummy_run: error: {sys.executable} has no {' and no '.join(missing)}; "
            "make dummy-run-env makes .venv-dummy-run, whose python runs this engine",
            file=sys.stderr,
        )
    return bool(missing)


def _version() -> str:
    def of(name: str) -> Any:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return f"dummy-run torch {of('torch')} diffusers {of('diffusers')} python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
