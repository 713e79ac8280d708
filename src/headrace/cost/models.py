"""The rate at which each algorithm would join, and what it would do with its memory: one function each.

The models of the published algorithms lie beside them (MeshCost, RMeshCost, HybridCost); this file asks them all the same
question. INL has none in the papers: its is here. Those of SSIJ and AdaptiveJoin are in `ssij_model` and `adaptive_model`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from math import ceil, inf

from headrace.cost.adaptive_model import adaptive
from headrace.cost.facts import Facts
from headrace.cost.prediction import LEAST_OUTPUT, Prediction, Work, output_bytes, refused
from headrace.cost.ssij_model import ssij
from headrace.errors import BadInput, choice
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.hybrid.hybrid_cost import HybridCost
from headrace.semistream.mesh.meshjoin import MeshCost
from headrace.semistream.mesh.rmeshjoin import PARTITIONS, RMeshCost
from headrace.semistream.waiting_join import LEAST_WINDOW
from headrace.units import format_size

# See semistream/inl.py: bytes a row and a frame, share of what is not pool
_INL_ROW, _INL_FRAME, _INL_WORK = 160, 44, 0.15
_MOST = 1 << 50  # bytes beyond which no answer is looked for


Model = Callable[[Facts, int], Prediction]


def predict(algorithm: str, facts: Facts, memory: int) -> Prediction:
    """The service rate of an algorithm within a memory, with the parameters it would choose.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.cost import Facts, predict
    >>> from headrace.relation import Disk
    >>> disk = Disk("simulated", seek=8e-3, transfer=1.5e-4)
    >>> rows = pa.table({"id": range(99_999), "v": range(99_999)})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/r", rows, key="id", disk=disk)
    >>> found = predict("meshjoin", Facts.of(rel), 1 << 20)
    >>> found.rate > 1000, sorted(found.parameters)
    (True, ['b', 'w'])
    """
    choice("algorithm", algorithm, MODELS)
    return MODELS[algorithm](facts, memory)


def sustains(algorithm: str, facts: Facts, memory: int, rate: float) -> bool:
    """Whether an algorithm keeps up with a rate within a memory."""
    return predict(algorithm, facts, memory).rate >= rate


def least_memory(algorithm: str, facts: Facts, rate: float) -> Prediction:
    """The least memory in which an algorithm keeps up with a rate: [MESH] §3.3, by bisection, to a thousandth.

    Raises BadInput if no memory would do.
    """
    if not 0 < rate < inf:
        raise BadInput(f"rate={rate!r} is not a number of tuples a second; give more than 0")
    low, high = 1, 1 << 16
    while (best := predict(algorithm, facts, high)).rate < rate:
        low, high = high, 2 * high
        if high > _MOST or high > 64 * (facts.pages * facts.page_bytes + facts.rows * 1000):
            raise BadInput(
                f"{algorithm} does not keep up with {rate:,.0f} tuples a second in any memory:"
                f" {best.why if best.rate == 0 else f'with {format_size(high // 2)} it reaches {best.rate:,.0f}'}"
            )
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        found = predict(algorithm, facts, middle)
        if found.rate >= rate:
            high, best = middle, found
        else:
            low = middle
    return best


# -- the MESHJOIN family: [MESH] §3.2, [XHJ] §2 --------------------------------------------------------------------------


def mesh_cost(facts: Facts, algorithm: str = "meshjoin") -> MeshCost:
    """The model of MESHJOIN for these facts: eq. 1-3 of [MESH]."""
    f, (seek, transfer) = facts.machine.factors, facts.costs(scan=True)
    cost = MeshCost(
        facts.pages,
        facts.rows_per_page,
        facts.page_bytes,
        facts.stream_bytes,
        facts.slot_bytes,
        POINTER_BYTES,
        seek,
        transfer,
        f.c_E + f.c_S + f.c_A,
        f.c_H,
        f.c_O,
        facts.matches,
    )
    return cost.with_overhead(facts.machine.overhead(algorithm))


def rmesh_cost(facts: Facts, algorithm: str = "rmeshjoin", partitions: int = PARTITIONS) -> RMeshCost:
    """The model of R-MESHJOIN."""
    step = ceil(facts.pages / min(partitions, facts.pages))
    base = mesh_cost(facts, algorithm)
    values = {name.name: getattr(base, name.name) for name in fields(MeshCost)}
    return RMeshCost(**values, partitions=ceil(facts.pages / step))


def _waiting_room(name: str, facts: Facts, memory: int, needed: float) -> tuple[int, int] | Prediction:
    """Bytes of output and for all else; or a refusal, if not even `needed` is there."""
    least = needed + LEAST_OUTPUT * (facts.tuple_bytes + 40) + facts.texts * facts.page_size
    if memory < least:
        return refused(name, memory, f"its buffers need {format_size(int(least))} or more")
    output = output_bytes(facts, memory, least)
    return output, memory - output


def _mesh_family(name: str, make: Callable[[Facts, str], MeshCost]) -> Model:
    def model(facts: Facts, memory: int) -> Prediction:
        needed = facts.page_bytes + LEAST_WINDOW * (facts.slot_bytes + POINTER_BYTES + 80)
        found = _waiting_room(name, facts, memory, needed)
        if isinstance(found, Prediction):
            return found
        output, room = found
        cost, plain = make(facts, name), make(facts.on(replace(facts.machine, overheads={})), name)
        b = cost.best_b(room)
        w = cost.w(room, b)
        if w < 1:
            return refused(name, memory, "not one tuple a packet has room beside the disk buffer")
        iterations = cost.partitions if isinstance(cost, RMeshCost) else ceil(facts.pages / b)
        parts = {
            "disk buffer": b * facts.page_bytes,
            "stream buffer": int(w * facts.stream_bytes),
            "hash table": int(w * iterations * facts.slot_bytes),
            "queue": w * iterations * POINTER_BYTES,
            "output": output,
        }
        scan = cost.loop(0, b) * iterations
        reads = cost.step / b if isinstance(cost, RMeshCost) else 1
        read = reads * plain.seek + (cost.step if isinstance(cost, RMeshCost) else b) * plain.transfer
        work = Work(read / w, (plain.loop(w, b) - read) / w, 1 / w, reads / w)
        rate = w / cost.loop(w, b)
        why = f"a scan of R takes {scan:.3g} s and serves {w * iterations:,} tuples"
        if facts.batch_rows is not None:
            scans = ceil(facts.batch_rows / (w * iterations))
            tuples = facts.batch_rows * (cost.stream + cost.matches * cost.output)
            rate = facts.batch_rows / (scans * scan + tuples)
            why = f"a batch takes {'a scan' if scans == 1 else f'{scans} scans'} of R, {scan:.3g} s each"
        return Prediction(name, memory, rate, {"w": w, "b": b}, parts, why, work)

    return model


# -- one index probe a tuple: [MESH] §5.1 --------------------------------------------------------------------------------


def _inl(facts: Facts, memory: int) -> Prediction:
    """Of the pages in a pool that forgets the least recently used; each miss is a request of its own."""
    f, (seek, transfer) = facts.machine.factors, facts.costs()
    row = 2 * facts.tuple_bytes + _INL_ROW
    least = facts.index_bytes + facts.page_size + 16 * row + facts.texts * facts.page_size
    if memory < least:
        return refused("inl", memory, f"index, one page and buffers need {format_size(int(least))}")
    rows = min(1 << 13, 16 + int(_INL_WORK * (memory - least) / row))
    work = int(rows * row) + facts.texts * facts.page_size
    frames = max(1, min(facts.pages, (memory - facts.index_bytes - work) // (facts.page_size + _INL_FRAME)))
    hits = facts.page_popularity.lru(frames)
    misses = facts.pages_per_key * (1 - hits)
    each = Work(misses * (seek + transfer), f.c_S + f.c_X + facts.matches * f.c_O, 1 / rows, misses)
    seconds = each.seconds(facts.machine.overhead("inl"))
    why = f"{hits:.0%} of page accesses hit the pool; a miss takes {1e3 * (seek + transfer):.3g} ms"
    parts = {"index": facts.index_bytes, "buffer pool": frames * facts.page_size, "output": work}
    return Prediction("inl", memory, 1 / seconds, {}, parts, why, each)


# -- HYBRIDJOIN and X-HYBRIDJOIN: [XHJ] §4.3, §6 -----------------------------------------------------------------------


def hybrid_cost(facts: Facts, algorithm: str = "xhybridjoin") -> HybridCost:
    """The model of both for these facts."""
    f, (seek, transfer) = facts.machine.factors, facts.costs()
    cost = HybridCost(
        facts.pages,
        facts.rows_per_page,
        facts.page_bytes,
        facts.slot_bytes,
        POINTER_BYTES,
        seek,
        transfer,
        f.c_E + f.c_S + f.c_A,
        f.c_H,
        (1 - facts.absent) * f.c_O,
        facts.skew,
        facts.ordered,
    )
    return cost.with_overhead(facts.machine.overhead(algorithm))


def _hybrid_family(name: str, *, popular: bool) -> Model:
    def model(facts: Facts, memory: int) -> Prediction:
        if not facts.unique:
            return refused(name, memory, "it needs unique keys, and some of the relation's repeat")
        if popular and not facts.ordered:
            return refused(name, memory, "it needs a relation stored by popularity (order='frequency')")
        needed = facts.index_bytes + facts.page_bytes + LEAST_WINDOW * (facts.slot_bytes + POINTER_BYTES + 80)
        found = _waiting_room(name, facts, memory, needed)
        if isinstance(found, Prediction):
            return found
        output, room = found[0], found[1] - facts.index_bytes
        cost, plain = hybrid_cost(facts, name), hybrid_cost(facts.on(replace(facts.machine, overheads={})), name)
        k, l = cost.best(room, l=None if popular else 0)
        h_S = cost.h_S(room, k, l)
        if h_S < 1:
            return refused(name, memory, "not one tuple has room beside the disk buffer")
        w = cost.w(h_S, k, l)
        load = cost.loop(0, k, l)
        loads = 1 / w + _absent_loads(facts)
        read = plain.seek + k * plain.transfer
        work = Work(loads * read, loads * (plain.loop(0, k, l) - read) + plain.stream + plain.output, loads, loads)
        rate = 1 / work.seconds(facts.machine.overhead(name))
        why = f"a load takes {1e3 * load:.3g} ms and serves {w:,.1f} of {h_S:,} tuples in wait"
        if facts.batch_rows is not None:
            n = min(facts.batch_rows, h_S)
            served = cost.p_N(l)
            partitions = facts.page_popularity.without_top(l if facts.ordered else 0).grouped(
                k, scattered=facts.scattered
            )
            loads = partitions.distinct(n * (1 - served)) + _absent_loads(facts) * n
            seconds = (facts.batch_rows - n) / rate + loads * load + n * (cost.stream + cost.output)
            rate = facts.batch_rows / seconds
            why = f"the last {n:,} tuples of a batch take {loads:,.0f} loads of {1e3 * load:.3g} ms"
        parts = {
            "index": facts.index_bytes,
            "disk buffer": (k + l) * facts.page_bytes,
            "hash table": int(h_S * facts.slot_bytes),
            "queue": h_S * POINTER_BYTES,
            "output": output,
        }
        return Prediction(name, memory, rate, {"k": k, "l": l} if popular else {"k": k}, parts, why, work)

    return model


def _absent_loads(facts: Facts) -> float:
    """Loads a stream tuple that find nothing for the tuple that caused them.

    A fence index leads an absent key to a page all the same; the dense index of a relation stored by popularity does not.
    """
    return 0.0 if facts.ordered else facts.absent


#: By the names of headrace.semistream.ALGORITHMS; of two that are as good, the first is chosen.
MODELS: dict[str, Model] = {
    "adaptive": adaptive,
    "ssij": ssij,
    "xhybridjoin": _hybrid_family("xhybridjoin", popular=True),
    "hybridjoin": _hybrid_family("hybridjoin", popular=False),
    "meshjoin": _mesh_family("meshjoin", mesh_cost),
    "ameshjoin": _mesh_family("ameshjoin", mesh_cost),
    "rmeshjoin": _mesh_family("rmeshjoin", rmesh_cost),
    "inl": _inl,
}
