"""What a model answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.metrics import Overhead


@dataclass(frozen=True)
class Work:
    """What a stream tuple takes, in the mean."""

    read: float
    """seconds of the disk"""
    steps: float
    """seconds of the join's steps, by the machine's factors"""
    iterations: float = 0.0
    requests: float = 0.0

    def seconds(self, overhead: Overhead) -> float:
        """All of it on a machine with an overhead."""
        return (
            self.read
            + overhead.steps * self.steps
            + overhead.iteration * self.iterations
            + overhead.request * self.requests
        )


@dataclass(frozen=True)
class Prediction:
    """What an algorithm would do within a memory.

    A rate of 0 says that it cannot: `why` has the reason.
    """

    algorithm: str
    memory: int
    """bytes it was given"""
    rate: float
    """stream tuples a second"""
    parameters: dict[str, int] = field(default_factory=dict)
    """by the names of its own arguments"""
    parts: dict[str, int] = field(default_factory=dict)
    """bytes of each part of its memory"""
    why: str = ""
    """where the time goes, in one line"""
    work: Work | None = None
    """of a tuple of a stream without end, before overheads"""


def refused(algorithm: str, memory: int, why: str) -> Prediction:
    """A prediction that it cannot be done."""
    return Prediction(algorithm, memory, 0.0, why=why)
