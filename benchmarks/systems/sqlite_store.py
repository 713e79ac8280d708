"""SQLite: a table with an integer primary key, its page cache set to the budget."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.data import VALUE, Records
from benchmarks.systems.base import KeyValueSystem

if TYPE_CHECKING:  # compare runs this file with revisions that have no such module
    from headrace.arrays import Int64s

# Faster than a query a key (half), a temporary table (two thirds) and IN lists (nine tenths).
_LOOKUP = "SELECT r.k, r.v FROM json_each(?) j CROSS JOIN r ON r.k = j.value"


class SQLite(KeyValueSystem):
    name = "sqlite"

    def build(self) -> None:
        self.path.mkdir(parents=True)
        db = sqlite3.connect(self.path / "r.db")
        db.execute("PRAGMA page_size = 4096")
        db.execute("PRAGMA journal_mode = off")
        db.execute("CREATE TABLE r (k INTEGER PRIMARY KEY, v BLOB NOT NULL)")
        width = VALUE.itemsize
        for keys, values in self.data.sorted_chunks():
            rows = values.tobytes()
            db.executemany(
                "INSERT INTO r VALUES (?, ?)",
                ((k, rows[i * width : (i + 1) * width]) for i, k in enumerate(keys.tolist())),
            )
        db.commit()
        db.close()

    def open(self, memory: int, batch: int) -> None:
        # Autocommit: a read transaction is opened by hand, once, so that no lookup pays for it.
        uri = f"file:{self.path / 'r.db'}?mode=ro&immutable=1"
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None)
        for pragma in (f"cache_size = -{memory >> 10}", "mmap_size = 0", "temp_store = memory"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("BEGIN")
        if not self.is_dense(batch):
            self._read_at_random()

    def _read_at_random(self) -> None:
        """Turn the kernel's read-ahead off: SQLite has no setting for it, so by its descriptor."""
        self._db.execute("SELECT 1 FROM r LIMIT 1").fetchall()
        file = (self.path / "r.db").stat()
        for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), file):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def lookup(self, keys: Int64s) -> tuple[np.ndarray, Records]:
        wanted = f"[{','.join(map(str, keys.tolist()))}]"
        rows = self._db.execute(_LOOKUP, (wanted,)).fetchall()
        if not rows:
            return np.empty(0, np.int64), np.empty(0, VALUE)
        found, values = zip(*rows, strict=True)
        records = np.frombuffer(b"".join(values), VALUE)
        if len(found) == len(keys):
            return np.arange(len(keys)), records
        return np.searchsorted(keys, np.array(found, np.int64)), records

    def close(self) -> None:
        self._db.close()

    def settings(self) -> dict[str, Any]:
        return {
            "version": sqlite3.sqlite_version,
            "access": "json_each of sorted keys joined with the table",
            "options": "INTEGER PRIMARY KEY, 4096-byte pages, immutable, mmap off, "
            "one transaction, read-ahead only for dense batches",
            "cache": "cache_size = the budget, plus the page cache inside the memory limit",
        }
