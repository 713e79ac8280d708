"""R changes under a join: every tuple is joined with one version, whole, whatever comes between; memory and pins hold."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import ManualClock
from headrace.errors import BadInput
from headrace.relation import Disk
from headrace.semistream import SSIJ, AMeshJoin, HybridJoin, MeshJoin, RMeshJoin, XHybridJoin
from tests.support.join_oracle import tuples

SCANS = (MeshJoin, RMeshJoin, AMeshJoin)
ALL = (*SCANS, SSIJ, HybridJoin, XHybridJoin)
KEYS = 40


def rows_of(keys, mark: int, random: Random) -> pa.Table:
    """Rows whose payload tells the change that wrote them; some have nulls, which no row of the first version has."""
    texts = [None if mark and random.random() < 0.2 else "x" * random.randrange(120) for _ in keys]
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "mark": pa.array([mark] * len(keys), pa.int64()),
            "n": pa.array([None if mark and random.random() < 0.2 else random.randrange(9) for _ in keys], pa.int64()),
            "s": pa.array(texts, pa.string()),
        }
    )


class History:
    """A relation, its rows in every version, and what each tuple of a stream must have come to."""

    def __init__(self, path, random: Random, *, unique: bool, popular: bool) -> None:
        self.random, self.unique = random, unique
        first = self.keys(random.choice([0, 5, KEYS]))
        rows = rows_of(first, 0, random)
        given = {"shards": random.choice([1, 2]), "page_size": "4KiB", "fill": random.choice([0.3, 1.0])}
        if popular:
            asked = pa.table({"k": range(KEYS), "frequency": [random.randrange(9) for _ in range(KEYS)]})
            given |= {"order": "frequency", "frequencies": asked}
        self.relation = hr.Relation.create(path, rows, key="k", overwrite=True, disk=Disk("simulated"), **given)
        self.versions = {1: matches(rows)}

    def keys(self, count: int) -> list[int]:
        """Keys, each with one row, or with as many as make some of them span pages."""
        chosen = self.random.sample(range(KEYS), count)
        return chosen if self.unique else [k for k in chosen for _ in range(self.random.choice([1, 2, 150]))]

    def change(self) -> None:
        """Some keys get other rows, some lose theirs."""
        number = self.relation.refresh().version + 1
        upserts = rows_of(self.keys(self.random.choice([1, 8, 20])), number, self.random)
        new = matches(upserts)
        gone = [k for k in self.random.sample(range(KEYS), 3) if k not in new]
        assert self.relation.apply(upserts=upserts, deletes=gone, on_conflict="rebase") == number
        last = self.versions[number - 1]
        self.versions[number] = {k: v for k, v in last.items() if k not in gone} | new


def matches(rows: pa.Table) -> dict[int, Counter]:
    found: dict[int, Counter] = {}
    for row in rows.to_pylist():
        found.setdefault(row["k"], Counter())[(row["mark"], row["n"], row["s"])] += 1
    return found


def expected(how: str, found: Counter) -> Counter:
    if how == "semi":
        return Counter({(): 1} if found else {})
    if how == "anti":
        return Counter({} if found else {(): 1})
    return found or Counter({(None, None, None): 1} if how == "left" else {})


def build(operator, relation, random: Random, **given):
    """An operator of small sizes, so that steps are many."""
    how, order = random.choice(["inner", "left", "semi", "anti"]), random.choice(["any", "any", "stream"])
    sizes = {
        MeshJoin: {"w": random.choice([None, 3]), "b": random.choice([None, 1, 2])},
        RMeshJoin: {"w": random.choice([None, 3]), "b": random.choice([1, 3]), "partitions": random.choice([1, 4])},
        AMeshJoin: {"tuner": lambda op: (random.choice([1, 5]), random.choice([1, 2]))},
        SSIJ: {"IB_thresh": random.choice([1, 4]), "SB_thresh": random.choice([2, 9, None])},
        HybridJoin: {"k": random.choice([None, 1, 2])},
        XHybridJoin: {"k": random.choice([None, 1, 2]), "l": random.choice([None, 0, 1, 3])},
    }
    memory = "1MiB" if order == "any" else "8MiB"  # results that wait for their turn are many here
    return operator(relation, on="k", memory=memory, how=how, order=order, **sizes[operator], **given)


@pytest.mark.parametrize("operator", ALL)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_oracle_every_tuple_is_joined_with_one_version_whatever_the_interleaving(operator, ram_path, seed):
    random = Random(seed)
    unique = operator in (HybridJoin, XHybridJoin)
    history = History(ram_path / "r", random, unique=unique, popular=operator is XHybridJoin)
    op = build(operator, history.relation, random)
    keys, since, got, at = [], [], {}, 0

    def take(results):
        for row in tuples(results):
            got.setdefault(row[1], Counter())[row[2:]] += 1

    for _ in range(random.choice([5, 30])):
        step = random.choice(
            ["offer", "offer", "advance", "advance", "change", "refresh", "refresh", "quiet", "early", "drain"]
        )
        if step == "offer":
            some = [random.choice([random.randrange(KEYS + 5), 7, None]) for _ in range(random.choice([1, 6, 20]))]
            op.offer(pa.record_batch({"k": pa.array(some, pa.int64()), "seq": pa.array(range(at, at + len(some)))}))
            keys, since, at = keys + some, since + [op.relation.version] * len(some), at + len(some)
        elif step == "change":
            history.change()
        else:
            steps = {"advance": op.advance, "refresh": op.refresh, "early": op.take_in, "drain": op.drain}
            take(op.advance(quiet=True) if step == "quiet" else steps[step]())
            if step == "refresh":
                assert op.relation.version == max(history.versions)
        assert op.budget.peak <= op.budget.limit
    take(op.drain())
    last = op.relation.version
    for seq, key in enumerate(keys):
        versions = range(since[seq], last + 1)
        allowed = [expected(op.how, history.versions[v].get(key, Counter())) for v in versions]
        assert got.get(seq, Counter()) in allowed, f"seed {seed}, tuple {seq} with key {key}: {got.get(seq)}"
    assert op.waiting == 0
    op.stats.check()


@pytest.mark.parametrize("operator", [MeshJoin, RMeshJoin])
def test_a_refresh_that_is_not_read_to_its_end_is_not_gone_on_from(operator, tmp_path):
    """Tuples that leave before the new version would lose results, or give some twice."""
    history = History(tmp_path / "r", Random(3), unique=True, popular=False)
    op = operator(history.relation, on="k", memory="1MiB", how="left", w=4, b=1)
    op.offer(pa.record_batch({"k": pa.array(range(KEYS), pa.int64())}))
    for _ in range(3):
        list(op.advance())
    history.change()
    assert next(op.refresh(), None) is not None
    for step in (op.advance, op.drain, op.take_in, op.refresh, op.before_update):
        with pytest.raises(BadInput, match="were not read to the end"):
            list(step())


@pytest.fixture
def pages(tmp_path):
    """Keys 0 to 799, some ten a page."""

    def make(order="key", **given):
        rows = pa.table({"k": np.arange(800), "v": np.zeros(800, np.int64), "s": ["x" * 300] * 800})
        if order == "frequency":
            given["frequencies"] = pa.table({"k": np.arange(800), "frequency": np.arange(800, 0, -1)})
        disk = Disk("simulated", clock=ManualClock())
        path = tmp_path / order
        return hr.Relation.create(path, rows, key="k", order=order, page_size="4KiB", shards=1, disk=disk, **given)

    return make


def stream(keys) -> pa.RecordBatch:
    return pa.record_batch({"k": np.asarray(keys, np.int64), "seq": np.arange(len(keys))})


def raised(keys, v=1) -> pa.Table:
    return pa.table({"k": keys, "v": [v] * len(keys), "s": ["y"] * len(keys)})


@pytest.mark.parametrize("operator", SCANS)
def test_a_tuple_in_the_middle_of_a_scan_ends_it_with_the_version_it_began_with(operator, pages):
    """Key 5 lies in the first page, which the tuple meets last; the update has it gone by then."""
    relation = pages()
    sizes = {"tuner": lambda op: (1, 1)} if operator is AMeshJoin else {"w": 1, "b": 1}
    op = operator(relation, on="k", memory="1MiB", **sizes)
    op.offer(stream([700]))
    list(op.advance())  # the scan has left the first page
    op.offer(stream([5]))
    list(op.advance())
    op.offer(stream([6]))  # not taken in: it will see the new version
    relation.apply(upserts=raised([6]), deletes=[5])
    before = op.stats.pages_read
    assert [row[2] for row in tuples(op.refresh()) if row[0] == 5] == [0]
    assert op.stats.pages_read - before <= relation.num_pages + 8, "at most one scan of R"
    assert op.waiting == 1
    assert [row[2] for row in tuples(op.drain())] == [1]
    op.stats.check()


def test_hybridjoin_joins_what_waits_with_the_new_version_and_reads_nothing_for_the_old_one(pages):
    relation = pages()
    op = HybridJoin(relation, on="k", memory="1MiB", k=1)
    op.offer(stream([5, 700, 6]))
    list(op.take_in())
    relation.apply(upserts=raised([5, 6]), deletes=[700])
    assert list(op.refresh()) == [] and op.stats.pages_read == 0
    assert sorted(row[::2] for row in tuples(op.drain())) == [(5, 1), (6, 1)]
    op.stats.check()


def test_xhybridjoin_loads_its_popular_pages_again_and_what_waits_looks_them_up(pages):
    relation = pages("frequency")
    op = XHybridJoin(relation, on="k", memory="1MiB", l=2)
    assert tuples(op.run([stream([0])])) == [(0, 0, 0, "x" * 300)]
    op.offer(stream([1, 5000]))
    list(op.take_in())
    relation.apply(upserts=raised([0, 1, 5000]))
    list(op.refresh())
    assert sorted(row[::2] for row in tuples(op.drain())) == [(1, 1), (5000, 1)]
    assert op.stats.hits == 2 and [row[2] for row in tuples(op.run([stream([0])]))] == [1]
    op.stats.check()


def test_sizes_follow_the_size_of_the_relation(pages):
    relation = pages()
    ops = [MeshJoin(relation, on="k", memory="1MiB"), AMeshJoin(relation, on="k", memory="1MiB")]
    for op in ops:
        list(op.run([stream(np.arange(100))]))
    small = ops[0].sizes.packets, ops[1].cost().pages
    keys = np.arange(1000, 9000)
    relation.apply(upserts=pa.table({"k": keys, "v": keys, "s": ["x" * 300] * keys.size}))
    for op in ops:
        list(op.refresh())
        assert sorted(row[2] for row in tuples(op.run([stream(keys[:50])]))) == keys[:50].tolist()
    fresh = [MeshJoin(op.relation, on="k", memory="1MiB") for op in ops[:1]]
    list(fresh[0].run([stream(np.arange(100))]))
    assert ops[0].sizes == fresh[0].sizes and ops[0].sizes.packets > 5 * small[0] and ops[1].cost().pages > 5 * small[1]


def test_ssij_caches_as_many_pages_of_a_relation_that_grew_as_it_has_memory_for(tmp_path):
    rows = pa.table({"k": range(10), "v": range(10), "s": ["x" * 300] * 10})
    relation = hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB", shards=1)
    op = SSIJ(relation, on="k", memory="1MiB", IB_thresh=10, SB_thresh=100)
    list(op.run([stream(np.arange(10))]))
    keys = np.arange(2000)
    relation.apply(upserts=pa.table({"k": keys, "v": keys, "s": ["x" * 300] * keys.size}))
    list(op.refresh())
    for _ in range(3):
        assert sorted(row[2] for row in tuples(op.run([stream(keys)]))) == keys.tolist()
    assert op.cached_pages > 20 * relation.num_pages and op.budget.peak <= op.budget.limit


def test_a_condition_reads_nulls_that_only_the_new_version_has(tmp_path):
    rows = pa.table({"k": range(50), "low": [0] * 50})
    relation = hr.Relation.create(tmp_path / "c", rows, key="k", page_size="4KiB")
    op = MeshJoin(relation, condition=hr.compare("x", ">", "low"), memory="1MiB", columns=["k"])
    x = pa.record_batch({"x": [1]})
    assert sorted(tuples(op.run([x]))) == [(1, k) for k in range(50)]
    relation.apply(upserts=pa.table({"k": [3, 4], "low": pa.array([None, 5], pa.int64())}))
    list(op.refresh())
    assert sorted(tuples(op.run([x]))) == [(1, k) for k in range(50) if k not in (3, 4)]


# -- what is refused, and what is let go of -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ALL)
def test_a_relation_made_in_the_place_of_another_is_refused_and_the_join_goes_on(operator, pages, tmp_path):
    order = "frequency" if operator is XHybridJoin else "key"
    relation = pages(order)
    op = operator(relation, on="k", memory="1MiB")
    list(op.run([stream([1])]))
    op.offer(stream([2]))
    pages(order, overwrite=True)
    with pytest.raises(hr.RelationReplaced, match="another was made in its place"):
        list(op.refresh())
    (tmp_path / "elsewhere").mkdir()
    other = hr.Relation.create(tmp_path / "elsewhere" / "r", pa.table({"k": [2], "v": [0], "s": [""]}), key="k")
    with pytest.raises(hr.errors.BadInput, match=f"is another relation than .* make a new {operator.__name__}"):
        list(op.refresh(other))
    assert [row[0] for row in tuples(op.drain())] == [2]


def test_a_version_with_keys_that_repeat_is_refused_by_hybridjoin_which_goes_on(pages):
    relation = pages()
    op = HybridJoin(relation, on="k", memory="1MiB")
    op.offer(stream([5, 9]))
    relation.apply(upserts=raised([5, 5]))
    with pytest.raises(hr.errors.BadInput, match="needs unique keys"):
        list(op.refresh())
    assert sorted(row[::2] for row in tuples(op.drain())) == [(5, 0), (9, 0)]


def test_oracle_a_version_whose_index_does_not_fit_is_gone_on_with(tmp_path):
    """The index of the new version is larger than the whole budget: it is read in part."""
    rows = pa.table({"k": range(2000), "s": ["x"] * 2000})
    relation = hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB", shards=1)
    op = HybridJoin(relation, on="k", memory="120KiB", columns=[])
    got = tuples(op.run([stream(np.arange(500))]))
    keys = range(5000, 13_000)
    relation.apply(upserts=pa.table({"k": keys, "s": ["y" * 3900] * len(keys)}), deletes=range(2000))
    op.offer(stream([3, 4, 5000, 12_999]))
    got += tuples(op.refresh()) + tuples(op.drain())
    assert op.relation.index_bytes > op.budget.limit >= op.budget.peak and op.relation.version == 2
    assert op.stats.index_pages_read and sorted(row[0] for row in got) == [*range(500), 5000, 12_999]


@pytest.mark.parametrize("operator", [MeshJoin, SSIJ])
def test_a_version_that_does_not_fit_the_memory_is_refused_and_the_join_goes_on(operator, tmp_path):
    rows = pa.table({"k": range(2000), "s": ["x"] * 2000})
    relation = hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB", shards=1)
    op = operator(relation, on="k", memory="120KiB", **({"w": 60, "b": 1} if operator is MeshJoin else {}))
    assert len(tuples(op.run([stream(np.arange(500))]))) == 500
    op.offer(stream([3, 4]))
    keys = range(5000, 13_000)
    relation.apply(upserts=pa.table({"k": keys, "s": ["y" * 3900] * len(keys)}))
    with pytest.raises(hr.MemoryRefused):
        list(op.refresh())
    assert op.relation.version == 1 and op.budget.peak <= op.budget.limit
    rest = tuples(op.drain())
    assert len(tuples(op.run([stream(np.arange(300))]))) == 300 and len(rest) <= 2
    op.stats.check()
    assert op.stats.results == 802


@pytest.mark.parametrize("operator", ALL)
def test_a_version_with_a_damaged_index_is_refused_and_the_join_goes_on(operator, pages, tmp_path):
    order = "frequency" if operator is XHybridJoin else "key"
    relation = pages(order)
    op = operator(relation, on="k", memory="1MiB")
    got = tuples(op.run([stream([1])]))
    op.offer(stream([2, 700]))
    list(op.take_in())
    relation.apply(upserts=raised([2, 700]))
    (file,) = (tmp_path / order).glob("shard-0000-000002.index")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(hr.DamagedRelation, match="checksum"):
        for out in op.refresh():
            got += tuples([out])
    got += tuples(op.drain()) + tuples(op.run([stream([3])]))
    assert sorted(row[::2] for row in got) == [(1, 0), (2, 0), (3, 0), (700, 0)]
    assert op.budget.peak <= op.budget.limit
    op.stats.check()


@pytest.mark.parametrize("operator", ALL)
def test_the_old_version_is_let_go_of(operator, pages, tmp_path):
    order = "frequency" if operator is XHybridJoin else "key"
    relation = pages(order)
    op = operator(relation, on="k", memory="1MiB")
    del relation
    for version in range(2, 5):
        list(op.run([stream([5])]))
        op.relation.apply(upserts=raised([5], version))
        assert list(op.refresh()) == [] and op.relation.version == version
    op.relation.apply(upserts=raised([6]))
    assert sorted(path.name for path in (tmp_path / order).glob("manifest-*")) == [
        "manifest-000004.json",
        "manifest-000005.json",
    ]


@pytest.mark.parametrize("operator", [HybridJoin, SSIJ])
def test_an_index_that_grew_takes_its_memory_from_what_waits_and_what_is_cached(operator, tmp_path):
    keys = np.arange(3000)
    rows = pa.table({"k": keys, "s": ["x" * 200] * keys.size})
    relation = hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB", shards=1, fill=1.0)
    op = operator(relation, on="k", memory="150KiB")
    for batch in np.split(keys, 10):
        op.offer(stream(batch))
        list(op.advance())
    before = op.waiting
    more = np.arange(10_000, 30_000)
    relation.apply(upserts=pa.table({"k": more, "s": ["x" * 200] * more.size}))
    got = len(tuples(op.refresh()))
    assert op.budget.peak <= op.budget.limit
    assert op.budget.held()["index"] == op.relation.index_bytes > 3 * relation.index_bytes
    assert len(tuples(op.drain())) + got == before
    assert len(tuples(op.run([stream(more[:500])]))) == 500
    op.stats.check()


@pytest.mark.parametrize("operator", SCANS)
def test_oracle_a_join_on_another_column_than_the_key_goes_over_too(operator, tmp_path):
    """Nulls, longer texts and other values come with the second version, in columns that are joined on and compared."""
    old = pa.table({"k": range(60), "v": [i % 6 for i in range(60)], "s": ["a"] * 60})
    new = pa.table(
        {"k": range(60), "v": pa.array([None if i % 4 == 0 else i % 5 for i in range(60)]), "s": ["b" * 90] * 60}
    )
    relation = hr.Relation.create(tmp_path / "r", old, key="k", page_size="4KiB", shards=1)
    op = operator(relation, on={"x": "v"}, memory="2MiB", condition=hr.compare("low", "<=", "s"))
    got = Counter()
    for version in (1, 2):
        op.offer(
            pa.record_batch({"x": [1, 2, 5, 7], "low": ["a", "b", "", ""], "seq": [10 * version + i for i in range(4)]})
        )
        got.update(tuples(op.drain()))
        if version == 1:
            relation.apply(upserts=new)
            got.update(tuples(op.refresh()))
    wanted = Counter()
    for version, rows in ((1, old), (2, new)):
        for i, (x, low) in enumerate([(1, "a"), (2, "b"), (5, ""), (7, "")]):
            for row in rows.to_pylist():
                if row["v"] == x and low <= row["s"]:
                    wanted[(x, low, 10 * version + i, row["k"], row["s"])] += 1
    assert got == wanted and len({row[2] for row in got}) == 4
