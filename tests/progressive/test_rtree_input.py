"""Bad input is refused by name, before anything is taken in."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import BadInput
from headrace.progressive.rtree import ALGORITHMS, FullyDynamicJoin, StaticJoin

GOOD = [[0, 0, 1, 1]]


def arrow(**changed):
    values = {"xmin": [0.0], "ymin": [0.0], "xmax": [1.0], "ymax": [1.0]} | changed
    return pa.record_batch({name: value for name, value in values.items() if value is not None})


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ([*GOOD, [3, 0, 1, 1]], r"box 1 .* left side is inverted: xmin=3.0 is above xmax=1.0; swap them"),
        ([[0, 2, 1, 1.5]], r"box 0 .* is inverted: ymin=2.0 is above ymax=1.5"),
        ([*GOOD, *GOOD, [0, 0, np.nan, 1]], r"box 2 .* left side has xmax=nan"),
        ([[-np.inf, 0, 1, 1]], r"box 0 .* has xmin=-inf.*finite"),
        ([[0, 0, 1]], r"shape \(1, 3\); give rows of xmin, ymin, xmax, ymax"),
        ([0, 0, 1, 1], r"shape \(4,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        ([["a", "b", "c", "d"]], r"a coordinate of the left side is of type <U1"),
        ([[True, True, True, True]], r"is of type bool"),
        ([[0, 0, 1, 2**60]], r"whole numbers beyond 2\^53"),
        (arrow(ymax=None), r"columns xmin, ymin, xmax; a box needs"),
        (arrow(ymax=pa.array([None], pa.float64())), r"box 0 .* has ymax=null"),
        (arrow(ymax=["1"]), r"ymax of the left side is of type object"),
        (arrow(ymax=[float("nan")]), r"has ymax=nan"),
    ],
)
def test_what_is_no_box_is_refused(boxes, message):
    for cls in ALGORITHMS.values():
        join = cls()
        with pytest.raises(BadInput, match=message):
            join.insert("left", boxes)
        assert join.stats.tuples_in == 0
        assert list(join.insert("left", GOOD)) == []  # and it goes on
        assert sum(b.num_rows for b in [*join.insert("right", GOOD), *join.finish()]) == 1


@pytest.mark.parametrize("nothing", [[], np.empty((0, 4)), arrow().slice(0, 0)])
def test_an_empty_batch_is_fine(nothing):
    join = FullyDynamicJoin()
    assert list(join.insert("left", nothing)) == list(join.finish()) == []


def test_a_side_that_is_not_there():
    with pytest.raises(BadInput, match=r"side='top' is not supported; choose one of left, right"):
        StaticJoin().insert("top", GOOD)


def test_results_must_be_taken_before_the_next_call():
    join = FullyDynamicJoin(rows=1)
    list(join.insert("left", GOOD * 500))
    results = join.insert("right", GOOD)
    next(results)
    with pytest.raises(BadInput, match="not all taken"):
        join.insert("left", GOOD)
    with pytest.raises(BadInput, match="not all taken"):
        join.finish()
    assert sum(batch.num_rows for batch in results) > 0
    list(join.finish())
    assert join.stats.results == 500


def test_a_finished_join_takes_no_more():
    join = StaticJoin()
    list(join.finish())
    for again in (lambda: join.insert("left", GOOD), join.finish):
        with pytest.raises(BadInput, match="this StaticJoin is finished; make a new one"):
            again()


def test_batches_without_rows_are_refused():
    with pytest.raises(BadInput, match="rows=0"):
        StaticJoin(rows=0)
