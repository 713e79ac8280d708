"""The journal of what tasks reported, without Spark."""

from dataclasses import replace

import pytest

from headrace.errors import BadInput
from headrace.metrics import JoinStats
from headrace.spark.journal import Journal, read_log
from headrace.spark.progress import progress
from headrace.spark.reports import TaskReport


def report(batch=0, partition=0, rows=10, step="s", query="q", executor="e1", **stats):
    counters = JoinStats(
        tuples_in=rows, hits=rows, matched=rows, memory={"index": 5, "hot set": 20}, memory_limit=30, memory_peak=28
    )
    return TaskReport(
        step=step,
        relation="/r",
        version=3,
        query=query,
        batch=batch,
        partition=partition,
        executor=executor,
        seconds=0.5 + partition,
        stats=replace(counters, **stats),
    )


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "queries")


def logged(journal: Journal) -> list:
    return list(read_log(journal.directory / "q.jsonl"))


def test_tasks_of_a_micro_batch_are_one_entry(journal):
    journal.take([report(partition=0, rows=10), report(partition=1, rows=5), report(batch=1, rows=7)])
    first, second = journal.progress("q")
    assert (first.batch, first.rows, first.seconds, first.version, first.relation) == (0, 15, 1.5, 3, "/r")
    assert (second.batch, second.rows) == (1, 7)
    assert first.rate == 10.0
    assert journal.progress("s") == [first, second] == logged(journal)
    assert journal.progress("another") == []


def test_a_task_that_ran_twice_counts_once(journal):
    journal.take([report(rows=10), report(rows=10), report(partition=1, rows=3)])
    journal.take([report(rows=10)])
    assert [p.rows for p in journal.progress("q")] == [13] == [p.rows for p in logged(journal)]


def test_memory_is_that_of_executors_and_not_of_tasks(journal):
    journal.take([report(partition=p, executor=f"e{p % 2}") for p in range(6)])
    (entry,) = journal.progress("q")
    assert entry.stats.memory == {"index": 10, "hot set": 40}
    assert (entry.stats.memory_limit, entry.stats.memory_peak) == (60, 56)
    assert entry.stats.tuples_in == 60
    entry.stats.check()


def test_steps_of_one_query_are_apart(journal):
    journal.take([report(step="a", rows=10), report(step="b", rows=4), report(step="a", batch=1, rows=11)])
    assert [(p.batch, p.rows) for p in journal.progress("q")] == [(0, 10), (0, 4), (1, 11)]
    assert [p.rows for p in journal.progress("b")] == [4]
    assert logged(journal) == journal.progress("q")


def test_a_torn_line_costs_one_report_and_not_the_next(journal):
    journal.take([report(batch=0), report(batch=1)])
    path = journal.directory / "q.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    assert [p.batch for p in logged(journal)] == [0]
    Journal(journal.directory).take([report(batch=1), report(batch=2)])  # the query was started again
    assert [p.batch for p in logged(journal)] == [0, 1, 2]


def test_a_log_does_not_grow_for_ever(journal, monkeypatch):
    monkeypatch.setattr("headrace.spark.journal._LOG", 4000)
    for batch in range(40):
        journal.take([report(batch=batch)])
    sizes = [f.stat().st_size for f in journal.directory.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < 6000
    batches = [p.batch for p in logged(journal)]
    assert batches == list(range(batches[0], 40))
    assert [p.batch for p in journal.progress("q")] == list(range(40))


def test_what_is_kept_in_memory_is_bounded(journal):
    for n in range(120):
        journal.take([report(query=f"q{n}", step=f"s{n}")])
    assert len(journal._reports) <= 50
    assert [p.rows for p in journal.progress("q119")] == [10]
    for batch in range(600):
        journal.take([report(batch=batch)])
    assert [p.batch for p in journal.progress("q")] == list(range(100, 600))


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "queries").write_text("a file, where a directory should be")
    journal = Journal(tmp_path / "queries")
    journal.take([report()])
    assert [p.rows for p in journal.progress("q")] == [10]


@pytest.mark.parametrize("name", ["../other", "/etc/passwd", "a/b", "..", ""])
def test_the_name_of_a_query_cannot_leave_the_directory_of_logs(name):
    with pytest.raises(BadInput, match="is not the id of a query"):
        progress(name)
