"""One shard of a logged join without Spark: micro-batches by script, attempts that die, processes that forget."""

from collections import Counter
from functools import partial

import pytest

from headrace.clock import ManualClock
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.policies import POLICIES
from headrace.runlog import RunLog


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


class Shard:
    """One shard, driven as Spark would: attempts may die, and processes forget."""

    def __init__(self, directory, spec, policy="rrpj", memory=1 << 18, idle=0.35, query="q", **sharding):
        self.log = RunLog(directory, query, "join", shards=1)
        self.spec, self.policy, self.memory, self.idle = spec, policy, memory, idle
        self.sharding = Sharding(spec.partitioning, **sharding)
        self.stats = []
        self.forget()

    def forget(self):
        """Another process."""
        self.cache = StateCache(self.sharding, POLICIES[self.policy](), self.memory, self.spec.schemas)

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
