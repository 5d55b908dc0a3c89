"""The rules that tie two keys of the configuration together, which a schema cannot say."""

from __future__ import annotations

from anchormatrix.errors import ConfigError
from anchormatrix.records.form import OFFLOADS, Form, parse_form
from anchormatrix.records.settings.values import ANCHOR, DeviceKind, HostKind
from anchormatrix.records.settings.whole import Settings


def check_combinations(settings: Settings) -> None:
    """Raise :class:`ConfigError` with the key path, what was given and what is expected, for the first broken rule."""
    matrix, model = settings.matrix, settings.model
    if settings.host.kind == HostKind.SSH and not settings.host.ssh:
        raise ConfigError("host.kind is ssh but host.ssh is not given", where="host", todo="add host.ssh.host")
    if matrix.tiers.few >= matrix.tiers.anchor:
        raise ConfigError(
            f"few is {matrix.tiers.few} steps and anchor is {matrix.tiers.anchor}",
            where="matrix.tiers",
            expected="few below anchor",
        )
    if matrix.warmups.min > matrix.warmups.max:
        raise ConfigError(f"min {matrix.warmups.min} is above max {matrix.warmups.max}", where="matrix.warmups")
    if settings.device.kind == DeviceKind.CPU and not settings.device.cards:
        raise ConfigError("a cpu device needs the number of cards", where="device.cards")
    if model.heads % model.kv_head_count:
        raise ConfigError(
            f"{model.kv_heads} KV heads do not divide {model.heads} heads",
            where="model.kv_heads",
            expected="a divisor of model.heads (equal to it without grouped-query attention)",
        )
    for name in settings.selection.offload_order:
        if name not in OFFLOADS:
            raise ConfigError(f"{name!r}", where="selection.offload_order", expected=f"some of {', '.join(OFFLOADS)}")
    for size, cards in settings.groups.pinned.items():
        if len(set(cards)) != size:
            raise ConfigError(f"{list(cards)} is not {size} different cards", where=f"groups.pinned.{size}")
    if ANCHOR in settings.capture.tiers and matrix.windows < 2:
        raise ConfigError("the anchor is captured in window 2", where="capture.tiers", todo="set matrix.windows to 2")
    for name in settings.outputs.by_design:
        _parsed(name, "outputs.by_design")
    _check_forms(settings)


def _check_forms(settings: Settings) -> None:
    if isinstance(settings.matrix.forms, str):
        return
    for size in settings.matrix.sizes:
        where = f"matrix.forms.{size}"
        names = settings.matrix.forms.get(size)
        if not names:
            raise ConfigError(
                "no form is given for this size",
                where=where,
                todo="the map of forms is taken whole: list forms for every size, set matrix.sizes, or use forms: auto",
            )
        forms = [_parsed(name, where) for name in names]
        for form in forms:
            if form.cards != size:
                raise ConfigError(f"form {form.name} runs on {form.cards} cards, not {size}", where=where)
        if len(set(forms)) != len(forms):
            raise ConfigError("a form is listed twice", where=where)


def _parsed(name: str, where: str) -> Form:
    try:
        return parse_form(name)
    except ConfigError as error:
        raise ConfigError(error.what, where=where, expected=error.expected) from None
