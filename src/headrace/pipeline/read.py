"""Parsing of a pipeline file: every mistake is reported with its line, what was found, and what was expected."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from headrace.errors import SUGGEST_ABOVE
from headrace.pipeline.document import BadPipeline, Document, Key, Problem, dotted, near, read_document
from headrace.pipeline.fields import is_name
from headrace.pipeline.models import Pipeline, PipelineSettings
from headrace.pipeline.parts import SINKS, SOURCES, STEPS, Sink, Source, Step
from headrace.pipeline.section import Section

_TABLES = ("source", "sources", "step", "sink")
_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": 'a list, such as ["a", "b"]',
    "dict_type": "a table of names and values",
    "too_short": "at least one",
}
#: Values for keys that a section must have and whose own are wrong, so that its other keys can be checked. Nothing is said of
#: these: their keys are faulty.
_STAND_INS: dict[str, Any] = {
    **dict.fromkeys(("path", "topic", "table", "by", "enrich", "surrogate_keys", "key", "duplicates", "name"), "x"),
    "servers": "x:1",
    "url": "x",
    "columns": {"x": "long"},
    "filter": "true",
    "select": ["1"],
    "writer": "noop",
    **dict.fromkeys(("window_join", "approximate_join"), "x"),
    "twig": "//x",
    "window": 1,
    "sample": 1,
    "estimate": "count",
}
#: What is expected of a number that is outside of its bounds, by pydantic's name of the mistake.
_BOUNDS = {
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "greater_than": "more than {gt}",
    "less_than": "less than {lt}",
}
_LONGEST = 60  # characters of a value that is shown


@dataclass
class Draft:
    """A pipeline file as far as it can be understood, so that one check names its mistakes whatever their kinds.

    A part that cannot be used is None. Of a part with a mistake in some keys, these have their defaults, and `faulty` has them.
    """

    document: Document
    head: PipelineSettings | None
    source: Source | None
    steps: tuple[Step | None, ...]
    sink: Sink | None
    problems: list[Problem]
    faulty: set[Key]
    read: int = 0
    """how many of the problems were found when the file was read; those of a check follow"""
    sources: dict[str, Source | None] = field(default_factory=dict)
    """the sources that steps join with, by name"""

    @classmethod
    def of(cls, pipeline: Pipeline) -> Draft:
        """A pipeline without mistakes so far."""
        parts = pipeline.head, pipeline.source, pipeline.steps, pipeline.sink
        return cls(pipeline.document, *parts, [], set(), sources=dict(pipeline.sources))

    @property
    def place(self) -> Pipeline:
        """A pipeline to resolve paths with; its parts may be missing."""
        head = self.head or PipelineSettings.model_construct(name="unnamed")
        steps, sources = cast("tuple[Step, ...]", self.steps), cast("dict[str, Source]", self.sources)
        return Pipeline(self.document, head, cast("Source", self.source), steps, cast("Sink", self.sink), sources)

    def pipeline(self) -> Pipeline:
        """Return the pipeline; refuses a file with mistakes."""
        if self.problems:
            raise BadPipeline(self.problems)
        return self.place

    def is_faulty(self, key: Key) -> bool:
        """Whether a mistake is known at a key or inside of it."""
        return any(found[: len(key)] == key for found in self.faulty)

    def note(self, key: Key, message: str, *, damaged: bool = False) -> None:
        """Note a mistake, unless one is known at the same key: the value that this one is about is not the file's."""
        whole = key in (("source",), ("sink",)) or (key[:1] == ("sources",) and len(key) == 2)
        named = key and isinstance(key[-1], str) and not whole
        if not (named and self.is_faulty(key)):
            self.problems.append(self.document.problem(key, message, damaged=damaged))


def read_pipeline(path: str | Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Parse a pipeline file. Nothing that it names is opened.

    Parameters
    ----------
    path
        The file.
    environment
        The variables that ${NAME} refers to; the process's own by default.
    """
    return read_draft(path, environment).pipeline()


def read_draft(path: str | Path, environment: Mapping[str, str] | None = None) -> Draft:
    """Parse a pipeline file as far as it goes, with its mistakes. Refuses only a file that is not there, or is no text."""
    document = read_document(Path(path), os.environ if environment is None else environment)
    draft = Draft(document, None, None, (), None, list(document.problems), set(document.broken))
    head = {name: value for name, value in document.values.items() if name not in _TABLES}
    draft.head = cast("PipelineSettings | None", _part(PipelineSettings, head, (), draft, also=_TABLES))
    draft.source = cast("Source | None", _by_format(("source",), document.values.get("source"), SOURCES, draft))
    draft.sources = cast("dict[str, Source | None]", _sources(draft))
    draft.steps = cast("tuple[Step | None, ...]", _steps(draft))
    draft.sink = cast("Sink | None", _by_format(("sink",), document.values.get("sink"), SINKS, draft))
    draft.read = len(draft.problems)
    return draft


def show(value: Any) -> str:
    """Format a value of the file for a message."""
    if isinstance(value, dict):
        return "a table"
    text = f"a list of {len(value)}" if isinstance(value, list) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _by_format(at: Key, value: Any, models: dict[str, type[Section]], draft: Draft) -> Section | None:
    if not isinstance(value, dict):
        found = "is missing" if value is None else f"found {show(value)}"
        draft.note(at, f"{found}, expected one table [{dotted(at)}] with a format")
        return None
    format_ = value.get("format")
    if not isinstance(format_, str) or format_ not in models:
        found = "is missing" if format_ is None else f"found {show(format_)}"
        near_key = difflib.get_close_matches("format", [k for k in value if k != "format"], n=1, cutoff=SUGGEST_ABOVE)
        meant = f" ({near_key[0]!r} is there: did you mean 'format'?)" if format_ is None and near_key else ""
        draft.note((*at, "format"), f"{found}, {near(format_, models)}{meant}")
        return None
    return _part(models[format_], value, at, draft)


def _sources(draft: Draft) -> dict[str, Section | None]:
    """Parse the tables of sources that steps join with."""
    value = draft.document.values.get("sources", {})
    if not isinstance(value, dict):
        draft.note(("sources",), f"found {show(value)}, expected a table [sources.NAME] for each source to join with")
        return {}
    found: dict[str, Section | None] = {}
    for name, source in value.items():
        if not is_name(name):
            draft.note(
                ("sources", name), "expected a name of letters, digits, - and _: files of dead letters are named so"
            )
        found[name] = _by_format(("sources", name), source, SOURCES, draft)
    return found


def _steps(draft: Draft) -> tuple[Section | None, ...]:
    value = draft.document.values.get("step", [])
    if not isinstance(value, list) or not all(isinstance(step, dict) for step in value):
        draft.note(("step",), f"found {show(value)}, expected tables [[step]], one for each step")
        return ()
    steps: list[Section | None] = []
    for number, step in enumerate(value):
        at: Key = ("step", number)
        # A line that does not parse may be the one that says what the step does.
        kinds = _kinds([name for name in STEPS if name in step or (*at, name) in draft.faulty])
        if len(kinds) == 1:
            steps.append(_part(STEPS[kinds[0]], step, at, draft))
            continue
        found = f"found {' and '.join(kinds)} in one step" if kinds else f"found {', '.join(step) or 'nothing'}"
        close = [(word, c[0]) for word in step if (c := difflib.get_close_matches(word, STEPS, 1, SUGGEST_ABOVE))]
        meant = f"; did you mean {close[0][1]!r} for {close[0][0]!r}?" if close and not kinds else ""
        draft.note(at, f"{found}, expected what it does, one of {', '.join(STEPS)}{meant}")
        steps.append(None)
    return tuple(steps)


def _kinds(names: list[str]) -> list[str]:
    """Of names of steps in one step, the one that has the others as keys: an estimate step has the key window_join."""
    whole = [name for name in names if set(names) <= STEPS[name].model_fields.keys()]
    return whole if len(whole) == 1 else names


def _part(
    model: type[Section], value: dict[str, Any], at: Key, draft: Draft, also: Iterable[str] = ()
) -> Section | None:
    """Parse a section. Keys with mistakes have defaults or stand-ins, and are faulty; None if that is not enough."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        # Pydantic's message would show values, which may come from the environment; the document shows them as written.
        found = [(*at, *each["loc"]) for each in error.errors(include_url=False, include_input=False)]
        for each, key in zip(error.errors(include_url=False, include_input=False), found, strict=True):
            draft.note(key, _message(each, key, model, draft.document, also))
    draft.faulty.update(found)
    wrong = {key[len(at)] for key in found if len(key) > len(at)}
    rest = {name: v for name, v in value.items() if name not in wrong}
    needed = {name for name, one in model.model_fields.items() if one.is_required() and name in wrong}
    try:
        return model.model_validate({name: v for name, v in _STAND_INS.items() if name in needed} | rest)
    except ValidationError:
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
    if kind in _BOUNDS:
        return f"found {show(value)}, expected {_BOUNDS[kind].format(**found['ctx'])}"
    return f"found {show(value)}, expected {_EXPECTED.get(kind, found['msg'])}"


def _written(document: Document, at: Key) -> dict[str, Any]:
    value: Any = document.values
    for part in at:
        value = value[part]
    return cast("dict[str, Any]", value)
