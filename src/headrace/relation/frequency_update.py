"""Change a relation that is stored by frequency: rows keep the rank of their key, and keys without one come last. [XHJ] §4.1

page (by popularity)   0     1     2     3          a key of page 1 gets other rows: page 1 is written anew, and stays the
before               [ak]  [cf]  [bx]  [dg]         second; a new key has no rank yet, and goes to the last page, whose rows
after                [ak]  [cf]' [bx]  [dgn]'       were the least popular; `compact(order="frequency")` ranks them all again
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s, Int64s
from headrace.files import open_new
from headrace.relation.keys import positions
from headrace.relation.manifest import FileFacts, ShardFacts
from headrace.relation.reader import FILE_SHIFT, SecondaryIndex
from headrace.relation.update import MOST_FILES, ShardChange, in_use, pieces, scan_tables
from headrace.relation.writer import BuiltPages, SecondaryIndexBuilder, new_filter, write_sidecars


class FrequencyShardChange(ShardChange):
    """Writes the new version of one shard that is stored by frequency."""

    def write(self) -> ShardFacts:
        """Write the pages that hold a changed key anew, and the index of all keys; all other pages stay where they are."""
        version, old = self.version, self.version.manifest.shards[self.shard]
        index = version.indexes[self.shard]
        assert isinstance(index, SecondaryIndex)
        stem = f"shard-{self.shard:04d}-{self.number:06d}"
        target = self._targets(index)
        affected = self._affected(index, target)
        used, pages = old.used_bytes, 0
        anchors: list[Int64s] = []
        entries = SecondaryIndexBuilder(version.codec)
        with open_new(version.root / f"{stem}.pages") as file:
            # Pieces may be cut anywhere, also inside a key that spans pages: its index entry leads to all of them.
            for piece in pieces(np.flatnonzero(affected), np.zeros(index.pages, np.uint8)):
                run, anchor, freed = self._rewrite_piece(index, piece, target, pages)
                if run.count:
                    file.write(run.pages.data)
                    entries.add(run, pages)
                used += run.used_bytes - freed
                pages += run.count
                anchors.append(anchor)
            file.sync()
        kept = np.flatnonzero(~affected)
        order = np.argsort(np.concatenate([kept, *anchors]), kind="stable")
        number = np.empty(order.size, np.int32)  # of each page, kept ones first, among all pages by popularity
        number[order] = np.arange(order.size)
        entries.renumber(number[kept.size :])
        self._keep_entries(index, entries, affected, number)
        fresh = (len(old.files) << FILE_SHIFT) + np.arange(pages, dtype=np.int64)
        where = np.concatenate([index.place(kept) - index.base, fresh])[order]
        files = [*old.files, FileFacts(f"{stem}.pages", pages * version.page_size, self.builder.tag, pages)]
        files, where = in_use(files, where)
        statistics = self._statistics()
        return write_sidecars(
            version.root,
            stem,
            self.builder,
            files,
            index=(arrays := entries.arrays()) | ({} if _in_order(files, where) else {"places": where}),
            pages=order.size,
            words=new_filter([version.codec.keys_in(arrays).hashes()], statistics.distinct),
            statistics=statistics,
            rows=old.rows + int(self.after.sum() - self.before.sum()),
            used_bytes=used,
        )

    def _targets(self, index: SecondaryIndex) -> Int64s:
        """Return the page that each upsert belongs to, rising: that of its key or, for a key without one, the last.

        The upserts are put in the same order.
        """
        page = index.locate(self.keys)[0].astype(np.int64)
        page[page < 0] = max(0, index.pages - 1)
        order = np.argsort(page, kind="stable")
        self.rows, self.keys = self.rows.take(pa.array(order)), self.keys.take(order)
        return page[order]

    def _affected(self, index: SecondaryIndex, target: Int64s) -> Bools:
        """Return which pages are written anew."""
        low, high = index.locate(self.changed)
        known = low >= 0
        steps = np.zeros(index.pages + 1, np.int64)
        np.add.at(steps, low[known], 1)
        np.add.at(steps, high[known] + 1, -1)
        affected: Bools = np.cumsum(steps)[: index.pages] > 0
        if index.pages:
            affected[target] = True
        if len(self.version.manifest.shards[self.shard].files) >= MOST_FILES:
            affected |= index.places >> FILE_SHIFT > 0  # rewrite all that earlier changes wrote, into one file
        return affected

    def _rewrite_piece(
        self, index: SecondaryIndex, piece: Int64s, target: Int64s, first_number: int
    ) -> tuple[BuiltPages, Int64s, int]:
        """Build new pages in place of some old ones, each with the upserts that belong to it.

        Returns the new pages, for each of them the first old page of its group of neighbours, and the bytes freed.
        """
        version = self.version
        groups = np.flatnonzero(np.diff(piece, prepend=-2) != 1)
        tables, old, freed, done = [], [], 0, 0
        for table, keys, facts in scan_tables(version, index.place(piece)):
            by_key = keys.argsort()
            at, equal = positions(keys.take(by_key), self.changed)
            np.add.at(self.before, at[equal], 1)
            stays = np.ones(len(keys), np.bool_)
            stays[by_key[equal]] = False
            self._count(table, -1)
            pages = np.repeat(np.arange(done, done + facts.rows.size), facts.rows)
            old.append(pages[stays])
            tables.append(table.filter(pa.array(stays)))
            freed += int(facts.used.sum())
            done += facts.rows.size
        first, last = (0, target.size) if not piece.size else np.searchsorted(target, [piece[0], piece[-1] + 1])
        old.append(np.searchsorted(piece, target[first:last]))
        tables.append(self.rows.slice(first, last - first))
        together = pa.concat_tables(tables).combine_chunks()
        old_page = np.concatenate(old)
        keys, _ = version.codec.encode([together.column(name) for name in version.manifest.key])
        order = keys.argsort()
        order = order[np.argsort(old_page[order], kind="stable")]
        together, old_page = together.take(pa.array(order)), old_page[order]
        group = np.searchsorted(groups, old_page, side="right") - 1 if piece.size else np.zeros(old_page.size, np.int64)
        run = self.builder.rebuild(together, first_number, old_page, group)
        self._count(together, +1)
        anchor = piece[groups[group[run.starts[:-1]]]] if piece.size else np.zeros(run.count, np.int64)
        return run, anchor, freed

    def _keep_entries(
        self, index: SecondaryIndex, entries: SecondaryIndexBuilder, affected: Bools, number: Int32s
    ) -> None:
        """Add the keys that have rows in pages that stay, which are numbered first; their other pages were added before."""
        before = np.append(0, np.cumsum(~affected))  # pages that stay before each page
        first, last = before[index.first], before[index.last_pages + 1] - 1
        some = (first <= last) & ~positions(index.keys, self.changed)[1]
        entries.add_entries(index.keys.take(np.flatnonzero(some)), number[first[some]], number[last[some]])


def _in_order(files: list[FileFacts], places: Int64s) -> bool:
    """Tell whether page i is page i of the one file, as in a shard that was written anew."""
    return (
        len(files) <= 1
        and bool((places == np.arange(places.size)).all())
        and places.size == sum(f.pages for f in files)
    )
