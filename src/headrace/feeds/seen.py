"""Which items of a feed were seen: pairs of identity and content, kept while in the current document and a horizon longer.

pairs    sorted, 32 bytes each: the identity's hash, then that of the content; so one search finds a pair, another an identity
last     when each was last known to be in the feed's current document
current  whether it is there now
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Float64s, Int64s

OnChange = Literal["append", "ignore"]
Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.bytes_]
Pairs = Hashes

_HASH, _PAIR = 16, 32  # bytes
PAIR_TYPE = pa.binary(_PAIR)


@dataclass(frozen=True)
class Seen:
    """The pairs of one feed. It is never changed: a document gives another one, which counts once its items are logged.

    Example
    -------
    >>> document = pair_up(pa.array([b"a" * 16], pa.binary(16)), pa.array([b"1" * 16], pa.binary(16)))
    >>> seen = NOTHING_SEEN.after(document, at=0.0, horizon=60.0)
    >>> changed = pair_up(pa.array([b"a" * 16], pa.binary(16)), pa.array([b"2" * 16], pa.binary(16)))
    >>> NOTHING_SEEN.fresh(document, "append"), seen.fresh(document, "append"), seen.fresh(changed, "append")
    ((array([0]), array([False])), (array([], dtype=int64), array([], dtype=bool)), (array([0]), array([ True])))
    """

    pairs: Pairs
    last: Float64s
    current: Bools

    def fresh(self, document: Pairs, on_change: OnChange) -> tuple[Int64s, Bools]:
        """Return the positions of items that are new or changed, in the document's order, and which of them are changed.

        A pair counts once, so an item that says again what it said before is not changed, and two items of a document with the
        same identity are two only if they differ. With "ignore" every identity counts once.
        """
        _, first = np.unique(document, return_index=True)
        positions = np.sort(first)
        pairs = document[positions]
        identities = _identities(pairs)
        known = contained(identities, _identities(self.pairs))
        repeated = np.ones(len(pairs), np.bool_)
        repeated[np.unique(identities, return_index=True)[1]] = False
        changed = known | repeated
        wanted = ~changed if on_change == "ignore" else ~contained(pairs, self.pairs)
        return positions[wanted].astype(np.int64), changed[wanted]

    def after(self, document: Pairs, at: float, horizon: float) -> Seen:
        """Return what is remembered once a document took the place of the current one: what left it stays for the horizon."""
        last = np.where(self.current, at, self.last)
        old = ~contained(self.pairs, np.unique(document)) & (last >= at - horizon)
        return self._with(document, at, old, last, np.zeros(len(last), np.bool_))

    def added(self, items: Pairs, at: float) -> Seen:
        """Return what is remembered with items of the log added. What else was in their document is not in the log, and stays."""
        old = ~contained(self.pairs, np.unique(items))
        return self._with(items, at, old, self.last, self.current)

    def _with(self, items: Pairs, at: float, old: Bools, last: Float64s, current: Bools) -> Seen:
        new = np.unique(items)
        pairs = np.concatenate([self.pairs[old], new])
        order = np.argsort(pairs, kind="stable")
        return Seen(
            pairs[order],
            np.concatenate([last[old], np.full(len(new), at)])[order],
            np.concatenate([current[old], np.ones(len(new), np.bool_)])[order],
        )


def pair_up(identities: pa.Array, contents: pa.Array) -> Pairs:
    """Return the pairs of a document's items, from the hashes of their identities and contents."""
    halves = [_bytes(array, _HASH) for array in (identities, contents)]
    return np.asarray(_texts(np.concatenate(halves, axis=1)))


def pairs_of(array: pa.Array) -> Pairs:
    """Return pairs from a column of a snapshot."""
    return np.asarray(_texts(_bytes(array, _PAIR)))


def pair_column(pairs: Pairs) -> pa.Array:
    """Return pairs as a column of a snapshot."""
    # NumPy cuts zeros off the end of a text that it hands out, so the bytes are taken as they lie.
    return pa.Array.from_buffers(PAIR_TYPE, len(pairs), [None, pa.py_buffer(np.ascontiguousarray(pairs))])


def _bytes(array: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _texts(rows: npt.NDArray[np.uint8]) -> Any:
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").reshape(-1)


def _identities(pairs: Pairs) -> Pairs:
    return np.asarray(_texts(np.ascontiguousarray(pairs).view(np.uint8).reshape(-1, _PAIR)[:, :_HASH]))


def contained(wanted: Hashes, ordered: Hashes) -> Bools:
    """Say of each text whether it is among those of an ordered array."""
    if not len(ordered):
        return np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.asarray(ordered[places] == wanted)


NOTHING_SEEN = Seen(np.empty(0, f"S{_PAIR}"), np.empty(0, np.float64), np.empty(0, np.bool_))
