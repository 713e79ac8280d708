"""algorithm="auto" with a calibration: the algorithm is chosen once for a query, and all its tasks follow."""

import errno
import json
import multiprocessing
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.cost.calibrate import BadCalibration
from headrace.cost.facts import Machine
from headrace.spark import choice
from headrace.spark.choice import Algorithm, CostModels, choose_once
from headrace.spark.journal import log_directory
from headrace.spark.relation_join import RelationJoin
from headrace.spark.state.choices import Chosen, noted_choice
from headrace.spark.steps import SparkTask
from tests.support.spark_streams import files, finished, source

MACHINE = Machine(seek=1e-4, transfer=1e-5)


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """What this process has chosen is not remembered from one test to the next."""
    monkeypatch.setattr(choice, "_choices", {})


@pytest.fixture
def rel(tmp_path):
    with hr.Relation.create(tmp_path / "r", pa.table({"k": np.arange(500), "v": np.arange(500) * 5}), key="k") as rel:
        yield rel


def join_of(rel, **options) -> RelationJoin:
    given = {
        "path": str(rel.path),
        "identity": rel.identity,
        "disk": "buffered",
        "on": "k",
        "how": "inner",
        "algorithm": "auto",
        "order": "any",
        "condition": None,
        "memory": 8 << 20,
        "columns": None,
        "suffix": "_right",
        "workers": 2,
    }
    return RelationJoin(**given | options)


def rows(many: int = 100):
    return iter([pa.record_batch({"k": np.arange(many)})])


@dataclass(frozen=True)
class ByProcess:
    """Answers differently in each process."""

    def choose(self, sample, join, relation) -> Chosen:
        time.sleep(0.05)  # so that others choose at the same moment
        return Chosen("inl", f"process {os.getpid()}")


def chosen(rel, task: SparkTask, batches=None, chooser=None, step="s") -> Chosen | None:
    algorithm = Algorithm(Chosen("adaptive", ""), chooser or ByProcess())
    return choose_once(algorithm, step, join_of(rel), rel, rows() if batches is None else batches, task)[0]


def of_query(query="q", batch=0, run="run 1") -> SparkTask:
    return SparkTask(partition=0, query=query, batch=batch, run=run)


def _task(path, task):
    with hr.Relation.open(path) as rel:
        return os.getpid(), chosen(rel, task)


@pytest.mark.parametrize("task", [of_query(), SparkTask(partition=0)], ids=["query", "batch"])
def test_contract_tasks_in_many_processes_follow_the_first(rel, task):
    with multiprocessing.get_context("fork").Pool(4, maxtasksperchild=1) as pool:
        got = [one.get(60) for one in [pool.apply_async(_task, (rel.path, task)) for _ in range(8)]]
    assert len({process for process, _ in got}) > 1
    assert len({one for _, one in got}) == 1
    assert chosen(rel, task) == got[0][1]  # and this process, which did not choose


def test_a_query_has_one_choice_whatever_its_micro_batch_and_attempt(rel):
    first = chosen(rel, of_query())
    choice._choices.clear()  # private: as in a worker that has just started
    other = [chosen(rel, of_query(batch=n), chooser=CostModels(MACHINE)) for n in (0, 1, 7)]
    assert other == [first] * 3
    assert chosen(rel, of_query(query="another"), chooser=CostModels(MACHINE)) != first
    assert chosen(rel, of_query(), chooser=CostModels(MACHINE), step="another") != first


def test_a_task_without_rows_chooses_nothing(rel):
    empty = pa.record_batch({"k": pa.array([], pa.int64())})
    assert chosen(rel, of_query(), iter([])) is None
    assert chosen(rel, of_query(), iter([empty, empty])) is None
    assert not (rel.path / "batches").exists()
    first = chosen(rel, of_query(), iter([empty, *rows()]))
    assert first is not None and chosen(rel, of_query(), iter([])) == first


def test_the_rows_that_were_looked_at_are_joined(rel):
    algorithm = Algorithm(Chosen("adaptive", ""), ByProcess())
    batches = [pa.record_batch({"k": np.arange(n, n + 70_000)}) for n in range(0, 280_000, 70_000)]
    _, again = choose_once(algorithm, "s", join_of(rel), rel, iter(batches), of_query())
    assert pa.Table.from_batches(again) == pa.Table.from_batches(batches)


def test_the_driver_chooses_where_it_can(rel, monkeypatch):
    assert Algorithm.of(join_of(rel, algorithm="inl")) == Algorithm(Chosen("inl", ""))
    assert Algorithm.of(join_of(rel, flag="twice")).default.why.startswith("beside a condition")

    def none():
        raise BadCalibration("there is no calibration")

    monkeypatch.setattr(choice, "load_calibration", none)
    algorithm = Algorithm.of(join_of(rel))
    assert algorithm.chooser is None and "there is no calibration" in algorithm.default.why
    kept = rows()
    assert choose_once(algorithm, "s", join_of(rel), rel, kept, of_query()) == (algorithm.default, kept)
    assert not (rel.path / "batches").exists()


def test_where_nothing_can_be_noted_all_tasks_join_with_adaptive(rel, monkeypatch):
    """As root nothing is read-only, so the system's answer is played."""

    def refuse(*_):
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr("headrace.spark.state.choices.write_facts", refuse)
    got = chosen(rel, of_query())
    assert got.algorithm == "adaptive" and "could not be noted" in got.why


def test_notes_of_earlier_runs_and_jobs_go(rel):
    for query in ("q", None):
        for step, run in (("old", "run 0"), ("mine", "run 1")):
            note = noted_choice(rel, query, step)
            assert note.write(Chosen("inl", ""), run) == Chosen("inl", "")
            os.utime(note.path, (0, 0))
        noted_choice(rel, query, "new").write(Chosen("ssij", ""), "run 1")
        kept = {path.name for path in note.path.parent.iterdir()}
        assert kept == {"choice-new", *(["choice-mine"] if query else [])}


# -- on Spark ----------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_contract_two_workers_of_a_query_that_would_choose_differently_join_with_one_algorithm(
    spark, tmp_path, rel, monkeypatch
):
    class Different:
        """Travels to the workers by value; the first process to ask gets inl, the second meshjoin, the third adaptive."""

        def __init__(self, directory: str) -> None:
            self.directory = directory

        def choose(self, sample, join, relation):
            import os
            import time
            from pathlib import Path

            from headrace.spark.state.choices import Chosen

            mine = Path(self.directory, str(os.getpid()))
            mine.touch()
            time.sleep(0.5)
            asked = sorted(Path(self.directory).iterdir())
            return Chosen(("inl", "meshjoin", "adaptive")[asked.index(mine) % 3], f"process {os.getpid()}")

    (tmp_path / "asked").mkdir()
    chooser = Different(str(tmp_path / "asked"))
    monkeypatch.setattr(Algorithm, "of", classmethod(lambda cls, join: cls(Chosen("adaptive", ""), chooser)))
    parts = [pa.table({"k": (np.arange(3000) + i) % 600}) for i in range(3)]
    out = hr.enrich(source(spark, files(tmp_path / "in", *parts)).repartition(4), rel, on="k", memory="8MiB")
    seen: Counter = Counter()
    writer = out.writeStream.foreachBatch(lambda df, _: seen.update(df.toArrow()["v"].to_pylist()))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    finished(query)
    wanted = Counter(k * 5 for part in parts for k in part["k"].to_pylist() if k < 500)
    assert seen == wanted
    lines = (log_directory() / f"{query.id}.jsonl").read_text().split("\n")
    reports = [json.loads(line) for line in lines if line]
    assert {report["partition"] for report in reports} == {0, 1, 2, 3}
    assert len({(report["algorithm"], report["why"]) for report in reports}) == 1
    assert {(p.algorithm, p.why) for p in hr.progress(query)} == {(reports[0]["algorithm"], reports[0]["why"])}
    assert reports[0]["why"].split("; ")[0] in {f"process {path.name}" for path in (tmp_path / "asked").iterdir()}
    (note,) = Path(rel.path, "batches", query.id).glob("choice-*")
    assert json.loads(note.read_text())["algorithm"] == reports[0]["algorithm"]
    # A batch DataFrame has a choice of its own.
    batch = hr.enrich(spark.createDataFrame(parts[0]).repartition(4), rel, on="k", memory="8MiB")
    assert batch.count() == sum(1 for k in parts[0]["k"].to_pylist() if k < 500)
    assert len({(p.algorithm, p.why) for p in hr.progress(batch)}) == 1


@pytest.mark.spark
def test_the_models_choose_where_there_is_a_calibration(spark, tmp_path, rel, monkeypatch):
    class Calibrated:
        def as_machine(self):
            return MACHINE

    monkeypatch.setattr(choice, "load_calibration", Calibrated)
    stream = pa.table({"k": np.arange(2000) % 600})
    for order in ("any", "stream"):
        out = hr.enrich(spark.createDataFrame(stream).repartition(3), rel, on="k", order=order, memory="8MiB")
        assert Counter(out.toArrow()["k"].to_pylist()) == Counter(k for k in stream["k"].to_pylist() if k < 500)
        (progress,) = hr.progress(out)
        assert "is expected to join" in progress.why and progress.why.startswith(progress.algorithm)
        assert 0 < sum(progress.stats.memory.values()) <= 8 << 20


@pytest.mark.spark
def test_a_choice_that_no_longer_fits_gives_way_to_adaptive(spark, tmp_path, monkeypatch):
    class Once:
        def choose(self, sample, join, relation):
            from headrace.spark.state.choices import Chosen

            return Chosen("inl", "chosen when the relation was small")

    monkeypatch.setattr(Algorithm, "of", classmethod(lambda cls, join: cls(Chosen("adaptive", ""), Once())))
    # Keys of which no two fit a page make a large index that cannot be read in part. INL has one in each worker, AdaptiveJoin
    # one for all of them.
    keys = [f"{i:02100d}" for i in range(600)]
    stream = spark.createDataFrame(pa.table({"k": [*keys[:300], "x"]})).repartition(2)
    with hr.Relation.create(
        tmp_path / "long", pa.table({"k": keys, "v": range(600)}), key="k", page_size="4KiB"
    ) as rel:
        out = hr.enrich(stream, rel, on="k", memory="4MiB", workers=8)
        assert out.count() == 300
        (progress,) = hr.progress(out)
    assert progress.algorithm == "adaptive" and "inl, chosen at first, no longer fits" in progress.why
