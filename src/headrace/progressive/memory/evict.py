"""What leaves memory: the slots with a policy's lowest scores, written as segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.progressive.memory.side_memory import Side, take
from headrace.progressive.memory.spill import Spill
from headrace.progressive.policies.flush import FlushPolicy, Ledger, Resident
from headrace.relation.keys import Ints


def victims(policy: FlushPolicy, ledger: Ledger, sides: Sequence[Side], wanted: int) -> list[Ints]:
    """The slots that leave, of each side: so many, or more where partitions leave as a whole."""
    if policy.per_tuple:
        return _worst_tuples(policy, ledger, sides, wanted)
    scores, held = policy.scores(ledger), ledger.held
    if policy.pairs:
        scores, held = scores.min(axis=0, keepdims=True), held.sum(axis=0, keepdims=True)
    size = held.reshape(-1)
    there = np.flatnonzero(size)
    order = there[np.argsort(scores.reshape(-1)[there], kind="stable")]
    last = int(np.searchsorted(np.cumsum(size[order]), wanted))
    go = np.zeros(held.shape, np.bool_)
    go.reshape(-1)[order[: last + 1]] = True
    spare = 0 if policy.whole or policy.pairs else int(size[order[: last + 1]].sum()) - wanted
    number, partition = divmod(int(order[last]), held.shape[1])
    out = []
    for side in sides:
        mine = go[0 if policy.pairs else side.number]
        slots = side.of(mine, int(ledger.held[side.number][mine].sum()))
        if spare and number == side.number:
            # Of the last partition only the oldest leave, as many as were asked for.
            part = np.flatnonzero(side.partition[slots] == partition)
            by_age = part[np.argsort(side.arrived[slots[part]], kind="stable")]
            slots = np.delete(slots, by_age[part.size - spare :])
        out.append(slots)
    return out


def _worst_tuples(policy: FlushPolicy, ledger: Ledger, sides: Sequence[Side], wanted: int) -> list[Ints]:
    slots = [side.live() for side in sides]
    scores, arrived = [], []
    for side, mine in zip(sides, slots, strict=True):
        resident = Resident(side.partition[mine], side.cell[mine], side.arrived[mine], side.results[mine])
        scores.append(policy.tuple_scores(ledger, side.number, resident))
        arrived.append(resident.arrived)
    go = np.zeros(sum(mine.size for mine in slots), np.bool_)
    go[np.lexsort([np.concatenate(arrived), np.concatenate(scores)])[:wanted]] = True
    cuts = np.cumsum([mine.size for mine in slots])[:-1]
    return [mine[which] for mine, which in zip(slots, np.split(go, cuts), strict=True)]


def write(side: Side, spill: Spill, slots: Ints, stamp: int, room: int) -> None:
    """Segments of what leaves, partition by partition; as many rows at a time as fit the room."""
    slots = slots[np.argsort(side.partition[slots], kind="stable")]
    step = max(1, room // (2 * side.row_bytes + 16))
    for at in range(0, slots.size, step):
        some = slots[at : at + step]
        order = side.by_chunk(some)
        rows = take(side.rows(some[order]), np.argsort(order))  # they come by chunk and are wanted by partition
        partitions = side.partition[some]
        begins = np.flatnonzero(np.diff(partitions, prepend=-1))
        for first, last in zip(begins.tolist(), [*begins[1:].tolist(), some.size], strict=True):
            mine = some[first:last]
            part = rows.slice(first, last - first)
            spill.write(int(partitions[first]), part, side.arrived[mine], side.cell[mine], stamp)
