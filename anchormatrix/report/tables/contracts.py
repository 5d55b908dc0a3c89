"""Tables of contracts: what they fix, where they differ, and every version ever entered."""

from __future__ import annotations

from anchormatrix.records.contract import ChangedFact
from anchormatrix.report.model import Report, fixed_facts, words_of
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import group, minute


def shared_facts(report: Report) -> Table:
    """Facts that all current contracts have in common."""
    return Table(("fact", "value"), tuple(_shared(report)), empty="There is no current contract.")


def own_facts(report: Report) -> Table:
    """One row per current contract: its group, and the facts that differ between contracts."""
    common = {name for name, _ in _shared(report)}
    others = dict.fromkeys(
        name for measured in report.measured for name, _ in fixed_facts(measured.contract) if name not in common
    )
    rows = []
    for measured in report.measured:
        contract, facts = measured.contract, dict(fixed_facts(measured.contract))
        domains = "one domain" if contract.one_domain else "crosses domains"
        where = (
            contract.id,
            str(contract.version),
            group(contract.cards),
            contract.link_class,
            domains,
            contract.reason,
        )
        rows.append((*where, *(facts.get(name, "") for name in others)))
    columns = ("contract", "version", "cards", "links", "domains", "why this group", *others)
    return Table(columns, tuple(rows), empty=report.contracts.missing or "There is no current contract.")


def _shared(report: Report) -> list[tuple[str, str]]:
    sets = [set(fixed_facts(measured.contract)) for measured in report.measured]
    if not sets:
        return []
    common = set.intersection(*sets)
    return [fact for fact in fixed_facts(report.measured[0].contract) if fact in common]


def history(report: Report) -> Table:
    """Every contract version ever entered, newest first; current ones say so."""
    states = {measured.contract.id: "current" for measured in report.measured}
    states |= {measured.contract.id: "rejected by its smoke" for measured in report.rejected}
    rows = tuple(
        (
            minute(entry.when),
            entry.id,
            f"v{entry.version}",
            group(entry.cards),
            states.get(entry.id, "retired"),
            "\n".join(map(_change_words, entry.changed)) or "first version",
            entry.why,
        )
        for entry in reversed(report.ledger)
    )
    columns = ("when", "contract", "version", "cards", "state", "what changed", "why")
    return Table(columns, rows, empty="The ledger of contracts is empty or missing.")


def _change_words(change: ChangedFact) -> str:
    return f"{change.field}: {words_of(change.before)} → {words_of(change.after)}"
