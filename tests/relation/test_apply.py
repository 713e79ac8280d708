"""Updates against a dictionary of lists."""

import shutil
from collections import Counter
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import headrace as hr
from tests.support.relation_oracle import FEW, check_same, files_of, named_files, rows, scanned

KINDS = {
    "int": ([pa.int32()], lambda i: (i - 10,)),
    "string": ([pa.string()], lambda i: ("k" * (i % 4) + str(i),)),
    "decimal": ([pa.decimal128(30, 0)], lambda i: (Decimal(i * 10**20 - 5),)),
    "composite": ([pa.int64(), pa.string()], lambda i: (i % 3, "x\0" * (i % 2) + str(i))),
}
DOMAIN = 24


class Model:
    """The rows of every key, in the order in which lookups give them."""

    def __init__(self, kind: str) -> None:
        self.types, self.key_of = KINDS[kind]
        self.names = ["k0", "k1"][: len(self.types)]
        self.state: dict[tuple[object, ...], list[tuple[object, ...]]] = {}

    def table(self, numbers, tag: str) -> pa.Table:
        """Rows for some keys; their text is long enough that a few fill a page."""
        keys = [self.key_of(i) for i in numbers]
        columns = {name: pa.array([k[j] for k in keys], self.types[j]) for j, name in enumerate(self.names)}
        columns["v"] = pa.array([None if i % 5 == 0 else i for i in numbers], pa.int64())
        texts = [None if n % 7 == 3 else tag + "z" * (n * 37 % 300) for n in range(len(keys))]
        return pa.table({**columns, "s": pa.array(texts, pa.string())})

    def put(self, table: pa.Table) -> None:
        for row in rows(table):
            self.state.setdefault(row[: len(self.names)], []).append(row)

    def apply(self, upserts: pa.Table, deletes: pa.Table) -> None:
        for key in {*rows(upserts, self.names), *rows(deletes, self.names)}:
            self.state.pop(key, None)
        self.put(upserts)

    def check(self, rel: hr.Relation, state) -> None:
        got = scanned(rel)
        assert len(got) == sum(map(len, state.values())) == rel.num_rows
        assert Counter(got) == Counter(row for some in state.values() for row in some)
        grouped = {}
        for row in got:
            grouped.setdefault(row[: len(self.names)], []).append(row)
        assert grouped == state, "rows of a key are in another order"
        every = [self.key_of(i) for i in range(DOMAIN + 3)]
        asked = pa.table({n: pa.array([k[j] for k in every], self.types[j]) for j, n in enumerate(self.names)})
        expected = [row for key in rows(asked) for row in state.get(key, [])]
        assert rows(rel.lookup(asked)) == expected
        assert rel.distinct_keys == len(state)
        everything = [row for some in state.values() for row in some]
        nulls = {name: sum(row[at] is None for row in everything) for name, at in (("v", -2), ("s", -1))}
        assert rel.opened.manifest.nulls == nulls
        assert rel.variable_bytes == {"s": sum(len(row[-1] or "") for row in everything)}
        repeated = {key: len(some) for key, some in state.items() if len(some) > 1}
        table = rel.key_frequencies()
        counted = zip(rows(table, self.names), table["frequency"].to_pylist(), strict=True)
        assert dict(counted) == repeated
        assert rel.describe()["max_frequency"] >= max(map(len, state.values()), default=0)
        rel.verify()


def many(seed: int, size: int, hot: float) -> list[int]:
    """So many rows that keys cross the borders of pages, where updates find and leave them."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(size) < hot, rng.integers(0, 3), rng.integers(0, DOMAIN, size)).tolist()


MANY = st.builds(many, st.integers(0, 10**6), st.integers(0, 400), st.sampled_from([0.0, 0.5]))
NUMBERS = st.lists(st.integers(0, DOMAIN - 1), max_size=40)
SKEWED = st.lists(st.sampled_from([0, 1, 1, 1, 2, DOMAIN - 1]), max_size=120)


class Updates(RuleBasedStateMachine):
    """Applies, compactions and readers in any order; the newest and every held version stay right."""

    @initialize(
        kind=st.sampled_from(list(KINDS)),
        start=st.one_of(NUMBERS, SKEWED, MANY, MANY),
        shards=st.integers(1, 3),
        fill=st.sampled_from([0.2, 0.8, 1.0]),
    )
    def create(self, kind, start, shards, fill):
        self.folder = self.make_folder()
        self.model = Model(kind)
        table = self.model.table(start, "first")
        self.model.put(table)
        self.rel = hr.Relation.create(
            self.folder / "r", table, key=self.model.names, shards=shards, page_size=4096, fill=fill
        )
        self.steps = 0
        self.readers = []

    def renewed(self) -> None:
        self.rel.close()
        self.rel = hr.Relation.open(self.folder / "r")
        assert self.rel.version == self.steps + 1

    @rule(new=st.one_of(NUMBERS, SKEWED, MANY), gone=st.sets(st.integers(0, DOMAIN + 2)), both=st.booleans())
    def apply(self, new, gone, both):
        self.steps += 1
        upserts = self.model.table(new, f"step {self.steps}")
        deletes = self.model.table(sorted(gone - set(new)), "").select(self.model.names)
        version = self.rel.apply(upserts=upserts, deletes=deletes if both or gone else None)
        assert version == self.steps + 1
        self.model.apply(upserts, deletes)
        self.renewed()

    @rule()
    def compact(self):
        self.steps += 1
        assert self.rel.compact() == self.steps + 1
        self.renewed()
        facts = self.rel.describe()
        assert facts["max_frequency"] == max(map(len, self.model.state.values()), default=0)

    @rule()
    def hold(self):
        held = {key: list(some) for key, some in self.model.state.items()}
        self.readers.append((hr.Relation.open(self.folder / "r"), held))

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 9))
    def let_go(self, which):
        reader, state = self.readers.pop(which % len(self.readers))
        self.model.check(reader, state)
        reader.close()

    @invariant()
    def newest_is_right(self):
        if hasattr(self, "rel"):
            self.model.check(self.rel, self.model.state)

    @invariant()
    def files_that_versions_name_are_there(self):
        if hasattr(self, "rel"):
            held = [reader for reader, _ in self.readers]
            assert named_files(self.rel, *held) <= files_of(self.folder / "r")

    def teardown(self):
        if hasattr(self, "rel"):
            for reader, state in self.readers:
                self.model.check(reader, state)
                reader.close()
            self.rel.close()


def test_oracle_any_sequence_of_updates(ram_path_factory):
    class Here(Updates):
        def make_folder(self):
            return ram_path_factory.mktemp("updates")

    few = settings(deadline=None, max_examples=40, stateful_step_count=8, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Here, settings=few)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@FEW
def test_oracle_one_update(kind, data, ram_path_factory):
    model = Model(kind)
    start = model.table(data.draw(st.one_of(NUMBERS, SKEWED, MANY)), "a")
    new = data.draw(st.one_of(NUMBERS, SKEWED))
    gone = data.draw(st.sets(st.integers(0, DOMAIN + 2))) - set(new)
    model.put(start)
    root = ram_path_factory.mktemp("one") / "r"
    with hr.Relation.create(root, start, key=model.names, page_size=4096, shards=2) as rel:
        upserts = model.table(new, "b")
        deletes = model.table(sorted(gone), "").select(model.names)
        rel.apply(upserts=upserts, deletes=deletes)
        model.check(rel, model.state)
        model.apply(upserts, deletes)
        with rel.refresh() as latest:
            model.check(latest, model.state)


# -- sizes that tiny domains do not reach ----------------------------------------------------------


def big(keys, tag) -> pa.Table:
    keys = np.asarray(keys)
    return pa.table({"k": keys, "tag": np.full(keys.size, tag), "s": ["y" * 100] * keys.size})


def test_oracle_every_key_of_a_relation_is_changed_alone(tmp_path):
    """Keys cross the borders of pages in all ways; their neighbours must not notice a change."""
    model = Model("int")
    rng = np.random.default_rng(21)
    for number in range(3):
        start = model.table(np.sort(rng.integers(0, DOMAIN, 300)).tolist(), "a")
        root = tmp_path / str(number)
        hr.Relation.create(root, start, key=["k0"], page_size=4096, shards=1, fill=0.9).close()
        for key in range(DOMAIN):
            for copies in (0, 1, 40):
                model.state = {}
                model.put(start)
                changed = tmp_path / f"{number}-{key}-{copies}"
                shutil.copytree(root, changed)
                upserts, deletes = model.table([key] * copies, "b"), model.table([key] * (copies == 0), "")
                with hr.Relation.open(changed) as rel:
                    rel.apply(upserts=upserts, deletes=deletes.select(["k0"]))
                    model.apply(upserts, deletes)
                    with rel.refresh() as latest:
                        model.check(latest, model.state)


def test_oracle_many_small_updates(tmp_path):
    """More updates than files are kept of: what earlier ones wrote is gathered on the way."""
    model = Model("composite")
    rng = np.random.default_rng(22)
    start = model.table(many(1, 300, 0.3), "a")
    model.put(start)
    rel = hr.Relation.create(tmp_path / "r", start, key=model.names, page_size=4096, shards=2)
    for step in range(100):
        new = rng.integers(0, DOMAIN, rng.integers(0, 4)).tolist()
        gone = [g for g in rng.integers(0, DOMAIN, 1).tolist() if g not in new]
        upserts, deletes = model.table(new, f"{step}"), model.table(gone, "").select(model.names)
        rel.apply(upserts=upserts, deletes=deletes)
        model.apply(upserts, deletes)
        rel.close()
        rel = hr.Relation.open(tmp_path / "r")
        if step % 5 == 4:
            model.check(rel, model.state)
    assert rel.version == 101
    assert len(list((tmp_path / "r").glob("*.pages"))) < 100


def test_oracle_more_pages_than_are_rewritten_at_a_time(tmp_path):
    """Every tenth of 60,000 rows of about 115 bytes, in pages of 4 KiB; then all; then most are gone."""
    n = 60_000
    rel = hr.Relation.create(tmp_path / "r", big(np.arange(0, 2 * n, 2), 1), key="k", page_size=4096, shards=1)
    assert rel.num_pages > 1500
    state = dict.fromkeys(range(0, 2 * n, 2), 1)

    def change(upserts, deletes, tag):
        nonlocal rel
        rel.apply(upserts=big(upserts, tag), deletes=pa.array(deletes, pa.int64()))
        rel = rel.refresh()
        state.update(dict.fromkeys(upserts, tag))
        for key in deletes:
            state.pop(key, None)
        got = dict(row[:2] for row in scanned(rel))
        assert rel.num_rows == len(state)
        assert got == state
        rel.verify()

    change(list(range(0, 2 * n, 20)), list(range(4, 2 * n, 100)), 2)
    change(list(range(1, 2 * n, 2)), [], 3)
    change([7], [k for k in range(2 * n) if k % 11 and k != 7], 4)
    rel.compact()
    assert dict(row[:2] for row in scanned(rel.refresh())) == state


def test_oracle_a_giant_key_changes(tmp_path):
    """A key of more pages than are rewritten at a time: beside it, replaced, grown, removed."""
    n = 45_000
    keys = np.concatenate([np.arange(50), np.full(n, 100), np.arange(200, 250)])
    rel = hr.Relation.create(tmp_path / "r", big(keys, 1), key="k", page_size=4096, shards=1)
    assert rel.opened.indexes[0].continues.sum() > 1100
    counts = Counter(keys.tolist())
    steps = [
        ([99, 101, 49, 200], []),  # the neighbours
        ([100] * 5, []),
        ([100] * n, [49, 200]),
        ([100], list(range(50))),
        ([], [100]),
    ]
    for number, (upserts, deletes) in enumerate(steps, 2):
        rel.apply(upserts=big(upserts, number), deletes=pa.array(deletes, pa.int64()))
        rel = rel.refresh()
        for key in {*upserts, *deletes}:
            counts.pop(key, None)
        counts.update(upserts)
        assert Counter(k for k, *_ in scanned(rel)) == counts
        assert rel.lookup([100]).num_rows == counts[100]
        rel.verify()


def test_everything_deleted_and_put_back(tmp_path):
    table = big(np.arange(500), 1)
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096)
    rel.apply(deletes=table["k"])
    empty = rel.refresh()
    assert (empty.num_rows, empty.distinct_keys, scanned(empty)) == (0, 0, [])
    assert empty.lookup([1]).num_rows == 0
    empty.verify()
    empty.apply(upserts=table)
    check_same(empty.refresh(), table)
    empty.compact()
    check_same(empty.refresh(), table)


def test_compact_puts_pages_in_order_at_the_fill_factor(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", big(np.arange(3000), 1), key="k", page_size=4096, fill=0.8)
    before = rel.describe()
    for tag in range(2, 6):
        rel.apply(upserts=big(np.arange(tag, 3000, 17), tag))
    rel.compact()
    rel = rel.refresh()
    after = rel.describe()
    for fact in ("rows", "pages", "bytes", "fill", "distinct_keys", "index_bytes", "filter_bytes"):
        assert after[fact] == before[fact], fact
    for shard in range(rel.num_shards):
        assert (np.diff(rel.opened.places(shard)) == 1).all()


def test_an_update_that_changes_nothing(tmp_path):
    table = big(np.arange(100), 1)
    rel = hr.Relation.create(tmp_path / "r", table, key="k")
    assert rel.apply() == 2
    assert rel.apply(upserts=table.slice(0, 0), deletes=[]) == 3
    assert rel.apply(deletes=[1000, 2000]) == 4
    check_same(rel.refresh(), table)


def test_upserts_in_every_form(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2], "v": ["a", "b"]}), key="k")
    rel.apply(upserts=pa.record_batch({"v": ["c"], "k": pa.array([1], pa.int8())}))
    rel.apply(upserts=pd.DataFrame({"k": [3], "v": ["d"]}))
    rel.apply(upserts=pa.table({"k": [4], "v": pa.array(["e"]).dictionary_encode()}))
    rel.apply(deletes=pa.table({"k": [2], "other": [0]}))
    check_same(rel.refresh(), pa.table({"k": [1, 3, 4], "v": ["c", "d", "e"]}))


def test_structs_in_upserts_are_flattened_too(tmp_path):
    some = [{"x": 1, "y": "a"}, None]
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2], "s": pa.array(some)}), key="k")
    rel.apply(upserts=pa.table({"k": [3, 2], "s": pa.array([{"x": 3, "y": None}, {"x": 2, "y": "b"}])}))
    expected = pa.table({"k": [1, 3, 2], "s_x": [1, 3, 2], "s_y": ["a", None, "b"]})
    check_same(rel.refresh(), expected)


# -- what is refused -------------------------------------------------------------------------------


@pytest.fixture
def rel(tmp_path):
    table = pa.table({"k": [0, 1, 2], "v": ["a", "b", None], "n": pa.array([1, 2, 3], pa.int32())})
    return hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096)


ROW = {"k": [5], "v": ["x"], "n": [1]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"upserts": pa.table({**ROW, "k": [1]}), "deletes": [0, 1]}, ["key 1", "upserts", "deletes"]),
        ({"upserts": pa.table({"k": [1], "v": ["x"]})}, ["'n'"]),
        ({"upserts": pa.table({"v": ["x"], "n": [1]})}, ["'k'"]),
        ({"upserts": pa.table({**ROW, "more": [1]})}, ["'more'"]),
        ({"upserts": pa.table({**ROW, "n": ["one"]})}, ["n", "int32"]),
        ({"upserts": pa.table({**ROW, "n": [2**40]})}, ["n", "int32"]),
        ({"upserts": pa.table({**ROW, "n": [1.5]})}, ["n", "int32"]),
        ({"upserts": pa.table({**ROW, "n": pa.array([[1]])})}, ["'n'", "list"]),
        ({"upserts": pa.table({**ROW, "k": pa.array([None], pa.int64())})}, ["null", "k"]),
        ({"upserts": pa.table({**ROW, "v": ["x" * 5000]})}, ["5", "4,096"]),
        ({"upserts": [1, 2]}, ["list", "Table"]),
        ({"upserts": {"k": [1]}}, ["dict", "Table"]),
        ({"deletes": ["one"]}, ["'k'", "int64"]),
        ({"deletes": pa.array(["one"])}, ["'k'", "int64", "string"]),
        ({"deletes": pa.table({"v": ["a"]})}, ["'k'"]),
    ],
    ids=lambda x: ",".join(x) if isinstance(x, dict) else " ".join(x),
)
def test_refused_and_nothing_changed(rel, change, says):
    with pytest.raises(hr.BadInput) as caught:
        rel.apply(**change)
    for word in says:
        assert word in str(caught.value), str(caught.value)
    latest = rel.refresh()
    assert latest.version == 1
    assert scanned(latest) == scanned(rel)
    assert latest.apply(deletes=[0]) == 2, "the writer's lock was not given back"


def test_upserts_of_another_kind_are_not_guessed_at(rel):
    """The same number in another width is the same; a text "1" is not the number 1, though Arrow casts it."""
    rel.apply(upserts=pa.table({**ROW, "n": pa.array([1], pa.uint64())}))
    assert rel.refresh().lookup([5])["n"].to_pylist() == [1]
    with pytest.raises(hr.BadInput, match="n"):
        rel.apply(upserts=pa.table({**ROW, "n": ["1"]}))


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.date32(), pa.decimal128(30, 2)], ids=str)
def test_deleting_a_null_deletes_no_row(kind, tmp_path):
    """A null key matches nothing: it may be refused, and it must not stand for 0 or the empty text."""
    zero = pa.array([0], pa.int32()).view(kind) if kind == pa.date32() else pa.array([0]).cast(kind)
    if kind == pa.string():
        zero = pa.array([""])
    table = pa.table({"k": zero, "v": [1]})
    rel = hr.Relation.create(tmp_path / "r", table, key="k")
    try:
        rel.apply(deletes=pa.nulls(1, kind))
    except hr.BadInput as error:
        assert "null" in str(error)
    check_same(rel.refresh(), table)


def test_oracle_many_small_changes_do_not_pile_up_files(tmp_path):
    """A file a change would run out of descriptors; what earlier changes wrote is gathered now and then."""
    n = 60_000
    rel = hr.Relation.create(
        tmp_path / "r", pa.table({"k": np.arange(n), "v": np.zeros(n, np.int64)}), key="k", page_size=4096
    )
    expected = np.zeros(n, np.int64)
    most = 0
    for change in range(1, 90):
        keys = np.arange(change * 3701 % 9973, n, 9973)
        rel.apply(upserts=pa.table({"k": keys, "v": np.full(keys.size, change)}))
        expected[keys] = change
        rel = rel.refresh()
        most = max(most, *(len(shard.files) for shard in rel.opened.manifest.shards))
    assert 20 < most <= 33
    got = pa.Table.from_batches(list(rel.scan())).sort_by("k")
    assert got["v"].to_pylist() == expected.tolist()
    rel.verify()
    on_disk = {path.name for path in (tmp_path / "r").glob("*.pages")}
    assert on_disk == {file.name for shard in rel.opened.manifest.shards for file in shard.files}


def test_deleting_a_null_part_of_a_composite_key_deletes_no_row(tmp_path):
    table = pa.table({"a": [0, 1], "b": ["", "x"]})
    rel = hr.Relation.create(tmp_path / "r", table, key=["a", "b"])
    try:
        rel.apply(deletes=pa.table({"a": pa.array([None, 1]), "b": pa.array(["", None])}))
    except hr.BadInput as error:
        assert "null" in str(error)
    check_same(rel.refresh(), table)
