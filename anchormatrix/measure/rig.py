"""The rig of a measurement: what it needs of the world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anchormatrix.devices.base import Device
from anchormatrix.engines.base import Engine
from anchormatrix.hosts.base import Host
from anchormatrix.records.settings.whole import Settings


@dataclass(frozen=True)
class Rig:
    """An open host, its device, the engine and the settings; ``say`` is told in short lines what happens."""

    host: Host
    device: Device
    engine: Engine
    settings: Settings
    say: Callable[[str], None]
