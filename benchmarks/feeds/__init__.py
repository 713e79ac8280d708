"""The section of the feed desk: parsing beside feedparser, from a pull to the map, and memory with spill."""

from __future__ import annotations

SECTION = "feeds"
OURS, FEEDPARSER = "headrace", "feedparser"
ITEMS = 50  # of a feed
