"""The examination of a configured host: every check in order, none of which changes anything there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from anchormatrix.doctor import cards, machine, serving
from anchormatrix.doctor.lines import Line, Status, failed, not_checked, ok
from anchormatrix.doctor.visit import Visit
from anchormatrix.errors import AnchorMatrixError
from anchormatrix.hosts.open import open_host
from anchormatrix.records.settings.whole import Settings

Check = Callable[[Visit], Iterable[Line]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("clock", machine.clock),
    ("vendor tools", cards.vendor_tools),
    ("toolkit", cards.toolkit),
    ("cards", cards.health),
    ("tenants", cards.foreign_tenants),
    ("leases", cards.leases),
    ("engine", serving.engine),
    ("packages", serving.packages),
    ("model", serving.model),
    ("figures", serving.figures),
    ("memory", serving.memory),
    ("ports", machine.ports),
    ("disks", machine.disks),
)


def examine(settings: Settings) -> Iterator[Line]:
    """Look at everything a run will need: no server is started, no lease taken, nothing written to results.

    A check that cannot be made says why as a line of its own; the others go on.
    """
    try:
        host = open_host(settings.host)
        try:
            host.run(("true",), timeout_s=settings.host.command_timeout_s)
        except BaseException:
            host.close()
            raise
    except AnchorMatrixError as error:
        yield failed("reachable", error, "correct the section host")
        yield from (not_checked(topic, "the host was not reached") for topic, _ in CHECKS)
        return
    try:
        yield ok("reachable", f"{settings.host.alias}, {settings.host.kind}")
        visit = Visit(settings, host)
        for topic, check in CHECKS:
            yield from _checked(topic, check, visit)
    finally:
        host.close()


def _checked(topic: str, check: Check, visit: Visit) -> Iterator[Line]:
    try:
        yield from check(visit)
    except AnchorMatrixError as error:
        yield failed(topic, error, "see what it says")


def is_well(lines: Iterable[Line]) -> bool:
    """Whether nothing is wrong; what was not checked is no fault."""
    return not any(line.status is Status.WRONG for line in lines)
