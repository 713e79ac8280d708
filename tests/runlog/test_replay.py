"""ReplayDriver with a small operator: killed before every effect on files and in every hook, no value is lost or given twice."""

import os
from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.files import LocalFiles, names_in, using
from headrace.runlog import (
    DECISION,
    FINISH_PART,
    ReplayDriver,
    RunLog,
    Snapshot,
    close_finish,
    forget_finish,
    replay,
    unfinished,
)

VALUES = pa.schema({"v": pa.int64()})
AFTER_ALL = 1 << 62


def batch(values):
    return pa.RecordBatch.from_pydict({"v": list(values)}, schema=VALUES)


def values(batches):
    return [v for one in batches for v in one["v"].to_pylist()]


class Died(Exception):
    pass


class Life(LocalFiles):
    """Files of a process that dies at one of its steps, or at random ones. What is dead has no more effects."""

    def __init__(self):
        self.steps, self.kill_at, self.risk, self.dead = 0, None, None, False
        for name in ("link", "rename", "unlink", "write"):
            setattr(self, name, self.mortal(getattr(self, name)))

    def open(self, path, flags, mode=0o600):
        if flags & os.O_EXCL:  # a draft; the file of a lock is no effect
            self.step()
        return super().open(path, flags, mode)

    def fsync(self, fd):
        self.step()

    def sync_directory(self, path):
        self.step()

    def mortal(self, effect):
        def call(*args, **options):
            self.step()
            return effect(*args, **options)

        return call

    def step(self):
        if not self.dead:
            self.steps += 1
            self.dead = self.steps == self.kill_at or (self.risk is not None and self.risk.random() < 0.02)
        if self.dead:
            raise Died


class Sampler:
    """Gives a random part of the values at once and owes the rest. Attempts draw differently, unless there is a decision.

    Multiples of 7 are kept for people. The sample is written beside the decision, and a replay gives what is there.
    """

    decision_schema, beside = VALUES, ("given",)

    def __init__(self, shard, number, random, life):
        self.shard, self.number, self.random, self.life = shard, number, random, life
        self.last, self.changed, self.kept, self.calls = None, False, [], []

    def restore(self, decision):
        self.hook("restore")
        self.last = decision

    def on_batch(self, rows, draft):
        self.hook("on_batch")
        came = []
        for one in rows:
            self.life.step()
            came += values([one])
            draft.add(one)
        assert sorted(values(draft.take_back())) == sorted(came)
        self.kept = [v for v in came if v % 7 == 0]
        yield from self.give([v for v in came if v % 7], draft)

    def on_idle(self, draft):
        self.hook("on_idle")
        if self.last is not None and self.last.owed:
            yield from self.give([], draft)

    def give(self, new, draft):
        self.moved = self.last is None or not self.last.owed or self.random.random() < 0.4
        given = draft.beside("given", VALUES)
        for v in new + (self.earlier() if self.moved else []):
            if self.random.random() < 0.3:
                self.life.step()
                given.add(batch([v]))
                yield batch([v])
            else:
                draft.add(batch([v]))
                self.changed += 1
        self.owed = self.changed + (0 if self.moved else self.last.owed)
        self.changed = True

    def snapshot(self):
        self.hook("snapshot")
        if not self.changed:
            return None
        since = None if self.moved else self.last.since
        facts = {"kept": self.kept, "moved": self.moved}
        return Snapshot(facts=facts, owed=self.owed, since=since, beside={"given": {"by": "sampler"}})

    def on_replay(self, decision, rows):
        self.hook("on_replay")
        self.kept = decision.facts["kept"]
        given = self.shard.find("given", self.number)
        assert given.facts["by"] == "sampler"
        for one in given.batches():
            self.life.step()
            yield one
        came = values(rows) + (self.earlier() if decision.facts["moved"] else [])
        assert Counter(came) == Counter(values(given.batches()) + values(decision.file.batches()) + self.kept)

    def on_decided(self):
        self.hook("on_decided")
        if self.kept:
            self.shard.keep("sevens", self.number, VALUES, [batch(self.kept)])

    def on_finish(self):
        self.hook("on_finish")
        owed = self.earlier()
        assert len(owed) == self.last.owed
        self.shard.keep(
            "odd", self.last.batch, VALUES, [batch(v for v in owed if v % 2)], part=FINISH_PART, replace=True
        )
        yield batch(v for v in owed if v % 2 == 0)
        self.life.step()

    def earlier(self):
        if self.last is None or not self.last.owed:
            return []
        files = self.shard.read(DECISION, before=self.number, since=self.last.since)
        return [v for file in files for v in values(file.batches())]

    def hook(self, name):
        self.life.step()
        self.calls.append(name)


class Query:
    """Micro-batches of one shard, each tried until it succeeds; what an attempt gave that died is dropped, as Spark does."""

    def __init__(self, directory, life, seed):
        self.life, self.random = life, Random(seed)
        self.given = Counter()
        self.log = self.until_alive(lambda: RunLog(directory, "q", "sampler", shards=1))

    def until_alive(self, do):
        while True:
            self.life.dead = False
            try:
                return do()
            except Died:
                assert self.life.dead

    def on_shard(self, do):
        def held():
            with self.log.shard(0) as shard:
                return do(shard)

        return self.until_alive(held)

    def attempt(self, number, came):
        parts = [list(came[i::2]) for i in range(2)]
        self.random.shuffle(parts)

        def do(shard):
            operator = Sampler(shard, number, self.random, self.life)
            return Counter(values(ReplayDriver(shard, number, operator).run([batch(part) for part in parts if part])))

        return self.on_shard(do)

    def finish(self, end=close_finish):
        def do(shard):
            return Counter(
                values(ReplayDriver(shard, AFTER_ALL, Sampler(shard, AFTER_ALL, self.random, self.life)).finish())
            )

        out = self.on_shard(do)
        if end is not None:
            self.on_shard(end)
        return out

    def people(self, kind):
        path = self.log.path / kind
        return Counter(pq.read_table(path, schema=VALUES)["v"].to_pylist() if path.exists() else [])


SCRIPT = [
    range(1, 9),
    range(9, 12),
    [],
    range(12, 20),
    [],
    range(20, 22),
    "finish",
    [],
    range(22, 30),
    range(30, 33),
    [],
]


def run(directory, life, seed):
    query, came = Query(directory, life, seed), []
    for number, rows in enumerate(SCRIPT):
        if rows == "finish":
            query.given += query.finish()
            assert query.on_shard(unfinished) == -1
            continue
        came += rows
        out = query.attempt(number, rows)
        if number % 2:
            assert query.attempt(number, rows) == out, "a replay differs"
        query.given += out
    again = query.finish(end=None)
    assert query.finish() == again, "it can be done again until it is closed"
    query.given += again
    life.dead = False
    life.kill_at = life.risk = None
    assert query.given + query.people("sevens") + query.people("odd") == Counter(came), f"seed {seed}"
    with query.log.shard(0) as shard:
        assert [p.name for p in shard.path.iterdir() if p.name.startswith(".")] == [".lock"]
        assert len(shard.entries(DECISION, before=AFTER_ALL)) <= 5


@pytest.fixture
def life(monkeypatch):
    monkeypatch.setattr(replay, "_MOST_DECISIONS", 2)  # so that a short run has compactions
    alive = Life()
    with using(alive):
        yield alive


def test_oracle_killed_at_each_step(tmp_path, life):
    seed = 0
    run(tmp_path / "alive", life, seed)
    steps = life.steps
    assert steps > 100
    for at in range(1, steps + 1):
        life.steps, life.kill_at = 0, at
        run(tmp_path / str(at), life, seed)


@pytest.mark.parametrize("seed", range(12))
def test_oracle_killed_again_and_again(tmp_path, life, seed):
    life.risk = Random(seed)
    run(tmp_path, life, seed)


def test_which_hooks_are_called(tmp_path, life):
    query = Query(tmp_path, life, 1)

    def calls(number, *rows, finish=False):
        with query.log.shard(0) as shard:
            operator = Sampler(shard, number, query.random, life)
            driver = ReplayDriver(shard, number, operator)
            list(driver.finish() if finish else driver.run(rows))
        return operator.calls

    assert calls(0) == ["restore", "on_idle", "snapshot", "on_decided"]
    assert names_in(query.log.path / "shard-0000") == [".lock"]  # a heartbeat with nothing to do decides nothing
    assert calls(AFTER_ALL, finish=True) == ["restore"]
    for _ in range(2):
        first, again = calls(1, batch(range(9))), calls(1, batch(range(9)))
        assert again == ["restore", "on_replay", "on_decided"]
    assert first == again
    assert calls(2) == ["restore", "on_idle", "snapshot", "on_decided"]
    assert calls(AFTER_ALL, finish=True) == ["restore", "on_finish"]


def test_an_interrupted_finish_holds_the_query_until_it_is_closed_or_forgotten(tmp_path, life):
    query = Query(tmp_path, life, 1)
    out = query.attempt(3, range(1, 20))
    first = query.finish(end=None)
    with pytest.raises(hr.RunLogError, match=r"hr\.finish was interrupted after batch 3"):
        query.attempt(4, [])
    assert query.on_shard(unfinished) == 3
    query.on_shard(forget_finish)
    assert query.people("odd") == Counter()  # kept by a finish that never was
    out += query.attempt(4, [])
    query.on_shard(close_finish)  # of no finish: nothing is closed
    assert query.on_shard(unfinished) in (3, 4)
    out += query.finish()
    assert query.on_shard(unfinished) == -1
    query.on_shard(forget_finish)  # it is closed: nothing is forgotten
    assert query.on_shard(unfinished) == -1
    assert first.total() > 0
    assert out + query.people("odd") + query.people("sevens") == Counter(range(1, 20))


def test_a_decision_that_does_not_say_what_is_owed_is_refused(tmp_path, life):
    query = Query(tmp_path, life, 1)
    with query.log.shard(0) as shard:
        shard.write(DECISION, 0, VALUES, [], {"batch": 0, "since": 0, "waiting": 1, "retrying": 0})
    for attempt in (lambda: query.attempt(0, []), lambda: query.attempt(1, []), lambda: query.on_shard(unfinished)):
        with pytest.raises(
            hr.OtherLog, match=r"decision\.arrow does not say owed, so another version of Headrace wrote it"
        ):
            attempt()


def test_decisions_that_are_all_needed_are_compacted(tmp_path, life):
    query = Query(tmp_path, life, 1)
    query.random.random = lambda: 0.9  # nothing is given, and no decision takes up the values of another
    for number in range(9):
        assert query.attempt(number, [7 * number + 1]) == Counter()
    with query.log.shard(0) as shard:
        names = sorted(entry.path.name for entry in shard.entries(DECISION, before=AFTER_ALL))
    assert names[0].startswith("0000000000-000000000")
    assert len(names) <= 3
    assert query.finish() + query.people("odd") == Counter(range(1, 64, 7))
