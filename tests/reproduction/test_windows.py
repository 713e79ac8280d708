"""The streams and runs of [PQP] chapter 9 and appendix D are what they should be, and a figure comes out of them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from reproduction import pqp_9, pqp_d
from reproduction.page import write_page
from reproduction.run import curves_of, load, measure
from reproduction.window_runs import (
    SNAPSHOTS,
    TENTHS,
    TUPLES,
    VALUES,
    WindowRun,
    cells,
    changing,
    join_run,
    means,
    results,
    sample_run,
)

SMALL = 0.01


def test_streams_change_with_every_tenth_and_have_ranges_and_exponents_in_common():
    left, right = changing(100_000, 2, 0)
    assert not (left == right).all()
    tops = []
    for tenth in range(TENTHS):
        part = slice(tenth * 10_000, (tenth + 1) * 10_000)
        ours, theirs = (np.bincount(side[part], minlength=TENTHS * VALUES) / 10_000 for side in (left, right))
        assert set(np.flatnonzero(ours)) <= set(range(tenth * VALUES, (tenth + 1) * VALUES))
        np.testing.assert_allclose(ours, theirs, atol=0.03)
        tops.append(ours.max())
    assert max(tops) > 3 * min(tops)  # exponents are drawn anew
    assert (changing(1_000, 1, 1)[0] != changing(1_000, 1, 2)[0]).any()


def test_oracle_results_between_snapshots_are_those_of_brute_force():
    found = results(SMALL, 0.1, 1.0, "all", 0)
    sides = changing(round(TUPLES * SMALL) // 2, 2, 0)
    n, window = len(sides[0]), len(sides[0]) // 10
    expected = np.zeros((SNAPSHOTS, TENTHS * VALUES), np.int64)
    edges = np.linspace(0, n, SNAPSHOTS + 1).astype(int)
    for snapshot in range(SNAPSHOTS):
        begin, end = edges[snapshot], edges[snapshot + 1]
        for mine, other, seen in (
            (*sides, begin),
            (*reversed(sides), end),
        ):  # the left batch comes before the right one
            for value in mine[begin:end]:
                expected[snapshot, value] += (other[max(0, seen - window) : seen] == value).sum()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("method", ["expire", "winres", "fair"])
def test_a_sample_as_large_as_the_window_has_no_error(method):
    joined = join_run(SMALL, 0.1, 1.0, method, 0)
    assert joined.made == 1 and np.nanmax(joined.errors) == 0 == np.nanmax(joined.over_window)
    assert sample_run(SMALL, 0.1, 1.0, method, 0).errors.max() == 0


def test_a_reservoir_has_an_error_however_large_it_is():
    assert sample_run(SMALL, 0.1, 1.0, "res", 0).measures()["mse"] > 0.01
    assert join_run(SMALL, 0.1, 1.0, "res", 0).made < 0.5


def test_ordered_data_has_the_same_tuples_in_ascending_order():
    """In ascending order a window has few values, and its sample follows them."""
    ordered, mixed = (sample_run(SMALL, 0.02, 0.2, "expire", 0, ordered=order) for order in (True, False))
    assert (ordered.errors != mixed.errors).any()
    assert (ordered.errors == 0).sum() > (mixed.errors == 0).sum()  # windows of one value


def test_measures_of_a_run():
    errors = np.arange(SNAPSHOTS, dtype=float)
    errors[50] = np.nan  # no results: left out
    found = WindowRun(errors).measures()
    assert found["largest"] == 99 and found["mse"] == pytest.approx((4950 - 50) / 99)
    tenths = range(10, 100, 10)
    assert found["soon"] == pytest.approx(np.mean([t + i for t in tenths for i in range(3) if t + i != 50]))
    assert found["late"] == pytest.approx(np.mean([t + i for t in tenths for i in (7, 8, 9)]))
    both = means([WindowRun(np.zeros(SNAPSHOTS)), WindowRun(np.ones(SNAPSHOTS))])
    assert both["mse"] == 0.5 and both["course"] == [0.0] * SNAPSHOTS
    assert means([WindowRun(errors)])["course"][50] is None


@pytest.mark.parametrize(("module", "run"), [(pqp_9, join_run), (pqp_d, sample_run)], ids=["9", "D"])
def test_a_figure_from_runs_to_page(module, run, tmp_path):
    small = {"res": 1, "expire": 1}
    figure = replace(
        module.PAPER.figures[0],
        cells=lambda scale: cells(partial(run, scale, 0.1), small, (0.2, 1.0)),
        expected=(),
        also={},
    )
    raw = measure(module.PAPER, figure, SMALL, tmp_path / "r", lambda line: None, tmp_path)
    assert load(module.PAPER, figure, tmp_path) == raw and len(raw["cells"][0]["course"]) == SNAPSHOTS
    curves = curves_of(figure, raw)
    assert curves["expire"][-1] == (1.0, 0.0) and curves["res"][0][1] > curves["expire"][0][1] > 0
    write_page(replace(module.PAPER, figures=(figure,)), {figure.id: raw}, tmp_path)
    assert (tmp_path / f"{module.PAPER.label}-{figure.id}.png").stat().st_size > 5_000


def test_every_figure_of_the_text_is_there():
    assert [f.id for f in pqp_9.PAPER.figures if "-" not in f.id] == [f"9.{n}" for n in range(1, 11)]
    assert [f.id for f in pqp_d.PAPER.figures if "-" not in f.id] == [f"D.{n}" for n in range(1, 7)]
    assert all(f.scale == 1 for module in (pqp_9, pqp_d) for f in module.PAPER.figures)
