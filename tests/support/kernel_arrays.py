"""Arrays as kernels take them, from plain Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numba.np.numpy_support import as_dtype

RELAXED = settings(deadline=None)  # the machine is shared: nothing here is about time

# Few letters, so that strings collide, with both ends of the byte order among them. A common start
# is as long as the words that comparisons go by.
BYTE_STRINGS = st.builds(
    lambda start, end: start + bytes(end),
    st.sampled_from([b"", b"", b"\0" * 7, b"aaaaaaaa", b"aaaaaaaaaaaaaaaa"]),
    st.lists(st.sampled_from(b"\x00\x01a\xff"), max_size=4),
)


def longs(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int64)


def ints(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int32)


def octets(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.uint8)


def strings(values: Sequence[bytes], before: bytes = b"") -> tuple[np.ndarray, np.ndarray]:
    """Bytes and offsets; `before` are bytes that belong to no string, as in a sliced array."""
    sizes = [len(before), *(len(v) for v in values)]
    return np.frombuffer(before + b"".join(values), np.uint8), np.cumsum(sizes, dtype=np.int64)


def to_bytes(data: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    raw = data.tobytes()
    return [raw[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def space(kernel: Callable, argument: int, n: int, fill: int = 9) -> np.ndarray:
    """An array of the type that a kernel's argument has, with something in it to write over."""
    return np.full(n, fill, as_dtype(kernel.nopython_signatures[0].args[argument].dtype))


def fit(kernel: Callable, argument: int, values: Iterable[int]) -> np.ndarray:
    """Values as the type that a kernel's argument has."""
    return np.array(list(values), space(kernel, argument, 0).dtype)
