"""What each version of a relation says: a function of its number, so that a row can be compared with the version it names.

Version 1 is created; each version after it is a change, a compaction or the same rows in another order, by its number. A relation
that is made in the place of another is the next generation, which its rows name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.arrays import Int64s
from headrace.relation.manifest import Manifest, drafts, manifest_path, versions

NONE = -1  # the price of a product that a version does not have
Kind = Literal["create", "apply", "compact", "reorder"]
_CYCLE: tuple[Kind, ...] = ("compact", "apply", "apply", "reorder", "apply", "apply", "compact", "apply", "apply")


@dataclass
class Contents:
    """The versions of one generation of a relation.

    Parameters
    ----------
    seed
        Of all that is drawn.
    keys
        Products are numbered below this; a version has some nine tenths of them.
    generation
        How often the relation was made in the place of another.
    """

    seed: int
    keys: int
    generation: int = 0
    _prices: list[Int64s] = field(default_factory=list, repr=False)

    @staticmethod
    def kind(version: int) -> Kind:
        """How a version is made from the one before."""
        return "create" if version == 1 else _CYCLE[version % len(_CYCLE)]

    def prices(self, version: int) -> Int64s:
        """The price of each product in a version; NONE where it has none."""
        while len(self._prices) < version:
            number = len(self._prices) + 1
            prices = np.full(self.keys, NONE) if number == 1 else self._prices[-1]
            if self.kind(number) in ("create", "apply"):
                upserts, new, deletes = self.change(number)
                prices = prices.copy()
                prices[upserts], prices[deletes] = new, NONE
            self._prices.append(prices)
        return self._prices[version - 1]

    def change(self, version: int) -> tuple[Int64s, Int64s, Int64s]:
        """The products with new prices, the prices, and the products that are gone."""
        rng = np.random.default_rng([self.seed, self.generation, version])
        order = rng.permutation(self.keys)
        if version == 1:
            there = np.sort(order[: self.keys * 9 // 10])
            return there, rng.integers(1, 10_000, there.size), order[:0]
        upserts = np.sort(order[: self.keys // 50])
        return upserts, rng.integers(1, 10_000, upserts.size), np.sort(order[upserts.size :][: self.keys // 150])

    def table(self, products: Int64s, prices: Int64s) -> pa.Table:
        """Rows of the relation."""
        return pa.table({"product": products, "price": prices, "generation": np.full(products.size, self.generation)})

    def create(self, path: Path) -> None:
        """Make version 1, in the place of what is there."""
        products, prices, _ = self.change(1)
        hr.Relation.create(
            path, self.table(products, prices), key="product", shards=2, page_size="4KiB", overwrite=True
        ).close()

    def make_next(self, relation: hr.Relation) -> int:
        """Make the version after the one that is open; refused if another writer was faster."""
        number = relation.version + 1
        kind = self.kind(number)
        if kind == "apply":
            upserts, new, deletes = self.change(number)
            return relation.apply(upserts=self.table(upserts, new), deletes=pa.array(deletes))
        if kind == "compact":
            return relation.compact(order="key")
        popular = np.random.default_rng([self.seed, number]).permutation(self.keys)[:50]
        frequency = np.arange(popular.size, 0, -1)
        return relation.compact(order="frequency", popularity=pa.table({"product": popular, "frequency": frequency}))


def generation_of(relation: hr.Relation) -> int:
    """The generation that the rows of a relation name."""
    return int(relation.head(1, ["generation"])["generation"][0].as_py())


def check_relation(path: Path, seed: int, keys: int, *, extra: bool = False) -> tuple[int, int]:
    """Refuse a relation that is not one of its versions, whole; returns its generation and version.

    With `extra` a product more is asked for than there is, so that the harness can show that it notices.
    """
    with hr.Relation.open(path) as relation:
        relation.verify()
        rows = relation.to_arrow()
        generations = np.unique(rows["generation"].to_numpy())
        assert generations.size == 1, f"{path} version {relation.version} has rows of generations {generations}"
        wanted = Contents(seed, keys, int(generations[0])).prices(relation.version)
        there = np.append(np.flatnonzero(wanted != NONE), [keys] if extra else np.empty(0, np.int64))
        products = rows["product"].to_numpy()
        assert np.array_equal(np.sort(products), there), (
            f"{path} version {relation.version}: {np.setdiff1d(there, products).size} products lost,"
            f" {products.size - np.unique(products).size} doubled, {np.setdiff1d(products, there).size} too many"
        )
        wrong = int((rows["price"].to_numpy() != wanted[products]).sum())
        assert not wrong, f"{path} version {relation.version}: {wrong} prices are those of another version"
        return int(generations[0]), relation.version


def left_behind(path: Path) -> list[str]:
    """Files and directories of a relation that no version needs. No writer is at work, and the last one ended well."""
    there = versions(path)
    named = {name for v in there for shard in Manifest.load(manifest_path(path, v)).shards for name in shard.names()}
    named |= {manifest_path(path, v).name for v in there} | {"locks", "batches", "popularity.counts"}
    found = [entry.name for entry in path.iterdir() if entry.name not in named]
    locks = {"writer", *(f"{v:06d}" for v in there)}
    found += [f"locks/{entry.name}" for entry in (path / "locks").iterdir() if entry.name not in locks]
    return sorted(found + [draft.name for draft in drafts(path)])
