"""The history for other programs, and kept small: CSV, Parquet, pruning."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchormatrix.history.store import History
from anchormatrix.store.files import replacing

COLUMNS = (
    "night", "contract", "size", "version", "form", "tier", "window", "generation", "status", "reason", "started_at",
    "finished_at", "duration_s", "step_s", "dispersion_pct", "values_s", "health", "temperature_c", "tenants", "load",
    "versions",
)  # fmt: skip
_BATCH = 50_000
_QUERY = (
    "SELECT x.night, x.contract, k.size, k.version, x.form, s.tier, x.window, x.generation, x.status, x.reason,"
    " x.started_at, x.finished_at, x.duration_s, c.step_s, c.dispersion_pct, c.values_s, x.health, x.temperature_c,"
    " x.tenants, x.load, x.versions FROM sessions x LEFT JOIN contracts k ON k.id = x.contract"
    " LEFT JOIN cells c ON c.session = x.id LEFT JOIN series s ON s.id = c.series ORDER BY x.started_at, x.id, s.tier"
)


def export_csv(history: History, path: Path) -> int:
    """Write one row per session and tier (one without a tier for a session without numbers); returns the rows."""
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for batch in _batches(history):
            writer.writerows(batch)
            count += len(batch)
    return count


def export_parquet(history: History, path: Path) -> int:
    """The same rows as Parquet, in batches: memory stays small for any history."""
    import pyarrow as pa  # noqa: PLC0415  heavy, and only this command needs it
    import pyarrow.parquet as pq  # noqa: PLC0415

    numbers = {"size", "version", "window", "generation", "tenants"}
    reals = {"duration_s", "step_s", "dispersion_pct", "temperature_c", "load"}
    kinds = {True: pa.int64(), False: pa.string()}
    schema = pa.schema([(name, pa.float64() if name in reals else kinds[name in numbers]) for name in COLUMNS])
    count = 0
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for batch in _batches(history):
            columns = zip(*batch, strict=True)
            writer.write_table(
                pa.table(
                    [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
                )
            )
            count += len(batch)
    return count


def prune(history: History, keep_nights: int) -> int:
    """Forget all but the last ``keep_nights`` nights; returns how many sessions went. Contracts stay known."""
    kept = history.connection.execute(
        "SELECT DISTINCT night FROM sessions ORDER BY night DESC LIMIT 1 OFFSET ?", (keep_nights - 1,)
    ).fetchone()
    if kept is None:
        return 0
    with history.transaction() as connection:
        gone = connection.execute("DELETE FROM sessions WHERE night < ?", kept).rowcount
        connection.execute("DELETE FROM nights WHERE night < ?", kept)
        connection.execute("DELETE FROM series WHERE id NOT IN (SELECT DISTINCT series FROM cells)")
    return int(gone)


def compact(history: History) -> None:
    """Give the space of pruned rows back to the disk."""
    history.connection.execute("VACUUM")


def _batches(history: History) -> Iterator[list[tuple[Any, ...]]]:
    cursor = history.connection.execute(_QUERY)
    while batch := cursor.fetchmany(_BATCH):
        yield batch
