"""The streams and runs of [PQP] chapter 7 are what they should be, and a figure comes out of them."""

import numpy as np
import pytest

from reproduction import pqp_7
from reproduction.multiway_runs import AUTHORS, SELECTIVITIES, run, streams
from reproduction.page import write_page
from reproduction.run import curves_of, measure, verdicts_of

SMALL = 0.05


def test_streams_have_their_parts_of_the_authors_each_once():
    reference, *others = streams(SELECTIVITIES[5], 0.1)
    assert sorted(reference) == list(range(AUTHORS // 10)) != reference.tolist()
    for some, part in zip(others, SELECTIVITIES[5][1:], strict=True):
        assert np.unique(some).size == some.size == pytest.approx(part * AUTHORS / 10, rel=0.15)


def test_every_strategy_has_the_same_results_and_other_probes():
    ends = {name: run(4, 0, name, SMALL).end() for name in pqp_7.STRATEGIES}
    shared = set.intersection(*(set(some.tolist()) for some in streams(SELECTIVITIES[4], SMALL)))
    assert {end["results"] for end in ends.values()} == {len(shared)} and len(shared) > 10
    assert ends["apriori"]["probes"] <= ends["rop"]["probes"] < ends["sequential"]["probes"]
    assert ends["rop"]["arrived"] == sum(map(len, streams(SELECTIVITIES[4], SMALL)))
    assert run(3, 0, "sequential", SMALL).end()["probes"] != run(3, 1, "sequential", SMALL).end()["probes"]


def test_time_is_counted_by_tuples_and_probes():
    one = run(3, 0, "rop", SMALL)
    last, end = one.until(100), one.end()
    at = int(np.searchsorted(one.results, end["results"]))
    assert last["milliseconds"] == pytest.approx((one.arrived[at] + one.probes[at]) / 1000)
    assert one.until(50)["milliseconds"] < last["milliseconds"]


@pytest.mark.parametrize(("name", "holds"), [("7.11b", 1), ("7.12a", 4), ("7.12d", 2)])
def test_a_figure_from_runs_to_page(name, holds, tmp_path):
    figure = next(f for f in pqp_7.PAPER.figures if f.id == name)
    raw = measure(pqp_7.PAPER, figure, SMALL, tmp_path / "r", lambda line: None, tmp_path)
    assert all(points for points in curves_of(figure, raw).values())
    assert sum(v.holds for v in verdicts_of(figure, raw)) >= holds  # at a twentieth of the size not all do
    write_page(pqp_7.PAPER, {name: raw}, tmp_path)
    assert (tmp_path / f"pqp-7-{name}.png").stat().st_size > 1000
