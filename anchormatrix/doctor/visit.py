"""One visit to a host: the open host, and what several checks rest on, read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from anchormatrix.devices.open import open_device
from anchormatrix.errors import AnchorMatrixError
from anchormatrix.hosts.base import Host
from anchormatrix.model_files.folder import ModelFolder, read_folder
from anchormatrix.records.host import HostState
from anchormatrix.records.settings.whole import Settings


@dataclass(frozen=True)
class Visit:
    """A configured host that could be opened. Nothing is started on it, leased or written."""

    settings: Settings
    host: Host

    @property
    def limit_s(self) -> float:
        """How long one command may take."""
        return self.settings.host.command_timeout_s

    @cached_property
    def state(self) -> HostState | AnchorMatrixError:
        """Cards and links as the vendor's tools tell them, or why they do not."""
        try:
            return open_device(self.settings.device).read(self.host, timeout_s=self.limit_s)
        except AnchorMatrixError as error:
            return error

    @cached_property
    def folder(self) -> ModelFolder | AnchorMatrixError:
        """The model's files as the engine's Python sees them, or why they could not be listed."""
        try:
            return read_folder(self.host, self.settings)
        except AnchorMatrixError as error:
            return error
