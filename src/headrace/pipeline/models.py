"""A pipeline file that was understood: one source, steps in their order, one sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from headrace.pipeline.document import Document, filled
from headrace.pipeline.fields import Duration, Name, Settings, Text
from headrace.pipeline.parts import Section, Sink, Source, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Head(Section):
    """What stands before the tables."""

    name: Name
    state: Text | None = None
    every: Duration = "1s"
    cores: int | None = Field(None, ge=1)
    spark: Settings = Field(default_factory=dict)


class Pipeline:
    """A pipeline file that was read and understood: see `read_pipeline`. Values from the environment are in no `repr`."""

    def __init__(self, document: Document, head: Head, source: Source, steps: tuple[Step, ...], sink: Sink) -> None:
        self.document = document
        self.head = head
        self.source = source
        self.steps = steps
        self.sink = sink

    @property
    def name(self) -> str:
        """Of the pipeline and of its query."""
        return self.head.name

    @property
    def state(self) -> Path:
        """Where it keeps its checkpoint, dead letters and log."""
        return self.at(self.head.state or f"{self.name}.state")

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps its offsets."""
        return self.state / "checkpoint"

    @property
    def run_log(self) -> Path:
        """Where rows wait, or are put aside."""
        return self.state / "run-log"

    @property
    def dead_letters(self) -> Path:
        """Where records go that could not be read."""
        return self.state / "dead-letters"

    def at(self, path: str) -> Path:
        """A path of the file: a relative one begins at the file's directory."""
        return (self.document.path.parent / filled(path)).absolute()

    def check(self) -> None:
        """Refuse what cannot run, as far as that can be seen without Spark: paths, relations, columns and their types."""
        from headrace.pipeline.check import check_pipeline

        check_pipeline(self)

    def explain(self) -> dict[str, Any]:
        """The plan: the parts in order, the algorithms and why, the memory."""
        from headrace.pipeline.check import check_pipeline
        from headrace.pipeline.explain import explain

        return explain(self, check_pipeline(self))

    def start(self, spark: SparkSession, *, once: bool = False) -> StreamingQuery:
        """Start the query on a Spark of yours; with `once` it takes what is there, and ends."""
        from headrace.pipeline.build import start

        return start(self, spark, once=once)

    def __repr__(self) -> str:
        return f"Pipeline({str(self.document.path)!r}, name={self.name!r})"
