"""Notes: what a DeferredJoin knows after a micro-batch without reading the rows that stayed behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Self

from headrace.errors import RelationReplaced
from headrace.relation import Relation
from headrace.runlog import Decision
from headrace.semistream.deferred.remaining import Remaining


@dataclass(kw_only=True)
class Notes:
    """The facts of a decision. Times are seconds of the wall clock."""

    at: float = -inf
    """when the micro-batch began; -inf if there was none, or nothing is known of it any more"""
    run: str = ""
    """the run of the query that it was of"""
    first: bool = True
    """whether it was the first of its run, which takes longer than others: Spark compiles its plans, workers open relations"""
    decided: float = -inf
    """when the decision was made"""
    rows: int = 0
    """rows of the stream in it"""
    deadline: float | None = None
    """seconds within which rows are to leave"""
    warning: str = ""
    """why the deadline cannot be kept, if it cannot"""
    fresh: int = 0
    """rows of this micro-batch that pages have to be read for, in it or later"""
    waiting: int = 0
    """rows of all micro-batches that do"""
    earliest: float = inf
    """when the first of those came"""
    retrying: int = 0
    """rows that wait for a new version of the relation"""
    tried: int = 0
    """the oldest version in which one of those had no match"""
    oldest: float = inf
    """when the first of those came"""
    version: int = 0
    """the version of the relation that the micro-batch was joined with"""
    identity: str = ""
    """the identity of that relation; one made in its place has another"""
    batches: list[list[float]] = field(default_factory=list)
    """how long micro-batches took lately, as BatchTimes keeps it"""
    joins: list[list[float]] = field(default_factory=list)
    """how long join phases took, as BatchTimes keeps it"""

    @property
    def owed(self) -> int:
        """Rows that have not left."""
        return self.waiting + self.retrying

    def add(self, remaining: Remaining) -> None:
        """Count rows that stay behind beside those that were counted before."""
        if remaining.retrying:
            self.tried = min(self.tried, remaining.tried) if self.retrying else remaining.tried
        self.waiting += remaining.waiting
        self.earliest = min(self.earliest, remaining.earliest)
        self.retrying += remaining.retrying
        self.oldest = min(self.oldest, remaining.oldest)

    def check_relation(self, relation: Relation, log: Path) -> None:
        """Refuse to join rows that wait with another relation than the one that they were looked up in when they came."""
        if self.owed and self.identity != relation.identity:
            raise RelationReplaced(
                f"{self.owed:,} rows wait in {log} that came before another relation was made in the place of {relation.path}"
                " (Relation.create with overwrite=True); hr.finish(..., on_replaced='join') joins them with the new relation, and"
                " then the query can go on, or begin anew with another state directory and checkpoint"
            )

    def as_facts(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, decision: Decision | None) -> Self:
        """Read the notes of a decision; if all that it left was given out by hr.finish, only the times still hold.

        Facts that an earlier release did not note have their defaults.
        """
        if decision is None:
            return cls()
        known = ("batches", "joins") if decision.finished else tuple(cls.__dataclass_fields__)
        return cls(**{name: decision.facts[name] for name in known if name in decision.facts})
