"""H and Q against a plain Python list of waiting tuples, oldest first."""

from random import Random

import numpy as np
import pytest

from headrace.semistream.hash_queue import HashQueue

COLLIDING = [0, 1, 2**63, 2**64 - 1, 12345, 12346]


class Model:
    """Tuples as (hash, number, arrived), in the order they came; `slots` says where each is in the real one."""

    def __init__(self, capacity):
        self.real, self.tuples, self.slots = HashQueue(capacity), [], {}
        self.next = 0

    def insert(self, hashes, now):
        numbers = np.arange(self.next, self.next + len(hashes))
        slots = self.real.insert(np.array(hashes, np.uint64), numbers, now)
        assert len(set(slots.tolist())) == len(hashes)
        assert not set(slots.tolist()) & set(self.slots.values()), "a slot that is in use was given away"
        self.slots |= dict(zip(numbers.tolist(), slots.tolist(), strict=True))
        self.tuples += [(h, int(n), now) for h, n in zip(hashes, numbers, strict=True)]
        self.next += len(hashes)

    def remove(self, numbers):
        self.real.remove(np.array([self.slots.pop(n) for n in numbers], np.int32))
        self.tuples = [t for t in self.tuples if t[1] not in numbers]

    def resize(self, capacity):
        self.real.resize(capacity)
        oldest = self.real.oldest(self.real.used)
        self.slots = {int(self.real.number[s]): int(s) for s in oldest}

    def check(self, probes, output):
        real = self.real
        assert real.used == len(self.tuples)
        assert real.room == real.capacity - len(self.tuples)
        slots = real.oldest(len(self.tuples) + 3)
        assert real.number[slots].tolist() == [t[1] for t in self.tuples]
        assert real.arrived[slots].tolist() == [t[2] for t in self.tuples]
        assert real.oldest(2).tolist() == slots[:2].tolist()
        stop, got = np.array([0, -1]), []
        wanted = np.array(probes, np.uint64)
        while stop[0] < wanted.size:
            number, found = np.empty(output, np.int32), np.empty(output, np.int32)
            n = real.probe(wanted, stop, number, found)
            assert n == output or stop[0] == wanted.size, "it stopped before its output was full"
            got += [(int(i), int(real.number[s])) for i, s in zip(number[:n], found[:n], strict=True)]
        assert len(set(got)) == len(got)
        assert set(got) == {(i, t[1]) for i, h in enumerate(probes) for t in self.tuples if t[0] == h}


@pytest.mark.parametrize("seed", range(25))
def test_oracle_random_steps_give_what_a_list_gives(seed):
    random = Random(seed)
    model = Model(random.choice([1, 5, 60]))
    domain = random.choice([COLLIDING, [7], list(range(40))])
    for step in range(120):
        what = random.random()
        if what < 0.5:
            count = random.randint(0, model.real.room)
            model.insert([random.choice(domain) for _ in range(count)], float(step))
        elif what < 0.9:
            count = random.randint(0, len(model.tuples))
            numbers = [t[1] for t in model.tuples]
            fifo = random.random() < 0.5
            model.remove(set(numbers[:count] if fifo else random.sample(numbers, count)))
        else:
            model.resize(random.choice([1, len(model.tuples), 80]))
        model.check([random.choice(domain) for _ in range(random.choice([0, 1, 9]))], random.choice([1, 2, 1000]))


def test_what_matched_stays_marked_when_slots_change():
    queue = HashQueue(4)
    slots = queue.insert(np.array([5, 6, 7], np.uint64), np.array([10, 11, 12]), 1.0)
    queue.matched[slots[1]] = 1
    queue.remove(slots[:1])
    queue.resize(9)
    left = queue.oldest(9)
    assert queue.number[left].tolist() == [11, 12]
    assert queue.matched[left].tolist() == [1, 0]


def test_a_new_tuple_in_a_used_slot_has_not_matched():
    queue = HashQueue(1)
    (slot,) = queue.insert(np.array([5], np.uint64), np.array([0]), 0.0)
    queue.matched[slot] = 1
    queue.remove(np.array([slot], np.int32))
    (again,) = queue.insert(np.array([6], np.uint64), np.array([1]), 0.0)
    assert again == slot
    assert queue.matched[again] == 0


def test_it_is_never_made_smaller_than_what_waits():
    queue = HashQueue(3)
    queue.insert(np.array([1, 2, 3], np.uint64), np.arange(3), 0.0)
    queue.resize(1)
    assert queue.capacity == queue.used == 3


def test_its_arrays_take_what_it_says():
    queue = HashQueue(1000)
    arrays = [value for value in vars(queue).values() if isinstance(value, np.ndarray)]
    # One byte a slot is for the nulls of the tuples' columns, which lie elsewhere.
    assert sum(array.nbytes for array in arrays) == pytest.approx(HashQueue.size(1000) - 1000, abs=64)
