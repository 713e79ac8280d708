"""Damage: one wrong byte in a file, at every position of it or at many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random


def flipped(path: Path, *, most: int = 400) -> Iterator[int]:
    """Positions of a byte that is wrong while the caller has the position; the file is right again afterwards."""
    good, random = path.read_bytes(), Random(0)
    ends = {*range(min(64, len(good))), *range(max(0, len(good) - 64), len(good))}
    some = range(len(good)) if len(good) <= most else sorted(ends | set(random.sample(range(len(good)), most)))
    try:
        for at in some:
            bad = bytearray(good)
            bad[at] ^= random.randrange(1, 256)
            path.write_bytes(bad)
            yield at
    finally:
        path.write_bytes(good)
