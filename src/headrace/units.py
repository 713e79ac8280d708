"""Parsing and formatting of sizes and durations as people write them: ``"64MiB"``, ``"250ms"``."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal

from headrace.errors import BadInput, shown

_BINARY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_LETTERS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}  # as in -Xmx1g, and in Spark's own settings
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES = {"": 1, "b": 1, **_BINARY, **_LETTERS, **_DECIMAL}
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_WORDS = {
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
}  # Spark's words, also in the plural
_TERM = re.compile(r"(\d+(?:\.\d+)?)\s*(milliseconds?|seconds?|minutes?|hours?|days?|ns|us|µs|ms|s|m|h|d)", re.ASCII)

SIZE_EXAMPLES = "'64MiB', '64m', '1.5GB' or a number of bytes"
DURATION_EXAMPLES = "'10s', '250ms', '1m30s' or a number of seconds"


def parse_size(value: int | str, *, name: str = "size", zero: bool = False) -> int:
    """Return the bytes of a number or a text such as ``"64MiB"``.

    ``kB MB GB TB`` are powers of 1000; ``KiB MiB GiB TiB`` and the letters ``k m g t`` alone, as in Spark's settings, are powers
    of 1024. Case does not matter.

    Args:
        value: a number of bytes, or a number with a unit.
        name: the argument's name in errors.
        zero: whether 0 is allowed.

    Example:
        >>> parse_size("64MiB"), parse_size("64m"), parse_size("1.5 GB"), parse_size(4096)
        (67108864, 67108864, 1500000000, 4096)
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInput(f"{name}={shown(value)} is not a size; give {SIZE_EXAMPLES}")
    if isinstance(value, int):
        nbytes = value
    else:
        found = _SIZE.fullmatch(value.strip().lower())
        if found is None or found[2] not in _BYTES:
            raise BadInput(f"{name}={shown(value)} is not a size; give {SIZE_EXAMPLES}")
        nbytes = int(Decimal(found[1]) * _BYTES[found[2]])  # a float would round
    if nbytes < 0 or (nbytes == 0 and not zero):
        raise BadInput(f"{name}={shown(value)} must be at least {0 if zero else 1} byte; give {SIZE_EXAMPLES}")
    return nbytes


def format_size(nbytes: int) -> str:
    """Format a size for people, in powers of 1024 and rounded; `parse_size` reads it.

    Example:
        >>> format_size(67108864), format_size(1536), format_size(12)
        ('64MiB', '1.5KiB', '12B')
    """
    size = float(abs(nbytes))
    sign = "-" if nbytes < 0 else ""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        # 1023.96KiB would print as 1024KiB, so it is shown in the next unit
        if round(size, 1) < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{sign}{size:.1f}".removesuffix(".0") + unit


def parse_duration(value: str | float | timedelta, *, name: str = "duration", zero: bool = False) -> float:
    """Return the seconds of a number, a `timedelta` or a text such as ``"1m30s"``.

    Args:
        value: seconds, or terms of a number and one of ``ns us ms s m h d``, or a word such as ``minutes``.
        name: the argument's name in errors.
        zero: whether 0 is allowed.

    Example:
        >>> parse_duration("250ms"), parse_duration("1m30s"), parse_duration("10 minutes"), parse_duration(10)
        (0.25, 90.0, 600.0, 10.0)
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = _sum_terms(value, name)
    else:
        raise BadInput(f"{name}={shown(value)} is not a duration; give {DURATION_EXAMPLES}")
    if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not zero):
        bound = "at least" if zero else "more than"
        raise BadInput(f"{name}={shown(value)} must be {bound} 0 seconds and finite; give {DURATION_EXAMPLES}")
    return seconds


def format_duration(seconds: float) -> str:
    """Format a duration for people.

    Example:
        >>> format_duration(0.25), format_duration(90), format_duration(3.14159)
        ('250ms', '1m30s', '3.14s')
    """
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds == 0:
        return "0s"
    for unit in ("ns", "us", "ms", "s"):
        scaled = seconds / _SECONDS[unit]
        if float(f"{scaled:.3g}") < (60 if unit == "s" else 1000):
            return f"{scaled:.3g}{unit}"
    whole = round(seconds)
    parts = (
        (whole // 86400, "d"),
        (whole % 86400 // 3600, "h"),
        (whole % 3600 // 60, "m"),
        (whole % 60, "s"),
    )
    return "".join(f"{n}{unit}" for n, unit in parts if n)


def _sum_terms(text: str, name: str) -> float:
    compact = text.strip().lower()
    try:
        return float(compact)
    except ValueError:
        pass
    total, at = 0.0, 0
    while found := _TERM.match(compact, at):
        total += float(found[1]) * _SECONDS[_WORDS.get(found[2].removesuffix("s"), found[2])]
        at = found.end()
        while at < len(compact) and compact[at] == " ":
            at += 1
    if at == 0 or at < len(compact):
        raise BadInput(f"{name}={shown(text)} is not a duration; give {DURATION_EXAMPLES}")
    return total
