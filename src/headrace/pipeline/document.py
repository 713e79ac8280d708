"""Document: a pipeline file as it is written, with the line of each key and the values from the environment.

Lines of keys are found with the TOML parser itself: lines are joined until they parse, which makes one statement.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import SUGGEST_ABOVE, BadInput

Key = tuple[str | int, ...]

_LARGEST = 1 << 20  # bytes of a pipeline file; a larger one was given by mistake
_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN = (
    4  # characters of a value from which it is looked for in texts that others wrote: "2" would be found everywhere
)


class Filled(str):
    """A text with values from the environment. It is shown as in the file; only `filled` returns the values."""

    filled: str

    def __new__(cls, written: str, filled: str) -> Filled:
        """`written`: as in the file."""
        text = super().__new__(cls, written)
        text.filled = filled
        return text


def filled(text: str) -> str:
    """Return a text with its values from the environment; it must not be shown."""
    return text.filled if isinstance(text, Filled) else text


@dataclass(frozen=True)
class Problem:
    """A mistake at one place of a pipeline file."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key + ': ' if self.key else ''}{self.message}"


class BadPipeline(BadInput):
    """A pipeline file cannot be run. `problems` has every mistake; the message has one per line."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: p.line)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Document:
    """A pipeline file that was read.

    Args:
        path: the file.
        values: its values; texts with values from the environment are `Filled`.
        lines: the line of each key.
        secrets: values of the environment that the file uses, by name. No `repr` shows them.
    """

    path: Path
    values: dict[str, Any]
    lines: dict[Key, int] = field(repr=False)
    secrets: dict[str, str] = field(repr=False, default_factory=dict)

    def problem(self, key: Key, message: str) -> Problem:
        """Make the problem of a key, placed at the key or at the nearest table around it in the file."""
        at = key
        while at and at not in self.lines:
            at = at[:-1]
        return Problem(str(self.path), self.lines.get(at, 1), dotted(key), self.hide(message))

    def hide(self, text: str) -> str:
        """Replace values from the environment by their names in a text of another program."""
        from urllib.parse import quote, quote_plus, unquote

        for name, value in sorted(self.secrets.items(), key=lambda s: -len(s[1])):
            forms = {value, repr(value)[1:-1], quote(value, safe=""), quote_plus(value), unquote(value)}
            for form in sorted(forms, key=len, reverse=True):
                if len(form) >= _HIDDEN:
                    text = text.replace(form, f"${{{name}}}")
        return text


def read_document(path: Path, environment: Mapping[str, str]) -> Document:
    """Read a file; refuses one that is not TOML, or names a variable that is not set."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        text = content.decode()
    except FileNotFoundError:
        raise BadInput(f"there is no pipeline file at {path}") from None
    except UnicodeDecodeError:
        line = content.count(b"\n", 0, _bad_byte(content)) + 1
        raise BadPipeline([Problem(str(path), line, "", "this is not UTF-8 text; save the file as UTF-8")]) from None
    if len(content) > _LARGEST:
        raise BadInput(f"{path} is larger than {_LARGEST} bytes; a pipeline file is a page of text")
    text = text.replace("\r\n", "\n")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
        line, words = (int(found[2] or text.count("\n") + 1), found[1]) if found else (1, str(error))
        raise BadPipeline([Problem(str(path), line, "", f"not TOML: {words}")]) from None
    document = Document(path, raw, dict(_lines(text, raw)))
    problems: list[Problem] = []
    values = _fill(raw, (), environment, document, problems)
    if problems:
        raise BadPipeline(problems)
    return Document(path, values, document.lines, document.secrets)


def dotted(key: Key) -> str:
    """Format a key for people; steps are counted from 1.

    Example:
        >>> dotted(("step", 0, "on"))
        'step 1, on'
        >>> dotted(("source", "columns", "sale"))
        'source.columns.sale'
    """
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f" {part + 1},"
        else:
            text += (" " if text.endswith(",") else "." if text else "") + part
    return text.removesuffix(",")


def near(word: object, words: Iterable[str]) -> str:
    """Return the end of a message about a wrong word: the words that exist, and the one that may be meant."""
    known = list(words)
    close = difflib.get_close_matches(str(word).lower(), known, n=1, cutoff=SUGGEST_ABOVE)
    return f"expected one of {', '.join(known)}" + (f"; did you mean {close[0]!r}?" if close else "")


def _bad_byte(content: bytes) -> int:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _lines(text: str, document: dict[str, Any]) -> Iterator[tuple[Key, int]]:
    table: Key = ()
    counts: dict[Key, int] = {}
    held: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        held.append(line)
        try:
            statement = tomllib.loads("\n".join(held))
        except tomllib.TOMLDecodeError:
            continue
        first, start, held = number - len(held) + 1, held[0], []
        if not statement:
            continue
        if start.lstrip().startswith("["):
            table = _table(statement, counts)
            yield table, first
        else:
            for key in _keys(statement):
                yield (*table, *key), first


def _table(statement: dict[str, Any], counts: dict[Key, int]) -> Key:
    """Return the place that a header names; in an array of tables, the last one."""
    at: Key = ()
    value: Any = statement
    while value:
        (name,) = value
        at, value = (*at, name), value[name]
        if isinstance(value, list):
            counts[at] = counts.get(at, 0) + 1
            value = value[0]
        if at in counts:
            at = (*at, counts[at] - 1)
    return at


def _keys(value: Any) -> Iterator[Key]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inside:
        yield (name,)
        for key in _keys(part):
            yield (name, *key)


def _fill(value: Any, at: Key, environment: Mapping[str, str], document: Document, problems: list[Problem]) -> Any:
    if isinstance(value, dict):
        return {n: _fill(v, (*at, n), environment, document, problems) for n, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, (*at, i), environment, document, problems) for i, v in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def put(found: re.Match[str]) -> str:
        name = found[2]
        if found[1]:  # $${NAME} stands for ${NAME}
            return found[0][1:]
        if not _NAME.fullmatch(name) or not found[0].endswith("}"):
            problems.append(
                document.problem(at, f"found {found[0]!r}, expected the name of a variable, as in ${{NAME}}")
            )
        elif name not in environment:
            problems.append(
                document.problem(at, f"the environment has no {name}; set it before the run: export {name}=...")
            )
        else:
            document.secrets[name] = environment[name]
            return environment[name]
        return ""

    return Filled(value, _VARIABLE.sub(put, value))
