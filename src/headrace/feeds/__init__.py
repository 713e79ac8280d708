"""Continuous SQL over RSS, Atom and GeoRSS feeds ([PQP] app. C): feeds are pulled, joined as items arrive, and give a feed.

Names are imported when first used: a Spark process that only reads logged pulls need not load the parser.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.errors import NotAFeed
    from headrace.feeds.limits import FeedLimits
    from headrace.feeds.parser import ParsedFeed, parse_feed

__all__ = ["FeedLimits", "NotAFeed", "ParsedFeed", "parse_feed"]

_HOME = {
    "FeedLimits": "headrace.feeds.limits",
    "NotAFeed": "headrace.errors",
    "ParsedFeed": "headrace.feeds.parser",
    "parse_feed": "headrace.feeds.parser",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headrace.feeds' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
