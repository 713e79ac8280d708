"""Tuples that come at a rate: bursts that a join bears for a while, and deadlines that it keeps."""

from itertools import pairwise

import pytest

from headrace.bench import RelationSpec, Zipf, make_relation, service_rate
from headrace.cost import disk_of
from reproduction.bursts import longest_burst
from reproduction.deadlines import highest_rate, keeps

MADE = RelationSpec(40_000, tuple_bytes=128)
STREAM = Zipf(40_000, 1.0, tuple_bytes=64)
MEMORY = 500_000


@pytest.fixture(scope="module")
def relation(tmp_path_factory):
    with make_relation(tmp_path_factory.mktemp("r"), MADE, disk=disk_of("hdd")) as relation:
        yield relation


@pytest.fixture(scope="module")
def rate(relation):
    """The highest steady rate."""
    return service_rate("ssij", relation, STREAM, MEMORY).rate


def test_a_higher_burst_is_borne_for_a_shorter_time(relation, rate):
    lasts = [longest_burst(relation, STREAM, MEMORY, more * rate, [20_000]) for more in (1.5, 3.0, 6.0)]
    assert all(a > b > 0 for a, b in pairwise(lasts)), lasts


def test_what_comes_far_below_the_highest_rate_never_overflows(relation, rate):
    calm = longest_burst(relation, STREAM, MEMORY, rate / 10, [5_000])
    assert calm == 20 * MEMORY / 64 / (rate / 10)  # as long as it is looked at


def test_a_longer_deadline_allows_a_higher_rate(relation):
    tight, loose = (highest_rate(relation, STREAM, MEMORY, seconds) for seconds in (0.05, 0.5))
    assert loose > 2 * tight
    assert keeps(relation, STREAM, MEMORY, 0.5, loose) and not keeps(relation, STREAM, MEMORY, 0.5, 2 * loose)
