"""`load`: append a DataFrame to a Delta table, exactly once. (DESIGN D8)

Python workers write the Parquet files, in the same pass that enriches where there is one; the driver commits them all at once
through delta-rs, together with the number of the micro-batch. A micro-batch that runs again finds its number and does nothing.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from headrace import files
from headrace.clock import SystemClock
from headrace.errors import BadInput, HeadraceError
from headrace.spark.batches import check_options, check_transaction
from headrace.spark.dataframes import check_dataframe
from headrace.spark.delta.files import FACTS, TableFiles, gathered_for
from headrace.spark.delta.log_sync import LOG as _LOG
from headrace.spark.delta.log_sync import refuse_cut_short, sync_entries, sync_table
from headrace.spark.delta.schema import check_partitions, check_schema, delta_types
from headrace.spark.plan import Plan
from headrace.spark.schemas import stream_schema
from headrace.spark.shared_paths import local_table
from headrace.spark.sinks import NumberedSink, writing_task
from headrace.units import format_duration, format_size

if TYPE_CHECKING:
    from deltalake.transaction import RemoveAction  # of deltalake 1.6.6: older ones do without it
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_log = logging.getLogger(__name__)
_CLOCK = SystemClock()  # of what is logged

_TRIES = 50  # commits that lost against other writers, before giving up


@dataclass(frozen=True)
class Loaded:
    """What a load of a batch DataFrame did."""

    version: int
    """version of the table that holds the rows"""
    rows: int
    files: int
    bytes: int
    repeated: bool
    """whether the transaction was committed before, so nothing was written"""


def load(
    df: DataFrame,
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    partition_by: str | Sequence[str] = (),
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    transaction: tuple[str, int] | None = None,
) -> StreamingQuery | Loaded:
    """Append a DataFrame, streaming or batch, to a Delta table, exactly once. The table is made if it is not there.

    Parameters
    ----------
    df
        What to load. If `enrich` gave it, rows are joined and written in one pass.
    path
        The table's directory, which driver and executors see under the same path.
    checkpoint
        Of a streaming DataFrame: where Spark keeps its offsets. Started again with it, the query goes on.
    partition_by
        Columns to partition the table by: text, whole numbers, dates or booleans.
    trigger
        Of a streaming DataFrame: as in `writeStream.trigger`: {"processingTime": "1 second"} or {"availableNow": True}.
    name
        Of a streaming DataFrame: the query's name.
    transaction
        Of a batch DataFrame: the application's name and a number. A load with a number that is not higher than the last one of
        that application does nothing, so a job may be repeated.

    Returns
    -------
    StreamingQuery | Loaded
        The started query of a streaming DataFrame; what was written of a batch one.
    """
    check_dataframe(df)
    plan = Plan.of(df)
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    check_options(df, checkpoint, trigger, name, transaction)
    numbered = check_transaction(transaction)
    sink = Sink(local_table(path), plan, by)
    if not df.isStreaming:
        return sink.load(plan.source, *numbered, plan)
    return sink.start(checkpoint, trigger, name)


class Sink(NumberedSink[Loaded]):
    """The table, seen from the driver.

    Parameters
    ----------
    path
        The table's directory.
    plan
        What is loaded.
    partition_by
        Columns to partition by.
    """

    def __init__(self, path: Path, plan: Plan, partition_by: tuple[str, ...]) -> None:
        super().__init__(plan)
        self.path = path
        self.partition_by = partition_by
        self.schema = delta_types(stream_schema(plan.schema))
        self.table = self._open_or_create()
        self.required = check_schema(self.table, self.schema, partition_by, path)
        self._begun: dict[str, int] = {}  # last number of an application when this run began
        self._swept: set[str] = set()

    def _open_or_create(self) -> DeltaTable:
        check_partitions(self.schema, self.partition_by)
        for _ in range(_TRIES):
            refuse_cut_short(self.path)
            free = _free(self.path)  # looked at first: somebody else may make the table in between
            if files.is_directory(self.path) and DeltaTable.is_deltatable(str(self.path)):
                table = DeltaTable(str(self.path))
                sync_table(self.path)
                return table
            if not free:
                raise BadInput(f"{self.path} exists and is not a Delta table; give another path, or remove it")
            with suppress(CommitFailedError):  # somebody else made it this moment: look again
                files.make_directory(self.path, parents=True, private=False)
                # No retry inside: it would make the table again, over the other's.
                table = DeltaTable.create(
                    str(self.path),
                    DeltaSchema.from_arrow(self.schema),
                    mode="ignore",
                    partition_by=list(self.partition_by),
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                sync_table(self.path)
                return table
        raise HeadraceError(
            f"the table at {self.path} could not be made; load again when there are fewer other writers"
        )

    def nothing(self) -> Loaded:
        """The result of a load without rows: the table stays at its version."""
        return Loaded(self.table.version(), 0, 0, 0, repeated=False)

    def load(self, df: DataFrame, app: str, number: int, plan: Plan, finish: str | None = None) -> Loaded:
        """Write and commit the rows of a batch DataFrame, unless this transaction was committed before."""
        last = self.last(app)
        self._begun.setdefault(app, last)
        begun = _CLOCK.now()
        if last >= number:
            _log.info("%s: micro-batch %d was committed before a restart; nothing is written again", self.path, number)
            # The run that committed it may have been stopped before the entry of the log was on disk.
            sync_entries(self.path, self.table.version(), app)
            return self._repeated()
        target = TableFiles(
            str(self.path),
            self.schema,
            self.partition_by,
            self.required,
            f"{_prefix(app)}-{number:010d}",
            gathered_for(plan.worker_memory),
        )
        rows = plan.map(df, FACTS, writing_task(plan, df, target, finish)).collect()
        facts = [json.loads(row.facts) for row in rows]
        if facts:
            if not self.commit(facts, app, number):
                for f in facts:
                    files.remove(self.path / f["path"])
                return self._repeated()
            self._sweep(app, number)
        loaded = Loaded(
            self.table.version(),
            sum(f["stats"]["numRecords"] for f in facts),
            len(facts),
            sum(f["size"] for f in facts),
            repeated=False,
        )
        _log.info(
            "%s: micro-batch %d is version %d: %s rows in %d files, %s, in %s",
            self.path,
            number,
            loaded.version,
            f"{loaded.rows:,}",
            loaded.files,
            format_size(loaded.bytes),
            format_duration(_CLOCK.now() - begun),
        )
        return loaded

    def _repeated(self) -> Loaded:
        return Loaded(self.table.version(), 0, 0, 0, repeated=True)

    def last(self, app: str) -> int:
        """The application's last number in the table as it is now, -1 if none; refuses a table whose columns have changed."""
        self.table.update_incremental()
        self.required = check_schema(self.table, self.schema, self.partition_by, self.path)
        last = self.table.transaction_version(app)
        return -1 if last is None else int(last)

    def commit(self, facts: list[dict[str, Any]], app: str, number: int) -> bool:
        """Add the files in one commit with the transaction's number; False if somebody else committed that number."""
        for _ in range(_TRIES):
            actions: list[AddAction | RemoveAction] = [
                AddAction(
                    path=f["path"],
                    size=f["size"],
                    partition_values=f["values"],
                    modification_time=f["written"],
                    data_change=True,
                    stats=json.dumps(f["stats"]),
                )
                for f in facts
            ]
            try:
                # No retry inside: after a lost race the transaction's number has to be looked at again.
                self.table.create_write_transaction(
                    actions,
                    "append",
                    DeltaSchema.from_arrow(self.schema),
                    list(self.partition_by),
                    commit_properties=CommitProperties(
                        max_commit_retries=0, app_transactions=[Transaction(app, number)]
                    ),
                )
            except CommitFailedError:
                if self.last(app) >= number:
                    return False
                _log.info("%s: another writer committed first; micro-batch %d is tried again", self.path, number)
                continue
            self.table.update_incremental()  # a commit leaves the object at the version before
            sync_entries(self.path, self.table.version(), app)
            return True
        raise HeadraceError(
            f"the commit to {self.path} lost against other writers {_TRIES} times; load again when they are fewer"
        )

    def _sweep(self, app: str, number: int) -> None:
        """Once a run: remove files that earlier runs of this application wrote and did not commit.

        Only after the run's first commit: until then somebody who is only thought dead may commit them, but not once the number
        is taken.
        """
        if app in self._swept:
            return
        self._swept.add(app)
        found = [
            f
            for f in files.files_below(self.path, f"{_prefix(app)}-*.parquet")
            if self._begun[app] < _number(f, app) <= number
        ]
        added = pa.table(self.table.get_add_actions())["path"].to_pylist() if found else []
        committed = {path.rpartition("/")[2] for path in added}
        for file in found:
            if file.name not in committed:
                files.remove(file)
                _log.info("removed %s, which a run wrote that was stopped before its commit", file)


def _number(file: Path, app: str) -> int:
    return int(file.name.removeprefix(_prefix(app)).split("-")[1])


def _prefix(app: str) -> str:
    return f"part-{uuid.uuid5(uuid.NAMESPACE_OID, app).hex[:12]}"


def _free(path: Path) -> bool:
    """Whether a table can be made there: nothing is, or what a create left that was killed before its commit."""
    try:
        alone = all(f.name == _LOG and files.is_directory(f) for f in files.paths_in(path))
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False
    entries = files.paths_in(path / _LOG, missing_ok=True)
    begun = (f for f in entries if f.name[:20].isdigit() and f.suffix in (".json", ".parquet"))
    return alone and not any(begun)
