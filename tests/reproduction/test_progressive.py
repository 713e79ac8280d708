"""The streams of [PQP] chapters 4 to 6 are what they should be; a run on a virtual clock comes out the same each time."""

import numpy as np
import pytest

import headrace as hr
from headrace.progressive import RRPJ, BoxGrid, HashPartitioning, PartitionStats
from reproduction import pqp_4, pqp_5, pqp_6, pqp_a
from reproduction.checks import BestOf, Widens
from reproduction.figure import WHOLE
from reproduction.page import write_page
from reproduction.pqp import GAP, MOST_TIME, Setting, course
from reproduction.pqp_checks import Alike, Descending
from reproduction.rtree_layout import boxes_by_level, clusters, full_tree, summary_tree
from reproduction.run import curves_of, measure, verdicts_of
from reproduction.spatial_sets import clustered


def partitions(streams, count=pqp_4.PARTITIONS):
    """Of each tuple, as the join has them."""
    dividing = HashPartitioning(hr.equal("k"), count)
    dividing.bind(0, streams.rows.schema)
    return dividing.partition_of(dividing.home(0, dividing.read(0, streams.rows)).cell)


def popularity(streams, side):
    return np.bincount(partitions(streams)[streams.side == side], minlength=pqp_4.PARTITIONS) / np.count_nonzero(
        streams.side == side
    )


def test_harmony_and_reverse():
    left, right = (popularity(pqp_4.steady("harmony", 0.02, uniform=True), side) for side in (0, 1))
    assert left.max() == pytest.approx(0.193, abs=0.01)  # Zipf 1 of 100
    np.testing.assert_allclose(left, right, atol=0.01)
    left, right = (popularity(pqp_4.steady("reverse", 0.02, uniform=True), side) for side in (0, 1))
    assert right[left.argmax()] < 0.004 and left[right.argmax()] < 0.004


def test_partitions_that_are_not_uniform_give_no_results():
    streams = pqp_4.steady("harmony", 0.02, uniform=False)
    keys, part = np.asarray(streams.rows["k"]), partitions(streams)
    useless = {
        p
        for p in range(pqp_4.PARTITIONS)
        if not set(keys[(part == p) & (streams.side == 0)]) & set(keys[(part == p) & (streams.side == 1)])
    }
    assert len(useless) == 50
    assert np.isin(part, list(useless)).mean() == pytest.approx(0.57, abs=0.02)  # those with even ranks


def test_the_most_popular_partition_of_either_side_gives_no_results_if_asked():
    for by_both, useless in ((False, 1), (True, 2)):
        streams = pqp_4.steady("reverse", 0.02, uniform=False, by_both=by_both)
        keys, part = np.asarray(streams.rows["k"]), partitions(streams)
        found = 0
        for side in (0, 1):
            top = popularity(streams, side).argmax()
            found += not set(keys[(part == top) & (streams.side == 0)]) & set(keys[(part == top) & (streams.side == 1)])
        assert found == useless


def test_skew_of_arrivals_that_change():
    for theta, most in ((0.0, 0.03), (2.0, 0.61)):
        first = partitions(pqp_4.changing(32, 0.02, theta=theta))[:640]
        assert np.bincount(first).max() / 640 == pytest.approx(most, abs=0.06)


def test_a_discounted_n_is_rrpj_with_sigma_one_and_the_latest_flush_with_sigma_zero():
    n, r = np.array([[5, 20], [10, 10]]), np.array([[4, 2], [0, 9]])
    first = PartitionStats(n, n, n, r, r)
    second = PartitionStats(n, n + 3 * n[::-1], 3 * n[::-1], r + r[::-1], r[::-1])
    of_all, latest = pqp_4.DiscountedN(sigma=1.0), pqp_4.DiscountedN(sigma=0.0)
    for policy in (of_all, latest):
        policy.scores(first)
    np.testing.assert_allclose(of_all.scores(second), RRPJ().scores(second))
    np.testing.assert_allclose(latest.scores(second), second.recent / second.fresh)
    np.testing.assert_allclose(pqp_4.HeldN(sigma=0.0).scores(second), second.recent / second.held)


def test_arrivals_change_after_alpha_tuples_and_only_then():
    part = partitions(pqp_4.changing(32, 0.02))  # 640 tuples
    first, second, third = (np.bincount(part[at : at + 640]).argmax() for at in (0, 640, 1280))
    assert len({first, second, third}) == 3
    for at in (0, 640):
        assert (part[at : at + 640] == (first if at == 0 else second)).mean() == pytest.approx(0.61, abs=0.06)
    assert np.bincount(partitions(pqp_4.changing(0, 0.02))).max() < 0.02 * 40_000


def test_boxes_keep_apart_in_some_cells_and_reach_into_others():
    streams = pqp_5.boxes(0.002, 0.4, 0.0)
    x0, y0, x1, y1 = (np.asarray(streams.rows[name]) for name in pqp_5.COLUMNS)
    assert (x0 <= x1).all() and (y0 <= y1).all() and x1.max() <= 1
    cell = np.floor(y0 * 10).astype(int) * 10 + np.floor(x0 * 10).astype(int)
    meet = [
        ((x0[mine][:, None] <= x1[theirs]) & (x1[mine][:, None] >= x0[theirs])).any()
        for mine, theirs in ([(cell == c) & (streams.side == side) for side in (0, 1)] for c in range(100))
    ]
    assert meet.count(False) == 40
    condition = hr.intersects(pqp_5.COLUMNS)
    grid = BoxGrid(condition, (0, 0, 1, 1), 10, 1)
    stretched = pqp_5.boxes(0.002, 0.0, 1.0)
    grid.bind(0, stretched.rows.schema)
    copies = np.bincount(grid.home(0, grid.read(0, stretched.rows)).row)
    assert copies.mean() == pytest.approx(1.9, abs=0.02)  # two each, but for the last column


def test_vectors():
    d, scale = 3, 0.01
    points = pqp_6.skewed("reverse", True, d, scale)
    v = np.stack(points.rows["v"].to_numpy(zero_copy_only=False))
    assert v.shape == (5_000, d) and v.min() >= 0 and v.max() <= 1
    board = pqp_6.checkered(d, scale)
    cell = np.floor(np.stack(board.rows["v"].to_numpy(zero_copy_only=False)) * 4).astype(int)
    np.testing.assert_array_equal(cell.sum(axis=1) % 2, board.side)
    assert pqp_6.grid(5, 0.237) == 3 and pqp_6.grid(5, 1.0) == 4 and pqp_6.grid(3, 0.05) == 4


def test_digits_in_nine_dimensions():
    streams = pqp_6.digits(0.01)
    v = np.stack(streams.rows["v"].to_numpy(zero_copy_only=False))
    assert v.shape == (2 * 1797, 9) and np.bincount(streams.side).tolist() == [1797, 1797]
    order = [np.lexsort(v[streams.side == side].T) for side in (0, 1)]
    left, right = (v[streams.side == side][order[side]] for side in (0, 1))
    np.testing.assert_array_equal(left, right)  # a set with itself


def test_a_course_is_virtual_and_repeats():
    setting = pqp_4.setting_of(lambda: pqp_4.steady("harmony", 0.002, uniform=True, partitions=10), 10, chunks=50)
    one, two = (course(setting, RRPJ(), clean=True) for _ in range(2))
    assert one.at[-1] == pytest.approx(4_000 * GAP, rel=0.05)  # arrivals, and writes that were late
    assert one.cleaned > 0 and one.facts["seeks"] > 0
    assert (one.total, one.cleaned, one.facts) == (two.total, two.cleaned, two.facts)
    np.testing.assert_array_equal(one.results, two.results)
    values, counts = np.unique(np.asarray(setting.streams().rows["k"]), return_counts=True)
    assert one.results[-1] < one.total <= (counts**2).sum() // 4 * 1.2 and values.size <= 20
    assert one.by(2.0)["results"] == pytest.approx(one.after(0.5)["results"], rel=0.05)
    # The clean-up goes on where the arrivals ended.
    in_memory = one.results[-1] / one.total
    assert one.until(in_memory)["seconds"] == pytest.approx(one.at[-1])
    assert one.at[-1] < one.until((1 + in_memory) / 2)["seconds"] < one.until(1.0)["seconds"] <= one.end()[WHOLE]
    assert one.until(1.0)["results"] == one.total


def test_a_figure_of_each_chapter_at_a_tiny_scale(tmp_path):
    for module, figure_id, scale in (
        (pqp_4, "4.6b", 0.001),
        (pqp_4, "4.3", 0.0002),
        (pqp_5, "5.5f", 0.001),
        (pqp_6, "6.6a", 0.002),
    ):
        figure = next(f for f in module.PAPER.figures if f.id == figure_id)
        raw = measure(module.PAPER, figure, scale, tmp_path / "r", lambda line: None, tmp_path / "raw")
        for curve in curves_of(figure, raw).values():
            ys = [y for _, y in curve]
            assert len(ys) == 10 and ys == sorted(ys) and ys[-1] > 0
        assert all(verdict.found for verdict in verdicts_of(figure, raw))


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        (BestOf("a", ("b", "c"), 0.0), False),
        (BestOf("a", ("b", "c"), 0.11), True),
        (BestOf("a", ("b",), 0.0, at=1), True),
        (BestOf("a", ("far",), 0.5), False),
        (Widens("c", "b", 1.5), True),
        (Widens("c", "b", 2.5), False),
        (Widens("b", "c", 0.1), False),
        (Widens("c", "far", 1.0), False),
    ],
)
def test_checks_hold_when_they_should_and_only_then(check, holds):
    curves = {"a": [(1, 9.0), (2, 18.0)], "b": [(1, 8.0), (2, 10.0)], "c": [(1, 8.0), (2, 20.0)], "far": [(9, 1.0)]}
    assert check.look(curves).holds is holds


SHARES = {"much": [(1, 1.0), (2, 9.0)], "less": [(1, 2.0), (2, 8.0)], "least": [(1, 3.0), (2, 4.0)]}


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        (Descending(("much", "less", "least")), True),
        (Descending(("much", "least", "less")), False),
        (Descending(("much", "least", "less"), within=1.5), True),
        (Descending(("less", "much"), within=0.2), False),  # the last is above the first
        (Alike(("much", "less"), within=0.06), True),
        (Alike(("much", "less"), within=0.05), False),
    ],
)
def test_checks_of_the_ends_of_curves(check, holds):
    assert check.look(SHARES).holds is holds
    with pytest.raises(LookupError, match="no points of none"):
        type(check)(("none",), 0.1).look(SHARES)


def test_layouts_of_r_trees_show_the_clusters(tmp_path):
    boxes = clustered(5_000, 5)[0]
    full, summary = full_tree(boxes, 32), summary_tree(boxes, 32)
    pages, *above = boxes_by_level(summary, True)
    assert len(pages) == -(-5_000 // 204) and len(above) == summary.height and len(above[-1]) == 1
    np.testing.assert_allclose(above[-1][0], [*boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0)])
    assert clusters(boxes_by_level(full, False)[0]) == clusters(pages) == 5
    assert clusters(np.array([[0, 0, 0.1, 0.1], [0.1, 0.1, 0.2, 0.2], [0.3, 0, 0.4, 0.1], [0, 0, 1, 1]])) == 2
    figure = next(f for f in pqp_a.PAPER.figures if f.id == "A.2")
    raw = measure(pqp_a.PAPER, figure, 0.05, tmp_path / "r", lambda line: None, tmp_path)
    write_page(pqp_a.PAPER, {"A.2": raw}, tmp_path)
    assert (tmp_path / "pqp-a-A.2.png").stat().st_size > 1000


@pytest.mark.parametrize("module", [pqp_4, pqp_5, pqp_6])
def test_checks_of_seconds_fail_where_a_policy_is_slow(module):
    """A fifth fewer results a second, half as many seconds again, or a tuple a fifth of a millisecond: none of them holds."""
    checked = 0
    for figure in module.PAPER.on("real").figures:
        for value, off in (("results a second", 0.8), (WHOLE, 1.5)):
            for check in figure.also.get(value, ()):
                curves = {check.series: [(100.0, off)], check.than: [(100.0, 1.0)]}
                assert not check.look(curves).holds, (figure.id, check)
                checked += 1
        for check in figure.also.get("microseconds a tuple", ()):
            assert not check.look({"rrpj": [(100.0, 1.01 * MOST_TIME)]}).holds
    assert checked > 10


def test_setting_is_made_when_it_is_wanted():
    def never():
        raise AssertionError("made too early")

    Setting(never, hr.equal("k"), lambda: HashPartitioning(hr.equal("k")), 0.1)
    for module in (pqp_4, pqp_5, pqp_6):
        assert all(figure.cells(1.0) for figure in module.PAPER.figures)  # the text's sizes, at no cost
