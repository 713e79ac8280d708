"""What is remembered of a feed from one pull to the next, but for the items that were seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headrace.feeds.pulls import Outcome


@dataclass(frozen=True)
class FeedState:
    """A feed's validators, schedule and last outcome. Times are seconds since 1970."""

    url: str
    moved: str | None = None
    """where the feed has moved to for good (301, 308)"""
    etag: str | None = None
    modified: str | None = None
    """ETag and Last-Modified of the current document, as the server wrote them"""
    source: str | None = None
    """the address that they came from, if it is another than was asked"""
    due: float | None = 0.0
    """when the next pull is due; None: never, it is gone"""
    pulled: float | None = None
    """when the last pull was made"""
    outcome: Outcome | None = None
    error: str | None = None
    failures: int = 0
    """pulls that failed since the last one that did not"""
    title: str | None = None
    format: str | None = None
    problems: tuple[str, ...] = ()
    ttl: float | None = None
    """seconds that the current document asks to be left alone"""
    pulls: int = 0
    """pulls made"""
    items: int = 0
    """new and changed items given"""
    newest: float | None = None
    """when the last of them came"""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it, without what it would have anyway."""
        return {name: value for name, value in asdict(self).items() if name == "url" or value != _FRESH[name]}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> FeedState:
        """Return what `as_json` was made of."""
        return cls(**{**facts, "problems": tuple(facts.get("problems", ()))})


_FRESH = asdict(FeedState(""))
