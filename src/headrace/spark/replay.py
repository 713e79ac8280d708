"""`replay`: join and load what was shed, exactly once, so that the warehouse ends complete. [MESH] §4

A replay is one load with a transaction: the number of the last micro-batch whose shed rows are in it. The table's own log says
what is done, so a replay that is killed anywhere is repeated or found to be done; files of shed rows go after the commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from headrace import files
from headrace.errors import BadInput, shown
from headrace.relation import Relation
from headrace.runlog.files import count_rows
from headrace.shedding.ledger import Ledger
from headrace.spark.delta.load import Loaded, load
from headrace.spark.enrich import enrich
from headrace.spark.recorded import Recorded, RecordedJoin
from headrace.spark.shared_paths import local_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Replayed:
    """What a replay did."""

    rows: int
    """shed rows that are joined and loaded now"""
    results: int
    """rows that the table got for them"""
    batches: int
    """micro-batches that they came from"""
    waiting: int
    """shed rows of micro-batches that are not known to be finished: they are left for the next replay"""

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            self.rows + other.rows,
            self.results + other.results,
            self.batches + other.batches,
            self.waiting + other.waiting,
        )


def replay(
    state: str | Path,
    path: str | Path,
    *,
    session: SparkSession | None = None,
    join: Callable[[DataFrame], DataFrame] | None = None,
    query: str | None = None,
    checkpoint: str | Path | None = None,
    partition_by: str | Sequence[str] = (),
    progress: Callable[[int, int | None], None] | None = None,
) -> Replayed:
    """Join and load the rows that `enrich(shed=...)` put aside. It may be repeated, also while the query runs.

    A micro-batch is replayed when it is known to be finished: because a later one has begun, because hr.load loaded it, or
    because the checkpoint says so.

    Parameters
    ----------
    state
        The state= of the query.
    path
        The Delta table to load into.
    session
        The active one by default.
    join
        What becomes of the shed rows before they are loaded: a function from DataFrame to DataFrame. By default they are joined
        as the query did: by the `enrich` that shed them and those after it in the same pass, with the relations as they are now.
        Where the query has unmatched="dead_letter" or "retry", rows without a match go to `dead_letter` beside the shed table.
    query
        The query's id, if the state has several and only one is meant.
    checkpoint
        The query's checkpoint: its last micro-batch is known to be finished from it.
    partition_by
        As in hr.load, if the table is made by this replay.
    progress
        Called with the shed rows that are loaded and, where known, the total: after each operator that shed.
    """
    from pyspark.sql import SparkSession

    spark = session or SparkSession.getActiveSession()
    if spark is None:
        raise BadInput("there is no active Spark session; give session=...")
    ledgers = ledgers_of(Path(state).absolute(), query)
    total = Replayed(0, 0, 0, 0)
    owed = sum(ledger.debt() for ledger in ledgers) if progress else 0  # it reads every file
    if progress:
        progress(0, owed)
    for ledger in ledgers:
        with ledger.replaying():
            total += _replay(ledger, spark, local_table(path), join, checkpoint, partition_by)
        if progress:
            progress(total.rows, owed)
    return total


def ledgers_of(state: Path, query: str | None) -> list[Ledger]:
    """The books of queries that shed; refuses a directory that has none."""
    if not files.is_directory(state):
        raise BadInput(f"state={shown(str(state))} is not a directory; give the state= of the query that shed")
    found = Ledger.find(state, query)
    if not found:
        of = "" if query is None else f" of query {query!r}"
        raise BadInput(f"nothing was shed{of} below {state}; give the state= of the query that shed")
    return found


def _replay(
    ledger: Ledger,
    spark: SparkSession,
    table: Path,
    join: Callable[[DataFrame], DataFrame] | None,
    checkpoint: str | Path | None,
    partition_by: str | Sequence[str],
) -> Replayed:
    app = f"headrace-replay-{ledger.log.query}-{ledger.log.operator}"
    done = _transaction(table, app)
    if done > ledger.replayed()[0]:  # a replay was killed after its commit
        ledger.mark_replayed(done)
    aside = _Aside(ledger.path / "dead_letter", done)
    last = ledger.last_batch()
    finished = max(ledger.finished(), _transaction(table, f"headrace-{ledger.log.query}"), _committed(checkpoint))
    owed = ledger.owed(finished)
    waiting = sum(_rows(paths) for batch, paths in ledger.owed(last).items() if batch > finished)
    if not owed:
        return Replayed(0, 0, 0, waiting)
    upto, files = max(owed), [path for paths in owed.values() for path in paths]
    rows = _rows(files)  # which checks every byte of the files that Spark, whose reader does not, reads next
    recorded = Recorded.read(ledger.path)
    with _Relations() as relations:
        df = _read(spark, files, recorded.schema)
        df = _joined(df, recorded.joins, relations, aside, upto) if join is None else join(df)
        loaded = load(df, table, partition_by=partition_by, transaction=(app, upto))
    assert isinstance(loaded, Loaded)
    ledger.mark_replayed(upto)
    return Replayed(rows, loaded.rows, len(owed), waiting)


def _rows(paths: Sequence[Path]) -> int:
    return sum(count_rows(path) for path in paths)


def _read(spark: SparkSession, files: Sequence[Path], schema: dict[str, Any]) -> DataFrame:
    from pyspark.sql.types import StructType

    # Spark takes a path for a pattern.
    paths = [re.sub(r"([\\{}\[\]*?])", r"\\\1", f"file:{path}") for path in files]
    return spark.read.schema(StructType.fromJson(schema)).parquet(*paths)


class _Relations:
    """Relations open for one job."""

    def __init__(self) -> None:
        self._open: list[Relation] = []

    def open(self, path: str) -> Relation:
        """Open one at its latest version."""
        self._open.append(Relation.open(path))
        return self._open[-1]

    def __enter__(self) -> _Relations:
        return self

    def __exit__(self, *_: object) -> None:
        for relation in self._open:
            relation.close()


class _Aside:
    """Rows of a replay that have no match, where the query keeps such: a directory for each replay and step.

    They are written before the commit. Those of a replay that did not come to it are removed by the next.
    """

    def __init__(self, directory: Path, done: int) -> None:
        self.directory = directory
        for left in files.paths_in(directory, "replay-*", missing_ok=True):
            if int(left.name.split("-")[1]) > done:
                files.remove_tree(left, errors=True)

    def keep(self, rows: DataFrame, upto: int, step: int) -> None:
        """Write rows of a replay."""
        rows.write.mode("overwrite").parquet(f"file:{self.directory / f'replay-{upto:010d}-{step}'}")


def _joined(
    df: DataFrame, joins: Sequence[RecordedJoin | None], relations: _Relations, aside: _Aside, upto: int
) -> DataFrame:
    """The rows through the `enrich` that shed them, and those after it."""
    for i, join in enumerate(joins):
        if join is None:
            raise BadInput(
                "the query has surrogate keys or duplicates after the join that sheds, which its log cannot repeat; give"
                " join=lambda df: ... with the same steps"
            )
        if join.condition is not None:
            raise BadInput(
                f"the query joins by {join.condition}, which its log cannot repeat; give join=lambda df: hr.enrich(df, ...)"
            )
        relation, how = relations.open(join.path), join.how
        if join.unmatched in ("dead_letter", "retry"):
            aside.keep(enrich(df, relation, join.on, "anti", memory=join.memory), upto, i)
            how = "inner"
        df = enrich(
            df,
            relation,
            join.on,
            how,
            memory=join.memory,
            algorithm=join.algorithm,
            order=join.order,
            columns=join.columns,
            suffix=join.suffix,
            version_column=join.version_column,
        )
    return df


def _transaction(table: Path, app: str) -> int:
    """The last number that an application has committed to a table; -1 if none, or there is no table."""
    if not files.is_directory(table) or not DeltaTable.is_deltatable(str(table)):
        return -1
    last = DeltaTable(str(table)).transaction_version(app)
    return -1 if last is None else int(last)


def _committed(checkpoint: str | Path | None) -> int:
    """The last micro-batch that a checkpoint has as finished; -1 if none."""
    if checkpoint is None:
        return -1
    commits = Path(checkpoint) / "commits"
    if not files.is_directory(commits):
        raise BadInput(
            f"checkpoint={shown(str(checkpoint))} has no commits; give the checkpoint of the query that shed"
        )
    return max((int(name) for name in files.names_in(commits) if name.isdigit()), default=-1)
