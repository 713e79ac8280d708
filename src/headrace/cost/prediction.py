"""Prediction: the output of a cost model."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from headrace.metrics import Overhead


@dataclass(frozen=True)
class Work:
    """The mean cost of a stream tuple."""

    read: float
    """seconds of reading"""
    steps: float
    """seconds of the join's steps, by the machine's factors"""
    iterations: float = 0.0
    requests: float = 0.0
    index_pages: float = 0.0
    """index pages read, where the index is not in memory as a whole; the time is part of `read`"""

    def seconds(self, overhead: Overhead) -> float:
        """Return the total seconds with an overhead."""
        return (
            self.read
            + overhead.steps * self.steps
            + overhead.iteration * self.iterations
            + overhead.request * self.requests
        )


@dataclass(frozen=True)
class Prediction:
    """The predicted performance of an algorithm in a memory budget.

    A rate of 0 means that it cannot run in it, and `why` has the reason.
    """

    algorithm: str
    memory: int
    """bytes it was given"""
    rate: float
    """stream tuples per second"""
    _: KW_ONLY
    parameters: dict[str, int] = field(default_factory=dict)
    """its sizes, by the names of its arguments"""
    parts: dict[str, int] = field(default_factory=dict)
    """bytes of each part of its memory"""
    why: str = ""
    """where the time goes, in one line"""
    work: Work | None = None
    """cost of a tuple of an endless stream, without overheads"""


def refused(algorithm: str, memory: int, why: str) -> Prediction:
    """Make the prediction that an algorithm cannot run."""
    return Prediction(algorithm, memory, 0.0, why=why)
