"""The systems side by side, by name. Each is imported only where it runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.systems.base import System

OURS = "headrace"
OURS_IN_MEMORY = "headrace-memory"

LOOKUP = {
    OURS: "headrace_join:Headrace",
    "lmdb": "lmdb_store:LMDB",
    "rocksdb": "rocksdb_store:RocksDB",
    "sqlite": "sqlite_store:SQLite",
    "duckdb": "duckdb_engine:DuckDB",
}
IN_MEMORY = {
    OURS_IN_MEMORY: "headrace_join:HeadraceMemory",
    "duckdb-memory": "duckdb_engine:DuckDBMemory",
    "polars-memory": "polars_engine:PolarsMemory",
}
#: What "the best key-value store" ranges over.
STORES = ("lmdb", "rocksdb", "sqlite")


def load(name: str) -> type[System]:
    """The class of a system; importing it imports the library behind it."""
    module, cls = {**LOOKUP, **IN_MEMORY}[name].split(":")
    system: type[System] = getattr(import_module(f"benchmarks.systems.{module}"), cls)
    return system
