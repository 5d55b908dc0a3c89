"""The contents of result files, and the facts taken from them. Anything else raises :class:`InputError`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anchormatrix.errors import ConfigError, InputError
from anchormatrix.records.form import parse_form
from anchormatrix.records.host import Topology
from anchormatrix.records.settings import ANCHOR
from anchormatrix.report import facts
from anchormatrix.report.source import Fields, clean_text, plain

_CONTRACT_ID = re.compile(r"c\d+-[0-9a-f]{4,64}")
_NOT_FACTS = {
    "id",
    "size",
    "version",
    "rank",
    "reason",
    "cards",
    "links",
    "link_class",
    "one_domain",
    "schema",
    "host",
    "state",
}


def _safe_form(name: str) -> str:
    try:
        return parse_form(name).name
    except ConfigError as error:
        raise InputError(f"form {clean_text(name)[:40]!r} is not a form", expected=error.expected) from None


def topology_from(fields: Fields) -> Topology:
    """``topology.json``."""
    links = fields.items("links")
    if any(not isinstance(row, list) for row in links):
        raise InputError("links is not a list of rows", where="topology")
    return Topology(fields.integers("cards"), tuple(tuple(str(link) for link in row) for row in links))


def cards_from(fields: Fields) -> tuple[tuple[facts.CardState, ...], tuple[tuple[str, str], ...]]:
    """``health.json``: the cards, and the versions read with them."""
    cards = tuple(
        facts.CardState(
            id=card.integer("id"),
            name=card.text("name", ""),
            health=card.text("health", "not stated"),
            used_mb=card.maybe("hbm_used_mb") or 0,
            total_mb=card.maybe("hbm_total_mb") or 0,
            temperature_c=card.maybe("temperature_c"),
            foreign=tuple(
                _process(process) for process in card.children("processes") if process.flag("foreign", default=True)
            ),
        )
        for card in fields.children("cards")
    )
    return cards, _pairs(fields.child("versions").values)


def _process(process: Fields) -> str:
    name = process.text("name", "") or "unnamed"
    return f"{name} (pid {process.integer('pid')}, {process.maybe('memory_mb') or 0:g} MB)"


def contracts_from(fields: Fields) -> facts.Contracts:
    """``contracts.json``."""
    return facts.Contracts(
        current=tuple(_contract(entry) for entry in fields.children("contracts")),
        rejected=tuple(
            facts.Refusal(entry.integers("cards"), entry.integer("size", 0), entry.text("reason", "no reason given"))
            for entry in fields.children("rejected")
        ),
        unavailable=tuple(
            facts.Refusal((), entry.integer("size"), entry.text("reason", "no reason given"))
            for entry in fields.children("unavailable")
        ),
    )


def _contract(entry: Fields) -> facts.ContractFacts:
    identity = entry.text("id")
    if not _CONTRACT_ID.fullmatch(identity):
        raise InputError(f"{identity[:40]!r} is not a contract id", where="contracts", expected="c<cards>-<hex>")
    cards = entry.integers("cards")
    fixed = {key: value for key, value in entry.values.items() if key not in _NOT_FACTS}
    return facts.ContractFacts(
        id=identity,
        size=entry.integer("size", len(cards)),
        version=entry.integer("version", 1),
        rank=entry.integer("rank", 0),
        cards=cards,
        link_class=entry.text("link_class", "not stated"),
        one_domain=entry.flag("one_domain", default=True),
        reason=entry.text("reason", ""),
        facts=_pairs(fixed),
    )


def ledger_entry_from(entry: Fields) -> facts.LedgerEntry:
    """One line of ``contracts.jsonl``."""
    return facts.LedgerEntry(
        id=entry.text("id"),
        size=entry.integer("size"),
        version=entry.integer("version"),
        cards=entry.integers("cards"),
        changed=tuple(
            f"{change.text('field', '')}: {plain(change.values.get('before'))} → {plain(change.values.get('after'))}"
            for change in entry.children("changed")
        ),
        when=entry.text("when", ""),
        why=entry.text("why", ""),
    )


def smoke_from(fields: Fields) -> facts.SmokeResult:
    """``smoke.json``."""
    return facts.SmokeResult(
        status=fields.text("status"),
        findings=tuple(
            (finding.text("kind", "finding"), finding.text("text", "")) for finding in fields.children("findings")
        ),
        step_s=fields.maybe("step_s"),
        expected_s=fields.maybe("expected_s"),
        expected_source=fields.text("expected_source", ""),
        form=fields.text("form", ""),
        command=fields.texts("command"),
    )


CELL_COLUMNS = (
    "contract",
    "form",
    "tier",
    "window",
    "repeats",
    "step_s",
    "dispersion_pct",
    "usable",
    "reason",
    "values_s",
)


def cell_from(row: Fields) -> facts.Cell:
    """One row of ``cells.csv``."""
    values = [part for part in row.text("values_s", "").split(";") if part]
    return facts.Cell(
        contract=row.text("contract"),
        form=_safe_form(row.text("form")),
        tier=row.text("tier"),
        window=row.text("window"),
        repeats=row.integer("repeats"),
        step_s=row.maybe("step_s"),
        dispersion_pct=row.maybe("dispersion_pct"),
        usable=row.flag("usable"),
        reason=row.text("reason", ""),
        values_s=tuple(Fields({"values_s": part}).number("values_s") for part in values),
    )


def verdict_from(fields: Fields) -> facts.Verdict:
    """``verdict.json``."""
    return facts.Verdict(
        status=fields.text("status"),
        reason=fields.text("reason", ""),
        cure=fields.text("cure", ""),
        ratio=fields.numbers("r"),
        order_few=_order(fields, "order_few"),
        order_anchor=_order(fields, "order_anchor"),
        ties=_ties(fields),
        winner=fields.text("winner", "") or None,
        tied_with=fields.texts("tied_with"),
        winner_tier=fields.text("winner_tier", ANCHOR),
        margin_pct=fields.maybe("margin_pct"),
        drifts=tuple(
            facts.Drift(drift.text("form"), drift.text("tier"), drift.number("drift_pct"), drift.flag("exceeds"))
            for drift in fields.children("window_drift")
            if "drift_pct" in drift
        ),
        stands=fields.flag("conclusion_stands") if "conclusion_stands" in fields else None,
        did_not_run=tuple(
            (_safe_form(entry.text("form")), entry.text("reason", "")) for entry in fields.children("did_not_run")
        ),
        missing=fields.texts("missing"),
    )


def _order(fields: Fields, key: str) -> tuple[tuple[str, ...], ...]:
    found = []
    for tied in fields.items(key):
        found.append(tuple(str(form) for form in tied) if isinstance(tied, list) else (str(tied),))
    return tuple(found)


def _ties(fields: Fields) -> tuple[tuple[str, str, float], ...]:
    found = []
    for tie in fields.items("ties"):
        if not isinstance(tie, list) or len(tie) != 3 or not isinstance(tie[2], (int, float)):
            raise InputError("ties holds an unexpected entry", expected="[form, form, floor in percent]")
        found.append((str(tie[0]), str(tie[1]), float(tie[2])))
    return tuple(found)


def gates_from(fields: Fields) -> facts.Gates:
    """``gates.json``."""
    return facts.Gates(
        gates=tuple(
            facts.Gate(
                form=gate.text("form"),
                gate=gate.text("gate"),
                name=gate.text("name", ""),
                status=gate.text("status", "unknown"),
                text=gate.text("text", ""),
                source=gate.text("source", ""),
            )
            for gate in fields.children("gates")
        ),
        unexplained=fields.texts("unexplained"),
        projections=fields.texts("projections"),
    )


def sweep_from(fields: Fields) -> tuple[facts.SweepRow, ...]:
    """``bandwidth/<contract>.json``."""
    return tuple(
        facts.SweepRow(
            collective=point.text("collective"),
            link_class=point.text("link_class", ""),
            size_bytes=point.number("bytes"),
            concurrency=point.integer("concurrency", 1),
            time_us=point.number("time_us"),
            gb_s=point.number("gb_s"),
        )
        for point in fields.children("points")
    )


def choices_from(fields: Fields) -> facts.Choices:
    """``decision.json``."""
    sizes = fields.child("sizes")
    found = [_choice(sizes.child(size)) for size in sizes.values]
    return facts.Choices(
        by_contract={choice.contract: choice for choice in found},
        triggers=tuple(
            facts.Trigger(
                trigger.text("trigger", ""),
                trigger.flag("fired"),
                trigger.text("text", ""),
                trigger.flag("evaluated", True),
            )
            for trigger in fields.children("reverify_triggers")
        ),
        scaling=fields.texts("scaling"),
    )


def _choice(entry: Fields) -> facts.Choice:
    return facts.Choice(
        contract=entry.text("contract"),
        size=entry.integer("size"),
        outcome=entry.text("outcome", ""),
        winner=entry.text("winner", "") or None,
        runner_up=entry.text("runner_up", "") or None,
        margin_pct=entry.maybe("margin_pct"),
        basis=entry.text("basis", ""),
        sentence=entry.text("sentence", ""),
        conditions=entry.texts("conditions"),
        unknowns=entry.texts("unknowns"),
        reversal=entry.texts("reversal"),
        confidence=entry.text("confidence", ""),
    )


def rerun_from(entry: Fields) -> facts.Rerun:
    """One line of ``reruns.jsonl``."""
    before, after = entry.child("before"), entry.child("after")
    return facts.Rerun(
        when=entry.text("when", ""),
        contract=entry.text("contract"),
        form=entry.text("form"),
        tier=entry.text("tier"),
        before_s=before.maybe("step_s"),
        before_dispersion_pct=before.maybe("dispersion_pct"),
        after_s=after.maybe("step_s"),
        after_dispersion_pct=after.maybe("dispersion_pct"),
        changed=entry.texts("changed"),
    )


def _pairs(values: Mapping[str, object], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Nested facts as flat name–value pairs, names dotted."""
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.extend(_pairs(value, f"{prefix}{key}."))
        else:
            found.append((f"{prefix}{key}", plain(value) or "none"))
    return tuple(found)
