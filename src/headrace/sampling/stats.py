"""The counters of samplers, of window joins and of approximate joins."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class SamplerStats:
    """Counts what a sampler has seen, and what it holds now."""

    tuples_in: int = 0
    """tuples that were given to it, late ones and those without a time included"""
    late: int = 0
    """tuples that came further out of order than `late` of a window by time: they were dropped"""
    untimed: int = 0
    """tuples without a time, in a window by time: they were dropped"""
    held: int = 0
    """tuples that are kept now: the sample, and what may enter it later"""
    memory: dict[str, int] = field(default_factory=dict)
    """bytes held now, by part"""
    memory_peak: int = 0
    """bytes held at most so far"""
    memory_limit: int = 0
    """bytes of the budget; 0 if the size of the sample was given"""


@dataclass(slots=True, kw_only=True)
class WindowJoinStats:
    """Counts what a window join has done so far. Lists are left and right."""

    tuples_in: list[int] = field(default_factory=lambda: [0, 0])
    """tuples that were taken in, late ones and those without a time included"""
    skipped: list[int] = field(default_factory=lambda: [0, 0])
    """tuples with a null or NaN where they are compared: they match nothing, and count as tuples of the window"""
    late: list[int] = field(default_factory=lambda: [0, 0])
    """tuples that came further out of order than the window allows: they were dropped"""
    untimed: list[int] = field(default_factory=lambda: [0, 0])
    """tuples without a time, in a window by time: they were dropped"""
    kept: list[int] = field(default_factory=lambda: [0, 0])
    """tuples that are kept now: the sample, and what may enter it later"""
    results: int = 0
    """results that were sent"""
    memory: dict[str, int] = field(default_factory=dict)
    """bytes held now, by part"""
    memory_peak: int = 0
    """bytes held at most so far, the peaks of both sides added"""
    memory_limit: int = 0
    """bytes of the budget; 0 if the size of the samples was given"""


@dataclass(slots=True, kw_only=True)
class ApproximateJoinStats:
    """Counts what an approximate join has done so far. Lists are left and right."""

    tuples_in: list[int] = field(default_factory=lambda: [0, 0])
    """tuples that were taken in"""
    skipped: list[int] = field(default_factory=lambda: [0, 0])
    """tuples with a null where they are compared: they match nothing, and take no memory"""
    kept: list[int] = field(default_factory=lambda: [0, 0])
    """tuples that are held now"""
    results: int = 0
    """results that were sent"""
    scanned: list[int] = field(default_factory=lambda: [0, 0])
    """tuples of the other side that the text's algorithm would have compared the arriving ones with; the index does not"""
    flushes: int = 0
    """flushes of method "rrpj" """
    sketched: bool = False
    """whether there were more join values than could be counted exactly, so that a sketch counts"""
    size: int = 0
    """tuples of both sides that fit; 0 if nothing is dropped, or nothing has come yet and memory decides"""
    memory: dict[str, int] = field(default_factory=dict)
    """bytes held now, by part"""
    memory_peak: int = 0
    """bytes held at most so far"""
    memory_limit: int = 0
    """bytes of the budget; 0 if the number of tuples was given"""
