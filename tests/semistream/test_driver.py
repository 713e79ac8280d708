"""The driver that knows time: a silent stream, deadlines, arrivals that change, and overload inside an operator."""

import asyncio
import threading
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.errors import BadInput
from headrace.relation import Disk
from headrace.semistream import (
    SSIJ,
    AdaptiveJoin,
    AMeshJoin,
    HybridJoin,
    IndexNestedLoop,
    MeshJoin,
    RMeshJoin,
    XHybridJoin,
)
from headrace.shedding import KeyFrequencies, Shedder
from tests.support.join_oracle import join, tuples

WAITING = [MeshJoin, AMeshJoin, RMeshJoin, HybridJoin, XHybridJoin, SSIJ, AdaptiveJoin]
N = 6_000


def relation_for(path, operator, disk, rows=N):
    """Keys 0 .. rows, some 100 bytes a tuple."""
    table = pa.table({"k": np.arange(rows), "v": np.arange(rows), **{f"p{i}": np.zeros(rows) for i in range(10)}})
    order = {}
    if operator.needs_popularity:
        order = {
            "order": "frequency",
            "frequencies": table.select(["k"]).append_column("frequency", pa.array(range(rows))),
        }
    return hr.Relation.create(path / operator.__name__, table, key="k", page_size="4KiB", disk=disk, **order)


def make(operator, relation, **options):
    more = {"order": "any", "whole": False} if operator is AdaptiveJoin else {}
    return operator(relation, on="k", memory="1MiB", columns=["v"], **more, **options)


def stream(keys) -> pa.RecordBatch:
    return pa.record_batch({"k": np.asarray(keys, np.int64)})


class Script:
    """A stream whose batches come at given times of a clock that moves when it is waited on."""

    def __init__(self, clock, *arrivals) -> None:
        self.clock, self.arrivals, self.ended = clock, list(arrivals), False
        self.silences = 0

    def poll(self, seconds):
        if not self.arrivals:
            self.ended = True
            return None
        when, batch = self.arrivals[0]
        if seconds is not None and self.clock.now() + seconds < when:
            self.clock.advance(seconds)
            self.silences += 1
            return None
        self.clock.advance(max(0.0, when - self.clock.now()))
        self.arrivals.pop(0)
        return batch


class Endless:
    """A stream that always has a batch, which takes a tenth of a millisecond to read; until a time, if one is given."""

    ended = False

    def __init__(self, clock, batch, until=np.inf) -> None:
        self.clock, self.batch, self.until, self.polls = clock, batch, until, 0

    def poll(self, seconds):
        self.polls += 1
        assert self.polls < 20_000, "it reads and never joins"
        self.clock.advance(1e-4)
        self.ended = self.clock.now() > self.until
        return None if self.ended else self.batch


def timed(op, source, **options):
    """Results with the time at which they came."""
    return [(op.clock.now(), row) for out in op.run(source, **options) for row in out.to_pylist()]


# -- a stream that is silent ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", WAITING)
def test_tuples_leave_when_the_stream_is_silent(tmp_path, operator):
    disk = Disk("simulated", seek=1e-3, transfer=1e-4, clock=ManualClock())
    op = make(operator, relation_for(tmp_path, operator, disk))
    keys = np.random.default_rng(1).integers(0, N, 40)
    source = Script(disk.clock, (0.0, stream(keys[:20])), (1000.0, stream(keys[20:])), (2000.0, stream([])))
    came = timed(op, source, idle="10s")
    assert Counter(row["k"] for _, row in came) == Counter(keys.tolist())
    for first, last, count in ((0, 1000, 20), (1000, 2000, 20)):
        assert sum(first <= when < last for when, _ in came) == count, "they waited for the next batch"
    op.stats.check()


@pytest.mark.parametrize("operator", [MeshJoin, SSIJ])
def test_without_idle_they_wait_for_the_next_batch(tmp_path, operator):
    disk = Disk("simulated", clock=ManualClock())
    op = make(operator, relation_for(tmp_path, operator, disk))
    source = Script(disk.clock, (0.0, stream([1, 2])), (1000.0, stream([3])))
    assert min(when for when, _ in timed(op, source)) >= 1000
    assert source.silences == 0


def test_a_source_that_blocks_is_read_by_a_thread(tmp_path):
    """The source goes on when it sees the results of its first batch, which nothing but time sends out."""
    seen = threading.Event()

    def source():
        yield stream([1, 2])
        assert seen.wait(60), "the join waits for the source, and the source for the join"
        yield stream([3])

    op = make(MeshJoin, relation_for(tmp_path, MeshJoin, Disk()))
    got = []
    for out in op.run(source(), idle="10ms"):
        got += out["k"].to_pylist()
        if sorted(got) == [1, 2]:
            seen.set()
    assert sorted(got) == [1, 2, 3]


def test_a_thread_reads_one_batch_ahead(tmp_path):
    """No budget counts what it has read: more would be memory that nobody expects."""
    op, far, batches = make(MeshJoin, relation_for(tmp_path, MeshJoin, Disk())), threading.Event(), 40

    def source():
        for number in range(batches):
            if (
                number - op.stats.batches > 3
            ):  # one in the queue, one in the thread's hands, one on its way into the join
                far.set()
            yield stream(np.arange(2000))

    rows = 0
    for out in op.run(source(), idle="10s"):
        if not rows:
            assert not far.wait(0.3)
        rows += out.num_rows
    assert rows == batches * 2000


def test_what_a_source_raises_is_raised_by_the_join_and_its_thread_ends(tmp_path):
    def source():
        yield stream([1])
        raise ConnectionError("gone")

    op = make(MeshJoin, relation_for(tmp_path, MeshJoin, Disk()))
    with pytest.raises(ConnectionError, match="gone"):
        list(op.run(source(), idle="1h"))

    def endless():
        while True:
            yield stream([1] * 100)

    before = {thread.ident for thread in threading.enumerate()}
    results = make(MeshJoin, relation_for(tmp_path / "e", MeshJoin, Disk())).run(endless(), idle="1h")
    next(results)
    (reader,) = [thread for thread in threading.enumerate() if thread.ident not in before]
    results.close()
    reader.join(60)
    assert not reader.is_alive()


@pytest.mark.parametrize("operator", [MeshJoin, AdaptiveJoin, IndexNestedLoop])
def test_a_stream_that_is_awaited(tmp_path, operator):
    async def run():
        seen = asyncio.Event()

        async def source():
            yield stream([1, 2])
            await asyncio.wait_for(seen.wait(), 60)
            yield stream([3])

        got = []
        async for out in make(operator, relation_for(tmp_path, operator, Disk())).run_async(source(), idle="10ms"):
            got += out["k"].to_pylist()
            if sorted(got) == [1, 2]:
                seen.set()
        return got

    assert sorted(asyncio.run(run())) == [1, 2, 3]


def test_an_awaited_stream_without_results_gives_one_empty_batch_and_none_gives_none(tmp_path):
    async def run(*batches):
        async def source():
            for batch in batches:
                yield batch

        op = make(MeshJoin, relation_for(tmp_path / str(len(batches)), MeshJoin, Disk()))
        return [out.num_rows async for out in op.run_async(source())]

    assert asyncio.run(run()) == []
    assert asyncio.run(run(stream([-1]))) == [0]


# -- deadlines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", WAITING)
def test_no_tuple_is_late_under_a_load_that_can_be_sustained(tmp_path, operator):
    """Batches at uneven times, and silences; without a deadline tuples would wait for the next, or for a full H."""
    disk = Disk("simulated", seek=1e-3, transfer=2e-5, clock=ManualClock())
    op = make(operator, relation_for(tmp_path, operator, disk))
    random = np.random.default_rng(5)
    times = np.cumsum(random.exponential(1.0, 60) + 30.0 * (random.random(60) < 0.1))
    batches = [stream(random.integers(0, N, 1 + int(random.exponential(20)))) for _ in times]
    source = Script(disk.clock, *zip(times.tolist(), batches, strict=True))
    came = timed(op, source, deadline="8s")
    assert Counter(row["k"] for _, row in came) == Counter(k for batch in batches for k in batch["k"].to_pylist())
    assert op.stats.late == 0
    assert op.deadline is None, "it is the run's"
    op.stats.check()


@pytest.mark.parametrize("operator", [MeshJoin, HybridJoin, AdaptiveJoin])
def test_tuples_that_are_late_are_counted_and_joined(tmp_path, operator):
    disk = Disk("simulated", seek=1.0, transfer=0.1, clock=ManualClock())
    op = make(operator, relation_for(tmp_path, operator, disk))
    assert len(list(timed(op, Script(disk.clock, (0.0, stream([1, 3000, 5000]))), deadline="10ms"))) == 3
    assert op.stats.late == 3


@pytest.mark.parametrize("operator", [MeshJoin, RMeshJoin, SSIJ, AdaptiveJoin])
def test_a_stream_that_is_always_there_keeps_no_tuple_beyond_its_deadline(tmp_path, operator):
    """No silence tells that a deadline is near, and a join that waits for a full step would make tuples late."""
    disk = Disk("simulated", seek=1e-4, transfer=1e-5, clock=ManualClock())
    op = make(operator, relation_for(tmp_path, operator, disk))
    source = Endless(disk.clock, stream([1, 2, N // 2]), until=0.4)
    rows = sum(out.num_rows for out in op.run(source, deadline="0.1s"))
    assert rows == op.stats.tuples_in > 1000
    assert op.stats.late == 0


def test_a_deadline_that_is_none_and_one_for_ordered_ssij_are_refused(tmp_path):
    relation = relation_for(tmp_path, SSIJ, Disk())
    with pytest.raises(BadInput, match="deadline='soon' is not a duration"):
        list(make(MeshJoin, relation).run([], deadline="soon"))
    with pytest.raises(BadInput, match="idle=-1 must be at least 0 seconds"):
        list(make(MeshJoin, relation).run([], idle=-1))
    with pytest.raises(BadInput, match="choose one"):
        list(make(SSIJ, relation, order="stream").run([], deadline="1s"))


# -- the arrival rate ----------------------------------------------------------------------------------------------------


def paced(clock, rate: float, seconds: float, each: float, random, keys: int = N):
    """A source that blocks: batches of `each` seconds at a rate."""
    begun = clock.now()
    for step in range(1, int(seconds / each) + 1):
        clock.advance(max(0.0, begun + step * each - clock.now()))
        yield stream(random.integers(0, keys, int(rate * each)))


@pytest.mark.parametrize("each", [0.05, 0.2])
def test_ameshjoin_follows_the_rate_of_a_source_that_blocks(tmp_path, each):
    """It holds what its model says that the rate needs, and hardly more; then less, and then more again."""
    disk = Disk("simulated", seek=2e-2, transfer=1e-3, clock=ManualClock())
    relation = relation_for(tmp_path, AMeshJoin, disk, 20_000)
    op, random = AMeshJoin(relation, on="k", memory="6MiB", columns=["v"]), np.random.default_rng(2)
    held, at = {}, 0.0

    def source():
        for phase, rate in enumerate((5000.0, 1000.0, 5000.0)):
            for batch in paced(disk.clock, rate, 15.0, each, random, 20_000):
                held[phase] = op.budget.used - op.budget.held().get("output", 0)
                yield batch
            nonlocal at
            at = disk.clock.now()

    joined = sum(out.num_rows for out in op.run(source()))
    assert joined == 15 * (5000 + 1000 + 5000)
    assert at == pytest.approx(45.0, abs=1.0), "it does not keep up"
    for phase, rate in enumerate((5000.0, 1000.0, 5000.0)):
        assert held[phase] <= 2.0 * op.cost().least(1.1 * rate)[2] + 20_000, phase
    assert held[1] < held[0] and held[1] < held[2]


# -- results as Algorithm 1 gives them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", [HybridJoin, XHybridJoin])
def test_results_do_not_wait_for_a_full_H(tmp_path, operator):
    """[XHJ] Algorithm 1, lines 3 to 7: the loop goes on with what is available."""
    disk = Disk("simulated", seek=1e-3, transfer=1e-4, clock=ManualClock())
    op, random = make(operator, relation_for(tmp_path, operator, disk)), np.random.default_rng(3)
    taken, first = 0, None

    def source():
        nonlocal taken
        for _ in range(200):
            taken += 100
            yield stream(random.integers(0, N, 100))

    for _ in op.run(source()):
        first = first or taken
    assert op.capacity > 8000
    assert first <= 400


@pytest.mark.parametrize("operator", [HybridJoin, XHybridJoin])
def test_a_slow_stream_gets_the_iterations_of_the_loop_while_it_lets_the_join_wait(tmp_path, operator):
    disk = Disk("simulated", seek=1e-3, transfer=1e-4, clock=ManualClock())
    op, random = make(operator, relation_for(tmp_path, operator, disk), k=4), np.random.default_rng(3)
    left = []

    def source():
        for batch in paced(disk.clock, 20.0, 50.0, 1.0, random):
            left.append(op.waiting)
            yield batch

    assert sum(out.num_rows for out in op.run(source())) == 20 * 50
    assert max(left) <= 20, "a second is time for all of them"


@pytest.mark.parametrize("operator", [HybridJoin, XHybridJoin])
@pytest.mark.parametrize("batch", [20, 1000])
def test_a_stream_that_is_always_there_fills_H(tmp_path, operator, batch):
    """A load serves the more tuples the more wait: with small batches too, the service rate is that of a full H."""
    disk = Disk("simulated", seek=1e-3, transfer=1e-4, clock=ManualClock())
    op, random = make(operator, relation_for(tmp_path, operator, disk), k=1), np.random.default_rng(3)
    most = 0

    def source():
        nonlocal most
        for _ in range(80_000 // batch):
            most = max(most, op.waiting)
            yield stream(random.integers(0, N, batch))

    for _ in op.run(source()):
        pass
    assert 10_000 < 0.95 * op.capacity <= most


# -- overload ------------------------------------------------------------------------------------------------------------


def overloaded(op, rate: float, seconds: float, clock, random):
    """Tuples come at a rate while the join iterates without pause; returns what was offered and joined."""
    begun, offered, got = clock.now(), [], []
    while clock.now() - begun < seconds:
        due = int(rate * (clock.now() - begun)) - sum(b.num_rows for b in offered)
        if due > 0:
            offered.append(stream(np.minimum(N - 1, random.zipf(1.3, due))))
            op.offer(offered[-1])
        got += [row for out in op.advance() for row in out.to_pylist()]
        if due <= 0 and not op.waiting:
            clock.advance(1e-3)
    got += [row for out in op.drain() for row in out.to_pylist()]
    return offered, got


@pytest.mark.parametrize("operator", WAITING)
def test_a_shedder_plugs_into_every_waiting_operator(tmp_path, operator):
    """Three times what it can take: the backlog stays bounded, what was shed is stored, and both together are all."""
    disk = Disk("simulated", seek=1e-2, transfer=1e-3, clock=ManualClock())
    relation, shed = relation_for(tmp_path, operator, disk), []
    shedder = Shedder("topw", KeyFrequencies(relation), on=["k"], store=shed.append)
    op, random = make(operator, relation, shed=shedder), np.random.default_rng(4)
    op.offer(stream([1]))
    for _ in range(4):
        op.offer(stream(random.integers(0, N, 30_000)))
        list(op.advance())
        assert op.buffered <= max(op.capacity, op.backlog_room) + 30_000
    list(op.drain())
    stored = sum(batch.num_rows for batch in shed)
    assert op.stats.shed == stored > 0
    assert op.stats.tuples_in == 120_001 - stored == op.stats.matched
    op.stats.check()
    assert op.budget.peak <= op.budget.limit
    assert "shedding" in op.budget.held()


def test_ameshjoin_grows_before_it_sheds_and_sheds_when_no_memory_keeps_up(tmp_path):
    disk = Disk("simulated", seek=1e-3, transfer=1e-4, clock=ManualClock())
    relation, shed = relation_for(tmp_path, AMeshJoin, disk), []
    shedder = Shedder("keep", KeyFrequencies(relation), on=["k"], store=shed.append)
    op, random = make(AMeshJoin, relation, shed=shedder), np.random.default_rng(6)
    op.offer(stream([0]))
    list(op.drain())
    best = op.cost().rate(op.most_memory, op.cost().best_b(op.most_memory))
    for share, sheds in ((0.2, False), (0.8, False), (3.0, True)):
        before = op.stats.shed
        offered, got = overloaded(op, share * best, 1.0, disk.clock, random)
        assert (op.stats.shed > before) == sheds, share
        assert sum(b.num_rows for b in offered) == len(got) + op.stats.shed - before
    kept = 1 - (op.stats.shed - before) / sum(b.num_rows for b in offered)
    assert kept == pytest.approx(1 / 3, rel=0.25)


def test_a_shedder_keeps_the_tuples_with_the_most_matches_and_the_results_are_exact(tmp_path):
    keys = np.repeat(np.arange(200), np.where(np.arange(200) < 20, 40, 1))
    rows = pa.table({"k": keys, "v": np.arange(keys.size)})
    relation = hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB", disk=Disk("simulated"))
    shed, random = [], np.random.default_rng(8)
    shedder = Shedder("topw", KeyFrequencies(relation), on=["k"], store=shed.append)
    op = MeshJoin(relation, on="k", memory="400KiB", shed=shedder, w=50, b=1)
    offered, got = [], []
    for _ in range(30):
        offered.append(stream(random.integers(0, 220, 2000)))
        op.offer(offered[-1])
        got += tuples(op.advance())
    got += tuples(op.drain())
    later = tuples(MeshJoin(relation, on="k", memory="400KiB").run(shed))
    assert Counter(got + later) == Counter(join(rows, offered, ["k"], "inner", ["v"]))
    assert shedder.stats.results_share > 1.5 * shedder.stats.share


def test_run_takes_what_has_come_before_it_chooses(tmp_path):
    disk = Disk("simulated", seek=1e-2, transfer=1e-3, clock=ManualClock())
    relation, shed = relation_for(tmp_path, MeshJoin, disk), []
    shedder = Shedder("sample", KeyFrequencies(relation), on=["k"], store=shed.append)
    op, random = make(MeshJoin, relation, shed=shedder), np.random.default_rng(4)
    arrivals = [(0.01 * i, stream(random.integers(0, N, 4000))) for i in range(60)]
    got = sum(out.num_rows for out in op.run(Script(disk.clock, *arrivals)))
    assert got + sum(batch.num_rows for batch in shed) == 60 * 4000
    assert len(shed) > 0


@pytest.mark.parametrize("operator", WAITING)
def test_a_stream_that_is_always_there_does_not_keep_a_shedding_join_from_its_steps(tmp_path, operator):
    disk = Disk("simulated", seek=1e-3, transfer=1e-4, clock=ManualClock())
    relation = relation_for(tmp_path, operator, disk)
    shedder = Shedder("sample", KeyFrequencies(relation), on=["k"], store=len)
    op = make(operator, relation, shed=shedder)
    source = Endless(disk.clock, stream(np.random.default_rng(5).integers(0, N, 100)))
    results = op.run(source)
    assert sum(out.num_rows for _, out in zip(range(20), results, strict=False)) > 0
    results.close()


def test_an_awaited_stream_that_is_too_fast_is_shed(tmp_path):
    disk = Disk("simulated", seek=1e-3, transfer=1e-4, clock=ManualClock())
    relation, shed = relation_for(tmp_path, MeshJoin, disk), []
    shedder = Shedder("sample", KeyFrequencies(relation), on=["k"], store=shed.append)
    op = make(MeshJoin, relation, shed=shedder)
    source = Endless(disk.clock, stream(np.random.default_rng(5).integers(0, N, 100)))

    async def awaited():
        for _ in range(2000):
            yield source.poll(None)

    async def joined():
        return sum([out.num_rows async for out in op.run_async(awaited())])

    got = asyncio.run(joined())
    assert got + sum(batch.num_rows for batch in shed) == 2000 * 100
    assert got > 0
    assert len(shed) > 0


def test_a_shedder_without_a_store_is_refused_where_it_is_needed(tmp_path):
    relation = relation_for(tmp_path, MeshJoin, Disk("simulated"))
    with pytest.raises(BadInput, match="needs service_rate= to divide intervals, or store="):
        Shedder("keep", KeyFrequencies(relation), on=["k"])
    op = make(MeshJoin, relation, shed=Shedder("keep", KeyFrequencies(relation), on=["k"], service_rate=1.0))
    op.offer(stream(np.zeros(200_000)))
    with pytest.raises(BadInput, match=r"tuples come faster .* no store= for them; give one"):
        list(op.advance())
    with pytest.raises(BadInput, match="with order='stream' none does; give order='any'"):
        AdaptiveJoin(
            relation, on="k", memory="4MiB", shed=Shedder("keep", KeyFrequencies(relation), on=["k"], store=len)
        )


def test_waiting_counts_from_when_a_tuple_was_offered(tmp_path):
    disk = Disk("simulated", clock=ManualClock())
    op = make(MeshJoin, relation_for(tmp_path, MeshJoin, disk))
    op.offer(stream([1]))
    disk.clock.advance(100.0)
    list(op.drain())
    assert op.stats.longest_wait >= 100.0
