"""The trouble of a drawn host: tenants, residue, alarms, logs, forms that fail, lost and slow requests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from virtualhost.host.faults import Fault, Moment, Span
from virtualhost.host.model import DiT
from virtualhost.host.scenario import Health, LogStyle, Residue, Tenant
from virtualhost.host.split import Split

Domains = tuple[tuple[int, ...], ...]


def host_trouble(rng: Random, domains: Domains, size: int) -> dict[str, Any]:
    """What befalls the cards, as keys of a scenario."""
    return {
        "health": _health(rng, sum(map(len, domains))),
        "tenants": _tenants(rng, domains, size),
        "residue": _residue(rng, domains, size),
        "log": _log(rng),
    }


def _group_of(rng: Random, domains: Domains, size: int) -> tuple[int, ...]:
    """An aligned group of the size, where a smaller part of the host can be spoiled and another is left."""
    domain = rng.choice(domains)
    start = rng.randrange(0, len(domain), min(size, len(domain)))
    return domain[start : start + size]


def _tenants(rng: Random, domains: Domains, size: int) -> tuple[Tenant, ...]:
    kind = rng.random()
    if kind < 0.08 and sum(map(len, domains)) > size:
        return (Tenant(_group_of(rng, domains, size), memory_mb=20480, slowdown=rng.uniform(1.0, 1.4)),)
    if kind < 0.16:  # comes while a session runs, and leaves again
        session, request = rng.randrange(2, 5), rng.randrange(1, 8)
        when = Span(Moment(session, request), Moment(session + 1, 0))
        return (Tenant(_group_of(rng, domains, size), memory_mb=20480, slowdown=rng.uniform(1.0, 1.6), when=when),)
    return ()


def _residue(rng: Random, domains: Domains, size: int) -> Residue:
    if rng.random() < 0.08 and sum(map(len, domains)) > size:
        return Residue(_group_of(rng, domains, size), factor=rng.uniform(7, 12))
    return Residue()


def _health(rng: Random, count: int) -> tuple[Health, ...]:
    if rng.random() < 0.06:
        return (Health((rng.randrange(count),), rng.choice(("Alarm", "Warning"))),)
    return ()


def _log(rng: Random) -> LogStyle:
    return LogStyle(
        pipeline=rng.choice(("Wan22Pipeline", "Magi2Pipeline")),
        diffuse_stage=rng.choice(("diffuse", "diffuse", "sampler.diffuse")),
        per_step=rng.random() < 0.15,
        progress_bar=rng.random() < 0.9,
        iterations_minus_one=rng.random() < 0.1,
        worker_tag=rng.choice(("degrees", "degrees", "fs")),
        ansi=rng.random() < 0.7,
        interleave_every=rng.choice((0, 17, 40)),
    )


def form_trouble(rng: Random, forms: Sequence[Split]) -> tuple[Fault, ...]:
    """Silent no-ops, forms that do not run, lost responses, one slow request."""
    found: list[Fault] = []
    form = rng.choice(forms)
    kind = rng.random()
    if kind < 0.10:
        others = [other.name for other in forms if degrees(other) != degrees(form)]
        found.append(Fault("not_applied", form=form.name, applied=rng.choice(others or ["tp1-usp1"])))
    elif kind < 0.17:
        found.append(Fault(rng.choice(("crash", "oom", "comm_init")), where="load", form=form.name))
    if rng.random() < 0.15:
        found.append(Fault("lost_response", form=rng.choice(forms).name, request=rng.randrange(1, 10)))
    if rng.random() < 0.05:
        slow = rng.uniform(1.02, 1.5)
        found.append(Fault("slow", form=form.name, form_session=1, request=rng.randrange(4, 10), factor=slow))
    return tuple(found)


def missing_padding(dit: DiT, forms: Sequence[Split]) -> tuple[Fault, ...]:
    """What happens where the engine does not pad the sequence: the first request of a form that would need it fails."""
    text = "RuntimeError: shape '[{degree}, -1]' is invalid for input of size {tokens}"
    return tuple(
        Fault("crash", form=form.name, request=1, text=text.format(degree=degree, tokens=dit.sequence_tokens))
        for form in forms
        if dit.sequence_tokens % (degree := form.sequence_degree)
    )


def degrees(form: Split) -> tuple[int, ...]:
    """The split alone: forms that differ in features only have the same."""
    return form.tp, form.usp, form.ring, form.ag, form.pp, form.cfg
