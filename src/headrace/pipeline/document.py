"""Document: a pipeline file as it is written, with the line of each key and the values from the environment.

Lines of keys are found with the TOML parser itself: lines are joined until they parse, which makes one statement. A line that
does not parse is noted and left out, so that the mistakes of the other lines are found in the same check.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from headrace.errors import SUGGEST_ABOVE, BadInput, shown
from headrace.paths import local_path
from headrace.sources.secret import hide_secrets, is_secret_name

Key = tuple[str | int, ...]

_LARGEST = 1 << 20  # bytes of a pipeline file; a larger one was given by mistake
_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN = (
    4  # characters of a value from which it is looked for in texts that others wrote: "2" would be found everywhere
)
_DEEPEST = 32  # tables and arrays inside each other; the deepest that means something has six
_MOST_BROKEN = 50  # lines that do not parse, after which the file is taken for something else than TOML
_ASSIGNED = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*=")


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
    damaged: bool = False
    """whether it is a damaged relation"""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key + ': ' if self.key else ''}{self.message}"


class BadPipeline(BadInput):
    """A pipeline file cannot be run. `problems` has every mistake; the message has one per line."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: p.line)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @property
    def damaged(self) -> bool:
        """Whether a relation that the file names is damaged."""
        return any(problem.damaged for problem in self.problems)


@dataclass(frozen=True)
class Document:
    """A pipeline file that was read.

    Args:
        path: the file.
        values: its values; texts with values from the environment are `Filled`.
        lines: the line of each key.
        secrets: values of the environment that the file uses, by name. No `repr` shows them.
        problems: mistakes that were found while it was read.
        broken: the keys of those mistakes, whose values are not known.
    """

    path: Path
    values: dict[str, Any]
    lines: dict[Key, int] = field(repr=False)
    secrets: dict[str, str] = field(repr=False, default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[Key] = field(default_factory=set)

    def at(self, path: str) -> Path:
        """Resolve a path of the file; a relative one starts at the file's directory, and a URL of an object store is refused."""
        given = filled(path)
        return local_path(given) if "://" in given else (self.path.parent / given).absolute()

    def problem(self, key: Key, message: str, *, damaged: bool = False) -> Problem:
        """Make the problem of a key, placed at the key or at the nearest table around it in the file."""
        at = key
        while at and at not in self.lines:
            at = at[:-1]
        return Problem(str(self.path), self.lines.get(at, 1), dotted(key), self.hide(message), damaged)

    def hide(self, text: str) -> str:
        """Remove secrets from a text of another program: values from the environment, passwords in URLs, and options named so."""
        shown = [(value, f"${{{name}}}") for name, value in self.secrets.items()]
        shown += [(value, "***") for value in _secret_options(self.values)]
        for value, instead in sorted(shown, key=lambda s: -len(s[0])):
            forms = {value, repr(value)[1:-1], quote(value, safe=""), quote_plus(value), unquote(value)}
            for form in sorted(forms, key=len, reverse=True):
                if len(form) >= _HIDDEN:
                    text = text.replace(form, instead)
        return hide_secrets(text)


def read_document(path: Path, environment: Mapping[str, str]) -> Document:
    """Read a file. Lines that are not TOML, and variables that are not set, are noted in `problems`."""
    text = _read_text(path)
    try:
        text, unread = _parsable(text, str(path))
        raw, lines = tomllib.loads(text), dict(_lines(text))
    except BadPipeline:
        raise
    except RecursionError:  # tomllib calls itself for each bracket
        raise _nested(path) from None
    except ValueError as error:  # a number of more digits than Python takes
        raise BadPipeline([Problem(str(path), 1, "", f"not TOML: {shown(error)}")]) from None
    if _is_deep(raw):
        raise _nested(path)
    document = Document(path, raw, lines)
    document.problems.extend(problem for problem, _ in unread)
    document.broken.update(_keys_of_lines(text, {problem.line: name for problem, name in unread if name}))
    values = _fill(raw, (), environment, document)
    return Document(path, values, document.lines, document.secrets, document.problems, document.broken)


def _nested(path: Path) -> BadPipeline:
    words = (
        f"values are nested more than {_DEEPEST} deep, which no pipeline needs; look for brackets that are not closed"
    )
    return BadPipeline([Problem(str(path), 1, "", words)])


def _is_deep(values: dict[str, Any]) -> bool:
    """Whether tables and arrays are nested so deep that what walks through them could run out of stack."""
    ahead: list[tuple[Any, int]] = [(values, 0)]
    while ahead:
        value, depth = ahead.pop()
        if depth > _DEEPEST:
            return True
        if isinstance(value, dict | list):
            ahead += [(inner, depth + 1) for inner in (value.values() if isinstance(value, dict) else value)]
    return False


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:  # files: the user's own pipeline, which may come through a pipe
            content = file.read(_LARGEST + 1)
        text = content.decode()
    except FileNotFoundError:
        raise BadInput(f"there is no pipeline file at {path}") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory; give the pipeline file in it") from None
    except UnicodeDecodeError:
        line = content.count(b"\n", 0, _bad_byte(content)) + 1
        raise BadPipeline([Problem(str(path), line, "", "this is not UTF-8 text; save the file as UTF-8")]) from None
    if len(content) > _LARGEST:
        raise BadInput(f"{path} is larger than {_LARGEST} bytes; a pipeline file is a page of text")
    return text.replace("\r\n", "\n")


def _parsable(text: str, path: str) -> tuple[str, list[tuple[Problem, str]]]:
    """Return the text with lines left out that do not parse, and a problem for each, with the name that the line sets.

    After a header that does not parse, or where a line ends a statement that began before it, nobody knows what the rest means:
    then the problems so far are all that can be told.
    """
    lines, unread = text.split("\n"), list[tuple[Problem, str]]()
    while True:
        try:
            tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
            number, words = (int(found[2] or len(lines)), found[1]) if found else (1, str(error))
            name = _ASSIGNED.match(lines[number - 1])
            unread.append((Problem(path, number, "", f"not TOML: {words}"), name[1].strip("\"'") if name else ""))
            if name is None or not _parses(lines[: number - 1]) or len(unread) == _MOST_BROKEN:
                raise BadPipeline([problem for problem, _ in unread]) from None
            lines[number - 1] = ""
        else:
            return "\n".join(lines), unread


def _parses(lines: list[str]) -> bool:
    try:
        tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return False
    return True


def _keys_of_lines(text: str, names: Mapping[int, str]) -> Iterator[Key]:
    """Return the keys of lines that set a name, from the table that each lies in."""
    if names:
        rows = text.split("\n")
        for number, name in names.items():
            rows[number - 1] = f"{_quoted(name)} = 0"
        numbers = set(names)
        for key, number in _lines("\n".join(rows)):
            if number in numbers and key[-1] == names[number]:
                yield key


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _secret_options(value: Any, name: str = "") -> Iterator[str]:
    """Return the texts of the file whose names say that they are secret."""
    inside = value.items() if isinstance(value, dict) else ((name, v) for v in value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from _secret_options(part, str(key))
    if isinstance(value, str) and not isinstance(value, Filled) and is_secret_name(name):
        yield value


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


def _lines(text: str) -> Iterator[tuple[Key, int]]:
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


def _fill(value: Any, at: Key, environment: Mapping[str, str], document: Document) -> Any:
    if isinstance(value, dict):
        return {n: _fill(v, (*at, n), environment, document) for n, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, (*at, i), environment, document) for i, v in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def put(found: re.Match[str]) -> str:
        name = found[2]
        if found[1]:  # $${NAME} stands for ${NAME}
            return found[0][1:]
        if not _NAME.fullmatch(name) or not found[0].endswith("}"):
            words = f"found {found[0]!r}, expected the name of a variable, as in ${{NAME}}"
        elif name not in environment:
            words = f"the environment has no {name}; set it before the run: export {name}=..."
        else:
            document.secrets[name] = environment[name]
            return environment[name]
        document.problems.append(document.problem(at, words))
        document.broken.add(at)
        return ""

    return Filled(value, _VARIABLE.sub(put, value))
