"""When feeds are pulled, and in whose turn."""

import pytest

from headrace.errors import BadInput
from headrace.feeds.schedule import Schedule
from headrace.feeds.turns import Turns

URL = "https://example.org/feed"


def test_the_longest_of_interval_ttl_and_max_age_counts_up_to_a_day():
    schedule = Schedule(interval=60)
    assert schedule.after_success(None, None) == 60
    assert schedule.after_success(3600, 600) == 3600
    assert schedule.after_success(600, 3600) == 3600
    assert schedule.after_success(None, 10 * 86_400) == 86_400
    assert schedule.after_success(30, None, interval=7200) == 7200


def test_back_off_doubles_with_jitter_that_seed_and_url_decide():
    schedule = Schedule(interval=60, longest_backoff=3600)
    waits = [schedule.after_failure(URL, n) for n in range(1, 12)]
    for n, wait in enumerate(waits, 1):
        full = min(3600, 60 * 2**n)
        assert full / 2 < wait <= full
    assert waits == [Schedule(interval=60).after_failure(URL, n) for n in range(1, 12)]
    others = {Schedule(interval=60, seed=seed).after_failure(url, 3) for seed in (1, 2) for url in ("a", "b")}
    assert len(others) == 4
    assert schedule.after_failure(URL, 10**6) <= 3600
    assert schedule.after_failure(URL, 9, interval=7200) > 3600  # never more often than the feed's own interval's half


def test_a_server_that_asks_for_time_gets_it_and_one_that_does_not_say_is_backed_off_from():
    schedule = Schedule(interval=60)
    assert schedule.after_refusal(URL, 1, 900) == 900
    assert schedule.after_refusal(URL, 1, 5) == 60
    assert schedule.after_refusal(URL, 1, 10**9) == 86_400
    assert schedule.after_refusal(URL, 4, None) == schedule.after_failure(URL, 4)


@pytest.mark.parametrize("name", ["interval", "longest", "longest_backoff"])
def test_times_of_nothing_are_refused(name):
    with pytest.raises(BadInput, match=f"{name}=0"):
        Schedule(**{name: 0})


def test_hosts_come_in_turn_and_none_has_more_than_its_share():
    turns = Turns(most=5, per_host=2, gap=0)
    for i in range(4):
        turns.add(f"a{i}", "a")
    turns.add("b0", "b")
    turns.add("c0", "c")
    assert [turns.next(0.0) for _ in range(5)] == ["a0", "b0", "c0", "a1", None]
    turns.done("b")
    assert turns.next(0.0) is None
    turns.done("a")
    assert [turns.next(0.0), turns.next(0.0)] == ["a2", None]


def test_no_more_run_than_may_run_in_all():
    turns = Turns(most=2, per_host=2, gap=0)
    for host in "abc":
        turns.add(host, host)
    assert [turns.next(0.0) for _ in range(3)] == ["a", "b", None]
    turns.done("a")
    assert turns.next(0.0) == "c"


def test_a_gap_lies_between_two_requests_of_a_host():
    turns = Turns(most=10, per_host=5, gap=2.0)
    for url in ("a0", "a1", "a2"):
        turns.add(url, "a")
    turns.add("b0", "b")
    assert [turns.next(10.0) for _ in range(3)] == ["a0", "b0", None]
    assert turns.next_at() == 12.0
    assert turns.next(11.9) is None
    assert [turns.next(12.0), turns.next(12.0)] == ["a1", None]
    turns.done("a")
    turns.done("a")
    assert turns.next(13.0) is None  # ended, but the gap has not passed
    assert turns.next(14.0) == "a2"
    turns.done("a")
    turns.add("a3", "a")
    assert turns.next(15.0) is None  # nor does an idle host forget it
    assert turns.next_at() == 16.0


@pytest.mark.parametrize(("most", "per_host"), [(0, 1), (1, 0), (True, 1), (1.5, 1)])
def test_numbers_of_pulls_are_checked(most, per_host):
    with pytest.raises(BadInput, match="is not a number of pulls"):
        Turns(most, per_host, 0)
