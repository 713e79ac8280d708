"""Pipeline: a parsed pipeline file, with a source, further ones that steps join with, steps in order, and one sink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import Field

from headrace.pipeline.document import Document
from headrace.pipeline.fields import Duration, Name, Settings, Text
from headrace.pipeline.parts import Sink, Source, Step
from headrace.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


class PipelineSettings(Section):
    """The keys of the file before its tables."""

    name: Name
    state: Text | None = None
    every: Duration = "1s"
    cores: int | None = Field(None, ge=1)
    spark: Settings = Field(default_factory=dict)


class Pipeline:
    """A parsed pipeline file; see `read_pipeline`. No `repr` shows values from the environment."""

    def __init__(
        self,
        document: Document,
        head: PipelineSettings,
        source: Source,
        steps: tuple[Step, ...],
        sink: Sink,
        sources: Mapping[str, Source] = MappingProxyType({}),
    ) -> None:
        self.document = document
        self.head = head
        self.source = source
        self.steps = steps
        self.sink = sink
        self.sources = sources  # those that steps join with, by name

    @property
    def name(self) -> str:
        """The name of the pipeline and of its query."""
        return self.head.name

    @property
    def state(self) -> Path:
        """The directory of its checkpoint, dead letters and log."""
        return self.at(self.head.state or f"{self.name}.state")

    @property
    def checkpoint(self) -> Path:
        """The directory of Spark's checkpoint."""
        return self.state / "checkpoint"

    @property
    def run_log(self) -> Path:
        """The directory of the run log, with rows that wait or were shed."""
        return self.state / "run-log"

    @property
    def dead_letters(self) -> Path:
        """The directory of records that could not be read."""
        return self.state / "dead-letters"

    def at(self, path: str) -> Path:
        """Resolve a path of the file; a relative one starts at the file's directory."""
        return self.document.at(path)

    def check(self) -> None:
        """Check what can be checked without Spark: paths, relations, columns and their types."""
        from headrace.pipeline.check import check_pipeline

        check_pipeline(self)

    def explain(self) -> dict[str, Any]:
        """Return the plan: the parts in order, the algorithms and why, the memory."""
        from headrace.pipeline.check import check_pipeline
        from headrace.pipeline.explain import explain

        return explain(self, check_pipeline(self))

    def start(self, spark: SparkSession, *, once: bool = False) -> StreamingQuery:
        """Start the query on a given Spark session; with `once`, it reads what is available and ends."""
        from headrace.pipeline.build import start

        return start(self, spark, once=once)

    def __repr__(self) -> str:
        return f"Pipeline({str(self.document.path)!r}, name={self.name!r})"
