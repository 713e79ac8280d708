"""What Headrace raises. Every error is a `HeadraceError`; the message says what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SUGGEST_ABOVE = 0.6  # difflib ratio from which a wrong word is taken for a misspelling


class HeadraceError(Exception):
    """The base of every error that Headrace raises on purpose."""


class BadInput(HeadraceError, ValueError):
    """An argument that cannot be used. The message names it and says what would do."""


class UnsupportedType(BadInput):
    """A column of a type that cannot be stored or joined. The message names both."""


class MemoryRefused(HeadraceError):
    """A reservation that the memory budget has no room for."""


class RelationError(HeadraceError):
    """Something is wrong with a relation on disk."""


class NotARelation(RelationError):
    """The path holds something else, or nothing."""


class UnfinishedRelation(RelationError):
    """A create that was stopped before its end: there is no relation to open."""


class NewerFormat(RelationError):
    """Written by a later release than this one."""


class VersionConflict(RelationError):
    """Another writer committed first. Open the relation again and retry."""


class VersionGone(RelationError):
    """The version asked for was removed because no reader held it."""


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
        # Spark carries a worker's exception to the driver; keyword arguments need this to survive.
        return _rebuild_damage, (self.file, self.reason, self.shard, self.page)


class RunLogError(HeadraceError):
    """Something is wrong with the run log of an operator that remembers."""


class OtherLog(RunLogError):
    """The log there was written with other settings: another number of shards, another format, other columns."""


class DamagedLog(RunLogError):
    """A file of a run log is not what was written. The message names it."""


def choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise say which there are.

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
    raise BadInput(f"{name}={value!r} is not supported; choose one of {', '.join(known)}{meant}")


def _rebuild_damage(file: str, reason: str, shard: int | None, page: int | None) -> DamagedRelation:
    return DamagedRelation(file, reason, shard=shard, page=page)
