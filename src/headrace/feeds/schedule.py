"""When a feed is pulled next: its interval, what it and its server ask for, and ever longer after failures."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from headrace.errors import BadInput
from headrace.splitmix import draw, uniform_floats

_MOST_DOUBLINGS = 30  # a longer back-off is beyond every limit, and a float could not hold any number of them


@dataclass(frozen=True)
class Schedule:
    """How often feeds are pulled. All times are seconds.

    Parameters
    ----------
    interval
        Between two pulls of a feed, where neither the feed (ttl) nor the server (Cache-Control, Retry-After) asks for more.
    longest
        What a feed or a server can ask for at most.
    longest_backoff
        Between two pulls of a feed that fails. It doubles with each failure, from the interval on.
    seed
        Of the jitter, a part of up to a half by which a back-off is shortened, so that feeds that failed together do not come
        back together. It is a function of the seed, the URL and the number of failures.

    Example
    -------
    >>> schedule = Schedule(interval=60)
    >>> schedule.after_success(ttl=300, max_age=None), schedule.after_success(ttl=None, max_age=10)
    (300, 60)
    >>> [round(schedule.after_failure("http://example.org/", n)) for n in (1, 2, 3, 20)]
    [70, 140, 345, 1949]
    """

    interval: float = 60.0
    longest: float = 86_400.0
    longest_backoff: float = 3_600.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("interval", "longest", "longest_backoff"):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name}={getattr(self, name)!r} is not a time; give more than 0 seconds")

    def after_success(self, ttl: float | None, max_age: float | None, interval: float | None = None) -> float:
        """Return the seconds to the next pull after one that went well; `interval` is the feed's own, if it has one."""
        least = interval or self.interval
        return max(least, min(self.longest, max(ttl or 0, max_age or 0)))

    def after_refusal(self, url: str, failures: int, retry_after: float | None, interval: float | None = None) -> float:
        """Return the seconds to the next pull when the server asked to come later; if it did not say when, as after a failure."""
        if retry_after is None:
            return self.after_failure(url, failures, interval)
        return max(interval or self.interval, min(self.longest, retry_after))

    def after_failure(self, url: str, failures: int, interval: float | None = None) -> float:
        """Return the seconds to the next pull after a number of failures, the last one included."""
        least = interval or self.interval
        grown = min(max(self.longest_backoff, least), least * 2.0 ** min(failures, _MOST_DOUBLINGS))
        stream = int.from_bytes(hashlib.blake2b(url.encode(), digest_size=8).digest(), "little")
        words = draw(self.seed, stream, np.array([failures], np.int64))
        return grown * (1.0 - 0.5 * float(uniform_floats(words)[0]))
