"""The size sweep of a card group, run on its host by a configured collective test or by the torch micro-benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import resources

from anchormatrix.devices.base import Device
from anchormatrix.errors import HostError, InputError
from anchormatrix.hosts.base import Completed, Host
from anchormatrix.measure.bandwidth.plan import (
    SweepOrder,
    bench_order,
    can_be_run,
    parse_bench,
    parse_collective_test,
    points_of,
    test_argv,
)
from anchormatrix.measure.live_cards import read_fit
from anchormatrix.measure.room import require_not_full
from anchormatrix.records.bandwidth import SizeSweep, SweepPoint
from anchormatrix.records.contract import Contract
from anchormatrix.records.settings.values import DeviceKind, OnBusy
from anchormatrix.records.settings.whole import Settings

_BACKENDS = {
    DeviceKind.ASCEND: ("npu", "hccl"),
    DeviceKind.NVIDIA: ("cuda", "nccl"),
    DeviceKind.CPU: ("cpu", "gloo"),
}

Say = Callable[[str], None]


def sweep_argv(order: SweepOrder, settings: Settings) -> list[str]:
    """The command of one sweep. The micro-benchmark travels as text, so the host needs nothing of this project."""
    if settings.device.collective_test:
        return test_argv(settings.device.collective_test, order)
    device, backend = _BACKENDS[settings.device.kind]
    source = (
        resources.files("anchormatrix.measure.bandwidth").joinpath("collective_bench.py").read_text(encoding="utf-8")
    )
    return [*settings.engine.python, "-c", source, bench_order(order, device=device, backend=backend)]


def run_sweep(
    orders: Sequence[SweepOrder], contract: Contract, host: Host, device: Device, settings: Settings, say: Say
) -> SizeSweep:
    """Run every order under the group's lease.

    An order whose test fails is left out with its reason in ``source``. A sweep may be empty: one card has nobody to
    talk to, and an environment may have no test; the byte bound is then unknown, and nothing else is held up. Raises
    what :func:`read_fit` and the lease raise when the cards are not to be had.
    """
    test = settings.device.collective_test
    points: list[SweepPoint] = []
    left_out: list[str] = []
    wait_s = settings.health.busy_wait_s if settings.health.on_busy == OnBusy.WAIT else 0.0
    with host.lease(contract.cards, holder={"what": f"bandwidth of {contract.id}"}, wait_s=wait_s):
        read_fit(contract, host, device, settings, say)
        for order in orders:
            name = f"{order.collective} over {order.ranks} ranks ({order.link_class}), {order.concurrency} at once"
            if not can_be_run(test, order):
                left_out.append(f"{name}: the command has no {{concurrency}}")
                continue
            try:
                found = _run_one(order, host, device.visible_env(order.cards), settings)
            except (HostError, InputError) as error:
                say(f"{name}: {error}")
                require_not_full(host.alias, [str(error)])
                left_out.append(f"{name}: {error}")
                continue
            points += found
            say(f"{name}: {found[-1].gb_s:.1f} GB/s at {found[-1].bytes / 1e6:g} MB")
    tool = test[0] if test else f"torch.distributed in {' '.join(settings.engine.python)}"
    return SizeSweep(contract=contract.id, points=tuple(points), source="; ".join([tool, *left_out]))


def _run_one(order: SweepOrder, host: Host, visible: Mapping[str, str], settings: Settings) -> tuple[SweepPoint, ...]:
    argv = sweep_argv(order, settings)
    shown = argv[0] if settings.device.collective_test else "collective_bench.py"
    env = {**settings.engine.env, **visible}
    done = host.run(argv, env=env, timeout_s=settings.selection.bandwidth.timeout_s, check=False)
    if done.returncode:
        raise HostError(f"exit code {done.returncode}: {last_line(done)}", where=shown)
    parse = parse_collective_test if settings.device.collective_test else parse_bench
    return points_of(order, parse(done.stdout, command=shown))


def last_line(done: Completed) -> str:
    """What it said last; ranks print at once, so that the head of one's traceback may stand behind another's error."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Traceback (", "File "))] or lines
    return "".join(char if char.isprintable() else " " for char in lines[-1])[:200] if lines else "no output"
