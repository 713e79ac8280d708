"""Recorded pulls: a directory that says what each feed answered at which time, and a fetcher that answers so again.

recorded/
  pulls.jsonl            a line a pull: {"url": …, "at": "2024-05-01T06:00:00Z", "body": "quakes-06.xml"}, and where they are not
                         200 and none: "status": 304, "headers": {"retry-after": "60"}
  quakes-06.xml          bodies as they were sent, unpacked; several pulls may name the same
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.errors import BadInput, FeedUnavailable, shown
from headrace.feeds.fetcher import Answer, Request, answer_of, shown_url
from headrace.files import NotRegular, append, draft_name, make_directory, open_new, read_regular, replace

INDEX = "pulls.jsonl"
_NAMES = ("url", "at", "status", "headers", "body")


@dataclass(frozen=True)
class RecordedPull:
    """What a feed answered once."""

    url: str
    at: datetime
    body: str | None = None
    """the name of a file in the recording's directory"""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class RecordedFetcher:
    """Answers as feeds did at the time that a clock shows: with the last pull of each that was recorded by then.

    Parameters
    ----------
    directory
        The recording.
    clock
        Shows a time of the recording: a `ManualClock`, or a `ReplayClock` that runs as fast as one likes.

    Example
    -------
    >>> import tempfile
    >>> from headrace.clock import ManualClock
    >>> directory = tempfile.mkdtemp()
    >>> record(directory, "http://example.org/", datetime(2024, 5, 1, tzinfo=UTC), b"<rss/>")
    >>> fetcher = RecordedFetcher(directory, ManualClock(start=datetime(2024, 5, 2, tzinfo=UTC).timestamp()))
    >>> answer = asyncio.run(fetcher.fetch(Request("http://example.org/")))
    >>> answer.status, answer.content, asyncio.run(fetcher.fetch(Request("http://example.org/", answer.etag))).status
    (200, b'<rss/>', 304)
    """

    def __init__(self, directory: str | Path, clock: Clock) -> None:
        self.directory, self.clock = Path(directory), clock
        self.pulls: dict[str, list[RecordedPull]] = {}
        for pull in read_recording(self.directory):
            self.pulls.setdefault(pull.url, []).append(pull)
        for pulls in self.pulls.values():
            pulls.sort(key=lambda pull: pull.at)

    @property
    def urls(self) -> list[str]:
        """The feeds that were recorded."""
        return list(self.pulls)

    @property
    def start(self) -> datetime:
        """When the first pull was recorded."""
        return min(pulls[0].at for pulls in self.pulls.values())

    @property
    def end(self) -> datetime:
        """When the last one was."""
        return max(pulls[-1].at for pulls in self.pulls.values())

    async def fetch(self, request: Request) -> Answer:
        """Give the last answer of a feed that was recorded by now."""
        pulls = self.pulls.get(request.url, [])
        last = bisect.bisect_right(pulls, self.clock.now(), key=lambda pull: pull.at.timestamp()) - 1
        if last < 0:
            known = "nothing by now" if pulls else "nothing at all"
            raise FeedUnavailable(f"{shown_url(request.url)}: {known} was recorded in {self.directory}")
        return await asyncio.to_thread(self._answer, pulls[last], request)

    async def close(self) -> None:
        """There is nothing to close."""

    def _answer(self, pull: RecordedPull, request: Request) -> Answer:
        content = b"" if pull.body is None else read_regular(self.directory / pull.body)
        headers = {name.lower(): value for name, value in pull.headers.items()}
        if pull.status == 200:
            # A recording need not hold validators: what was sent is there to compare with.
            headers.setdefault("etag", f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"')
            if headers["etag"] == request.etag:
                return answer_of(304, headers, b"", now=self.clock.now())
        elif pull.status not in (304, 410, 429, 503):
            raise FeedUnavailable(f"{shown_url(request.url)} answered {pull.status}")
        return answer_of(pull.status, headers, content, now=self.clock.now())


def record(
    directory: str | Path,
    url: str,
    at: datetime,
    body: bytes | None = None,
    *,
    name: str | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Add a pull to a recording.

    Parameters
    ----------
    directory
        The recording; it is made if it is not there.
    url, at
        The feed, and the moment, with its time zone.
    body
        The document, unpacked.
    name
        The file that the body is written to, in the directory; by default a hash of it.
    status, headers
        How it was answered.
    """
    if at.tzinfo is None:
        raise BadInput(f"at={at} has no time zone; give one, such as datetime(..., tzinfo=UTC)")
    place = Path(directory)
    make_directory(place, parents=True)
    entry: dict[str, Any] = {"url": url, "at": at.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    if status != 200:
        entry["status"] = status
    if headers:
        entry["headers"] = dict(headers)
    if body is not None:
        entry["body"] = name or f"{hashlib.blake2b(body, digest_size=16).hexdigest()}.xml"
        _inside(entry["body"], place)
        draft = draft_name(place / entry["body"])
        with open_new(draft) as file:
            file.write(body)
            file.sync()
        replace(draft, place / entry["body"])
    append(place / INDEX, (json.dumps(entry, ensure_ascii=False) + "\n").encode())


def read_recording(directory: str | Path) -> list[RecordedPull]:
    """Read the pulls of a recording, without their bodies; a line that cannot be read is refused by its number."""
    place = Path(directory)
    path = place / INDEX
    try:
        lines = read_regular(path).decode().splitlines()
    except (FileNotFoundError, NotADirectoryError, NotRegular):
        raise BadInput(f"{place} is not a recording of pulls: it has no {INDEX}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text: {shown(error)}") from None
    return [_pull(line, f"{path}, line {number}", place) for number, line in enumerate(lines, 1) if line.strip()]


def _pull(line: str, where: str, place: Path) -> RecordedPull:
    try:
        entry = json.loads(line)
        at = datetime.fromisoformat(entry["at"])
        if unknown := set(entry) - set(_NAMES):
            raise ValueError(f"there is no {', '.join(sorted(unknown))}")
        if at.tzinfo is None:
            raise ValueError("its time has no zone")
        pull = RecordedPull(**{**entry, "at": at})
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"{where} is not a recorded pull ({shown(error)}); expected url, at such as 2024-05-01T06:00:00Z, and, if wanted,"
            " status, headers and body"
        ) from error
    if pull.body is not None:
        _inside(pull.body, place)
    return pull


def _inside(name: str, place: Path) -> None:
    if not (place / name).resolve().is_relative_to(place.resolve()):
        raise BadInput(f"body={shown(name)} is not a file of the recording {place}")


class ReplayClock:
    """A clock of times that have passed, which runs faster than they did: a recorded day in ten minutes.

    Parameters
    ----------
    start
        The moment that it begins with.
    speed
        Seconds of it that pass in a real one.
    real
        The clock that it is driven by.

    Example
    -------
    >>> from headrace.clock import ManualClock
    >>> real = ManualClock()
    >>> clock = ReplayClock(datetime(2024, 5, 1, tzinfo=UTC), speed=144, real=real)
    >>> real.advance(600)
    >>> datetime.fromtimestamp(clock.now(), UTC).isoformat()
    '2024-05-02T00:00:00+00:00'
    """

    def __init__(self, start: datetime, speed: float, real: Clock | None = None) -> None:
        if not speed > 0:
            raise BadInput(f"speed={speed!r} is not a speed; give more than 0 seconds for each real one")
        self.start, self.speed = start, speed
        self.real = real or SystemClock()
        self._begun = self.real.now()

    def now(self) -> float:
        """Return the seconds since 1970 at the moment that is replayed."""
        return self.start.timestamp() + (self.real.now() - self._begun) * self.speed

    def sleep(self, seconds: float) -> None:
        """Let seconds of the replay pass."""
        self.real.sleep(seconds / self.speed)
