"""LoggedJoin without Spark: micro-batches by script, attempts that die anywhere, replays; the result is that of brute force."""

import tempfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import ManualClock
from headrace.progressive.choose import divide
from headrace.progressive.logged import LoggedJoin
from headrace.progressive.logged_memory import Warm
from headrace.progressive.pairing import Pairing
from headrace.progressive.parts import Division
from headrace.progressive.policies import POLICIES
from headrace.runlog import RunLog

LEFT, RIGHT = 0, 1
KEYS = pa.schema({"k": pa.int64(), "a": pa.int64()}), pa.schema({"k": pa.int32(), "b": pa.int64()})


@pytest.fixture(autouse=True, scope="module")
def no_sync():
    """A process that dies loses nothing that it has written; machines do not die here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)
        yield


PARTITION_POLICIES = sorted(name for name, policy in POLICIES.items() if not policy.per_tuple)


class Ticking(ManualClock):
    """Time passes whenever somebody looks."""

    def now(self):
        self.advance(0.1)
        return super().now()


class Died(Exception):
    pass


class Shard:
    """One shard, driven as Spark would: attempts may die, and processes forget."""

    def __init__(self, directory, pairing, policy="rrpj", memory=1 << 18, idle=0.35, **division):
        self.log = RunLog(directory, "q", "join", shards=1)
        self.pairing, self.policy, self.memory, self.idle = pairing, policy, memory, idle
        self.division = Division(pairing.partitioning, **division)
        self.stats = []
        self.forget()

    def forget(self):
        """Another process."""
        self.warm = Warm(self.division, POLICIES[self.policy](), self.memory, self.pairing.schemas)

    def operator(self, shard, batch):
        return LoggedJoin(self.pairing, shard, self.warm, batch, idle=self.idle, clock=Ticking(0.0))

    def attempt(self, batch, rows, dies_after=None, before_decision=False):
        """Results of an attempt. It may die after so many results, or before its decision is written."""
        out = []
        with self.log.shard(0) as shard:
            if before_decision:

                def refuse(*_):
                    raise Died

                shard.write = refuse
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


def counted(batches):
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def pairing(condition=None, schemas=KEYS, **options):
    condition = condition or hr.equal("k")
    partitioning, ask = divide(condition, 5)
    return Pairing(condition, schemas, partitioning, ask, **options)


def batch(side, keys, first):
    numbers = np.arange(first, first + len(keys))
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, KEYS[side].field("k").type), pa.array(numbers)], schema=KEYS[side]
    )


def brute(left, right):
    """By key; nulls match nothing."""
    return Counter((k, a, b) for k, a in left for j, b in right if k is not None and k == j)


KEY = st.none() | st.integers(0, 4)
CHUNK = st.tuples(st.sampled_from([LEFT, RIGHT]), st.lists(KEY, max_size=8))
FATE = st.sampled_from(["fine", "dies", "undecided", "replayed", "forgets", "replayed elsewhere"])
BATCH = st.tuples(st.lists(CHUNK, max_size=4), FATE, st.integers(0, 3))


@settings(max_examples=60)
@given(st.lists(BATCH, max_size=14), st.sampled_from(PARTITION_POLICIES), st.integers(1, 12), st.integers(0, 9))
def test_oracle_every_pair_once_whatever_dies(script, policy, capacity, seed):
    rng = np.random.default_rng(seed)
    sides, got, number = ([], []), Counter(), 0
    with tempfile.TemporaryDirectory() as directory:
        shard = Shard(directory, pairing(capacity=capacity), policy)
        for n, (chunks, fate, point) in enumerate(script):
            rows = []
            for side, keys in chunks:
                rows.append((side, batch(side, keys, number)))
                sides[side].extend(zip(keys, range(number, number + len(keys)), strict=True))
                number += len(keys)
            if fate == "dies":
                with pytest.raises(Died):
                    shard.attempt(n, rows, dies_after=point)
                    raise Died  # it had fewer results, and ended
            elif fate == "undecided":
                with pytest.raises(Died):
                    shard.attempt(n, rows, before_decision=True)
                    raise Died  # there was nothing to decide
            elif fate == "forgets":
                shard.forget()
            rng.shuffle(rows)
            out = shard.attempt(n, rows)
            if fate.startswith("replayed"):
                if fate == "replayed elsewhere":
                    shard.forget()
                rng.shuffle(rows)
                assert shard.attempt(n, rows) == out
            got += out
        last = shard.finish()
        assert shard.finish() == last
        got += last
    assert got == brute(*sides)
