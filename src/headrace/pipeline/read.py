"""Parsing of a pipeline file: every mistake is reported with its line, what was found, and what was expected."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from headrace.errors import SUGGEST_ABOVE
from headrace.pipeline.document import BadPipeline, Document, Key, Problem, near, read_document
from headrace.pipeline.models import Pipeline, PipelineSettings
from headrace.pipeline.parts import SINKS, SOURCES, STEPS, Section, Sink, Source, Step

_TABLES = ("source", "step", "sink")
_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": 'a list, such as ["a", "b"]',
    "dict_type": "a table of names and values",
    "too_short": "at least one",
}
_LONGEST = 60  # characters of a value that is shown


def read_pipeline(path: str | Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Parse a pipeline file. Nothing that it names is opened.

    Parameters
    ----------
    path
        The file.
    environment
        The variables that ${NAME} refers to; the process's own by default.
    """
    document = read_document(Path(path), os.environ if environment is None else environment)
    problems: list[Problem] = []
    head = {name: value for name, value in document.values.items() if name not in _TABLES}
    parts = (
        _part(PipelineSettings, head, (), document, problems, also=_TABLES),
        _by_format("source", SOURCES, document, problems),
        _steps(document, problems),
        _by_format("sink", SINKS, document, problems),
    )
    if problems:
        raise BadPipeline(problems)
    return Pipeline(
        document,
        cast("PipelineSettings", parts[0]),
        cast("Source", parts[1]),
        cast("tuple[Step, ...]", parts[2]),
        cast("Sink", parts[3]),
    )


def show(value: Any) -> str:
    """Format a value of the file for a message."""
    if isinstance(value, dict):
        return "a table"
    text = f"a list of {len(value)}" if isinstance(value, list) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _by_format(
    table: str, models: dict[str, type[Section]], document: Document, problems: list[Problem]
) -> Section | None:
    value = document.values.get(table)
    if not isinstance(value, dict):
        found = "is missing" if value is None else f"found {show(value)}"
        problems.append(document.problem((table,), f"{found}, expected one table [{table}] with a format"))
        return None
    format_ = value.get("format")
    if not isinstance(format_, str) or format_ not in models:
        found = "is missing" if format_ is None else f"found {show(format_)}"
        near_key = difflib.get_close_matches("format", [k for k in value if k != "format"], n=1, cutoff=SUGGEST_ABOVE)
        meant = f" ({near_key[0]!r} is there: did you mean 'format'?)" if format_ is None and near_key else ""
        problems.append(document.problem((table, "format"), f"{found}, {near(format_, models)}{meant}"))
        return None
    return _part(models[format_], value, (table,), document, problems)


def _steps(document: Document, problems: list[Problem]) -> tuple[Section, ...]:
    value = document.values.get("step", [])
    if not isinstance(value, list) or not all(isinstance(step, dict) for step in value):
        problems.append(
            document.problem(("step",), f"found {show(value)}, expected tables [[step]], one for each step")
        )
        return ()
    steps = []
    for number, step in enumerate(value):
        kinds = [name for name in STEPS if name in step]
        if len(kinds) != 1:
            found = f"found {' and '.join(kinds)} in one step" if kinds else f"found {', '.join(step) or 'nothing'}"
            close = [(word, c[0]) for word in step if (c := difflib.get_close_matches(word, STEPS, 1, SUGGEST_ABOVE))]
            meant = f"; did you mean {close[0][1]!r} for {close[0][0]!r}?" if close and not kinds else ""
            expected = f"expected what it does, one of {', '.join(STEPS)}"
            problems.append(document.problem(("step", number), f"{found}, {expected}{meant}"))
            continue
        part = _part(STEPS[kinds[0]], step, ("step", number), document, problems)
        if part is not None:
            steps.append(part)
    return tuple(steps)


def _part(
    model: type[Section],
    value: dict[str, Any],
    at: Key,
    document: Document,
    problems: list[Problem],
    also: Iterable[str] = (),
) -> Section | None:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        # Pydantic's message would show values, which may come from the environment; the document shows them as written.
        for found in error.errors(include_url=False, include_input=False):
            key = (*at, *found["loc"])
            problems.append(document.problem(key, _message(found, key, model, document, also)))
    return None


def _message(found: Any, key: Key, model: type[Section], document: Document, also: Iterable[str]) -> str:
    kind = found["type"]
    known = [*model.model_fields, *also]
    if kind == "extra_forbidden":
        return f"is not a key of {model.what}; {near(key[-1], known)}"
    if kind == "missing":
        written = [name for name in _written(document, key[:-1]) if name not in known]
        close = difflib.get_close_matches(str(key[-1]), written, n=1, cutoff=SUGGEST_ABOVE)
        return f"is missing in {model.what}" + (f"; {close[0]!r} is there: did you mean {key[-1]!r}?" if close else "")
    value = document.values
    for part in key:
        value = value[part]  # type: ignore[index]
    if kind == "literal_error":
        words = [word.strip(" '") for word in found["ctx"]["expected"].replace(" or ", ",").split(",")]
        return f"found {show(value)}, {near(value, words)}"
    if kind == "value_error":
        return f"found {show(value)}, {found['ctx']['error']}"
    if kind == "greater_than_equal":
        return f"found {show(value)}, expected {found['ctx']['ge']} or more"
    return f"found {show(value)}, expected {_EXPECTED.get(kind, found['msg'])}"


def _written(document: Document, at: Key) -> dict[str, Any]:
    value: Any = document.values
    for part in at:
        value = value[part]
    return cast("dict[str, Any]", value)
