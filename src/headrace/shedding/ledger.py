"""The ledger of a query that sheds: decisions, timings, shed rows and replays, by micro-batch. (DESIGN D7)

It is a run log of one shard, with these files beside the decisions:

    shed/shard-0000-0000000007-r0_p3.parquet     rows that run 0 shed in partition 3 of batch 7; any tool can read them
    took/0000000007-0-3.json                     what that task did: rows, seconds
    estimate/0000000007-0-3.json                 what its results count for, where that is asked for
    replayed.json                                the batch up to which shed rows were loaded, and how many they were
    finished.json                                the last batch that reached its sink, where hr.load can tell

Every file has a checksum of all its bytes, which is compared before the file is used.

Which rows are shed is decided once per micro-batch, by a cut through the scores of its rows, so that every attempt sheds the
same rows. When the query is restarted and runs a micro-batch again, it writes the shed rows again, since Spark may partition the
rows differently, and the files of the earlier run are removed. A later micro-batch starts only when the last run is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import files
from headrace.errors import RunLogError
from headrace.runlog import RunLog, ShardLog
from headrace.runlog.files import DRAFT, IN_LOG, LogFile, count_rows, read_facts, replace_facts, understood, write_facts
from headrace.shedding.shed_file import ShedDraft
from headrace.shedding.strategies import ALL, Cut

KIND = "shed"
_NOTHING = pa.schema([])
_ESTIMATE = "estimate"
_LOCK = ".lock"  # in the directory of shed rows, held by a replay
_RECENT = 3  # micro-batches that the sustainable rate is estimated from: enough to skip one slow outlier
_KEPT = 20  # micro-batches whose files are kept, besides those with rows to replay
_LEAST = 1e-3  # share of the rows that is kept however slow the join is, so that its rate stays measurable
_SHED = re.compile(r"shard-0000-(\d{10})-r(\d+)_p(\d+)\.parquet")
_TOOK = re.compile(r"(\d{10})-(\d+)-(\d+)\.json")
_TOOK_CURE = "remove it: the rate is then measured without it"


@dataclass(frozen=True)
class Decision:
    """The decision for a micro-batch: rows that score above the cut are kept."""

    cut: Cut = ALL
    share: float = 1.0
    """expected share of the rows that is kept"""
    debt: int = 0
    """rows shed before this micro-batch and not replayed"""
    shed_before: int = 0
    """rows shed before this micro-batch"""


@dataclass(frozen=True)
class TaskRecord:
    """What one task did: its rows, how many it shed, and its time."""

    rows: int
    shed: int
    seconds: float
    executor: str
    partitions: int | None = None
    """partitions of the micro-batch, where the driver knew"""


@dataclass(frozen=True)
class BatchHistory:
    """What is known from earlier micro-batches: the sustainable rate, and the rows shed."""

    rate: float | None
    """rows per second that all tasks together can join: the best recent rate, or the last if that one shed; None if unknown"""
    tasks: int
    """tasks of the last micro-batch that had rows"""
    filled: float
    """share of its partitions that had rows"""
    debt: int
    """rows shed and not replayed"""
    shed: int
    """rows shed"""

    def share(self, rows: int, partitions: int | None, target: float, rate: float | None = None) -> float:
        """Return the share of a micro-batch that can be joined in time; 1 if all of it can, or if nothing is known.

        Parameters
        ----------
        rows
            Rows of one task; the other tasks are assumed to have as many.
        partitions
            Partitions of the micro-batch; as many as in the last one by default.
        target
            Seconds that the micro-batch may take.
        rate
            Rows per second that can be joined; the measured rate by default.
        """
        rate = rate or self.rate
        if rate is None or not rows:
            return 1.0
        parts = self.tasks if partitions is None else max(1.0, partitions * self.filled)
        return min(1.0, max(rate * target / (rows * parts), _LEAST))


class Ledger:
    """The ledger of one operator of one query.

    Parameters
    ----------
    directory, query, operator
        The place of the run log; see `RunLog`.
    """

    def __init__(self, directory: str | Path, query: str, operator: str) -> None:
        self.log = RunLog(directory, query, operator, shards=1)
        self.path = self.log.path
        self._shard = ShardLog(self.path, 0)
        for name in (KIND, "took", _ESTIMATE, self._shard.path.name):
            files.make_directory(self.path / name)

    @classmethod
    def find(cls, directory: str | Path, query: str | None = None) -> list[Ledger]:
        """Find the ledgers below a directory, of one query or of all."""
        return [
            cls(directory, log.query, log.operator)
            for log in RunLog.find(directory, query)
            if files.is_directory(log.path / KIND)
        ]

    # -- one micro-batch -------------------------------------------------------------------------------------------------

    def decided(self, batch: int, run: str) -> tuple[Decision, int] | None:
        """Return the decision for a micro-batch and the number of this run of it, counted from 0; None if nothing is decided."""
        with self.log.shard(0) as shard:
            return self._decided(shard, batch, run)

    def decide(self, batch: int, run: str, decision: Decision) -> tuple[Decision, int]:
        """Record a decision unless there is one; returns the one that holds and the number of this run, as `decided` does."""
        facts = {**asdict(decision), "run": run}
        with self.log.shard(0) as shard:
            shard.write("decision", batch, _NOTHING, (), facts)
            found = self._decided(shard, batch, run)
            self._tidy(shard, batch)
        assert found is not None
        return found

    def _decided(self, shard: ShardLog, batch: int, run: str) -> tuple[Decision, int] | None:
        file = shard.find("decision", batch)
        if file is None:
            return None
        facts = dict(file.facts)
        with understood(file.path):
            decision = Decision(Cut(**facts["cut"]), *(facts[name] for name in ("share", "debt", "shed_before")))
            _check_numbers(
                asdict(decision.cut) | {"share": decision.share, "debt": decision.debt, "shed": decision.shed_before}
            )
        number = 0
        while _run_of(file) != run:
            number += 1
            again = shard.find(f"rerun{number}", batch)
            if again is None:
                shard.write(f"rerun{number}", batch, _NOTHING, (), {"run": run})
                self._forget(batch, number)
                break
            file = again
        return decision, number

    def _forget(self, batch: int, number: int) -> None:
        """Remove the files of shed rows, complete or not, that earlier runs of a micro-batch wrote."""
        for draft in files.paths_in(self.path / KIND, f"{DRAFT}shard-0000-{batch:010d}-*"):
            files.remove(draft)
        for path, (of, run, _) in self._listed(KIND, _SHED):
            if of == batch and run < number:
                files.remove(path)
        for path, (of, run, _) in self._listed(_ESTIMATE, _TOOK):
            if of == batch and run < number:
                files.remove(path)

    def shed_file(self, batch: int, number: int, partition: int) -> Path:
        """Return the path of the file with the rows that a task sheds."""
        return self._shard.kept(KIND, batch, f"r{number}_p{partition}")

    def draft(self, batch: int, number: int, partition: int, schema: pa.Schema) -> ShedDraft:
        """Open a draft of the file with the rows that a task sheds."""
        return ShedDraft(self.shed_file(batch, number, partition), schema)

    def record_task(self, batch: int, number: int, partition: int, record: TaskRecord) -> None:
        """Write what a task did, for decisions about later micro-batches."""
        write_facts(self.path / "took" / f"{batch:010d}-{number}-{partition}.json", asdict(record), IN_LOG)

    def record_estimate(self, batch: int, number: int, partition: int, facts: dict[str, Any]) -> None:
        """Write what the results of a task that shed count for."""
        write_facts(self.path / _ESTIMATE / f"{batch:010d}-{number}-{partition}.json", facts, IN_LOG)

    def estimates(self) -> list[dict[str, Any]]:
        """Return what was recorded of tasks whose shed rows are not replayed; of each micro-batch, of its last run."""
        done, found = self.replayed()[0], []
        for path, (of, run, _) in self._listed(_ESTIMATE, _TOOK):
            if of > done and run == self._last_run(of):
                with suppress(FileNotFoundError):
                    found.append(read_facts(path))
        return found

    # -- earlier ones ----------------------------------------------------------------------------------------------------

    def history(self, batch: int, workers: int) -> BatchHistory:
        """Return what the micro-batches before this one tell.

        Parameters
        ----------
        workers
            Tasks that an executor runs in parallel.
        """
        listed = [entry for entry in self._listed("took", _TOOK) if entry[1][0] < batch]
        recent = sorted({of for _, (of, _, _) in listed})[-_RECENT:]
        runs = {of: max(run for _, (o, run, _) in listed if o == of) for of in recent}  # only the last run is complete
        tasks: dict[int, list[TaskRecord]] = {of: [] for of in recent}
        for path, (of, run, _) in listed:
            if runs.get(of) == run:
                tasks[of].append(_task_record(path))
        rates = [rate for rate in (_rate(tasks[of], workers) for of in recent) if rate]
        if recent and any(t.shed for t in tasks[recent[-1]]):
            rates = rates[
                -1:
            ]  # scoring rows that are shed takes time too, which the rates of quieter micro-batches leave out
        before = self._shard.last("decision", before=batch)
        shed = 0
        if before is not None:
            of = int(before.path.name[:10])
            with understood(before.path):
                shed = int(before.facts["shed_before"]) + sum(t.shed for t in tasks.get(of, ()))
        last = tasks[max(tasks)] if tasks else []
        partitions = next((t.partitions for t in last if t.partitions), None)
        return BatchHistory(
            rate=max(rates, default=None),
            tasks=max(1, len(last)),
            filled=len(last) / partitions if partitions else 1.0,
            debt=max(0, shed - self.replayed()[1]),
            shed=shed,
        )

    def _tidy(self, shard: ShardLog, batch: int) -> None:
        """Remove files that are not needed any more."""
        self._remove_drafts()
        for path, (of, _, _) in self._listed("took", _TOOK):
            if of < batch - _KEPT:
                files.remove(path)
        if batch % _KEPT == 0:
            owed = min((of for _, (of, _, _) in self._listed(KIND, _SHED)), default=batch)
            for kind in {kind for kind, _ in shard.listed()}:
                shard.expire(kind, before=min(owed, batch - _KEPT))

    # -- replay -------------------------------------------------------------------------------------------------

    def last_batch(self) -> int:
        """Return the last micro-batch with a decision; -1 if there is none."""
        entries = self._shard.entries("decision", before=1 << 62)
        return entries[-1].last if entries else -1

    def finished(self) -> int:
        """Return the last micro-batch known to be finished; -1 if there is none. All before the last decision are."""
        try:
            facts = read_facts(self.path / "finished.json")
            with understood(self.path / "finished.json"):
                noted = int(facts["batch"])
        except FileNotFoundError:
            noted = -1
        return max(noted, self.last_batch() - 1)

    def finish(self, batch: int) -> None:
        """Record that a micro-batch is finished. If Spark runs it again all the same, it sheds the same rows."""
        replace_facts(self.path / "finished.json", {"batch": batch}, IN_LOG - 1)

    def owed(self, upto: int) -> dict[int, list[Path]]:
        """Return the files of shed rows to replay, by micro-batch up to `upto`; of each micro-batch those of its last run."""
        done, found = self.replayed()[0], dict[int, list[Path]]()
        for path, (of, run, _) in self._listed(KIND, _SHED):
            if done < of <= upto and run == self._last_run(of):
                found.setdefault(of, []).append(path)
        return dict(sorted(found.items()))

    def debt(self) -> int:
        """Return the number of rows that were shed and not replayed. What a replay removes meanwhile is not counted."""
        rows = 0
        for path in chain.from_iterable(self.owed(self.last_batch()).values()):
            with suppress(FileNotFoundError):
                rows += count_rows(path)
        return rows

    def _last_run(self, batch: int) -> int:
        number = 0
        while self._shard.find(f"rerun{number + 1}", batch) is not None:
            number += 1
        return number

    def replayed(self) -> tuple[int, int]:
        """Return the micro-batch up to which shed rows were replayed (-1 for none), and the number of those rows."""
        try:
            facts = read_facts(self.path / "replayed.json")
            with understood(self.path / "replayed.json"):
                return int(facts["batch"]), int(facts["rows"])
        except FileNotFoundError:
            return -1, 0

    def mark_replayed(self, upto: int) -> None:
        """Record that all shed rows up to a micro-batch were loaded, then remove their files."""
        rows = sum(count_rows(path) for paths in self.owed(upto).values() for path in paths)
        done, before = self.replayed()
        if upto > done:
            replace_facts(self.path / "replayed.json", {"batch": upto, "rows": before + rows}, IN_LOG - 1)
        for path, (of, _, _) in [*self._listed(KIND, _SHED), *self._listed(_ESTIMATE, _TOOK)]:
            if of <= upto:
                files.remove(path)
        self._remove_drafts()

    def _remove_drafts(self) -> None:
        """Remove what killed tasks left. Others may be at work, so only what is an hour old is nobody's."""
        for directory in (self.path, self._shard.path, *(self.path / name for name in (KIND, "took", _ESTIMATE))):
            files.remove_expired(directory, f"{DRAFT}*")

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Hold the lock of a replay; refuses if another replay is running."""
        with files.locked(self.path / KIND / _LOCK) as held:
            if not held:
                raise RunLogError(f"another replay of {self.path} is under way; wait for it to end")
            yield

    def _listed(self, directory: str, name: re.Pattern[str]) -> list[tuple[Path, tuple[int, int, int]]]:
        """List files with their batch, run and partition, sorted by these."""
        matches = ((path, name.fullmatch(path.name)) for path in files.paths_in(self.path / directory))
        found = [(path, (int(m[1]), int(m[2]), int(m[3]))) for path, m in matches if m]
        return sorted(found, key=lambda entry: entry[1])


def _run_of(file: LogFile) -> str:
    with understood(file.path):
        return str(file.facts["run"])


def _task_record(path: Path) -> TaskRecord:
    facts = read_facts(path, _TOOK_CURE)
    with understood(path, _TOOK_CURE):
        record = TaskRecord(**facts)
        _check_numbers(
            {"rows": record.rows, "shed": record.shed, "seconds": record.seconds, "partitions": record.partitions or 0}
        )
        if not isinstance(record.executor, str):
            raise TypeError("executor")
    return record


def _check_numbers(facts: Mapping[str, object]) -> None:
    for name, value in facts.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(name)


def _rate(tasks: list[TaskRecord], workers: int) -> float:
    """Return the rows per second that the tasks of a micro-batch joined together."""
    joined = sum(t.rows - t.shed for t in tasks)
    lanes = workers * len({t.executor for t in tasks})
    seconds = max(max(t.seconds for t in tasks), sum(t.seconds for t in tasks) / lanes)
    return joined / seconds if seconds > 0 else 0.0
