"""The rate at which each algorithm would join, and what it would do with its memory: one function each.

How an operator divides its memory is its own `plan`. The models of the published algorithms lie beside them (MeshCost, RMeshCost,
HybridCost); this file asks them all the same question. INL has no model in the papers: ours is here. Those of SSIJ and
AdaptiveJoin are in `ssij_model` and `adaptive_model`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, inf

from headrace.cost.adaptive_model import adaptive
from headrace.cost.facts import Facts
from headrace.cost.index_reads import IndexReads, index_why
from headrace.cost.prediction import Prediction, Work, refused
from headrace.cost.ssij_model import ssij
from headrace.errors import BadInput, choice
from headrace.metrics import Overhead
from headrace.semistream import AMeshJoin, HybridJoin, IndexNestedLoop, MeshJoin, RMeshJoin, XHybridJoin
from headrace.semistream.hybrid.hybrid_cost import HybridCost
from headrace.semistream.mesh.mesh_cost import MeshCost
from headrace.units import format_size

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
    return MeshCost.of(facts.plan_facts(algorithm))


def _mesh_family(name: str, operator: type[MeshJoin | AMeshJoin | RMeshJoin]) -> Model:
    def model(facts: Facts, memory: int) -> Prediction:
        told = facts.plan_facts(name)
        plan, plain = operator.plan(told, memory), operator.cost_model(replace(told, overhead=Overhead()))
        if memory < plan.output.least:
            return refused(name, memory, f"its buffers need {format_size(plan.output.least)} or more")
        if plan.w < 1:
            return refused(name, memory, "not one tuple a packet has room beside the disk buffer")
        w, b, packets, cost = plan.w, plan.b, plan.packets, plan.cost
        scan, reads = cost.loop(0, b) * packets, cost.reads_an_iteration(b)
        read = reads * plain.seek + cost.pages_an_iteration(b) * plain.transfer
        work = Work(read / w, (plain.loop(w, b) - read) / w, 1 / w, reads / w)
        rate = w / cost.loop(w, b)
        why = f"a scan of R takes {scan:.3g} s and serves {plan.tuples:,} tuples"
        if facts.batch_rows is not None:
            scans = ceil(facts.batch_rows / plan.tuples)
            tuples = facts.batch_rows * (cost.stream + cost.matches * cost.output)
            rate = facts.batch_rows / (scans * scan + tuples)
            why = f"a batch takes {'a scan' if scans == 1 else f'{scans} scans'} of R, {scan:.3g} s each"
        return Prediction(name, memory, rate, parameters={"w": w, "b": b}, parts=plan.parts, why=why, work=work)

    return model


# -- one index probe a tuple: [MESH] §5.1 --------------------------------------------------------------------------------


def _inl(facts: Facts, memory: int) -> Prediction:
    """INL with a pool that forgets the least recently used page; each miss is a request of its own."""
    f, (seek, transfer) = facts.machine.factors, facts.costs()
    plan = IndexNestedLoop.plan(facts.plan_facts("inl"), memory)
    if memory < plan.least:
        return refused("inl", memory, f"index, one page and buffers need {format_size(plan.least)}")
    hits = facts.page_popularity.lru(plan.frames)
    misses = facts.pages_per_key * (1 - hits)
    together = min(plan.rows, facts.batch_rows or plan.rows)
    index = IndexReads.of(facts, plan.index, together).each(together)
    each = Work(
        misses * (seek + transfer) + index.seconds,
        f.c_S + f.c_X + facts.matches * f.c_O,
        1 / plan.rows,
        misses + index.runs,
        index.pages,
    )
    seconds = each.seconds(facts.machine.overhead("inl"))
    why = f"{hits:.0%} of page accesses hit the pool; a miss takes {1e3 * (seek + transfer):.3g} ms"
    why += index_why(plan.index, index.pages)
    return Prediction("inl", memory, 1 / seconds, parameters={}, parts=plan.parts, why=why, work=each)


# -- HYBRIDJOIN and X-HYBRIDJOIN: [XHJ] §4.3, §6 -----------------------------------------------------------------------


def hybrid_cost(facts: Facts, algorithm: str = "xhybridjoin") -> HybridCost:
    """The model of both for these facts."""
    return HybridCost.of(facts.plan_facts(algorithm))


def _hybrid_family(name: str, operator: type[HybridJoin | XHybridJoin]) -> Model:
    def model(facts: Facts, memory: int) -> Prediction:
        if operator.unique_keys and not facts.unique:
            return refused(name, memory, "it needs unique keys, and some of the relation's repeat")
        if operator.needs_popularity and not facts.ordered:
            return refused(name, memory, "it needs a relation stored by popularity (order='frequency')")
        told = facts.plan_facts(name)
        plan = operator.plan(told, memory)
        plain = HybridCost.of(replace(told, overhead=Overhead()), plan.index.reads)
        if memory < plan.output.least:
            return refused(name, memory, f"its buffers need {format_size(plan.output.least)} or more")
        if plan.h_S < 1:
            return refused(name, memory, "not one tuple has room beside the disk buffer")
        k, l, h_S, cost = plan.k, plan.l, plan.h_S, plan.cost
        w = cost.w(h_S, k, l)
        load = cost.loop(0, k, l)
        loads = 1 / w + _absent_loads(facts)
        read = plain.index + plain.seek + k * plain.transfer
        steps = loads * (plain.loop(0, k, l) - read) + plain.stream + plain.output
        index = loads * plan.index.reads
        work = Work(loads * read, steps, loads, loads + index, index)
        rate = 1 / work.seconds(facts.machine.overhead(name))
        why = f"a load takes {1e3 * load:.3g} ms and serves {w:,.1f} of {h_S:,} tuples in wait"
        why += index_why(plan.index, index)
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
        sizes = {"k": k, "l": l} if operator.needs_popularity else {"k": k}
        return Prediction(name, memory, rate, parameters=sizes, parts=plan.parts, why=why, work=work)

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
    "xhybridjoin": _hybrid_family("xhybridjoin", XHybridJoin),
    "hybridjoin": _hybrid_family("hybridjoin", HybridJoin),
    "meshjoin": _mesh_family("meshjoin", MeshJoin),
    "ameshjoin": _mesh_family("ameshjoin", AMeshJoin),
    "rmeshjoin": _mesh_family("rmeshjoin", RMeshJoin),
    "inl": _inl,
}
