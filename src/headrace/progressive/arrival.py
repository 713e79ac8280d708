"""Arrival: a batch that is being taken in, piece by piece, so that a call can go on where the last one stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.progressive.grids.partitioning import CellEntries, JoinKeys


@dataclass(slots=True)
class Piece:
    """Rows of a batch that are taken in together."""

    batch: pa.RecordBatch
    keys: JoinKeys
    home: CellEntries
    """the cells that its rows are kept in"""
    stamp: int
    """the stamp of its arrival"""
    results: Iterator[pa.RecordBatch]
    """its results with the other side's memory that are still to be sent"""
    announced: bool = False
    """whether the flush policy has learned of it"""


@dataclass(slots=True)
class Arrival:
    """A batch of a side, and how much of it has been taken in."""

    number: int
    """0 is left, 1 is right"""
    batch: pa.RecordBatch
    step: int
    """the number of rows to take in at a time"""
    at: int = 0
    """the number of rows that are in memory, or were"""
    piece: Piece | None = None
    """the rows that are being taken in"""
