"""What a feed may have at most, so that no feed can take memory or time without end."""

from __future__ import annotations

from dataclasses import dataclass, fields

from headrace.errors import BadInput


@dataclass(frozen=True)
class FeedLimits:
    """Bounds of a feed. What goes beyond them is cut off or left out, and the feed's `problems` say so.

    Parameters
    ----------
    document
        Bytes of a document; what comes after is not read.
    items
        Items of a feed; the first ones are kept.
    short
        Bytes of a title, an author or a category, which are cut there, and of a guid or a link, which would be another if it
        were cut: it is left out.
    long
        Bytes of a description.
    categories
        Categories of an item.
    depth
        Open elements, one in another.
    repair
        Bytes of a document that is not well-formed, which is repaired by a slower pass.

    Example
    -------
    >>> FeedLimits(items=100).items
    100
    """

    document: int = 16 << 20
    items: int = 10_000
    short: int = 8 << 10
    long: int = 256 << 10
    categories: int = 64
    depth: int = 200
    repair: int = 4 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"FeedLimits({field.name}={value!r}) is not a number of 1 or more")
