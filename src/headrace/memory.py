"""MemoryBudget: memory is reserved before it is held, from one budget that knows its parts by name. (DESIGN D4)"""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType

from headrace.errors import BadInput, MemoryRefused
from headrace.units import format_size, parse_size

#: Bytes that a process may grow by beyond 105% of an operator's budget: record batches of up to 2 MiB that come in, a batch of
#: results that the caller still has while the next one is made, and freed memory that malloc and Arrow's pool keep for later.
#: Give a process a budget and this much; docs/memory.md has what was measured.
OVERHEAD = 24 << 20

_LONG_ROW = 512  # bytes, in the mean
_KEPT = 8 << 20  # bytes that malloc may keep: to return them costs time, to have them again a little more


class MemoryBudget:
    """A number of bytes that named parts share.

    A part reserves memory before it allocates; a refusal says which part asked for how much, which parts hold what, and what is
    left. Several reservations under one name add up. Safe to use from several threads.

    Args:
        limit: the size of the budget, in bytes or as a text such as ``"64MiB"``.

    Example:
        >>> budget = MemoryBudget("1MiB")
        >>> with budget.reserve("index", 300 * 1024) as index:
        ...     budget.held(), budget.left
        ({'index': 307200}, 741376)
        >>> budget.used, budget.peak_by_part
        (0, {'index': 307200})
        >>> queue = budget.reserve("queue", 512 * 1024)
        >>> budget.reserve("hash table", 768 * 1024)
        Traceback (most recent call last):
        ...
        headrace.errors.MemoryRefused: hash table asked for 768KiB;
            512KiB of 1MiB is left (queue holds 512KiB)
    """

    def __init__(self, limit: int | str) -> None:
        self.limit = parse_size(limit, name="memory")
        self.freed = FreedMemory(self.limit)
        """told of copies of rows that come and go"""
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._used = 0
        self._peak = 0
        self._peak_by_part: dict[str, int] = {}

    def reserve(self, part: str, nbytes: int) -> Reservation:
        """Reserve `nbytes` for `part`, or raise `MemoryRefused`."""
        if nbytes < 0:
            raise BadInput(f"{part} asked for {nbytes} bytes; a reservation is 0 or more")
        self._change(part, 0, nbytes)
        return Reservation(self, part, nbytes)

    def held(self) -> dict[str, int]:
        """Return the bytes held now, by part; parts that hold nothing are not listed."""
        with self._lock:
            return dict(self._held)

    @property
    def used(self) -> int:
        """Bytes held now by all parts."""
        return self._used

    @property
    def left(self) -> int:
        """Bytes that may still be reserved."""
        return self.limit - self._used

    @property
    def peak(self) -> int:
        """The most bytes that were held at one time."""
        return self._peak

    @property
    def peak_by_part(self) -> dict[str, int]:
        """The most bytes that each part held; the parts need not have peaked at the same time."""
        with self._lock:
            return dict(self._peak_by_part)

    def __repr__(self) -> str:
        return f"MemoryBudget({self.limit}, used={self._used}, peak={self._peak})"

    def _change(self, part: str, old: int, new: int) -> None:
        more = new - old
        with self._lock:
            if more > self.limit - self._used:
                raise MemoryRefused(self._refusal(part, old, new))
            self._used += more
            now = self._held.get(part, 0) + more
            if now:
                self._held[part] = now
            else:
                self._held.pop(part, None)
            self._peak = max(self._peak, self._used)
            if now > self._peak_by_part.get(part, 0):
                self._peak_by_part[part] = now

    def _refusal(self, part: str, old: int, new: int) -> str:
        largest_first = sorted(self._held.items(), key=lambda item: -item[1])
        holders = ", ".join(f"{name} holds {format_size(n)}" for name, n in largest_first)
        asked = f"to grow from {format_size(old)} to {format_size(new)}" if old else f"for {format_size(new)}"
        return (
            f"{part} asked {asked}; {format_size(self.limit - self._used)} of "
            f"{format_size(self.limit)} is left ({holders or 'nothing is held'})"
        )


class Reservation:
    """Bytes reserved for one part, until released. Made by `MemoryBudget.reserve`.

    Example:
        >>> budget = MemoryBudget(1000)
        >>> queue = budget.reserve("queue", 100)
        >>> queue.resize(400)
        >>> queue.nbytes, budget.left
        (400, 600)
        >>> queue.release()
        >>> budget.left
        1000
    """

    __slots__ = ("_budget", "_lock", "_nbytes", "_open", "part")

    def __init__(self, budget: MemoryBudget, part: str, nbytes: int) -> None:
        self.part = part
        self._budget = budget
        self._nbytes = nbytes
        self._open = True
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held; 0 after release."""
        return self._nbytes

    def resize(self, nbytes: int) -> None:
        """Change the reservation to `nbytes`. A refused growth leaves it as it was."""
        if nbytes < 0:
            raise BadInput(f"{self.part} asked for {nbytes} bytes; a reservation is 0 or more")
        with self._lock:
            if not self._open:
                raise BadInput(f"the reservation of {self.part} is released; make a new one")
            self._budget._change(self.part, self._nbytes, nbytes)
            self._nbytes = nbytes

    def release(self) -> None:
        """Return the bytes to the budget. A second call does nothing."""
        with self._lock:
            if self._open:
                self._budget._change(self.part, self._nbytes, 0)
                self._nbytes = 0
                self._open = False

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Reservation({self.part!r}, {self._nbytes})"


_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _keep: 0)  # only glibc has it


def trim_malloc() -> None:
    """Return freed memory that malloc keeps for later allocations to the system (malloc_trim)."""
    _trim(0)


class FreedMemory:
    """Has malloc return freed memory now and then: each time so many bytes of copies of long rows have come and gone.

    malloc keeps what was freed for later. Where copies have many sizes, as those of long rows do, it keeps more and more. Of
    short rows it keeps little, and to return that after every few of them would take a fifth of the time of a join.

    Parameters
    ----------
    limit
        The budget of an operator: a quarter of it may be kept, and 8 MiB at most.
    """

    def __init__(self, limit: int) -> None:
        self._every = min(limit // 4, _KEPT)
        self._freed = 0

    def add(self, nbytes: int, rows: int) -> None:
        """A copy of so many bytes, of so many rows, was freed, or soon will be."""
        if not self.are_long(nbytes, rows):
            return
        self._freed += nbytes
        if self._freed >= self._every:
            self._freed = 0
            trim_malloc()

    @staticmethod
    def are_long(nbytes: int, rows: int) -> bool:
        """Whether rows are so long that their copies are worth returning."""
        return nbytes >= _LONG_ROW * max(1, rows)


def release_freed_memory() -> None:
    """Return freed memory that malloc and Arrow's pool keep for later allocations to the system, before a process may idle."""
    import pyarrow as pa  # imported here, so that a budget alone does not load Arrow

    pa.default_memory_pool().release_unused()
    _trim(0)
