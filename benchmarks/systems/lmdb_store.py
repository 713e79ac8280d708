"""LMDB: a memory-mapped B+-tree; its cache is the page cache, held down by the memory cgroup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np

from benchmarks.data import KEY_BYTES, VALUE, Records
from benchmarks.systems.base import KeyValueSystem

if TYPE_CHECKING:  # compare runs this file with revisions that have no such module
    from headrace.arrays import Int64s

_PAIR = np.dtype([("k", ">i8"), ("value", VALUE)])


class LMDB(KeyValueSystem):
    name = "lmdb"

    def build(self) -> None:
        size = max(1 << 28, self.data.bytes * 2)
        with lmdb.open(str(self.path), map_size=size, max_dbs=1, sync=False) as env:
            db = env.open_db(b"r", dupsort=True, dupfixed=True)
            for keys, values in self.data.sorted_chunks():
                packed = keys.astype(">i8").tobytes()
                rows = values.tobytes()
                with env.begin(db=db, write=True) as txn, txn.cursor() as cursor:
                    cursor.putmulti(
                        (
                            (packed[i * 8 : i * 8 + 8], rows[j : j + VALUE.itemsize])
                            for i, j in enumerate(range(0, len(rows), VALUE.itemsize))
                        ),
                        append=True,
                    )
            env.sync(True)

    def open(self, memory: int, batch: int) -> None:
        self._env = lmdb.open(str(self.path), max_dbs=1, readonly=True, lock=False, readahead=self.is_dense(batch))
        self._db = self._env.open_db(b"r", dupsort=True, dupfixed=True, create=False)
        self._txn = self._env.begin(db=self._db, buffers=True)
        self._cursor = self._txn.cursor()

    def lookup(self, keys: Int64s) -> tuple[np.ndarray, Records]:
        wanted = keys.astype(">i8").view(f"V{KEY_BYTES}").tolist()
        # With fixed-size values LMDB hands back one packed buffer: no Python object a row.
        packed = self._cursor.getmulti(wanted, dupdata=True, dupfixed_bytes=VALUE.itemsize, keyfixed=True)
        pairs = np.frombuffer(packed, _PAIR)
        if len(pairs) == len(keys):
            return np.arange(len(keys)), pairs["value"]
        return np.searchsorted(keys, pairs["k"].astype(np.int64)), pairs["value"]

    def close(self) -> None:
        self._cursor.close()
        self._txn.abort()
        self._env.close()

    def settings(self) -> dict[str, Any]:
        return {
            "version": ".".join(map(str, lmdb.version())),
            "access": "cursor.getmulti of sorted keys into one packed buffer (dupfixed, keyfixed)",
            "options": "readonly, lock=False, readahead only for dense batches, big-endian keys, appended in order",
            "cache": "page cache, inside the memory limit",
        }
