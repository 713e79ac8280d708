"""What a check has found: the columns on their way, and mistakes, each noted with its place in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.errors import DamagedRelation, HeadraceError
from headrace.pipeline.document import BadPipeline, Document, Key, dotted, near
from headrace.pipeline.read import Draft
from headrace.semistream.base import SemiStreamJoin
from headrace.spark.column_names import ColumnNames


@dataclass(frozen=True)
class Columns:
    """What is known of the columns at some place of the pipeline."""

    names: tuple[str, ...]
    """their names; where a mistake hides which there are, all that there may be"""
    schema: pa.Schema | None = None
    """their types too; None if a mistake hides them"""

    @classmethod
    def of(cls, schema: pa.Schema) -> Columns:
        """Columns whose types are known."""
        return cls(tuple(schema.names), schema)


@dataclass
class Checked:
    """The results of a check."""

    schemas: list[pa.Schema | None] = field(default_factory=list)
    """columns after the source and after each step; None where only Spark knows them, or a mistake hides them"""
    operators: dict[int, SemiStreamJoin] = field(default_factory=dict)
    """the joins of the enrich steps, by the step's number"""
    sources: dict[str, Columns | None] = field(default_factory=dict)
    """columns of the sources that steps join with, as far as they are known"""
    spark: list[Key] = field(default_factory=list)
    """expressions that only Spark can check"""


@contextmanager
def located(document: Document, key: Key) -> Iterator[None]:
    """Attach a place in the file to errors that are raised inside."""
    try:
        yield
    except BadPipeline:
        raise
    except (HeadraceError, OSError) as error:
        problem = document.problem(key, str(error), damaged=isinstance(error, DamagedRelation))
        raise BadPipeline([problem]) from error


class Noting:
    """Note errors that are raised inside as mistakes of the file, those of other libraries among them."""

    def __init__(self, draft: Draft, key: Key) -> None:
        self.draft, self.key = draft, key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        draft = self.draft
        if isinstance(error, BadPipeline):
            hidden = {dotted(found) for found in draft.faulty}
            draft.problems += [problem for problem in error.problems if problem.key not in hidden]
        elif isinstance(error, HeadraceError | OSError):
            draft.note(self.key, str(error), damaged=isinstance(error, DamagedRelation))
        elif isinstance(error, Exception):
            words = " ".join(str(error).strip().split("\n\n")[0].split())
            draft.note(self.key, f"{type(error).__name__}: {words}")
        return isinstance(error, Exception)


def refuse(document: Document, key: Key, message: str) -> BadPipeline:
    """Make the error for one place."""
    return BadPipeline([document.problem(key, message)])


def check_column(document: Document, key: Key, name: str, names: Iterable[str]) -> None:
    """Refuse a column that does not exist."""
    if name not in names:
        raise refuse(document, key, f"there is no column {name!r}; {near(name, names)}")


def column_names(draft: Draft) -> ColumnNames:
    """Return how the pipeline's Spark will compare names of columns."""
    return ColumnNames.set_to({} if draft.head is None else draft.head.spark)
