"""What tuples have met on disk is one number a tuple, whatever the order of partitions."""

import numpy as np

from headrace.kernels.segments import keep_unjoined
from headrace.progressive.memory.meetings import Meetings


def test_a_tuple_that_leaves_memory_says_which_partitions_it_has_met() -> None:
    alike, near = Meetings(4, identity=True), Meetings(4, identity=False)
    for meetings in (alike, near):
        meetings.note_all(0, 10)
        meetings.note(0, 2, 20)  # of neighbours, partitions 0 and 1 come before
    partition, arrived = np.array([2, 2, 1, 1, 2], np.int32), np.array([5, 15, 15, 5, 25], np.int64)
    assert alike.swept(1, partition, arrived).tolist() == [3, 3, 0, 2, 0]
    assert near.swept(1, partition, arrived).tolist() == [4, 3, 3, 4, 0]
    assert not alike.swept(0, partition, arrived).any() and not near.swept(0, partition, arrived).any()


def test_oracle_pairs_that_were_joined_before() -> None:
    rng = np.random.default_rng(2)
    n, done = 300, 25

    def side() -> dict[str, np.ndarray]:
        arrived = rng.integers(0, 40, n)
        return {
            "arrived": arrived,
            "departed": arrived + rng.integers(1, 20, n),
            "swept": rng.integers(0, 5, n).astype(np.int32),
            "partition": rng.integers(0, 4, n).astype(np.int32),
        }

    left, right = side(), side()
    a, b = (rng.integers(0, n, 5000).astype(np.int32) for _ in range(2))
    keep = np.ones(a.size, np.uint8)
    columns = [s[name] for name in ("arrived", "departed", "swept", "partition") for s in (left, right)]
    keep_unjoined(a, b, *columns, done, keep)
    x, y = {k: v[a] for k, v in left.items()}, {k: v[b] for k, v in right.items()}
    together = (x["arrived"] < y["departed"]) & (y["arrived"] < x["departed"])
    first_left = x["departed"] < y["departed"]
    met = np.where(first_left, x["partition"] < y["swept"], y["partition"] < x["swept"])
    before = (x["departed"] <= done) & (y["departed"] <= done)
    same = x["departed"] == y["departed"]
    np.testing.assert_array_equal(keep == 0, same | before | met & ~same | together)
