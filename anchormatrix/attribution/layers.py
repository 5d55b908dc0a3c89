"""The place of collectives in a layer: which part each serves, and which one carries an attention kernel's own input.

The names of collectives do not say it, so it is counted: each layer makes the same calls in the same order. A count
that does not divide is refused, never rounded. With chunked masking there are two orders, and only the times tell them:

* ``blocked``: all forward calls of the layer, then all reverse ones;
* ``pipelined``: the forward calls of chunk g+1 go out before the reverse calls of chunk g.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from anchormatrix.attribution.collectives import Group
from anchormatrix.attribution.device.times import compute_mask
from anchormatrix.errors import InputError

ATTENTION = r"flash_?att|attention|flash_fwd|fmha|sdpa"
BLOCKED, PIPELINED = ORDERS = ("blocked", "pipelined")
_COINCIDE_NS = 10_000

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention kernels of one rank's step, in order of start."""

    start: Int64s
    end: Int64s


@dataclass(frozen=True, eq=False)
class Parts:
    """Which calls of a group are forward, or why that is not known; ``order`` where chunks make it matter."""

    forward: Bools | None
    order: str = ""
    refused: str = ""


def attention_of(kernels: pd.DataFrame, name: str | None = None) -> Attention:
    """Return the compute kernels whose name contains ``name`` (as text), or looks like attention by default."""
    # A big capture has a name per call: matched as one column, a hundred thousand of them cost next to nothing.
    labels = pa.array(kernels["name"].cat.categories, pa.string())
    if name is None:
        wanted = np.asarray(pc.match_substring_regex(labels, ATTENTION, ignore_case=True))
    else:
        wanted = np.asarray(pc.match_substring(labels, name, ignore_case=True))
    mask = wanted[kernels["name"].cat.codes.to_numpy()] if len(labels) else np.zeros(len(kernels), dtype=bool)
    rows = kernels[mask & compute_mask(kernels)]
    start = rows["start_ns"].to_numpy()
    return Attention(start, start + rows["dur_ns"].to_numpy())


def split_forward(
    group: Group, attention: Attention, resumed: Int64s, *, forward: int, layers: int, order: str = "auto"
) -> Parts:
    """Return which calls are forward when each layer's calls begin with ``forward`` forward ones (over all its chunks).

    ``layers`` is the number of layers *run* in the step (twice the model's when one rank computes both guidance
    branches). The chunks are counted from the attention kernels. ``resumed``: when the compute stream went on after
    each of its gaps. ``order`` is ``blocked``, ``pipelined`` or ``auto``, which decides only when the times show more
    dependencies of one order than of the other.
    """
    calls = len(group.start)
    if calls % layers:
        return Parts(None, refused=f"{group.label}: {calls} calls do not divide by {layers} layers, so no split")
    per_layer = calls // layers
    if not 0 < forward < per_layer:
        return Parts(
            None, refused=f"{group.label}: {per_layer} calls per layer cannot begin with {forward} forward ones"
        )
    chunks = len(attention.start) // layers if len(attention.start) % layers == 0 else 0
    if chunks < 2 or forward % chunks or (per_layer - forward) % chunks:
        return Parts(np.tile(np.arange(per_layer) < forward, layers), BLOCKED)
    patterns = {name: _pattern(name, chunks, forward // chunks, (per_layer - forward) // chunks) for name in ORDERS}
    if order != "auto":
        return Parts(np.tile(patterns[order], layers), order)
    scores = {
        name: _agreement(np.tile(pattern, layers), group, attention, resumed) for name, pattern in patterns.items()
    }
    best = max(ORDERS, key=lambda name: scores[name])
    if scores[BLOCKED] == scores[PIPELINED] or scores[best] < 0:
        text = (
            f"{group.label}: the times do not tell a blocked from a pipelined issue order; say which with --issue-order"
        )
        return Parts(None, refused=text)
    return Parts(np.tile(patterns[best], layers), best)


def _pattern(order: str, chunks: int, forward: int, reverse: int) -> Bools:
    if order == BLOCKED:
        return np.arange(chunks * (forward + reverse)) < chunks * forward
    calls = [True] * forward
    for chunk in range(chunks):
        calls += [True] * forward * (chunk + 1 < chunks) + [False] * reverse
    return np.asarray(calls)


def _agreement(forward: Bools, group: Group, attention: Attention, resumed: Int64s) -> int:
    """Return how often a dependency shows under an order; −1 when the order contradicts the times.

    An attention kernel cannot start before its own forward calls end, nor a reverse call before its attention ends. A
    dependency shows where the compute stream goes on just as a chunk's last forward call ends, or a reverse call that
    had not been waiting for its turn starts just as its attention ends.
    """
    ready, back = _last_of_each(forward, len(attention.start)), _first_of_each(~forward, len(attention.start))
    wait = attention.start - group.end[ready]
    freed = group.start[back] - attention.end
    if (wait < 0).any() or (freed < 0).any():
        return -1
    # A call that was issued long before would have started with the end of the one before it.
    queued = group.start[back] - group.end[back - 1] <= _COINCIDE_NS
    return int(((freed <= _COINCIDE_NS) & ~queued).sum() + _coincide(group.end[ready], resumed).sum())


def _coincide(ends: Int64s, resumed: Int64s) -> Bools:
    """Return at which of the ends something resumed within the tolerance after it; ``resumed`` ascending."""
    if not len(resumed):
        return np.zeros(len(ends), dtype=bool)
    index = np.searchsorted(resumed, ends)
    return (index < len(resumed)) & (resumed[np.minimum(index, len(resumed) - 1)] - ends <= _COINCIDE_NS)


def _last_of_each(mask: Bools, pieces: int) -> Int64s:
    positions = np.flatnonzero(mask)
    return positions.reshape(pieces, -1)[:, -1]


def _first_of_each(mask: Bools, pieces: int) -> Int64s:
    positions = np.flatnonzero(mask)
    return positions.reshape(pieces, -1)[:, 0]


def producer_lags(group: Group, attention: Attention, forward: Bools | None) -> Int64s:
    """Return attention start − end of the collective that carries its own input, where an attention kernel has one.

    With a known split the k-th attention kernel's input is the last of the k-th equal share of the forward calls.
    Without one the calls are shared out evenly, and within each share those that ended before the attention started
    are its input; that is only accepted when it is the same number everywhere and the other calls start after it. In a
    ring the first turn works on local data, so turn t waits for call t − 1. Raises :class:`InputError` otherwise.
    """
    calls, kernels = len(group.start), len(attention.start)
    if forward is not None and kernels and forward.sum() and int(forward.sum()) % kernels == 0:
        return attention.start - group.end[_last_of_each(forward, kernels)]
    if kernels and calls and forward is None:
        if calls % kernels == 0:
            return _observed_lags(group, attention, calls // kernels)
        if calls < kernels and kernels % (kernels - calls) == 0:
            layers = kernels - calls
            return (attention.start.reshape(layers, -1)[:, 1:] - group.end.reshape(layers, -1)).ravel()
    raise InputError(
        f"{group.label}: {calls} calls cannot be paired with {kernels} attention kernels", where="producer and consumer"
    )


def _observed_lags(group: Group, attention: Attention, share: int) -> Int64s:
    end, start = group.end.reshape(-1, share), group.start.reshape(-1, share)
    arrived = end <= attention.start[:, None]
    count = arrived.sum(axis=1)
    later = np.where(arrived, True, start >= attention.end[:, None])
    if count.min() == 0 or count.min() != count.max() or not later.all():
        raise InputError(
            f"{group.label}: the calls before each attention kernel are not the same in every layer",
            where="producer and consumer",
            todo="give the layers and the number of forward calls per layer (--layers, --group-split)",
        )
    return attention.start - end[:, count[0] - 1]
