"""What a document may have at most, so that no document can take memory without end."""

from __future__ import annotations

from dataclasses import dataclass, fields

from headrace.errors import BadInput

_DEEPEST = (1 << 24) - 1  # levels: an event has 24 bits for its level


@dataclass(frozen=True)
class Limits:
    """Bounds of a document. One that goes beyond them is refused as if it were ill-formed, and the reason names the bound.

    Parameters
    ----------
    depth
        Open elements, one in another; four bytes each are held.
    name
        Bytes of a name, and of a reference.
    names
        Different names of elements and attributes in a document; some forty bytes each are held.
    attributes
        Attributes of one element.

    Example
    -------
    >>> from headrace.xml import Limits, Twig
    >>> list(Twig("//a").fragments([b"<a><a><a/></a></a>"], limits=Limits(depth=2)))
    Traceback (most recent call last):
    ...
    headrace.errors.IllFormed: document, line 1, column 7: elements are nested more than 2 deep, the limit
        (limits=Limits(depth=…) changes it); 0 fragments were made before
    """

    depth: int = 10_000
    name: int = 4096
    names: int = 65_536
    attributes: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                raise BadInput(f"Limits({field.name}={value!r}) is not a number of 1 or more")
        if self.depth > _DEEPEST:
            raise BadInput(f"Limits(depth={self.depth}) is too deep; give at most {_DEEPEST}")
