"""f_R from statistics against counting; words of rows; the shedder's books."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.shedding import STRATEGIES, KeyFrequencies, Shedder, effective_rate, row_hashes


@pytest.mark.parametrize("make", [lambda k: k, lambda k: f"key {k}"], ids=["int", "string"])
def test_oracle_frequencies_are_counted(tmp_path, make):
    rng = np.random.default_rng(3)
    keys = [make(int(k)) for k in rng.zipf(1.5, 3000) % 200]
    with hr.Relation.create(tmp_path / "r", pa.table({"k": keys, "x": range(3000)}), key="k", shards=3) as rel:
        counted = Counter(keys)
        asked = [make(k) for k in range(200)] * 2
        found = KeyFrequencies(rel).of([pa.array([*asked, None])])
        assert found.tolist() == [*(float(counted[k]) for k in asked), 0.0]
        absent = KeyFrequencies(rel).of([pa.array([make(k) for k in range(1000, 3000)])])
        assert np.count_nonzero(absent) < 40 and KeyFrequencies(rel).nbytes > 0


def test_keys_beyond_the_frequent_ones_have_the_mean_of_the_rest(tmp_path):
    from headrace.relation.writer import HEAVY

    many = HEAVY + 1000  # all occur twice, and 1000 of them are not among the most frequent
    table = pa.table({"k": [*range(many), *range(many)]})
    with hr.Relation.create(tmp_path / "r", table, key="k", shards=1) as rel:
        assert set(KeyFrequencies(rel).of([pa.array(range(many))])) == {2.0}


def test_composite_keys_and_an_empty_relation(tmp_path):
    table = pa.table({"a": [1, 1, 2], "b": ["x", "x", "y"], "v": [1, 2, 3]})
    with hr.Relation.create(tmp_path / "r", table, key=["a", "b"]) as rel:
        found = KeyFrequencies(rel).of([pa.array([1, 2, 1, 1]), pa.array(["x", "y", "y", None])])
        assert found.tolist() == [2.0, 1.0, 0.0, 0.0]
    with hr.Relation.create(tmp_path / "e", table.slice(0, 0), key=["a", "b"]) as rel:
        assert KeyFrequencies(rel).of([pa.array([1]), pa.array(["x"])]).tolist() == [0.0]


# -- words of rows -----------------------------------------------------------------------------------------------------------

VALUES = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.lists(
    st.tuples(
        VALUES,
        st.one_of(st.none(), st.sampled_from(["", "a", "a\0"])),
        st.one_of(st.none(), st.lists(VALUES, max_size=2)),
        st.one_of(st.none(), st.fixed_dictionaries({"p": VALUES, "q": VALUES})),
    ),
    max_size=12,
)
SCHEMA = pa.schema(
    {"i": pa.int32(), "s": pa.string(), "l": pa.list_(pa.int64()), "t": pa.struct({"p": pa.int8(), "q": pa.float64()})}
)


@settings(max_examples=60)
@given(ROWS, st.integers(0, 3))
def test_equal_rows_and_only_they_have_equal_words(rows, seed):
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    words = row_hashes(table, seed).tolist()
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            assert (words[i] == words[j]) == (a == b), (a, b)


def test_words_do_not_depend_on_batches_offsets_or_encoding():
    table = pa.table(
        {
            "d": pa.array([1, 2, 3, 1, None], pa.int64()).cast(pa.decimal128(22, 2)),
            "b": [True, None, False, True, True],
            "m": pa.array([[("a", 1)], None, [], [("a", 1)], [("b", None)]], pa.map_(pa.string(), pa.int64())),
            "f": pa.array([[1, 2], None, [3, 4], [1, 2], [None, 5]], pa.list_(pa.int64(), 2)),
            "w": pa.array([b"ab", b"cd", b"ab", b"ab", None], pa.binary(2)),
            "n": pa.nulls(5),
            "y": pa.array(["x", "y", None, "x", "x"]).dictionary_encode(),
        }
    )
    words = row_hashes(table, 1)
    assert words[0] == words[3] and len(set(words.tolist())) == 4
    assert np.concatenate([row_hashes(table.slice(i, 1), 1) for i in range(5)]).tolist() == words.tolist()
    assert row_hashes(pa.concat_tables([table.slice(0, 2), table.slice(2)]), 1).tolist() == words.tolist()
    plain = table.set_column(6, "y", table["y"].cast(pa.large_string()))
    assert row_hashes(plain, 1).tolist() == words.tolist()
    assert set(row_hashes(table, 2).tolist()).isdisjoint(words.tolist())


# -- the shedder -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def frequencies(tmp_path):
    keys = np.repeat(np.arange(10), np.arange(10))  # key k occurs k times
    with hr.Relation.create(tmp_path / "r", pa.table({"k": keys}), key="k") as rel:
        yield KeyFrequencies(rel)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_the_effective_rate_is_the_service_rate_and_nothing_is_lost(frequencies, name):
    rng = np.random.default_rng(2)
    rate = iter([30.0] * 20)
    shedder = Shedder(name, frequencies, ["k"], lambda: next(rate), seed=4)
    again = Shedder(name, frequencies, ["k"], 30.0, seed=4)
    for _ in range(20):
        interval = pa.record_batch({"k": rng.integers(0, 10, 40)})
        kept, rest = shedder.divide(interval, seconds=0.35)  # 10.5 a time
        assert Counter(kept["k"].to_pylist() + rest["k"].to_pylist()) == Counter(interval["k"].to_pylist())
        assert again.divide(interval, seconds=0.35) == (kept, rest)
    assert shedder.stats.tuples_in == 800 and shedder.stats.kept == 20 * 10.5
    assert effective_rate(40 / 0.35, 30.0) == 30.0 == shedder.stats.kept / (20 * 0.35)
    even, loaded = shedder.stats.share, shedder.stats.results_share
    assert loaded > 1.2 * even if name in ("topw", "cluster") else abs(loaded - even) < 0.06


def test_what_fits_is_kept_whole_and_a_rate_of_nothing_is_refused(frequencies):
    shedder = Shedder("sample", frequencies, ["k"], 100.0)
    interval = pa.record_batch({"k": [1, 2, 3]})
    kept, rest = shedder.divide(interval, 1.0)
    assert kept == interval and rest.num_rows == 0 and shedder.stats.share == 1.0
    with pytest.raises(hr.BadInput, match="service_rate=0"):
        Shedder("topw", frequencies, ["k"], 0.0).divide(interval, 1.0)
    with pytest.raises(hr.BadInput, match="did you mean 'topw'"):
        Shedder("top", frequencies, ["k"], 1.0)
