"""The books of a query that sheds: the first decision stands, a run that does over replaces, what is owed adds up."""

import json
from multiprocessing import get_context

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import RunLogError
from headrace.shedding import Cut
from headrace.shedding.ledger import Decision, Ledger, TaskRecord

ROWS = pa.record_batch({"k": [1, 2, 3]})


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path, "query", "shed 0 rel")


def shed(ledger, batch, number, partition, rows=ROWS):
    draft = ledger.draft(batch, number, partition, rows.schema)
    draft.add(rows)
    draft.commit()


def test_the_first_decision_stands(ledger, tmp_path):
    mine, other = Decision(Cut(1.5, 2**64 - 1), 0.25, 7, 9), Decision()
    assert ledger.decided(3, "run a") is None
    assert ledger.decide(3, "run a", mine) == (mine, 0)
    assert ledger.decide(3, "run a", other) == (mine, 0)
    again = Ledger(tmp_path, "query", "shed 0 rel")
    assert again.decided(3, "run b") == (mine, 1) == again.decided(3, "run b")
    assert again.decide(3, "run c", other) == (mine, 2)
    assert again.decided(3, "run a") == (mine, 0)


def test_a_run_that_does_over_replaces_what_the_one_before_shed(ledger):
    ledger.decide(0, "a", Decision())
    shed(ledger, 0, 0, 0)
    shed(ledger, 0, 0, 5)
    begun = ledger.draft(0, 0, 6, ROWS.schema)
    ledger.decided(0, "b")
    assert list((ledger.path / "shed").iterdir()) == []
    shed(ledger, 0, 0, 7)  # a task of the dead run that is late
    shed(ledger, 0, 1, 0, ROWS.slice(1))
    assert ledger.owed(0) == {0: [ledger.shed_file(0, 1, 0)]} and ledger.debt() == 2
    with pytest.raises(FileNotFoundError):
        begun.commit()


def test_rates_and_debts(ledger):
    assert ledger.history(0, 2) == type(ledger.history(0, 2))(None, 1, 1.0, 0, 0)
    ledger.decide(0, "a", Decision())
    ledger.record_task(0, 0, 0, TaskRecord(100, 0, 1.0, "x", 4))
    ledger.record_task(0, 0, 1, TaskRecord(50, 0, 2.0, "x", 4))
    past = ledger.history(1, workers=2)
    assert (past.rate, past.tasks, past.filled, past.debt) == (75.0, 2, 0.5, 0)  # 150 rows in the longer task's 2 s
    assert ledger.history(1, workers=1).rate == 50.0  # one after the other
    ledger.decide(1, "a", Decision(Cut(1.0, 0), 0.5, past.debt, past.shed))
    shed(ledger, 1, 0, 0)
    ledger.record_task(1, 0, 0, TaskRecord(13, 3, 0.5, "x"))
    past = ledger.history(2, workers=2)
    assert (past.rate, past.shed, past.debt, past.tasks, past.filled) == (20.0, 3, 3, 1, 1.0)
    ledger.decide(2, "a", Decision(debt=past.debt, shed_before=past.shed))
    ledger.mark_replayed(1)
    assert ledger.replayed() == (1, 3) and ledger.debt() == 0
    assert (ledger.history(3, 2).shed, ledger.history(3, 2).debt) == (3, 0)


def test_what_is_finished_is_what_a_later_batch_or_a_note_says(ledger):
    assert ledger.finished() == -1
    ledger.decide(4, "a", Decision())
    assert ledger.finished() == 3
    ledger.finish(4)
    assert ledger.finished() == 4
    for batch in (4, 5):
        shed(ledger, batch, 0, 0)
    ledger.decide(5, "a", Decision())
    assert list(ledger.owed(ledger.finished())) == [4]
    ledger.mark_replayed(4)
    ledger.mark_replayed(4)
    assert ledger.replayed() == (4, 3) and list(ledger.owed(9)) == [5]
    shed(ledger, 4, 0, 1)  # the micro-batch ran again all the same: its rows are loaded
    assert list(ledger.owed(9)) == [5] and ledger.debt() == 3


def test_one_replay_at_a_time(ledger, tmp_path):
    with (
        ledger.replaying(),
        pytest.raises(RunLogError, match="under way"),
        Ledger(tmp_path, "query", "shed 0 rel").replaying(),
    ):
        pass
    with ledger.replaying():
        pass


def test_old_books_go_and_those_of_what_is_owed_stay(ledger):
    for batch in range(0, 121, 5):
        ledger.decide(batch, "a", Decision())
        ledger.record_task(batch, 0, 0, TaskRecord(1, 0, 1.0, "x"))
        if batch == 60:
            shed(ledger, batch, 0, 0)
    kept = sorted(int(path.name[:10]) for path in (ledger.path / "shard-0000").glob("*.decision.arrow"))
    assert kept[0] == 60 and list(ledger.owed(200)) == [60]
    assert min(int(path.name[:10]) for path in (ledger.path / "took").iterdir()) == 100
    assert ledger.log.describe()["kept"]["shed"]["rows"] == 3


def test_an_overloaded_query_comes_to_its_target_and_back(ledger):
    """Four tasks on two workers; a row costs 0.2 ms to look at and 1 ms more to join; a micro-batch may take 2 s."""
    took, shares = [], []
    arrivals = [500] * 3 + [9000] * 6 + [800] * 5
    for batch, rows in enumerate(arrivals):
        past = ledger.history(batch, workers=2)
        share = past.share(rows // 4, 4, target=2.0)
        ledger.decide(batch, "a", Decision(share=share))
        for task in range(4):
            mine, kept = rows // 4, round(share * rows / 4)
            ledger.record_task(batch, 0, task, TaskRecord(mine, mine - kept, 0.02 + 2e-4 * mine + 1e-3 * kept, "x", 4))
        took.append(2 * (0.02 + 2e-4 * rows / 4 + 1e-3 * share * rows / 4))
        shares.append(share)
    assert shares[:3] == [1.0] * 3 and shares[3] < 0.5  # the burst is met at once
    assert took[3] < 3.0 and all(1.8 < seconds < 2.1 for seconds in took[5:9]), took  # what looking costs is learned
    assert shares[-2:] == [1.0] * 2 and max(took[9:]) < 2.0  # and over at once
    assert ledger.history(99, 2).share(0, None, 1.0) == 1.0 and ledger.history(0, 2).share(10, 4, 1.0) == 1.0


def _decide(directory, run, share):
    ledger = Ledger(directory, "query", "shed")
    decision, _ = ledger.decide(0, run, Decision(share=share))
    return decision.share


def test_of_many_that_decide_at_once_one_does(tmp_path):
    with get_context("spawn").Pool(2) as pool:
        shares = pool.starmap(_decide, [(tmp_path, "run", i / 8) for i in range(1, 9)])
    assert len(set(shares)) == 1


def test_the_shed_table_is_parquet(ledger):
    shed(ledger, 7, 0, 3)
    assert pq.read_table(ledger.path / "shed").to_pylist() == ROWS.to_pylist()
    assert json.loads((ledger.path / "log.json").read_text())["shards"] == 1
