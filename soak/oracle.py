"""What the table must hold in the end: every sale once, with its product as it was in the version that it was joined with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.arrays import Int64s
from soak.places import KEYS, Places, sales

NONE = -1  # a product that a version does not have


@dataclass
class History:
    """A relation that changes, and what each of its versions says."""

    places: Places
    rng: np.random.Generator
    price: Int64s = field(default_factory=lambda: np.full(KEYS, NONE))
    versions: dict[int, Int64s] = field(default_factory=dict)

    def create(self) -> None:
        """The relation with nine tenths of the products, and an empty lookup."""
        there = np.sort(self.rng.permutation(KEYS)[: KEYS * 9 // 10])
        self.price[there] = self.rng.integers(1, 10_000, there.size)
        table = pa.table({"product": there, "price": self.price[there]})
        with hr.Relation.create(self.places.relation, table, key="product", shards=2) as relation:
            self.versions[relation.version] = self.price.copy()
        empty = pa.schema(
            {"source": pa.string(), "product": pa.int64(), "skey": pa.int64(), "inferred": pa.bool_()}
        ).empty_table()
        hr.Relation.create(self.places.lookup, empty, key=["source", "product"]).close()

    def change(self) -> None:
        """A new version: some products with new prices, some gone. It is known what it says before anyone can see it."""
        with hr.Relation.open(self.places.relation) as relation:
            upserts = np.sort(self.rng.permutation(KEYS)[:60])
            deletes = np.setdiff1d(self.rng.permutation(KEYS)[:20], upserts)
            self.price[upserts] = self.rng.integers(1, 10_000, upserts.size)
            self.price[deletes] = NONE
            self.versions[relation.version + 1] = self.price.copy()
            relation.apply(upserts=pa.table({"product": upserts, "price": self.price[upserts]}), deletes=deletes)


def faults(places: Places, history: History, rows: int, seed: int) -> list[str]:
    """What is wrong with the table, in words; nothing if it is as it must be."""
    from deltalake import DeltaTable

    got = DeltaTable(str(places.table)).to_pyarrow_table()
    ids = got["id"].to_numpy()
    times = np.bincount(ids, minlength=rows)
    found = []
    if times.size > rows or (times != 1).any():
        found.append(f"{int((times == 0).sum())} rows lost, {int((times > 1).sum())} there more than once")
        return found
    order = np.argsort(ids)
    wanted = sales_of(rows, seed)
    got = got.take(pa.array(order))
    found += [
        f"column {name} is not that of the input"
        for name in ("source", "product", "amount")
        if got[name] != wanted[name]
    ]
    product, price = got["product"].to_numpy(), got["price"].fill_null(NONE).to_numpy()
    for version, prices in history.versions.items():
        which = got["version"].to_numpy() == version
        wrong = int((prices[product[which]] != price[which]).sum())
        if wrong:
            found.append(f"{wrong} rows have a price that version {version} does not have")
    known = np.isin(got["version"].to_numpy(), list(history.versions))
    if not known.all():
        found.append(f"{int((~known).sum())} rows were joined with a version that never was")
    return found + _key_faults(got)


def sales_of(rows: int, seed: int, of: int = 500) -> pa.Table:
    """All that was written to the input."""
    return pa.concat_tables([sales(first, of, seed) for first in range(0, rows, of)])


def _key_faults(got: pa.Table) -> list[str]:
    """Surrogate keys: one for each source and product, one source and product for each, and no gaps."""
    names = ["source", "product", "skey"]
    pairs = got.select(names).group_by(names).aggregate([])
    skeys = np.sort(pairs["skey"].to_numpy())
    if pairs.num_rows != got.select(names[:2]).group_by(names[:2]).aggregate([]).num_rows:
        return ["a product of a source has two surrogate keys"]
    if not np.array_equal(skeys, np.arange(1, skeys.size + 1)):
        return [f"{skeys.size} surrogate keys go from {skeys[0]} to {skeys[-1]}: gaps, or one given out twice"]
    return []
