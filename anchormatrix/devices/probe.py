"""One reading of the live host: what its cards, links and software are now."""

from __future__ import annotations

import re

from anchormatrix.devices.open import open_device
from anchormatrix.errors import HostError, quoted_line
from anchormatrix.hosts.base import Host
from anchormatrix.hosts.open import open_host
from anchormatrix.records.host import NOT_STATED, HostProbe, Stack
from anchormatrix.records.settings.whole import Settings

_LOG_LINE = re.compile(r"^\W*(DEBUG|INFO|WARN(ING)?|ERROR|CRITICAL|Traceback)\b|\b\d\d:\d\d:\d\d\b|[Ww]arning:")


def probe_host(settings: Settings) -> HostProbe:
    """Open the host, read it once, and close it again. Raises :class:`HostError` or ``InputError``."""
    host = open_host(settings.host)
    try:
        return _read(host, settings)
    finally:
        host.close()


def _read(host: Host, settings: Settings) -> HostProbe:
    """Read cards, links and software versions on an open host."""
    state = open_device(settings.device).read(host, timeout_s=settings.host.command_timeout_s)
    versions = dict(state.versions)
    return HostProbe(
        state,
        Stack(
            driver=versions.get("driver", NOT_STATED),
            toolkit=read_version(host, settings.device.toolkit, settings, "device.toolkit"),
            framework=settings.engine.kind,
            framework_version=read_version(host, settings.engine.version, settings, "engine.version"),
        ),
    )


def read_version(host: Host, given: str | tuple[str, ...], settings: Settings, key: str) -> str:
    """A version given as text, or the first line with a digit that the given command prints, log lines left out.

    A log line holds the time, with which every run would be another contract.
    """
    if isinstance(given, str):
        return given
    try:
        done = host.run(given, timeout_s=settings.host.command_timeout_s, env=dict(settings.engine.env))
    except HostError as error:
        if settings.engine.kind != "dummy-run" or "was not found" not in error.what:
            raise
        todo = "make its environment with `make dummy-run-env`, or name the right interpreter in engine.command"
        raise HostError(error.what, where=error.where, todo=todo) from None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    versions = [line for line in lines if any(map(str.isdigit, line)) and not _LOG_LINE.search(line)]
    if not versions:
        said = f", but {quoted_line(lines[0])}" if lines else ""
        todo = f"correct {key}, or give the version as text"
        raise HostError(f"prints no version{said}", where=" ".join(given), todo=todo)
    return versions[0]
