"""What samplers are given and what they answer: arriving tuples, changes, and the state that all of them have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from headrace.arrays import Int32s, Int64s


@dataclass(frozen=True, slots=True)
class Arriving:
    """The tuples of a batch that a sampler decides about."""

    first: int
    """the number of tuples before them"""
    clock: Int64s
    """the clock of the window when each has come"""
    until: Int64s
    """the clock at which each expires"""
    live: Int64s
    """the number of live tuples when each has come; to a thousandth of the window, if that is by time"""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a batch has changed: slots that hold a row of it now, and slots that hold nothing any more."""

    rows: Int32s
    slots: Int32s
    gone: Int32s


class SamplerState(Protocol):
    """The state of a sampler: a dataclass of arrays, of which these have an item for each slot."""

    slot_bytes: ClassVar[int]
    """the bytes of a slot, in all arrays together"""
    seq: Int64s
    """the number of the tuple, 1 for the first of the stream; 0 if the slot is free"""
    until: Int64s
    """the clock of the window at which the tuple expires"""

    @property
    def held(self) -> int:
        """The number of slots in use."""
        ...
