"""Column names as Spark compares them: upper and lower case differ only where spark.sql.caseSensitive says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.conditions import Condition, On, check_condition, parse_on, renamed
from headrace.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTING = "spark.sql.caseSensitive"


@dataclass(frozen=True)
class ColumnNames:
    """How names are compared.

    Example
    -------
    >>> ColumnNames(case_sensitive=False).resolve("Product_ID", ["product_id", "name"])
    'product_id'
    >>> ColumnNames(case_sensitive=True).resolve("Product_ID", ["product_id", "name"])
    'Product_ID'
    """

    case_sensitive: bool

    @classmethod
    def of(cls, session: SparkSession) -> ColumnNames:
        """As a session is set to compare them."""
        return cls.set_to({_SETTING: str(session.conf.get(_SETTING, "false"))})

    @classmethod
    def set_to(cls, settings: Mapping[str, str]) -> ColumnNames:
        """As a session with these settings will compare them."""
        return cls(settings.get(_SETTING, "false").lower() == "true")

    def folded(self, name: str) -> str:
        """The form in which two names are equal if Spark takes them for the same."""
        return name if self.case_sensitive else name.lower()

    def taken(self, name: str, columns: Iterable[str]) -> bool:
        """Whether Spark would take a name for one of some columns."""
        return self.folded(name) in {self.folded(column) for column in columns}

    def resolve(self, name: str, columns: Iterable[str]) -> str:
        """The column that a name stands for, as it is written there; the name itself where there is none, to be refused later."""
        found = sorted({column for column in columns if self.folded(column) == self.folded(name)})
        if len(found) > 1:
            raise BadInput(
                f"{name!r} may be {' or '.join(map(repr, found))}, which Spark does not tell apart; rename one of them, or set"
                f" {_SETTING} to true"
            )
        return found[0] if found else name

    def resolve_on(self, on: On, stream: Sequence[str], relation: Sequence[str]) -> On:
        """What is joined on, with the names that stream and relation have."""
        given = parse_on(on)
        left = tuple(self.resolve(name, stream) for name in given.left)
        right = tuple(self.resolve(name, relation) for name in given.right)
        return on if (left, right) == (given.left, given.right) else dict(zip(left, right, strict=True))

    def resolve_condition(self, condition: Condition, left: Sequence[str], right: Sequence[str]) -> Condition:
        """A condition with the names that its two sides have."""
        check_condition(condition)
        return renamed(condition, lambda name: self.resolve(name, left), lambda name: self.resolve(name, right))

    def free(self, name: str, taken: Iterable[str], suffix: str | None) -> str:
        """The name of a relation's column in a result with other columns: with the suffix if Spark could not tell them apart."""
        if not self.taken(name, taken):
            return name
        if suffix is None:
            raise BadInput(f"column {name!r} is in the stream and in the relation; pick columns=..., or give a suffix")
        if self.taken(name + suffix, taken):
            raise BadInput(
                f"column {name!r} is in the stream and in the relation, and so is {name + suffix!r}; use another suffix"
            )
        return name + suffix
