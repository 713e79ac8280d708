"""The parts of one operator's memory, by name."""

from __future__ import annotations

from headrace.memory import MemoryBudget, Reservation


class Reservations:
    """What each part of an operator has reserved from its budget; a part may grow and shrink.

    Parameters
    ----------
    budget
        The operator's memory.
    room
        Bytes for everything but results that wait for their turn in stream order, and the parts that are named.
    apart
        Bytes of parts that are not in `room`.
    """

    def __init__(self, budget: MemoryBudget, room: int, apart: dict[str, int]) -> None:
        self.budget = budget
        self.room = room
        self._parts: dict[str, Reservation] = {}
        for part, nbytes in apart.items():
            self.hold(part, nbytes)
        self.ordered_room = budget.limit - room - sum(apart.values())
        """bytes for results that wait for their turn in stream order"""

    def hold(self, part: str, nbytes: int) -> None:
        """Reserve so many bytes for a part, in place of what it had reserved before."""
        if part in self._parts:
            self._parts[part].resize(nbytes)
        else:
            self._parts[part] = self.budget.reserve(part, nbytes)

    def hold_all(self, parts: dict[str, int]) -> None:
        """Reserve so many bytes for each of some parts; those that shrink come first, and make room for the others."""
        for part in sorted(parts, key=lambda part: parts[part] - self.held(part)):
            self.hold(part, parts[part])

    def held(self, *parts: str) -> int:
        """Bytes that these parts have reserved."""
        return sum(self._parts[part].nbytes for part in parts if part in self._parts)
