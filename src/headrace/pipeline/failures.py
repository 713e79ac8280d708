"""Messages for failed pipelines: the reason, which Spark wraps in tracebacks of Python and Java, and what to do."""

from __future__ import annotations

import re
from typing import Any

from headrace.errors import DamagedRelation, innermost
from headrace.pipeline.models import Pipeline

_AGAIN = "what is loaded stays loaded, and another run goes on from there"
_SPACE = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_READ_ONLY = re.compile(r"Read-only file system|Permission denied|Operation not permitted")
_TYPE = re.compile(r"reading file (\S+?)\.\s+.*?Expected Spark type (\S+?), actual Parquet type (\S+?)\.", re.DOTALL)
_COLUMN = re.compile(r"column: \[?(\w+)\]?")
_HEADER = re.compile(
    r"CSV header does not conform to the schema\.\s*Header: (.*?)\s*Schema: (.*?)\s*Expected: .*?CSV file: (\S+)",
    re.DOTALL,
)
_FILE = re.compile(r"reading file (file:\S+?)\.\s")
_GONE = re.compile(r"errors\.(?:NotARelation|UnfinishedRelation): (.+)")
_DAMAGED = re.compile(r"errors\.DamagedRelation: (.+)")
_PATH = re.compile(r"'(/[^']+)'|: (/\S+) \((?:No space|Read-only|Permission)|FileFault: (/.+?): (?=[A-Z])")


def words_of(failure: Any, pipeline: Pipeline) -> str:
    """Return the message for a query that failed."""
    return pipeline.document.hide(_words(str(failure), pipeline))


def found_damage(failure: Any) -> bool:
    """Whether a query failed because a relation is damaged. Spark has the worker's exception as text only."""
    return isinstance(failure, DamagedRelation) or _DAMAGED.search(str(failure)) is not None


def _words(text: str, pipeline: Pipeline) -> str:
    columns = " or ".join(["[source.columns]", *(f"[sources.{name}.columns]" for name in pipeline.sources)])
    if found := _DAMAGED.search(text):
        return f"a relation is damaged: {found[1]}; put back a copy, or create it anew, and run again: {_AGAIN}"
    if found := _GONE.search(text):
        return f"a relation was removed while the pipeline ran: {found[1]}; put it back and run again: {_AGAIN}"
    if _SPACE.search(text):
        return f"the disk is full{_at(text)}; make room and run again: {_AGAIN}"
    if _READ_ONLY.search(text):
        return f"a directory cannot be written to{_at(text)}; give the right to write there and run again: {_AGAIN}"
    if found := _TYPE.search(text):
        column = _COLUMN.search(text)
        name = f"column {column[1]!r} of " if column else ""
        return (
            f"the source has changed: {name}{found[1]} is {found[3]}, and {pipeline.document.path} declares {found[2]}; remove"
            f" the file, or change {columns} and the sink; {_AGAIN}"
        )
    if found := _HEADER.search(text):
        return (
            f"the source has changed: {found[3]} has the columns {found[1]}, and {pipeline.document.path} declares {found[2]};"
            f" remove the file, or change {columns} and the sink; {_AGAIN}"
        )
    if found := _FILE.search(text):
        return f"the file {found[1]} cannot be read: it is damaged, or of another format; remove or mend it; {_AGAIN}"
    return f"{innermost(text, 'Spark stopped it')}; {pipeline.state / 'spark.log'} says more, and {_AGAIN}"


def _at(text: str) -> str:
    found = _PATH.search(text)
    return f" ({found[1] or found[2] or found[3]})" if found else ""
