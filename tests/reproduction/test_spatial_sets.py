"""The sets of the spatial study: clusters that overlap as they should, real places, and Poisson arrivals."""

import numpy as np
import pytest

from reproduction.pqp_a import at_share, make_clusters, run_course
from reproduction.spatial_sets import CLUSTER, clustered, places, poisson


def bounds(boxes):
    return np.concatenate([boxes[:, :2].min(0), boxes[:, 2:].max(0)])


@pytest.mark.parametrize("selectivity", [0.1, 0.25, 1.0])
def test_clusters_come_one_after_the_other_and_overlap_as_asked(selectivity):
    left, right = clustered(10_000, 5, selectivity)
    for i in range(5):
        mine, theirs = (bounds(s[i * 2_000 : (i + 1) * 2_000]) for s in (left, right))
        assert np.allclose(mine[2:] - mine[:2], CLUSTER, rtol=0.02)
        width, height = np.minimum(mine[2:], theirs[2:]) - np.maximum(mine[:2], theirs[:2])
        assert width * height / CLUSTER**2 == pytest.approx(selectivity, abs=0.02)
        others = [bounds(right[j * 2_000 : (j + 1) * 2_000]) for j in range(5) if j != i]
        assert all((mine[:2] > o[2:]).any() or (mine[2:] < o[:2]).any() for o in others)


def test_shuffled_boxes_are_drawn_like_the_others_and_in_no_order():
    plain, mixed = clustered(5_003, 7)[0], clustered(5_003, 7, shuffled=True)[0]
    assert plain.shape == mixed.shape == (5_003, 4)
    assert (plain[:, :2] <= plain[:, 2:]).all() and (mixed[:, :2] <= mixed[:, 2:]).all()
    near = [np.abs(np.diff(boxes[:, 0])).mean() for boxes in (plain, mixed)]
    assert near[1] > 5 * near[0]


def test_the_same_boxes_every_time():
    once = clustered(1_000, 3)
    clustered.cache_clear()
    assert all(np.array_equal(a, b) for a, b in zip(once, clustered(1_000, 3), strict=True))


def test_places_are_on_earth_and_by_zone_from_west_to_east():
    for sets in (places(), places(by_zone=True)):
        for boxes, rows in zip(sets, (28_298, 24_474), strict=True):
            assert boxes.shape == (rows, 4)
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
            assert (np.abs(centres) <= (180, 90)).all()
    zones = np.round((places(by_zone=True)[0][:, 0] + 0.1) / 15)
    assert (np.diff(zones) >= 0).all()


def test_poisson_gaps_have_their_mean_and_spread():
    gaps = np.diff(poisson(20_000, 2.0, seed=1))
    assert gaps.mean() == pytest.approx(2.0, rel=0.03) and gaps.std() == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("algorithm", ["static", "sbnl"])
def test_a_join_waits_for_what_comes_by_poisson_and_gives_the_same(algorithm):
    make = make_clusters(4_000, 5)
    at_once, later = run_course(algorithm, make, 16)[-1], run_course(algorithm, make, 16, pause=2.0)[-1]
    assert later["results"] == at_once["results"] > 100
    last = max(poisson(20, 2.0, seed)[-1] for seed in (0, 1))  # 4,000 boxes are 20 pages
    assert last <= later["seconds"] <= last + at_once["seconds"]


def test_a_share_of_the_results_is_reached_when_so_many_are_out():
    make = make_clusters(4_000, 5)
    total = at_share(100, "sbnl", make, 16)["results"]
    shares = [at_share(percent, "sbnl", make, 16) for percent in (10, 50, 100)]
    assert [s["results"] >= p * total for s, p in zip(shares, (0.1, 0.5, 1.0), strict=True)] == [True] * 3
    assert shares[0]["results"] < 0.5 * total and shares[0]["seconds"] < shares[1]["seconds"] < shares[2]["seconds"]
