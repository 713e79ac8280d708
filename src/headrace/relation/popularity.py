"""Measured popularity: what joins counted, kept beside the relation, and a relation stored anew in the order of it.

    join --Sketch: counts of keys--> relation/popularity.counts --compact(order="frequency")--> pages, the most popular first

The file is replaced as a whole by whoever notes its counts last: each join of a stream sees a fair share of it. Counts are by the
hash of a key, so they hold for every version of the relation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace import files
from headrace.errors import BadInput, DamagedRelation
from headrace.relation.frequency_order import CountedRanks, FrequencyRanks, FrequencySorter, Ranks, RanksFromNow
from headrace.relation.manifest import SCRATCH, Manifest, StorageOrder, commit
from headrace.relation.sidecar import read_arrays, write_arrays
from headrace.relation.sketch import Sketch
from headrace.relation.sorter import ExternalSorter
from headrace.relation.update import RowCounter, scan_tables
from headrace.relation.writer import write_shards

if TYPE_CHECKING:
    from headrace.relation.relation import Relation

_FILE = "popularity.counts"
_MOST_BYTES = 1 << 30  # of that file: more than any join counts in, and a damaged one must not ask for more


def note_popularity(relation: Relation, counts: Sketch) -> None:
    """Keep counts beside a relation, in place of those that were there."""
    path = relation.path / _FILE
    while True:
        draft = files.draft_name(path)
        try:
            write_arrays(draft, {"counts": counts.dump()}, _tag(relation))
            files.replace(draft, path)
        except FileNotFoundError:  # a writer of the relation took it for what a killed one left
            if not files.is_directory(relation.path):
                raise
        except OSError:
            with suppress(OSError):
                files.remove(draft)
            raise
        else:
            return


def noted_popularity(relation: Relation) -> Sketch | None:
    """Read the counts that were kept beside a relation; None if there are none."""
    path = relation.path / _FILE
    try:
        fd = files.open_regular(path)
    except FileNotFoundError:
        return None
    except files.NotRegular as error:
        raise DamagedRelation(path, "it is not a regular file") from error
    try:
        size = os.fstat(fd).st_size
        if size > _MOST_BYTES:
            raise DamagedRelation(path, f"it has {size:,} bytes; remove it, and let a join measure again")
        arrays = read_arrays(fd, path, None, size, _tag(relation))
    finally:
        files.close(fd)
    dumped = arrays.get("counts", np.empty(0, np.uint8))
    if not Sketch.sound(dumped):
        raise DamagedRelation(path, "its arrays are not those of such a file; remove it, and let a join measure again")
    return Sketch.of_dump(dumped)


def _tag(relation: Relation) -> int:
    """Return the tag of the file: one of another relation is not taken for it."""
    return int(relation.identity[:7] or "0", 16)


def reorder(
    relation: Relation,
    order: StorageOrder,
    popularity: Ranks | None,
    memory: int,
    progress: Callable[[int, int | None], None] | None = None,
) -> int:
    """Commit a version with all rows stored in another order, by an external sort; see `Relation.compact`."""
    version, manifest = relation.opened, relation.opened.manifest
    layout, number, shards = replace(version.layout, order=order), manifest.version + 1, range(len(manifest.shards))
    counted = RowCounter(progress, manifest.rows, passes=2)  # once to be sorted, once to be written
    with files.leased_directory(relation.path, SCRATCH) as scratch:
        if order == "frequency":
            ranks = RanksFromNow(version, popularity)
            sorter: ExternalSorter = FrequencySorter(layout, len(shards), memory, scratch, "refuse", ranks)
        else:
            sorter = ExternalSorter(layout, len(shards), memory, scratch, "refuse")
        for table in counted(_rows(relation)):
            sorter.add(table)
        sorter.finish()
        rows = (counted(sorter.shard(shard)) for shard in shards)
        facts, nulls, variable = write_shards(relation.path, layout, number, rows)
    changed = replace(manifest, version=number, shards=facts, nulls=nulls, variable_bytes=variable, order=order)
    commit(relation.path, replace(changed, created=Manifest.now()))
    return number


def _rows(relation: Relation) -> Iterator[pa.Table]:
    for shard in range(relation.num_shards):
        for table, _, _ in scan_tables(relation.opened, relation.opened.places(shard)):
            yield table


def ranks_by(relation: Relation, popularity: Any) -> Ranks:
    """Return ranks by a table of frequencies, by what a join counted, or by the counts that are kept beside the relation."""
    if popularity is None:
        popularity = noted_popularity(relation)
    if popularity is None:
        raise BadInput(
            f"order='frequency' needs to know how popular keys are, and no join has noted it for {relation.path}; give"
            " popularity=join.popularity, or a table of the key columns and 'frequency', or call note_popularity first"
        )
    if hasattr(popularity, "estimate"):
        return CountedRanks(popularity)
    return FrequencyRanks(popularity, relation.codec)
