"""The vendor's device that the configuration names."""

from __future__ import annotations

from anchormatrix.devices.ascend import AscendDevice
from anchormatrix.devices.base import Device
from anchormatrix.devices.cpu import CpuDevice
from anchormatrix.devices.nvidia import NvidiaDevice
from anchormatrix.records.settings.things import DeviceSettings
from anchormatrix.records.settings.values import DeviceKind


def open_device(settings: DeviceSettings) -> Device:
    """The device of the configured kind; nothing is run yet."""
    if settings.kind == DeviceKind.NVIDIA:
        return NvidiaDevice()
    if settings.kind == DeviceKind.CPU:
        return CpuDevice(settings.cards or 1, settings.cores_per_card)
    return AscendDevice()
