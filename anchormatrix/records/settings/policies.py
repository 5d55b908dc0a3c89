"""The sections that describe a policy, each merged key by key over the default configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from anchormatrix.records.settings.values import (
    BY_SIZE,
    MANY,
    NO_REPEATS,
    YEAR_S,
    Clock,
    Count,
    Design,
    FormsBySize,
    Gigabytes,
    Index,
    KeepCaptures,
    OnBusy,
    Percent,
    Seconds,
    Section,
    Size,
    Text,
    Tier,
    refuse_repeats,
)


class GroupsSettings(Section, frozen=True, kw_only=True):
    """Which card groups may be used beyond the rule."""

    allow_cross_domain: bool
    allow_mixed_models: bool
    pinned: Annotated[Mapping[Size, Annotated[tuple[Index, ...], NO_REPEATS]], BY_SIZE]

    def __post_init__(self) -> None:
        refuse_repeats(self.pinned.values())


class HealthSettings(Section, frozen=True, kw_only=True):
    """What makes a card unavailable, and what to do about tenants."""

    static_memory_mb: Annotated[int, Meta(ge=0, le=MANY, description="MB")]
    on_busy: OnBusy
    busy_wait_s: Annotated[float, Meta(ge=0, le=YEAR_S, description="seconds")]
    contaminated_tries: Count


class WarmupSettings(Section, frozen=True, kw_only=True):
    """How many excluded requests there may be before the steady state."""

    min: Annotated[int, Meta(ge=2, le=1000)]
    max: Annotated[int, Meta(ge=2, le=1000)]
    steady_pct: Percent


class TierSettings(Section, frozen=True, kw_only=True):
    """How many denoise steps a request of each tier has."""

    few: Annotated[int, Meta(ge=1, le=1_000_000, description="steps")]
    anchor: Annotated[int, Meta(ge=2, le=1_000_000, description="steps")]


class MatrixSettings(Section, frozen=True, kw_only=True):
    """What is measured. ``forms`` maps a size to names, or is ``auto``: then the ``most_forms`` most promising ones of
    each size, or all where that is null.

    Under the adaptive design a form is started in at most ``windows + extra_windows`` windows.
    """

    sizes: Annotated[tuple[Count, ...], Meta(min_length=1), NO_REPEATS]
    tiers: TierSettings
    repeats: Annotated[int, Meta(ge=3, le=1000)]
    windows: Annotated[int, Meta(ge=1, le=9)]
    design: Design
    forms: FormsBySize
    warmups: WarmupSettings
    extra_windows: Annotated[int, Meta(ge=0, le=30)] = 6
    most_forms: Annotated[int, Meta(ge=1, le=1000)] | None = None

    def __post_init__(self) -> None:
        refuse_repeats([self.sizes, *(() if isinstance(self.forms, str) else self.forms.values())])


class SmokeSettings(Section, frozen=True, kw_only=True):
    """Limits of the four-step smoke."""

    steps: Annotated[int, Meta(ge=2, le=1_000_000)]
    residue_factor: Annotated[float, Meta(gt=1, le=1_000_000)]
    straggler_pct: Percent
    first_step_pct: Percent
    slope_pct: Percent
    expected_step_s: Annotated[Mapping[Size, Seconds], BY_SIZE]


class VerdictSettings(Section, frozen=True, kw_only=True):
    """Limits of the verdict, in percent."""

    dispersion_pct: Percent
    drift_pct: Percent
    noise_floor_pct: Percent
    window_drift_pct: Percent


class OutputSettings(Section, frozen=True, kw_only=True):
    """When two outputs at one seed are the same picture. ``psnr_db`` maps the bytes of a value to the least PSNR.

    ``by_design`` are forms that are said to compute another picture, because they leave something out.
    """

    psnr_db: Annotated[Mapping[Size, Annotated[float, Meta(gt=0, le=1000, description="dB")]], BY_SIZE]
    by_design: Annotated[tuple[str, ...], NO_REPEATS] = ()

    def __post_init__(self) -> None:
        if not self.psnr_db:
            raise ValueError("no precision is given")


class CaptureSettings(Section, frozen=True, kw_only=True):
    """Whether and how a step is captured by the profiler, and what is kept of it.

    With the anchor among ``tiers`` the second window captures, too: the last steps of an anchor request.
    """

    enabled: bool
    steps: Count
    keep: KeepCaptures
    compress: bool
    tiers: Annotated[tuple[Tier, ...], NO_REPEATS] = (Tier.FEW,)

    def __post_init__(self) -> None:
        if Tier.FEW not in self.tiers:
            raise ValueError("a step of the few-step tier is always captured")


class AttributionSettings(Section, frozen=True, kw_only=True):
    """Tolerances of the capture analyses."""

    release_us: Annotated[float, Meta(ge=0.001, le=MANY, description="microseconds")]
    drain_ratio: Annotated[float, Meta(ge=0, le=1)]
    unusable_rows_pct: Percent


class BandwidthSettings(Section, frozen=True, kw_only=True):
    """The size sweep of a group: by the device's collective test, else by torch in the engine's environment."""

    enabled: bool
    sizes_mb: Annotated[
        tuple[Annotated[float, Meta(ge=0.000001, le=1_000_000, description="MB")], ...], Meta(min_length=2)
    ]
    concurrency: Annotated[tuple[Count, ...], Meta(min_length=1)]
    repeats: Count
    timeout_s: Seconds = 300


class SelectionSettings(Section, frozen=True, kw_only=True):
    """How forms are chosen and judged. ``mask_chunks`` are the chunk counts of masking that ``forms: auto`` tries."""

    offload_order: Annotated[tuple[str, ...], NO_REPEATS]
    memory_reserve_gb: Gigabytes
    bandwidth: BandwidthSettings
    host_memory_gb: Annotated[float, Meta(gt=0, le=MANY, description="GB")] | None = None
    mask_chunks: Annotated[tuple[Annotated[int, Meta(ge=1, le=9999)], ...], Meta(min_length=1), NO_REPEATS] = (1,)

    def __post_init__(self) -> None:
        refuse_repeats([self.offload_order, self.mask_chunks])


class HistorySettings(Section, frozen=True, kw_only=True):
    """Where results of every session are kept, and for how many nights."""

    file: Text
    keep_nights: Count


class NightlySettings(Section, frozen=True, kw_only=True):
    """The unattended sweep."""

    deadline: Clock
    retries: Annotated[int, Meta(ge=0, le=100)]
    hook: tuple[str, ...]


class ReportSettings(Section, frozen=True, kw_only=True):
    """The report's words."""

    title: Text
