"""LoggedJoin of several streams without Spark: attempts that die anywhere, replays in any order; against brute force."""

import tempfile
from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.errors import OtherLog, RunLogError
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.multiway_spec import MultiWaySpec
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.policies import POLICIES
from headrace.runlog import RunLog, close_finish, unfinished

SEVERAL = sorted(name for name, policy in POLICIES.items() if not policy.per_tuple and not policy.two_sided)


@pytest.fixture(autouse=True, scope="module")
def no_sync():
    """A process that dies loses nothing that it has written; machines do not die here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)
        yield


class Ticking(ManualClock):
    """Time passes whenever somebody looks."""

    def now(self):
        self.advance(0.1)
        return super().now()


class Died(Exception):
    pass


def spec(streams=3, key=None, partitions=4, **options):
    key = key or pa.int64()
    schemas = tuple(pa.schema({"k": key, f"n{i}": pa.int64()}) for i in range(streams))
    return MultiWaySpec(
        on=("k",) * streams, schemas=schemas, partitions=partitions, static=(False,) * streams, **options
    )


class Shard:
    """One shard, driven as Spark would: attempts may die, and processes forget."""

    def __init__(self, directory, made, policy="rrpj", memory=1 << 19, idle=0.35):
        self.log = RunLog(directory, "q", "join", shards=1)
        self.spec, self.policy, self.memory, self.idle = made, policy, memory, idle
        self.stats = []
        self.forget()

    def forget(self):
        """Another process."""
        sharding = Sharding(self.spec.partitioning)
        self.cache = StateCache(sharding, POLICIES[self.policy](), self.memory, self.spec.schemas)

    def operator(self, shard, batch):
        return LoggedJoin(self.spec, shard, self.cache, batch, idle=self.idle, clock=Ticking(0.0))

    def attempt(self, batch, rows, dies_after=None, before_decision=False):
        """Results of an attempt. It may die after so many results, or before its decision is written."""
        out = []
        with self.log.shard(0) as shard:
            if before_decision:
                shard.draft = partial(undecided, shard.draft)
            join = self.operator(shard, batch)
            results = join.join(iter(rows))
            for result in results:
                if dies_after is not None and len(out) >= dies_after:
                    results.close()
                    raise Died
                out.append(result)
        self.stats.append(join.stats)
        return counted(out)

    def finish(self):
        with self.log.shard(0) as shard:
            return counted(list(self.operator(shard, 1 << 62).finish()))


def undecided(draft, kind, *args):
    """The drafts of an attempt that dies after its rows have their name, and before its decision has."""
    made = draft(kind, *args)
    if kind == "decision":
        made.commit = lambda facts: dies()
    return made


def dies():
    raise Died


def counted(batches):
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def batch(made, stream, keys, first):
    schema = made.schemas[stream]
    columns = [pa.array(keys, schema.field("k").type), pa.array(np.arange(first, first + len(keys)))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def brute(streams):
    """By key; nulls match nothing."""
    keys = {k for k, _ in streams[0] if k is not None}
    return Counter((k, *row) for k in keys for row in product(*([n for j, n in rows if j == k] for rows in streams)))


KEY = st.none() | st.integers(0, 3)
CHUNK = st.tuples(st.integers(0, 3), st.lists(KEY, max_size=6))
FATE = st.sampled_from(["fine", "dies", "undecided", "replayed", "forgets", "replayed elsewhere"])
BATCH = st.tuples(st.lists(CHUNK, max_size=4), FATE, st.integers(0, 3))


@settings(max_examples=60)
@given(
    st.lists(BATCH, max_size=12),
    st.integers(2, 4),
    st.sampled_from(SEVERAL),
    st.integers(1, 12),
    st.sampled_from(["rop", "rop-literal", "sequential"]),
    st.integers(0, 9),
)
def test_oracle_every_n_tuple_once_whatever_dies(script, n, policy, capacity, probing, seed):
    rng = np.random.default_rng(seed)
    streams, got, number = [[] for _ in range(n)], Counter(), 0
    with tempfile.TemporaryDirectory() as directory:
        shard = Shard(directory, spec(n, capacity=capacity, probing=probing), policy)
        for at, (chunks, fate, point) in enumerate(script):
            rows = []
            for stream, keys in chunks:
                stream %= n
                rows.append((stream, batch(shard.spec, stream, keys, number)))
                streams[stream].extend(zip(keys, range(number, number + len(keys)), strict=True))
                number += len(keys)
            if fate == "dies":
                with pytest.raises(Died):
                    shard.attempt(at, rows, dies_after=point)
                    raise Died  # it had fewer results, and ended
            elif fate == "undecided":
                with pytest.raises(Died):
                    shard.attempt(at, rows, before_decision=True)
                    raise Died  # there was nothing to decide
            elif fate == "forgets":
                shard.forget()
            rng.shuffle(rows)
            out = shard.attempt(at, rows)
            if fate.startswith("replayed"):
                if fate == "replayed elsewhere":
                    shard.forget()
                rng.shuffle(rows)
                assert shard.attempt(at, rows) == out
            got += out
        last = shard.finish()
        assert shard.finish() == last
        got += last
    assert got == brute(streams)


@pytest.mark.parametrize("key", [pa.int64(), pa.string()])
def test_oracle_memory_of_bytes_catches_up_in_pieces_and_replays_every_micro_batch(tmp_path, key):
    """Rows of a partition take many blocks, and a giant key more than one of them."""
    rng, streams, got = np.random.default_rng(3), [[], [], []], Counter()
    shard = Shard(tmp_path, spec(key=key, partitions=2), memory=1 << 17, idle=0.15)
    for at in range(12):
        rows = []
        for stream in range(3) if at % 4 != 3 else ():
            giant = rng.random(300) < (0.2 if stream == 0 else 0.001)
            few = np.where(giant, 0, rng.integers(1, 600, 300)).tolist()
            keys = [f"key {k}" for k in few] if key == pa.string() else few
            first = len(streams[stream])
            rows.append((stream, batch(shard.spec, stream, keys, first)))
            streams[stream] += zip(keys, range(first, first + 300), strict=True)
        out = shard.attempt(at, rows)
        shard.forget()
        assert shard.attempt(at, rows[::-1]) == out
        got += out
    owed = shard.finish()
    assert owed and got
    assert got + owed == brute(streams)
    assert all(sum(stats.memory.values()) <= stats.memory_limit for stats in shard.stats)
    assert sum(stats.deferred for stats in shard.stats) > 0 and sum(stats.probes for stats in shard.stats) > 0
    waited = [stats.results for stats in shard.stats[6:8]]  # micro-batch 3, without rows, and its replay
    assert waited[0] == waited[1] > 0


def test_what_was_finished_is_not_sent_again_when_the_query_goes_on(tmp_path):
    shard, got, streams, number = Shard(tmp_path, spec(capacity=3), idle=0.0), Counter(), [[], [], []], 0
    for at in range(10):
        rows = []
        for stream in (0, 1, 2):
            keys = [at % 2, 1]
            rows.append((stream, batch(shard.spec, stream, keys, number)))
            streams[stream] += zip(keys, (number, number + 1), strict=True)
            number += 2
        got += shard.attempt(at, rows)
        if at % 4 == 2:
            last = shard.finish()
            assert last
            got += last
            with shard.log.shard(0) as held:
                close_finish(held)
                assert unfinished(held) == -1
            assert got == brute(streams)
    assert got + shard.finish() == brute(streams)


def test_flushes_that_nothing_asks_for_are_forgotten(tmp_path):
    """However long the streams are, a checkpoint lists few flushes; with time enough, one of each stream and partition."""
    shard = Shard(tmp_path, spec(capacity=3, partitions=2), idle=100.0)
    sizes = []
    for at in range(40):
        rows = [(s, batch(shard.spec, s, [1, 2, 3, 4], 4 * at)) for s in (0, 1, 2)] if at % 2 == 0 else []
        shard.attempt(at, rows)
        with shard.log.shard(0) as held:
            sizes.append(len(held.last("decision", before=1 << 62).facts["departures"]))
    assert max(sizes) > 3 * 2
    assert max(sizes[-10::2]) <= max(sizes[10:20:2]) and sizes[-1] <= 3 * 2


def test_a_log_of_other_streams_and_rows_that_change_are_refused(tmp_path):
    shard = Shard(tmp_path, spec(capacity=3))
    rows = [(2, batch(shard.spec, 2, [1, 2], 0))]
    shard.attempt(0, rows)
    with pytest.raises(RunLogError, match=r"2 rows of stream 2 in shard 0, and now it has 3"):
        shard.attempt(0, [(2, batch(shard.spec, 2, [1, 2, 3], 0))])
    with pytest.raises(OtherLog, match="a join of 3 streams, and 4 are joined now"):
        Shard(tmp_path, spec(4)).attempt(1, rows)
