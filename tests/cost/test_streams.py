"""Streams have the distribution they say, and are the same every time."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.bench import (
    Bursty,
    Drifting,
    FileStream,
    RelationSpec,
    Steady,
    Zipf,
    low_cardinality,
    make_relation,
    tpch,
)
from headrace.errors import BadInput

N = 200_000


def keys(stream, rows=N):
    return np.concatenate([b.column("k").to_numpy() for b in stream.batches(rows)])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.4])
def test_zipf_gives_each_rank_its_share(exponent):
    domain = 50
    counts = np.bincount(keys(Zipf(domain, exponent)), minlength=domain)
    share = np.arange(1, domain + 1) ** -exponent
    expected = N * share / share.sum()
    # chi-square with 49 degrees of freedom: above 100 once in 100,000 seeds
    assert ((counts - expected) ** 2 / expected).sum() < 100


def test_an_exponent_other_than_the_one_claimed_would_be_seen():
    counts = np.bincount(keys(Zipf(50, 0.9)), minlength=50)
    share = np.arange(1, 51) ** -1.0
    expected = N * share / share.sum()
    assert ((counts - expected) ** 2 / expected).sum() > 100


def test_permuted_has_the_same_popularity_elsewhere():
    plain, permuted = Zipf(1000, 1.0), Zipf(1000, 1.0, "permuted")
    a, b = (np.bincount(keys(s), minlength=1000) for s in (plain, permuted))
    assert a.argmax() == 0 and b.argmax() == permuted.keys_by_rank[0] != 0
    assert sorted(permuted.keys_by_rank) == list(range(1000))
    # the draws are the same, rank by rank
    assert (b[permuted.keys_by_rank] == a).all()
    # popular keys are spread: each tenth of the domain gets some of them
    tenths = b.reshape(10, 100).sum(axis=1) / N
    assert tenths.max() < 0.5 < a.reshape(10, 100).sum(axis=1)[0] / N


@pytest.mark.parametrize(
    "stream",
    [Zipf(1000, 0.7, "permuted", 32), Drifting(1000, 4, 5000), low_cardinality()],
    ids=lambda s: type(s).__name__,
)
def test_a_stream_does_not_depend_on_how_it_is_taken(stream):
    at_once = pa.Table.from_batches(stream.batches(30_000, 30_000))
    in_bits = pa.Table.from_batches(stream.batches(30_000, 777))
    assert at_once.combine_chunks().equals(in_bits.combine_chunks())
    assert at_once.column("number").to_numpy().tolist() == list(range(30_000))


@pytest.mark.parametrize("size", [16, 20, 32, 128])
def test_tuples_have_the_size_that_was_asked_for(size):
    (batch,) = Zipf(10, tuple_bytes=size).batches(1000)
    assert batch.nbytes == 1000 * size


def test_seeds_differ():
    assert (keys(Zipf(1000, 1.0, seed=1), 100) != keys(Zipf(1000, 1.0, seed=2), 100)).any()


def test_absent_keys_are_in_no_relation():
    drawn = keys(Zipf(1000, 0.5, absent=0.3))
    assert abs((drawn < 0).mean() - 0.3) < 0.01
    assert drawn.max() < 1000


def test_drifting_asks_for_one_part_at_a_time():
    stream = Drifting(1000, intervals=10, length=20_000)
    intervals = keys(stream, 220_000).reshape(11, 20_000)
    for number, part in enumerate(intervals):
        low = number % 10 * 100
        assert low <= part.min() and part.max() < low + 100
        # Zipf 1 over 100 keys: the first has 1 / H(100) = 19.3%
        assert abs((part == low).mean() - 0.193) < 0.02


def test_frequencies_are_the_shares_by_rank():
    table = Zipf(4, 1.0, "permuted").frequencies()
    assert np.allclose(table.column("frequency").to_numpy(), np.array([12, 6, 4, 3]) / 25)
    assert table.column("k").to_numpy().tolist() == Zipf(4, 1.0, "permuted").keys_by_rank.tolist()


def test_a_file_starts_over_at_its_end(tmp_path):
    path = tmp_path / "sales.parquet"
    pq.write_table(pa.table({"part": [7, 8, 9], "amount": [1.0, 2.0, 3.0]}), path)
    stream = FileStream(path, "part", ("amount",))
    batch = stream.open().take(7)
    assert batch.to_pydict() == {"k": [7, 8, 9, 7, 8, 9, 7], "amount": [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]}
    assert 16 <= stream.tuple_bytes <= 17  # two columns of 8, perhaps with a bit for nulls


@pytest.mark.parametrize("schedule", [Steady(250.0), Bursty(250.0, 60.0)], ids=["steady", "bursty"])
def test_when_is_the_first_time_that_by_counts_a_tuple(schedule):
    for count in [1, 2, 3, 99, 15_000, 40_000]:
        at = schedule.when(count)
        assert schedule.by(at) >= count > schedule.by(at - 2e-6)


def test_bursts_are_larger_than_chance_at_every_scale():
    bursty = Bursty(1000.0, 600.0)
    for width in (0.5, 5.0, 50.0):
        edges = np.array([bursty.by(t) for t in np.arange(0, 600 + width, width)])
        counts = np.diff(edges)
        # a Poisson stream has a variance of its mean
        assert counts.var() > 20 * counts.mean()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Zipf(0), "domain=0"),
        (lambda: Zipf(10, -1), "exponent=-1"),
        (lambda: Zipf(10, float("nan")), "exponent=nan"),
        (lambda: Zipf(10, tuple_bytes=4), "tuple_bytes=4"),
        (lambda: Zipf(10, absent=2), "absent=2"),
        (lambda: Zipf(10, order="sorted"), "order='sorted'"),
        (lambda: Drifting(10, 11), "intervals=11"),
        (lambda: Drifting(10, 2, 0), "length=0"),
        (lambda: RelationSpec(10, K=3), "K=3"),
        (lambda: RelationSpec(10, tuple_bytes=8), "tuple_bytes=8"),
        (lambda: RelationSpec(10, K=2, z_R=1.0), "z_R=1.0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong, message):
    with pytest.raises(BadInput, match=message):
        wrong()


# -- relations -------------------------------------------------------------------------------------------------------------


def test_each_key_has_k_tuples(tmp_path):
    rel = make_relation(tmp_path, RelationSpec(1000, K=20))
    assert (rel.num_rows, rel.distinct_keys) == (1000, 50)
    assert rel.lookup([3]).num_rows == 20 and rel.lookup([50]).num_rows == 0


def test_keys_of_a_skewed_relation_follow_zipf(tmp_path):
    rel = make_relation(tmp_path, RelationSpec(20_000, z_R=1.0, domain=100))
    first = rel.lookup([0]).num_rows
    assert abs(first / 20_000 - 1 / np.sum(1 / np.arange(1, 101))) < 0.01


def test_a_relation_is_made_once(tmp_path):
    made = RelationSpec(1000)
    before = make_relation(tmp_path, made).describe()["created"]
    assert [p.name for p in tmp_path.iterdir()] == [made.name]
    assert make_relation(tmp_path, made).describe()["created"] == before
    assert RelationSpec(1000, fill=0.5).name != made.name


def test_a_relation_by_popularity_has_the_most_popular_keys_first(tmp_path):
    stream = Zipf(2000, 1.0, "permuted")
    rel = make_relation(tmp_path, RelationSpec(2000, popularity=stream))
    first = next(iter(rel.scan())).column("k").to_numpy()[:100]
    # page by page; in a page they are in the order of the key
    assert set(first) <= set(stream.keys_by_rank[:150])


def test_tpch_parts_and_their_sales(tmp_path):
    relation, stream = tpch(tmp_path, 0.001)
    assert (relation.num_rows, relation.unique) == (200, True)
    drawn = keys(stream, 6005 + 10)  # the scale has 6,005 line items; then they come again
    assert (drawn[:10] == drawn[6005:]).all()
    assert relation.lookup(np.unique(drawn)).num_rows == np.unique(drawn).size
    again, _ = tpch(tmp_path, 0.001)
    assert again.describe()["created"] == relation.describe()["created"]
