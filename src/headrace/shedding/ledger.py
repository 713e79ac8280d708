"""The books of a query that sheds: what was decided for each micro-batch, what it took, what was shed, what is owed. (DESIGN D7)

A run log of one shard, and beside its decisions:

    shed/shard-0000-0000000007-r0_p3.parquet     rows that run 0 shed in partition 3 of batch 7, for any tool
    took/0000000007-0-3.json                     what that task took: rows, seconds
    replayed.json                                up to which batch shed rows are loaded, and how many
    finished.json                                a batch that has reached its sink, where hr.load can say

Which rows are shed is decided once for a micro-batch, by a cut through the scores of its rows, so that every attempt sheds the
same. A run of the query that does a micro-batch over writes its shed rows anew, since Spark may have divided the rows otherwise;
files of the run before go. A later micro-batch can begin only when the last run of this one is whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from headrace.errors import RunLogError
from headrace.runlog import RunLog, ShardLog
from headrace.runlog.files import DRAFT, count_rows, replace_text, write_text
from headrace.shedding.shed_file import ShedDraft
from headrace.shedding.strategies import ALL, Cut

KIND = "shed"
_NOTHING = pa.schema([])
_RECENT = 3  # micro-batches that the sustainable rate is taken from
_KEPT = 20  # micro-batches whose books are kept, beside those that rows are owed of
_LEAST = 1e-3  # of the rows, what is kept however slow the join is
_SHED = re.compile(r"shard-0000-(\d{10})-r(\d+)_p(\d+)\.parquet")
_TOOK = re.compile(r"(\d{10})-(\d+)-(\d+)\.json")


@dataclass(frozen=True)
class Decision:
    """What is kept of a micro-batch: all that lies above a cut."""

    cut: Cut = ALL
    share: float = 1.0
    """of the rows, as expected"""
    debt: int = 0
    """rows shed before this micro-batch and not replayed"""
    shed_before: int = 0
    """rows shed before this micro-batch"""


@dataclass(frozen=True)
class TaskRecord:
    """What one task did."""

    rows: int
    shed: int
    seconds: float
    executor: str
    partitions: int | None = None
    """of the micro-batch, where the driver could say"""


@dataclass(frozen=True)
class BatchHistory:
    """What earlier micro-batches tell."""

    rate: float | None
    """rows a second that can be joined, all tasks together: the best of late, or of an overloaded micro-batch; None: not known"""
    tasks: int
    """that had rows, in the last micro-batch"""
    filled: float
    """the share of its partitions that had"""
    debt: int
    shed: int

    def share(self, rows: int, partitions: int | None, target: float, rate: float | None = None) -> float:
        """The share of a micro-batch that can be joined in time; 1 where all can, or nothing is known.

        Parameters
        ----------
        rows
            Of one task, which the others are taken to be like.
        partitions
            Of the micro-batch; those of the last one by default.
        target
            Seconds that it may take.
        rate
            Rows a second that can be joined; what is learned by default.
        """
        rate = rate or self.rate
        if rate is None or not rows:
            return 1.0
        parts = self.tasks if partitions is None else max(1.0, partitions * self.filled)
        return min(1.0, max(rate * target / (rows * parts), _LEAST))


class Ledger:
    """The books of one operator of one query.

    Parameters
    ----------
    directory, query, operator
        See RunLog.
    """

    def __init__(self, directory: str | Path, query: str, operator: str) -> None:
        self.log = RunLog(directory, query, operator, shards=1)
        self.path = self.log.path
        self._shard = ShardLog(self.path, 0)
        for name in (KIND, "took", self._shard.path.name):
            (self.path / name).mkdir(exist_ok=True)

    @classmethod
    def find(cls, directory: str | Path, query: str | None = None) -> list[Ledger]:
        """The books below a directory, of one query or of all."""
        return [
            cls(directory, log.query, log.operator)
            for log in RunLog.find(directory, query)
            if (log.path / KIND).is_dir()
        ]

    # -- one micro-batch -------------------------------------------------------------------------------------------------

    def decided(self, batch: int, run: str) -> tuple[Decision, int] | None:
        """What was decided for a micro-batch, and the number of this run among those that did it; None before the first."""
        with self.log.shard(0) as shard:
            return self._decided(shard, batch, run)

    def decide(self, batch: int, run: str, decision: Decision) -> tuple[Decision, int]:
        """The same, and if nothing was decided, this is."""
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
        decision = Decision(Cut(**facts["cut"]), facts["share"], facts["debt"], facts["shed_before"])
        number = 0
        while facts["run"] != run:
            number += 1
            again = shard.find(f"rerun{number}", batch)
            if again is None:
                shard.write(f"rerun{number}", batch, _NOTHING, (), {"run": run})
                self._forget(batch, number)
                break
            facts = again.facts
        return decision, number

    def _forget(self, batch: int, number: int) -> None:
        """Remove what earlier runs shed of a micro-batch that is done over, whole files and begun ones."""
        for draft in (self.path / KIND).glob(f"{DRAFT}shard-0000-{batch:010d}-*"):
            draft.unlink(missing_ok=True)
        for path, (of, run, _) in self._listed(KIND, _SHED):
            if of == batch and run < number:
                path.unlink(missing_ok=True)

    def shed_file(self, batch: int, number: int, partition: int) -> Path:
        """Where a task writes what it sheds."""
        return self._shard.kept(KIND, batch, f"r{number}_p{partition}")

    def draft(self, batch: int, number: int, partition: int, schema: pa.Schema) -> ShedDraft:
        """A file for what a task sheds, while it is written."""
        return ShedDraft(self.shed_file(batch, number, partition), schema)

    def record_task(self, batch: int, number: int, partition: int, record: TaskRecord) -> None:
        """Write what a task did, for decisions about later micro-batches."""
        write_text(self.path / "took" / f"{batch:010d}-{number}-{partition}.json", json.dumps(asdict(record)))

    # -- earlier ones ----------------------------------------------------------------------------------------------------

    def history(self, batch: int, workers: int) -> BatchHistory:
        """What the micro-batches before this one tell.

        Parameters
        ----------
        workers
            Tasks that an executor runs at the same time.
        """
        listed = [entry for entry in self._listed("took", _TOOK) if entry[1][0] < batch]
        recent = sorted({of for _, (of, _, _) in listed})[-_RECENT:]
        runs = {of: max(run for _, (o, run, _) in listed if o == of) for of in recent}  # the last did it to the end
        tasks: dict[int, list[TaskRecord]] = {of: [] for of in recent}
        for path, (of, run, _) in listed:
            if runs.get(of) == run:
                tasks[of].append(TaskRecord(**json.loads(path.read_text())))
        rates = [rate for rate in (_rate(tasks[of], workers) for of in recent) if rate]
        if recent and any(t.shed for t in tasks[recent[-1]]):
            rates = rates[-1:]  # looking at rows that are shed takes time too, which quieter micro-batches do not show
        before = self._shard.last("decision", before=batch)
        shed = 0
        if before is not None:
            of = int(before.path.name[:10])
            shed = before.facts["shed_before"] + sum(t.shed for t in tasks.get(of, ()))
        last = tasks[max(tasks)] if tasks else []
        partitions = next((t.partitions for t in last if t.partitions), None)
        return BatchHistory(
            max(rates, default=None),
            max(1, len(last)),
            len(last) / partitions if partitions else 1.0,
            max(0, shed - self.replayed()[1]),
            shed,
        )

    def _tidy(self, shard: ShardLog, batch: int) -> None:
        """Remove books that nobody needs any more."""
        for path, (of, _, _) in self._listed("took", _TOOK):
            if of < batch - _KEPT:
                path.unlink(missing_ok=True)
        if batch % _KEPT == 0:
            owed = min((of for _, (of, _, _) in self._listed(KIND, _SHED)), default=batch)
            for kind in {kind for kind, _ in shard.listed()}:
                shard.expire(kind, before=min(owed, batch - _KEPT))

    # -- what is owed ----------------------------------------------------------------------------------------------------

    def last_batch(self) -> int:
        """The last micro-batch that was decided on; -1 if none was."""
        entries = self._shard.entries("decision", before=1 << 62)
        return entries[-1].last if entries else -1

    def finished(self) -> int:
        """The last micro-batch that is known to be finished; -1 if none. One is when a later one has begun, at the latest."""
        try:
            noted = int(json.loads((self.path / "finished.json").read_text())["batch"])
        except FileNotFoundError:
            noted = -1
        return max(noted, self.last_batch() - 1)

    def finish(self, batch: int) -> None:
        """Note that a micro-batch is finished. If it runs again all the same, it sheds the same rows."""
        replace_text(self.path / "finished.json", json.dumps({"batch": batch}))

    def owed(self, upto: int) -> dict[int, list[Path]]:
        """Files of shed rows that are not replayed, by micro-batch up to one; of each micro-batch those of its last run."""
        done, found = self.replayed()[0], dict[int, list[Path]]()
        for path, (of, run, _) in self._listed(KIND, _SHED):
            if done < of <= upto and run == self._last_run(of):
                found.setdefault(of, []).append(path)
        return dict(sorted(found.items()))

    def debt(self) -> int:
        """Rows that are shed and not replayed."""
        return sum(count_rows(path) for paths in self.owed(self.last_batch()).values() for path in paths)

    def _last_run(self, batch: int) -> int:
        number = 0
        while self._shard.find(f"rerun{number + 1}", batch) is not None:
            number += 1
        return number

    def replayed(self) -> tuple[int, int]:
        """Up to which micro-batch shed rows are loaded, -1 for none, and how many rows they were."""
        try:
            facts = json.loads((self.path / "replayed.json").read_text())
            return int(facts["batch"]), int(facts["rows"])
        except FileNotFoundError:
            return -1, 0

    def mark_replayed(self, upto: int) -> None:
        """Note that all shed rows up to a micro-batch are loaded, then remove their files."""
        rows = sum(count_rows(path) for paths in self.owed(upto).values() for path in paths)
        done, before = self.replayed()
        if upto > done:
            replace_text(self.path / "replayed.json", json.dumps({"batch": upto, "rows": before + rows}))
        for path, (of, _, _) in self._listed(KIND, _SHED):
            if of <= upto:
                path.unlink(missing_ok=True)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Be the only one who replays; refuses if another does."""
        fd = os.open(self.path / KIND, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise RunLogError(f"another replay of {self.path} is under way; wait for it to end") from error
        finally:
            os.close(fd)

    def _listed(self, directory: str, name: re.Pattern[str]) -> list[tuple[Path, tuple[int, int, int]]]:
        """Files with their batch, run and partition, in this order."""
        matches = ((path, name.fullmatch(path.name)) for path in (self.path / directory).iterdir())
        found = [(path, (int(m[1]), int(m[2]), int(m[3]))) for path, m in matches if m]
        return sorted(found, key=lambda entry: entry[1])


def _rate(tasks: list[TaskRecord], workers: int) -> float:
    """Rows a second that the tasks of a micro-batch joined together."""
    joined = sum(t.rows - t.shed for t in tasks)
    lanes = workers * len({t.executor for t in tasks})
    seconds = max(max(t.seconds for t in tasks), sum(t.seconds for t in tasks) / lanes)
    return joined / seconds if seconds > 0 else 0.0
