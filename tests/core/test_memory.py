import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput, MemoryRefused
from headrace.memory import MemoryBudget


def test_parts_add_up_and_are_given_back():
    budget = MemoryBudget("1KiB")
    a, b, c = budget.reserve("queue", 100), budget.reserve("queue", 50), budget.reserve("index", 10)
    assert budget.held() == {"queue": 150, "index": 10}
    assert (budget.used, budget.left) == (160, 864)
    a.release()
    a.release()
    assert budget.held() == {"queue": 50, "index": 10}
    b.release()
    c.release()
    assert budget.held() == {}
    assert (budget.used, budget.peak) == (0, 160)
    assert budget.peak_by_part == {"queue": 150, "index": 10}


def test_a_refusal_says_who_asked_who_holds_and_what_is_left():
    budget = MemoryBudget("1MiB")
    budget.reserve("index", 100 * 1024)
    budget.reserve("hot set", 600 * 1024)
    with pytest.raises(MemoryRefused) as caught:
        budget.reserve("read buffers", 512 * 1024)
    assert str(caught.value) == (
        "read buffers asked for 512KiB; 324KiB of 1MiB is left (hot set holds 600KiB, index holds 100KiB)"
    )
    assert budget.used == 700 * 1024


def test_a_refusal_by_an_empty_budget():
    with pytest.raises(MemoryRefused, match="1KiB is left \\(nothing is held\\)"):
        MemoryBudget(1024).reserve("index", 1025)


def test_all_of_the_budget_may_be_held():
    budget = MemoryBudget(10)
    budget.reserve("a", 10)
    assert budget.left == 0
    budget.reserve("b", 0)
    assert budget.held() == {"a": 10}


def test_resize():
    budget = MemoryBudget(100)
    queue = budget.reserve("queue", 10)
    queue.resize(90)
    queue.resize(20)
    assert (queue.nbytes, budget.used, budget.peak) == (20, 20, 90)
    with pytest.raises(MemoryRefused, match="queue asked to grow from 20B to 101B; 80B of 100B"):
        queue.resize(101)
    assert (queue.nbytes, budget.used) == (20, 20)


def test_a_released_reservation_stays_released():
    budget = MemoryBudget(100)
    with budget.reserve("queue", 10) as queue:
        pass
    assert queue.nbytes == 0
    with pytest.raises(BadInput, match="queue is released"):
        queue.resize(1)
    assert budget.used == 0


def test_released_when_the_block_fails():
    budget = MemoryBudget(100)
    with pytest.raises(KeyError), budget.reserve("queue", 10):
        raise KeyError
    assert budget.used == 0


def test_negative_reservations_are_refused():
    budget = MemoryBudget(100)
    with pytest.raises(BadInput, match="queue asked for -1 bytes"):
        budget.reserve("queue", -1)
    with pytest.raises(BadInput, match="queue asked for -1 bytes"):
        budget.reserve("queue", 1).resize(-1)


@pytest.mark.parametrize("bad", [0, -5, "lots", None])
def test_a_budget_is_a_size(bad):
    with pytest.raises(BadInput, match="memory="):
        MemoryBudget(bad)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=30))
def test_never_over_the_limit_and_books_balance(steps):
    budget, open_ = MemoryBudget(100), {}
    for part, n in steps:
        before = budget.used
        try:
            if part in open_:
                open_[part].resize(n)
            else:
                open_[part] = budget.reserve(part, n)
        except MemoryRefused:
            assert budget.used == before
        assert budget.used == sum(r.nbytes for r in open_.values()) <= 100
        assert budget.held() == {p: r.nbytes for p, r in open_.items() if r.nbytes}
        assert budget.used <= budget.peak <= 100


def test_threads_do_not_lose_counts():
    budget = MemoryBudget(8 * 3)

    def work():
        for _ in range(2000):
            with budget.reserve("shared", 1) as r:
                r.resize(3)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert (budget.used, budget.held()) == (0, {})
    assert budget.peak <= 24
