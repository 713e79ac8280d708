"""Damage: one wrong byte in a file, at every position of it or at many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random


@contextmanager
def one_wrong(path: Path, at: int, pattern: int) -> Iterator[None]:
    """Flip bits of one byte of a file, which is open elsewhere, for as long as the caller is in it."""
    with path.open("r+b") as file:
        file.seek(at)
        good = file.read(1)
        try:
            file.seek(at)
            file.write(bytes([good[0] ^ pattern]))
            file.flush()
            yield
        finally:
            file.seek(at)
            file.write(good)


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
