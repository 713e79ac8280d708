"""What the tables must hold in the end, query by query; see `soak.job` for what each of them does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.arrays import Int64s
from headrace.runlog import RunLog
from soak.logged_queries import Verdict, once
from soak.places import SAMPLE_SIZE, SAMPLE_WINDOW, Places, products, sales, side
from soak.versions import NONE, Contents


def judge_sales(places: Places, contents: Contents, rows: int, seed: int, of: int) -> Verdict:
    """Every sale once, with its product as it was in the version that it was joined with, and sound surrogate keys."""
    got = _table(places.table)
    ids = got["id"].to_numpy()
    verdict = once(ids, rows)
    if verdict.lost or verdict.doubled or verdict.wrong:
        return verdict
    got = got.take(pa.array(np.argsort(ids)))
    wanted = pa.concat_tables([sales(first, of, seed) for first in range(0, rows, of)])
    verdict.wrong += [
        f"sales: column {name} is not that of the input"
        for name in ("source", "product", "amount")
        if got[name].combine_chunks() != wanted[name].combine_chunks()
    ]
    price = got["price"].fill_null(NONE).to_numpy()
    verdict.wrong += _prices("sales", contents, got["product"].to_numpy(), price, got["version"].to_numpy())
    verdict.wrong += _key_faults(got)
    return verdict


def judge_orders(places: Places, contents: Contents, loaded: list[list[int]], rows: int, seed: int, of: int) -> Verdict:
    """Every message once: in PostgreSQL with the price of its version, or a dead letter of a version without its product."""
    letters = [pq.read_table(path) for path in _dead_letters(places)]
    kept = [table.select(["id", "product", "_relation_version"]).to_pydict() for table in letters]
    found = [np.array(loaded, np.int64).reshape(-1, 4)]
    found += [
        np.column_stack([k["id"], k["product"], np.full(len(k["id"]), NONE), k["_relation_version"]]).astype(np.int64)
        for k in kept
    ]
    ids, product, price, version = np.concatenate(found).T
    verdict = once(ids, rows)
    if not verdict.wrong:
        wanted = np.concatenate([products(first, of, seed) for first in range(0, rows, of)])
        if (wanted[ids] != product).any():
            verdict.wrong.append("orders: products are not those of the messages")
    verdict.wrong += _prices("orders", contents, product, price, version)
    return verdict


def judge_pairs(places: Places, rows: int, seed: int, of: int) -> Verdict:
    """Every pair of equal keys once."""
    left, right = (
        np.concatenate([side(first, of, seed, number)["k"].to_numpy() for first in range(0, rows, of)])
        for number in (0, 1)
    )
    wanted = np.flatnonzero((left[:, None] == right[None, :]).ravel())
    got = _table(places.pairs)
    codes = got["a"].to_numpy() * right.size + got["b"].to_numpy()
    return once(np.searchsorted(wanted, codes), wanted.size, wanted, codes)


def judge_samples(places: Places, rows: int) -> Verdict:
    """The sample of each micro-batch is that of a sampler with the same seed that nobody disturbs; and every row was taken in."""
    from headrace.sampling.sampler_for import sampler_for
    from headrace.spark.sample_plan import shard_seed
    from soak.job import SEED

    files = _files_of_batches(places.checkpoint("samples"))
    got = _table(places.samples)
    batch, ids = got["batch"].to_numpy(), got["id"].to_numpy()
    sampler = sampler_for(
        "fair", seed=shard_seed(SEED, 0), size=SAMPLE_SIZE, window=hr.rows(SAMPLE_WINDOW), memory=None
    )
    verdict, came = Verdict(), 0
    for number in sorted(files):
        rows_of = pa.Table.from_batches(
            [b for path in files[number] for b in pq.read_table(path).to_batches()]
        ).combine_chunks()
        came += rows_of.num_rows
        sampler.insert(rows_of.to_batches()[0])
        wanted = np.sort(sampler.sample()["id"].to_numpy())
        mine = np.sort(ids[batch == number])
        verdict.rows += wanted.size
        verdict.lost += np.setdiff1d(wanted, mine).size
        verdict.doubled += mine.size - np.unique(mine).size
        if np.setdiff1d(mine, wanted).size:
            verdict.wrong.append(f"samples: micro-batch {number} has rows of another sample")
    verdict.lost += rows - came
    return verdict


def _table(path: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pyarrow_table()


def _prices(query: str, contents: Contents, product: Int64s, price: Int64s, version: Int64s) -> list[str]:
    """Compare each price with what the version of its row says."""
    wrong = 0
    for number in np.unique(version):
        which = version == number
        wrong += int((contents.prices(int(number))[product[which]] != price[which]).sum())
    return [f"{query}: {wrong} rows have a price that their version does not have"] if wrong else []


def _dead_letters(places: Places) -> list[Path]:
    return [path for log in RunLog.find(places.state) for path in sorted(log.path.glob("dead_letter/shard-*.parquet"))]


def _files_of_batches(checkpoint: Path) -> dict[int, list[str]]:
    """The files that each micro-batch of a query read."""
    found: dict[str, int] = {}
    for entry in (checkpoint / "sources" / "0").iterdir():
        if entry.name.split(".")[0].isdigit() and not entry.name.startswith("."):
            for line in entry.read_text().splitlines()[1:]:
                facts = json.loads(line)
                found[facts["path"].removeprefix("file://")] = int(facts["batchId"])
    batches: dict[int, list[str]] = {}
    for path, number in sorted(found.items()):
        batches.setdefault(number, []).append(path)
    return batches


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
