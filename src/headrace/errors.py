"""The errors that Headrace raises. Every one is a `HeadraceError`, and its message says what to do about it."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from headrace.secrets import hide_in_urls

SHOWN = 80  # characters of a value in a message: enough to find it by, however long it is
_EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception|errors\.\w+): .+", re.MULTILINE)  # a line of a traceback
_LONGEST_LINE = 2000  # characters of an error of another program: it may quote a whole value
SHOWN_ERROR = 200  # characters of another library's words in a message: they may name two types and a value
SUGGEST_ABOVE = 0.6  # similarity (difflib ratio, 0 to 1) from which a wrong word is taken for a misspelling


class HeadraceError(Exception):
    """The base of every error that Headrace raises on purpose."""


class BadInput(HeadraceError, ValueError):
    """An argument cannot be used. The message names it and says what would be accepted."""


class UnsupportedType(BadInput):
    """A column has a type that cannot be stored or joined. The message names both."""


class MissingExtra(BadInput, ImportError):
    """A library that an extra brings is not installed. The message says how to install it.

    Example:
        >>> raise MissingExtra("hr.enrich", "pyspark", "spark")
        Traceback (most recent call last):
        headrace.errors.MissingExtra: hr.enrich needs pyspark, which is not installed; run: pip install "headrace[spark]"
    """

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f'{what} needs {library}, which is not installed; run: pip install "headrace[{extra}]"')
        self.name = library  # as an ImportError has it


#: The extra that brings a library, by the name that is imported. Of two extras it is the smaller one.
EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "deltalake": "spark",
    "pydantic": "spark",
    "rapidfuzz": "text",
    "httpcore": "feeds",
    "httpx": "feeds",
    "sqlglot": "feeds",
    "starlette": "console",
    "uvicorn": "console",
    "adbc_driver_manager": "postgresql",
    "adbc_driver_postgresql": "postgresql",
    "matplotlib": "plot",
}


def missing_extra(what: str, error: ModuleNotFoundError, extra: str | None = None) -> ImportError:
    """Return the error that names the extra for a library which was not found; the error itself if no extra brings it.

    Example:
        >>> missing_extra("a plot", ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib.figure"))
        MissingExtra('a plot needs matplotlib, which is not installed; run: pip install "headrace[plot]"')
    """
    library = (error.name or "").split(".")[0]
    if library not in EXTRAS:
        return error
    return MissingExtra(what, library, extra or EXTRAS[library])


class OutsideFailure(HeadraceError):
    """Something that Headrace works with failed while it worked: Spark, a server, a file system. The message says what."""


class FileFault(HeadraceError, OSError):
    """The system could not write, read or name a file: a full disk, a failing one, a missing permission. The message names it.

    Args:
        code: the system's number of the error.
        words: the system's words for it.
        filename: the file.

    Example:
        >>> import errno
        >>> raise FileFault(errno.ENOSPC, "No space left on device", "/data/r/shard-0000-000001.pages")
        Traceback (most recent call last):
        headrace.errors.FileFault: /data/r/shard-0000-000001.pages: No space left on device; make room on its disk and try again
    """

    ADVICE: ClassVar[dict[int, str]] = {
        errno.ENOSPC: "make room on its disk and try again",
        errno.EDQUOT: "make room in your quota and try again",
        errno.EFBIG: "raise the limit on the size of files (ulimit -f) and try again",
        errno.EIO: "its disk may be failing: look at the system's log, then try again or restore the file from a copy",
        errno.EINTR: "a signal came in between: try again",
        errno.EROFS: "its file system is read-only: mount it for writing, or give another place",
        errno.EACCES: "this user may not: change its permissions, or give another place",
        errno.EPERM: "this user may not: change its permissions, or give another place",
        errno.EMFILE: "raise the limit on open files (ulimit -n) and try again",
        errno.ENFILE: "the system has too many open files: close some and try again",
        errno.ESTALE: "the network file system has lost it: mount it again and try again",
    }

    def __init__(self, code: int, words: str, filename: str) -> None:
        super().__init__(code, words, filename)

    def __str__(self) -> str:
        advice = self.ADVICE.get(self.errno or 0, "try again")
        return f"{self.filename}: {self.strerror}; {advice}"


class MemoryRefused(HeadraceError):
    """The memory budget has no room for a reservation."""


class SpillError(HeadraceError, OSError):
    """Tuples could not be written to a join's temporary files. Nothing is lost: make room there, and call the join again."""


class RelationError(HeadraceError):
    """Something is wrong with a relation on disk."""


class NotARelation(RelationError):
    """There is no relation at the path: it holds something else, or nothing."""


class UnfinishedRelation(RelationError):
    """The creation of the relation was stopped before its end, so there is no relation to open."""


class NewerFormat(RelationError):
    """The relation was written by a later release than this one."""


class VersionConflict(RelationError):
    """Another writer committed first. Open the relation again and retry."""


class VersionGone(RelationError):
    """The requested version was removed because no reader held it."""


class RelationReplaced(RelationError):
    """Another relation was made in the place of the one that a query joins with. Its rows must not be mixed with those."""


class DamagedRelation(RelationError):
    """Bytes on disk are not the bytes that were written.

    Args:
        file: the damaged file.
        reason: what was found, such as ``"checksum does not match"``.
        shard: the shard the file belongs to, where it belongs to one.
        page: the page inside the shard, where the damage is in a page.

    Example:
        >>> raise DamagedRelation("s0.pages", "checksum does not match", shard=0, page=7)
        Traceback (most recent call last):
        ...
        headrace.errors.DamagedRelation: shard 0, page 7 of s0.pages: checksum does not match
    """

    def __init__(self, file: object, reason: str, *, shard: int | None = None, page: int | None = None) -> None:
        self.file = str(file)
        self.reason = reason
        self.shard = shard
        self.page = page
        where = [f"{name} {n}" for name, n in (("shard", shard), ("page", page)) if n is not None]
        super().__init__(f"{', '.join(where)}{' of ' if where else ''}{self.file}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles a worker's exception to send it to the driver; keyword arguments need this to survive.
        return _rebuild_damage, (self.file, self.reason, self.shard, self.page)


class IllFormed(HeadraceError, ValueError):
    """A document is not well-formed XML, or is larger than its limits allow.

    Args:
        file: what the document is called.
        line: the line of the error, from 1 on.
        column: the character of the line, from 1 on.
        reason: what was found.
        made: what was made of the document before, such as ``"3 fragments"``.

    Example:
        >>> raise IllFormed("news.xml", 7, 12, "a second root element", "3 fragments")
        Traceback (most recent call last):
        ...
        headrace.errors.IllFormed: news.xml, line 7, column 12: a second root element; 3 fragments were made before
    """

    def __init__(self, file: str, line: int, column: int, reason: str, made: str) -> None:
        self.file = file
        self.line = line
        self.column = column
        self.reason = reason
        self.made = made
        super().__init__(f"{file}, line {line}, column {column}: {reason}; {made} were made before")

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles a worker's exception to send it to the driver: the message is not the only argument.
        return IllFormed, (self.file, self.line, self.column, self.reason, self.made)


class NotAFeed(BadInput):
    """A document is no feed of a format that is read: it has another root element, or none.

    Args:
        url: where the document came from.
        line: the line of what was found, from 1 on.
        column: the character of the line, from 1 on.
        reason: what was found.

    Example:
        >>> raise NotAFeed("http://example.org/", 1, 16, "the root element is <html>, which is a web page")
        Traceback (most recent call last):
        ...
        headrace.errors.NotAFeed: http://example.org/, line 1, column 16: the root element is <html>, which is a web page;
            give the address of an RSS or Atom feed
    """

    def __init__(self, url: str, line: int, column: int, reason: str) -> None:
        self.url = url
        self.line = line
        self.column = column
        self.reason = reason
        super().__init__(f"{url}, line {line}, column {column}: {reason}; give the address of an RSS or Atom feed")

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles a worker's exception to send it to the driver: the message is not the only argument.
        return NotAFeed, (self.url, self.line, self.column, self.reason)


class FeedRefused(BadInput):
    """A feed's address is not one that may be pulled from. The message is the same whatever there is at that address."""


class FeedUnavailable(OutsideFailure):
    """A feed could not be pulled: no connection, no answer in time, an answer that is cut, too large or no success."""


class RunLogError(HeadraceError):
    """Something is wrong with the run log of a stateful operator."""


class OtherLog(RunLogError):
    """The run log was written with other settings: another number of shards, another format, or other columns."""


class DamagedLog(RunLogError):
    """The bytes of a run log's file are not the bytes that were written. The message names the file."""


def innermost(text: str, otherwise: str = "") -> str:
    r"""The last line of a text that names an exception, cut to a readable length; `otherwise` if there is none.

    Spark wraps what happened in a worker in tracebacks of Python and of Java, as text: the cause is the last of them.

    Example:
        >>> innermost("Traceback\nValueError: a\n\nDuring that:\norg.apache.SparkException: b\n\tat x")
        'org.apache.SparkException: b'
    """
    found = _EXCEPTION.findall(text)
    line = found[-1] if found else otherwise
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def shown(value: object) -> str:
    """Return a value as a message shows it: texts and bytes quoted, and all cut to 80 characters, the words of an error to 200.

    Passwords in URLs are removed.

    Example:
        >>> shown("x" * 1_000_000)
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = hide_in_urls(repr(value) if isinstance(value, str | bytes) else str(value))
    if "\n" in text:  # a table, say: a message has one line
        text = " ".join(text.split())
    most = SHOWN_ERROR if isinstance(value, BaseException) else SHOWN
    return text if len(text) <= most else f"{text[: most - 3]}..."


def listed(names: Sequence[str], *, like: str | None = None, most: int = 20) -> str:
    """Return names in one line, the first of them where there are many; with `like`, what may have been meant comes last.

    Example:
        >>> listed(["id", "name"], like="ID")
        "id, name (did you mean 'id'?)"
        >>> listed([f"c{i}" for i in range(2000)], most=3)
        'c0, c1, c2 and 1,997 more'
    """
    text = ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(like).lower(), lower, n=1, cutoff=SUGGEST_ABOVE) if like is not None else []
    return f"{text} (did you mean {lower[close[0]]!r}?)" if close else text


def kind(value: object) -> str:
    """Return the type of a value with its package: there are DataFrames of Spark, pandas and Polars.

    Example:
        >>> kind(5), kind(difflib.SequenceMatcher())
        ('int', 'difflib SequenceMatcher')
    """
    of = type(value)
    return of.__name__ if of.__module__ == "builtins" else f"{of.__module__.split('.')[0]} {of.__name__}"


def choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise `BadInput`, which lists them.

    Example:
        >>> choice("how", "inner", ["inner", "left", "semi", "anti"])
        'inner'
        >>> choice("how", "outer", ["inner", "left", "semi", "anti"])
        Traceback (most recent call last):
        ...
        headrace.errors.BadInput: how='outer' is not supported;
            choose one of inner, left, semi, anti
    """
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    close = difflib.get_close_matches(str(value).lower(), known, n=1, cutoff=SUGGEST_ABOVE)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    raise BadInput(f"{name}={shown(value)} is not supported; choose one of {', '.join(known)}{meant}")


def _rebuild_damage(file: str, reason: str, shard: int | None, page: int | None) -> DamagedRelation:
    return DamagedRelation(file, reason, shard=shard, page=page)
