"""RocksDB through rocksdict: multi-get with a block cache of the budget and direct reads."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
)

from benchmarks.data import KEY_BYTES, VALUE, Records
from benchmarks.systems.base import KeyValueSystem

if TYPE_CHECKING:  # compare runs this file with revisions that have no such module
    from headrace.arrays import Int64s

_BLOCK = 4096
_FILE_ROWS = 1_000_000
_MULTI_GET = 1_024  # a multi-get pins every block it reads: 4 MiB at most


class RocksDB(KeyValueSystem):
    name = "rocksdb"

    def build(self) -> None:
        self.path.mkdir(parents=True)
        files: list[str] = []
        writer: SstFileWriter | None = None
        written = 0
        for keys, values in self.data.sorted_chunks():
            if writer is None:
                files.append(str(self.path / f"load-{len(files)}.sst"))
                writer = SstFileWriter(_options(8 << 20))
                writer.open(files[-1])
            packed = keys.astype(">i8").view(f"V{KEY_BYTES}").tolist()
            rows = values.tobytes()
            for i, key in enumerate(packed):
                writer[key] = rows[i * VALUE.itemsize : (i + 1) * VALUE.itemsize]
            written += len(keys)
            if written >= _FILE_ROWS:
                writer.finish()
                writer, written = None, 0
        if writer is not None:
            writer.finish()
        move = IngestExternalFileOptions()
        move.set_move_files(True)
        db = Rdict(str(self.path / "db"), _options(8 << 20))
        db.ingest_external_file(files, move)
        db.close()

    def open(self, memory: int, batch: int) -> None:
        options = _options(memory)
        # Without `column_families` rocksdict takes the stored options and an 8 MiB cache instead.
        self._db = Rdict(
            str(self.path / "db"),
            options,
            column_families={"default": options},
            access_type=AccessType.read_only(),
        )

    def lookup(self, keys: Int64s) -> tuple[np.ndarray, Records]:
        wanted = keys.astype(">i8").view(f"V{KEY_BYTES}").tolist()
        values: list[Any] = []
        for start in range(0, len(wanted), _MULTI_GET):
            values += self._db.get(wanted[start : start + _MULTI_GET]) or []
        try:
            return np.arange(len(keys)), np.frombuffer(b"".join(values), VALUE)
        except TypeError:  # some are None: absent
            found = np.flatnonzero([v is not None for v in values])
            return found, np.frombuffer(b"".join(filter(None, values)), VALUE)

    def close(self) -> None:
        self._db.close()

    def settings(self) -> dict[str, Any]:
        return {
            "version": version("rocksdict"),
            "access": f"raw-mode multi-get of {_MULTI_GET} sorted keys at a time, read-only",
            "options": f"direct reads, no compression, Bloom filter of 10 bits a key, partitioned "
            f"index and filters in the block cache, {_BLOCK}-byte blocks, hash index in blocks, "
            f"ingested in order into one level",
            "cache": "LRU block cache of the budget",
        }


def _options(cache_bytes: int) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache_bytes))
    table.set_block_size(_BLOCK)
    table.set_bloom_filter(10, block_based=False)
    # Index and filters are charged to the budget; in partitions, so that the cold ones can leave.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(_BLOCK)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_data_block_hash_ratio(0.75)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.none())
    options.set_use_direct_reads(True)
    options.set_max_open_files(-1)
    options.set_target_file_size_base(256 << 20)
    options.set_disable_auto_compactions(True)
    return options
