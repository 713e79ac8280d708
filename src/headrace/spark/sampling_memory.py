"""The memory of an operator that samples: a worker's part of an executor's budget, without that for rows on their way."""

from __future__ import annotations

from headrace.errors import MemoryRefused
from headrace.spark.pair_step import warm_memory
from headrace.units import format_size, parse_size

_LEAST = 1 << 18  # bytes of a worker: less does not hold a few batches


def sampling_memory(memory: int | str | None, workers: int) -> int | None:
    """The bytes of an operator, of the memory of an executor with so many workers; None for no limit."""
    if memory is None:
        return None
    size = parse_size(memory, name="memory")
    if size // workers < _LEAST:
        raise MemoryRefused(
            f"memory={memory!r} is {format_size(size // workers)} for each of {workers} workers; give at least"
            f" {format_size(_LEAST * workers)}"
        )
    return warm_memory(size, workers, 1)
