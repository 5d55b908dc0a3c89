"""The host that the configuration names, opened."""

from __future__ import annotations

from anchormatrix.hosts.base import Host
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings
from anchormatrix.records.settings.values import HostKind


def open_host(settings: HostSettings) -> Host:
    """Open the configured host. Raises :class:`HostError` when it cannot be reached or its key is not known."""
    if settings.kind == HostKind.SSH:
        from anchormatrix.hosts.ssh.host import SshHost  # noqa: PLC0415  paramiko takes a quarter of a second to import

        return SshHost(settings)
    return LocalHost(settings)
