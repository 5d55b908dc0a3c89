"""The whole configuration as a record: one frozen class for each section, field names equal to the keys of the file.

Every limit of a value stands in these records, once: msgspec checks it, and ``config/config.schema.yaml`` is generated
from it.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from anchormatrix.records.settings.policies import (
    AttributionSettings,
    CaptureSettings,
    GroupsSettings,
    HealthSettings,
    HistorySettings,
    MatrixSettings,
    NightlySettings,
    OutputSettings,
    ReportSettings,
    SelectionSettings,
    SmokeSettings,
    VerdictSettings,
)
from anchormatrix.records.settings.things import (
    DeviceSettings,
    EngineSettings,
    HostSettings,
    ModelSettings,
    WorkloadSettings,
)
from anchormatrix.records.settings.values import CellName, Night, Section, Text


class Settings(Section, frozen=True, kw_only=True):
    """The whole configuration.

    ``secrets`` are names whose values are secret although they do not look so. ``cell`` and ``night`` are given on the
    command line of the targets that need them.
    """

    host: HostSettings
    device: DeviceSettings
    engine: EngineSettings
    workload: WorkloadSettings
    model: ModelSettings
    groups: GroupsSettings
    health: HealthSettings
    matrix: MatrixSettings
    smoke: SmokeSettings
    outputs: OutputSettings
    verdict: VerdictSettings
    capture: CaptureSettings
    attribution: AttributionSettings
    selection: SelectionSettings
    history: HistorySettings
    nightly: NightlySettings
    report: ReportSettings
    secrets: tuple[Text, ...] = ()
    cell: CellName | UnsetType = UNSET
    night: Night | UnsetType = UNSET
