"""The decision of a micro-batch: what the first attempt at it writes down, and every later attempt follows. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import OtherLog
from headrace.runlog.files import Facts, LogFile, StateDraft, understood
from headrace.runlog.shard import ShardLog

#: The kind of a decision's files.
DECISION = "decision"
_OWN = ("batch", "since", "owed")  # facts that the driver writes beside the operator's


@dataclass(frozen=True)
class Decision:
    """A decision as it is read from the log."""

    file: LogFile
    """its rows, and the facts of the operator"""
    batch: int
    """the micro-batch that it is of; of a compacted file, the last one"""
    since: int
    """the first micro-batch whose decision still holds rows that the operator needs"""
    owed: int
    """how many rows or pairs the operator still had to give out after this micro-batch"""
    finished: bool = False
    """whether `hr.finish` has given out all that was owed, and all of it has arrived"""

    @property
    def facts(self) -> Facts:
        """What the operator noted in its Snapshot."""
        return self.file.facts

    @classmethod
    def of(cls, file: LogFile) -> Decision:
        """Read the driver's own facts; refuse a file that does not have them."""
        if missing := [name for name in _OWN if name not in file.facts]:
            raise OtherLog(
                f"{file.path} does not say {' and '.join(missing)}, so another version of Headrace wrote it; go on with that"
                " version, or begin anew with another state directory and checkpoint"
            )
        with understood(file.path):
            batch, since, owed = (int(file.facts[name]) for name in _OWN)
        return cls(file, batch, since, owed)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What an operator has its decision say, beside the rows that it added to the draft."""

    facts: Mapping[str, Any]
    """anything that JSON can hold; `batch`, `since` and `owed` are names of the driver's"""
    owed: int
    """how many rows or pairs are still to be given out; with 0, there is nothing to finish"""
    since: int | None = None
    """the first micro-batch whose decision is still needed; None: the one that is being decided"""
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """the facts of files beside the decision, by their kind"""


class DecisionDraft:
    """A decision while the first attempt writes it. `commit` makes it visible; without that it leaves nothing. Used by `with`.

    Rows go to disk as they are added. A file is created when its first row comes, so an idle micro-batch writes nothing.

    Parameters
    ----------
    shard
        The shard of the run log, held.
    batch
        The micro-batch's number.
    schema
        Of the decision's rows.
    """

    def __init__(self, shard: ShardLog, batch: int, schema: pa.Schema) -> None:
        self.shard, self.batch, self.schema = shard, batch, schema
        self._stack = ExitStack()
        self._decision: StateDraft | None = None
        self._beside: dict[str, StateDraft] = {}

    def __enter__(self) -> DecisionDraft:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows to the decision."""
        self._open().add(rows)

    def take_back(self) -> Iterator[pa.RecordBatch]:
        """Give all rows that were added, and begin the decision anew without them: the operator changed its mind about them."""
        added, self._decision = self._decision, None
        return iter(()) if added is None else added.read()

    def beside(self, kind: str, schema: pa.Schema) -> StateDraft:
        """Open another file of this micro-batch, which `commit` names, with the facts that the Snapshot has for its kind."""
        self._beside[kind] = self._stack.enter_context(self.shard.draft(kind, self.batch, schema))
        return self._beside[kind]

    def commit(self, snapshot: Snapshot) -> None:
        """Make the decision: the files beside it get their names first, and the decision's own name makes them count."""
        for kind, file in self._beside.items():
            file.commit(snapshot.beside.get(kind, {}))
        since = self.batch if snapshot.since is None else snapshot.since
        self._open().commit({**snapshot.facts, "batch": self.batch, "since": since, "owed": snapshot.owed})

    def _open(self) -> StateDraft:
        if self._decision is None:
            self._decision = self._stack.enter_context(self.shard.draft(DECISION, self.batch, self.schema))
        return self._decision
