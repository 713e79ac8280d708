"""The streams and runs of [PQP] chapter 8 are what they should be, and a figure comes out of them."""

import numpy as np
import pytest

from headrace.sampling.measures import jensen_shannon, quantity
from reproduction import pqp_8
from reproduction.approximate_runs import REPORTS, VALUES, mean_of, run, station_cells, streams
from reproduction.page import write_page
from reproduction.run import curves_of, measure, verdicts_of


def test_skewed_streams_are_zipf_and_alike():
    left, right = streams("skewed", 0.2, 1)
    expected = 1 / np.arange(1, VALUES + 1)
    for side in (left, right):
        np.testing.assert_allclose(np.bincount(side)[1:] / side.size, expected / expected.sum(), atol=0.012)
    assert not (left == right).all()


def test_extreme_streams_have_one_rare_tuple_and_softer_ones_half():
    left, right = streams("extreme", 0.01, 0)
    assert left.tolist() == [1] + [2] * 499 and right.tolist() == [2] + [1] * 499
    left, right = streams("softer", 0.1, 0)
    assert (left == 1).mean() == pytest.approx(0.5, abs=0.03) and (right == 2).mean() == pytest.approx(0.5, abs=0.03)


def test_reports_come_by_cell_at_each_time():
    left, right = streams("weather", 0.02, 0)
    each = -(-left.size // REPORTS)
    assert (np.diff(left[:each]) >= 0).all() and (np.diff(left[each : 2 * each]) >= 0).all()
    assert left[0] < np.median(left) < left[each - 1]
    land = np.sort(np.bincount(station_cells()))[::-1]
    assert land[:65].sum() > 0.6 * land.sum()  # a tenth of the cells of the grid has most of the stations
    assert jensen_shannon(np.bincount(left, minlength=700), np.bincount(right, minlength=700)) < 0.02


def test_a_run_keeps_what_it_has_made():
    one = run("skewed", 0.02, "raj", 10, 0)
    left, right = streams("skewed", 0.02, 0)
    complete = np.bincount(left, minlength=VALUES + 1) * np.bincount(right, minlength=VALUES + 1)
    np.testing.assert_array_equal(one.complete[-1], complete)
    end = one.end()
    assert end["% of results"] == pytest.approx(100 * quantity(complete, one.made[-1]))
    assert one.after(100) == end == one.by(100) and one.after(50)["% of results"] < end["% of results"]
    assert one.at(0)["divergence now"] == 0.0  # nothing is dropped before memory is full
    assert end["seconds"] <= one.longest and one.seconds[-1] > 0.9 * one.longest
    assert run("skewed", 0.02, "rajhash", 10, 0).seconds[-1] < 0.7 * one.seconds[-1]
    assert one.histogram().sum() == pytest.approx(1)


def test_all_of_the_data_in_memory_gives_all_results():
    for method in ("arrpj", "prob", "rajhash"):
        end = run("skewed", 0.01, method, 100, 1).end()
        assert end["% of results"] == 100 and end["divergence"] == 0


def test_means_leave_out_what_not_all_runs_have():
    assert mean_of([{"a": 1.0, "b": 5.0}, {"a": 3.0}]) == {"a": 2.0}


@pytest.mark.parametrize("name", ["8.4a", "8.5e", "10.1"])
def test_a_figure_from_runs_to_page(name, tmp_path):
    figure = next(f for f in pqp_8.PAPER.figures if f.id == name)
    raw = measure(pqp_8.PAPER, figure, 0.01, tmp_path / "r", lambda line: None, tmp_path)
    assert all(points for points in curves_of(figure, raw).values())
    verdicts = verdicts_of(figure, raw)
    assert verdicts and sum(v.holds for v in verdicts) >= len(verdicts) / 2  # at a hundredth of the size not all do
    write_page(pqp_8.PAPER, {name: raw}, tmp_path)
    assert (tmp_path / f"pqp-8-{name}.png").stat().st_size > 1000
    assert "and cleaned up" not in (tmp_path / "pqp-8.md").read_text()
