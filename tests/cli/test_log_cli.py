"""``headrace log``: what waits now, shard by shard."""

import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.clock import ManualClock, WallClock
from headrace.runlog import RunLog, close_finish, log
from headrace.semistream import AdaptiveJoin
from headrace.semistream.deferred.deferral import MARK, Deferral
from headrace.semistream.deferred.join import DeferredJoin
from headrace.shedding import ledger
from headrace.shedding.ledger import Decision, Ledger

STREAM = pa.schema({"k": pa.int64()})


def run(*args: object):
    return CliRunner().invoke(app, ["log", *map(str, args)], env={"COLUMNS": "140", "NO_COLOR": "1"})


class State:
    """The run log of a query with two shards, rows of which came some time ago."""

    def __init__(self, path, ago=3.0, **deferral):
        table = pa.table({"k": range(1000), "name": [str(k) for k in range(1000)]})
        rel = hr.Relation.create(path / "r", table, key="k")
        self.deferral = Deferral(**deferral)
        self.op = AdaptiveJoin(
            rel, "k", "1MiB", how="left", order="any", mark=MARK if self.deferral.sorts_out else None, whole=False
        )
        self.log = RunLog(path / "state", "q", "enrich", shards=2)
        self.clock = ManualClock(WallClock().now() - ago)

    def batch(self, shard, number, keys):
        rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], schema=STREAM)
        with self.log.shard(shard) as held:
            join = DeferredJoin(self.op, held, self.deferral, number, run="r", clock=self.clock)
            return sum(part.num_rows for part in join.join([rows], STREAM))


def test_it_says_how_many_wait_since_when_and_until_when(tmp_path):
    state = State(tmp_path, deadline=60.0, unmatched="retry", retry_for=600.0, period=0.5)
    state.batch(0, 7, [1, 2, 3])
    state.batch(1, 7, [4])
    state.clock.advance(1.0)
    state.batch(1, 8, [5, 2000])
    (facts,) = json.loads(run(tmp_path / "state", "--json").stdout)
    assert facts["waiting"]["rows"] == 6
    assert 3.0 <= facts["waiting"]["oldest_seconds"] < 60
    assert 0 < facts["waiting"]["first_leaves_in_seconds"] <= 57
    shards = facts["shards_waiting"]
    assert [(s["shard"], s["batch"], s["owed"]) for s in shards] == [(0, 7, 3), (1, 8, 3)]
    assert sum(s["for_deadline"] + s["for_match"] for s in shards) == 6
    assert all(s["due"] == s["oldest"] + 60.0 for s in shards)
    shown = run(tmp_path / "state").stdout
    assert "for a deadline" in shown and " ago" in shown and "in 5" in shown


def test_a_deadline_that_has_passed_and_one_that_cannot_be_kept_are_said(tmp_path):
    state = State(tmp_path, ago=100.0, deadline=5.0, period=0.5)
    state.batch(0, 1, [1, 2])
    assert "too late by now" in run(tmp_path / "state").stdout
    with state.log.shard(0) as shard:
        facts = shard.last("decision", before=2).facts
        kept = {name: value for name, value in facts.items() if name != "rows"} | {
            "batch": 3,
            "warning": "5s [red]\x1b",
        }
        shard.write("decision", 3, pa.schema([]), [], kept)
    shown = run(tmp_path / "state").stdout
    assert r"warning: 5s [red]\x1b" in shown
    assert "\x1b" not in shown


def test_after_finish_nothing_waits(tmp_path):
    state = State(tmp_path, deadline=60.0, period=0.5)
    state.batch(0, 1, [1, 2])
    with state.log.shard(0) as shard:
        join = DeferredJoin(state.op, shard, state.deferral, 1 << 62, run="r", clock=state.clock)
        assert sum(part.num_rows for part in join.finish(STREAM)) == 2
        close_finish(shard)
    (facts,) = json.loads(run(tmp_path / "state", "--json").stdout)
    assert facts["waiting"] == {"rows": 0, "oldest_seconds": None, "first_leaves_in_seconds": None}
    assert "for a deadline" not in run(tmp_path / "state").stdout


def test_shed_rows_wait_for_a_replay(tmp_path):
    ledger = Ledger(tmp_path / "state", "q", "shed 0 r")
    ledger.decide(0, "run", Decision())
    draft = ledger.draft(0, 0, 0, STREAM)
    draft.add(pa.record_batch({"k": pa.array([1, 2, 3], pa.int64())}))
    draft.commit()
    (facts,) = json.loads(run(tmp_path / "state", "--json").stdout)
    assert facts["waiting"] == {"shed_rows_to_replay": 3}


@pytest.mark.parametrize(("reader", "name"), [(ledger, "count_rows"), (log, "count_rows"), (log, "read_state")])
def test_files_that_are_removed_meanwhile_are_not_counted(tmp_path, monkeypatch, reader, name):
    """Nothing is locked: between the listing of files and their reading a replay may end, or a query expire what is old."""
    shed, rows = Ledger(tmp_path, "q", "enrich"), pa.record_batch({"k": pa.array([1, 2, 3], pa.int64())})
    for batch in (0, 1):
        shed.decide(batch, "r", Decision())
        draft = shed.draft(batch, 0, 0, STREAM)
        draft.add(rows)
        draft.commit()
    read = getattr(reader, name)

    def removed_first(path):
        if "0000000000" in path.name:
            path.unlink()
        return read(path)

    monkeypatch.setattr(reader, name, removed_first)
    shown = run(tmp_path, "--json")
    assert shown.exit_code == 0, shown.output
    (facts,) = json.loads(shown.stdout)
    counted = (
        facts["waiting"]["shed_rows_to_replay"],
        facts["kept"]["shed"]["rows"],
        facts["state"]["decision"]["files"],
    )
    assert counted == {ledger: (3, 3, 2), log: (6, 3, 2) if name == "count_rows" else (6, 6, 1)}[reader]
