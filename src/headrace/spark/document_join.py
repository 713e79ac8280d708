"""What `twig_join` and `xquery` have in common on the driver: documents as rows of matches, and the join of these on one key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame

from headrace.conditions import Equal
from headrace.errors import choice
from headrace.progressive.policies import FlushPolicy
from headrace.spark.multiway_join import multiway_join
from headrace.spark.progressive_join import progressive_join
from headrace.spark.xml_fragments import match_documents
from headrace.xml import Limits
from headrace.xml.documents import Partial
from headrace.xml.twig import Pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Documents: TypeAlias = DataFrame | str | Path


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the documents of all sides are read; see `xml_fragments`."""

    spark: SparkSession | None
    streaming: bool
    dead_letters: str | Path | None
    partial: Partial
    memory: int | str
    limits: Limits | None

    def rows(
        self, name: str, documents: Documents, pattern: Pattern, own: Mapping[str, Any], known: Sequence[str]
    ) -> DataFrame:
        """The matches of a pattern, a row each.

        Parameters
        ----------
        name
            What messages call the parameters of this side.
        own
            Parameters of `xml_fragments` for this side alone.
        known
            Those that a side may have.
        """
        for parameter in own:
            choice(name, parameter, known)
        of_directory = {} if isinstance(documents, DataFrame) else {"streaming": self.streaming, "spark": self.spark}
        given: dict[str, Any] = {
            "column": None, "keep": (), "document": None, "options": None, "streaming": False, "spark": None,
            "dead_letters": self.dead_letters, "partial": self.partial, "memory": self.memory, "limits": self.limits,
        }  # fmt: skip
        return match_documents(documents, pattern, **{**given, **of_directory, **own})


@dataclass(frozen=True, kw_only=True)
class KeyedJoin:
    """How the rows of all sides are joined; see `progressive_join`."""

    memory: int | str
    flush: str | FlushPolicy
    state: str | Path | None
    shards: int | None
    partitions: int
    idle: str | float
    workers: int | None

    def of(self, dfs: Sequence[DataFrame], on: Sequence[str]) -> DataFrame:
        """Join sides whose columns have different names; the key comes once, as the first side has it. Null joins nothing."""
        options: dict[str, Any] = {**self.__dict__, "suffix": None}
        # progressive_join is for streams: two batch DataFrames are joined as more are.
        if len(dfs) == 2 and any(df.isStreaming for df in dfs):
            return progressive_join(dfs[0], dfs[1], Equal((on[0],), (on[1],)), **options)
        return multiway_join(dfs, on, **options)
