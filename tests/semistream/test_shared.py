"""A hot set shared by processes: exact whatever happens to them or to the card, and within one budget."""

import json
import os
import shutil
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.relation.store import StoreFull
from headrace.semistream import AdaptiveJoin
from headrace.semistream.adaptive.group import Group
from headrace.semistream.adaptive.group_memory import GroupMemory
from headrace.semistream.adaptive.shared_hot_set import SharedHotSet
from headrace.semistream.adaptive.shared_memory import SharedMemory
from tests.support import join_oracle
from tests.support.group_workers import Workers, check, numbered, private, stream

KEYS, LARGE = 40_000, 600_000
MEMORY = "3MiB"


@pytest.fixture(scope="module")
def server():
    some = Workers()
    yield some
    some.close()


@pytest.fixture
def workers(server):
    """Starts workers that are gone after the test."""
    yield lambda count: [server.start() for _ in range(count)]
    server.kill_all()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("shared") / "r"
    hr.Relation.create(where, numbered(KEYS), key="k", page_size="4KiB").close()
    return where


@pytest.fixture
def group(tmp_path):
    return tmp_path / "group"


def made(some, path, group, slots, **options):
    for worker in some:
        worker.do("make", "op", path, group, slots, {"memory": MEMORY, "whole": False, **options})
    return some


def memories(some) -> list[int]:
    return [worker.do("shared_memory", "op")["name"] for worker in some]


def batches_of(seed: int, count: int, rows: int = 3000, skewed: bool = True) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    return [stream(rng, rows, KEYS, skewed) for _ in range(count)]


# -- exact -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int64", "string", "composite", "three", "timestamp"])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_oracle_processes_of_a_group_give_what_brute_force_gives(workers, tmp_path, kind, how):
    random = Random(f"{kind}{how}")
    rows = join_oracle.table(kind, [random.randrange(900) for _ in range(2500)], random, tag="r")
    numbers = [[int(random.paretovariate(0.6)) % 1200 for _ in range(random.randrange(1, 1500))] for _ in range(12)]
    batches = [join_oracle.table(kind, some, random, 0.1, "s").combine_chunks().to_batches()[0] for some in numbers]
    key = [name for name in rows.schema.names if name.startswith("k")]
    hr.Relation.create(tmp_path / "r", rows, key=key, page_size="4KiB").close()
    some = made(workers(2), tmp_path / "r", tmp_path / "g", 2, on=key, how=how, memory="2MiB")
    for pair in zip(batches[::2], batches[1::2], strict=True):
        for worker, batch in zip(some, pair, strict=True):  # both at the same time
            worker.tell("join", "op", batch)
        for worker, batch in zip(some, pair, strict=True):
            got = Counter(join_oracle.tuples(worker.answer().to_batches()))
            assert got == Counter(join_oracle.join(rows, [batch], key, how, ["v", "s", "b"]))
    assert len(set(memories(some))) == 1


@pytest.mark.parametrize("skewed", [True, False])
def test_oracle_many_batches_at_the_same_time(workers, path, group, skewed):
    some = made(workers(3), path, group, 3)
    for seed, worker in enumerate(some):
        worker.tell("work", "op", seed, 100, KEYS, {"skewed": skewed})
    assert [worker.answer() for worker in some] == [{"done": 100, "refused": 0}] * 3
    assert len(set(memories(some))) == 1
    if skewed:
        assert some[0].do("stats", "op")["generations"] > 3


def test_oracle_a_slice_in_the_middle_of_its_results_keeps_them_while_others_publish(workers, path, group):
    """A region that a reader has pinned is not written again, however many generations go by."""
    reader, *others = made(workers(3), path, group, 3, memory="2MiB")
    for seed, worker in enumerate(others):
        worker.do("work", "op", seed, 30, KEYS)  # now there is something hot to read
    published = max(worker.do("stats", "op")["generations"] for worker in others)
    batch = batches_of(1, 1, rows=4000)[0]
    assert reader.do("begin", "op", batch)
    for seed, worker in enumerate(others):
        worker.tell("work", "op", 10 + seed, 60, KEYS)
    for worker in others:
        worker.answer()
    assert max(worker.do("stats", "op")["generations"] for worker in others) > published
    check(batch, reader.do("finish", "op"))
    assert reader.do("stats", "op")["hits"] > 1000


# -- shared ------------------------------------------------------------------------------------------------------------


def test_what_one_process_fetched_serves_another(workers, path, group):
    first, second, stranger = workers(3)
    made([first, second], path, group, 2, memory="6MiB")
    made([stranger], path, group.with_name("another"), 2, memory="6MiB")
    batches = batches_of(1, 10)
    for batch in batches * 2:
        check(batch, first.do("join", "op", batch))
    for batch in batches:
        for worker in (second, stranger):
            check(batch, worker.do("join", "op", batch))
    mine, alone = second.do("stats", "op"), stranger.do("stats", "op")
    assert mine["misses"] < alone["misses"] / 5
    assert mine["pages_read"] < alone["pages_read"]


def test_the_young_of_a_process_that_left_serves_the_next_in_its_slot(workers, path, group):
    first, second = made(workers(2), path, group, 1)
    batch = batches_of(3, 1)[0]
    for worker in (first, second):
        # From the second batch on they are at work
        check(batches_of(4, 1)[0], worker.do("join", "op", batches_of(4, 1)[0]))
    check(batch, first.do("join", "op", batch))
    before = second.do("stats", "op")["misses"]
    check(batch, second.do("join", "op", batch))
    assert second.do("stats", "op")["misses"] - before < batch.num_rows / 20


def test_more_workers_than_slots_are_refused_until_one_leaves(workers, path, group):
    first, second, third = made(workers(3), path, group, 2)
    assert first.do("enter", "op")
    assert second.do("enter", "op")
    assert not third.do("enter", "op")
    assert third.do("join", "op", batches_of(5, 1)[0]) is None
    batch = batches_of(6, 1)[0]
    check(batch, first.do("joined", "op", batch))
    first.do("leave", "op")
    check(batch, third.do("join", "op", batch))
    check(batch, second.do("joined", "op", batch))


def test_as_many_as_there_are_slots_get_in_when_all_come_at_once(workers, tmp_path, path):
    """The first to come fills the shared memory; the others wait for that, and are not turned away."""
    some = workers(4)
    refused = 0
    for turn in range(10):
        made(some, path, tmp_path / str(turn), 4)
        for worker in some:
            worker.tell("enter", "op")
        refused += sum(not worker.answer() for worker in some)
    assert refused == 0


@pytest.mark.parametrize("lock", range(3))  # two slots, and the right to publish
def test_one_that_comes_while_the_first_lets_go_of_what_it_filled_gets_in(small, tmp_path, monkeypatch, lock):
    """On a busy machine the first may be stopped between any two of its steps."""
    first, second = (
        AdaptiveJoin(small, on="k", memory="560KiB", whole=False, group=Group(tmp_path / "g", 2)) for _ in range(2)
    )
    let_go, answers = [], []
    comes = threading.Thread(target=lambda: answers.append(second.enter()))

    def unlock(memory, number, really=SharedMemory.unlock):
        if memory is first._membership.shared.memory:  # private: the locks of one of the two
            let_go.append(number)
            if len(let_go) == lock + 1:
                comes.start()
                comes.join(0.1)  # it gets in, or waits for the first
        really(memory, number)

    monkeypatch.setattr(SharedMemory, "unlock", unlock)
    assert first.enter()
    comes.join()
    assert set(let_go[:3]) == {0, 1, 2}
    assert answers == [True]


# -- killed ------------------------------------------------------------------------------------------------------------


def test_contract_a_killed_process_misleads_nobody_and_its_slot_is_free(workers, path, group):
    seed = int(np.random.default_rng().integers(1 << 30))
    rng = np.random.default_rng(seed)
    slots = 3
    some = made(workers(slots), path, group, slots, memory="2MiB")
    survivor, *mortals = some
    survivor.tell("work", "op", seed, 150, KEYS)
    for n in range(16):
        victim = mortals.pop(0)
        victim.tell("work", "op", seed + n, 1000, KEYS)
        time.sleep(float(rng.uniform(0, 0.15)))
        victim.kill()
        mortals += made(workers(1), path, group, slots, memory="2MiB")
        if n % 4 == 0:  # one comes after the dead into its slot
            assert mortals[-1].do("work", "op", seed - n, 5, KEYS)["done"] == 5, f"seed={seed} n={n}"
    assert survivor.answer()["refused"] == 0, f"seed={seed}"
    together = [survivor, *mortals]
    assert [worker.do("enter", "op") for worker in together] == [True] * slots
    assert len(set(memories(together))) == 1


def test_contract_a_process_killed_in_the_middle_of_a_slice_leaves_a_pin_that_holds_nothing(workers, path, group):
    """Its regions are written again, and whoever comes into its slot does not take its half-written young."""
    some = made(workers(2), path, group, 2, memory="2MiB")
    for turn in range(5):
        victim, other = made(workers(1), path, group, 2, memory="2MiB")[0], some[turn % 2]
        other.do("work", "op", turn, 20, KEYS)
        assert victim.do("begin", "op", batches_of(turn, 1, rows=4000)[0])
        before = other.do("stats", "op")["generations"]
        victim.kill()
        other.do("work", "op", 100 + turn, 40, KEYS)
        assert other.do("stats", "op")["generations"] > before + 4
    for worker in some:
        assert worker.do("enter", "op")


def test_contract_nothing_is_left_when_all_are_killed(workers, path, group):
    some = made(workers(3), path, group, 3)
    for worker in some:
        worker.do("work", "op", 1, 1, KEYS)  # each has the shared memory now, however long the next takes to begin
        worker.tell("work", "op", 1, 10_000, KEYS)
    time.sleep(0.3)  # so that most kills come in the middle of a slice; nothing below hangs on it
    peek = made(workers(1), path, group, 3)[0]
    peek.do("enter", "op")
    inode = peek.do("shared_memory", "op")["inode"]
    assert len(holders(inode)) == 4
    # By who has it open, and not by what is new there: a server of another test may start this moment.
    assert [file for worker in [*some, peek] for file in open_files(worker.pid) if file.startswith("/dev/shm")] == []
    for worker in [*some, peek]:
        worker.kill()
    assert holders(inode) == []
    assert [p for p in group.iterdir() if p.stat().st_size > 4096] == []


def open_files(pid: int) -> list[str]:
    """Files that a process has open or mapped, by name."""
    maps = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    found = [fields[5] for fields in maps if len(fields) == 6]
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is at work, and closes files
            found.append(str(fd.readlink()))
    return found


def holders(inode: int) -> list[str]:
    """Processes that have a piece of nameless memory open or mapped."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text()
        except OSError:
            continue
        if any("memfd:headrace" in line and line.split()[4] == str(inode) for line in maps.splitlines()):
            found.append(process.name)
    return found


# -- the card ----------------------------------------------------------------------------------------------------------


def _foreign(size: int) -> tuple[int, int]:
    fd = os.memfd_create("foreign")
    os.ftruncate(fd, size)
    return os.getpid(), fd


DAMAGE = {
    "deleted": lambda card, facts: card.unlink(),
    "empty": lambda card, facts: card.write_bytes(b""),
    "torn": lambda card, facts: card.write_bytes(card.read_bytes()[:-7]),
    "garbage": lambda card, facts: card.write_bytes(os.urandom(200)),
    "other json": lambda card, facts: card.write_text('[1, {"name": 3}]'),
    "no numbers": lambda card, facts: card.write_text('{"name": Infinity, "holders": [["x"]]}'),
    "a name too long": lambda card, facts: card.write_text(json.dumps({"name": 1 << 70, "holders": [_foreign(4096)]})),
    "a name below zero": lambda card, facts: card.write_text(json.dumps({"name": -1, "holders": [_foreign(4096)]})),
    "a dead process": lambda card, facts: card.write_text(json.dumps({"name": 5, "holders": [[4_000_000, 7]]})),
    "a foreign process": lambda card, facts: card.write_text(json.dumps({"name": 5, "holders": [[os.getpid(), 0]]})),
    "foreign memory": lambda card, facts: card.write_text(
        json.dumps({"name": facts["name"] ^ 1, "holders": [_foreign(facts["size"])]})
    ),
    "right name, dead holders": lambda card, facts: card.write_text(
        json.dumps({"name": facts["name"], "holders": [[4_000_000, 7]]})
    ),
    "right name, foreign holder": lambda card, facts: card.write_text(
        json.dumps({"name": facts["name"], "holders": [_foreign(facts["size"]), [os.getpid(), 1]]})
    ),
    "all gone": lambda card, facts: shutil.rmtree(card.parent),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_contract_a_damaged_card_costs_warmth_at_most(workers, path, group, damage):
    some = made(workers(2), path, group, 3)
    for batch in batches_of(7, 4):
        for worker in some:
            check(batch, worker.do("join", "op", batch))
    (card,) = group.iterdir()
    in_slot = made(workers(1), path, group, 3)[0]
    batch = batches_of(8, 1)[0]
    assert in_slot.do("begin", "op", batch)
    DAMAGE[damage](card, some[0].do("shared_memory", "op"))
    late = made(workers(1), path, group, 3)[0]
    for worker in (late, *some):
        check(batch, worker.do("join", "op", batch))
    check(batch, in_slot.do("finish", "op"))
    together = [late, *some, in_slot]
    for worker in together:
        check(batch, worker.do("join", "op", batch))
    assert len(set(memories(together))) == 1
    assert len(holders(some[0].do("shared_memory", "op")["inode"])) == 4


def test_contract_the_directory_deleted_again_and_again_stops_nobody(workers, path, group):
    some = made(workers(2), path, group, 2)
    deleted, rounds = 0, 0
    while deleted <= 20:  # as often as it takes: this process may get less of the machine than the two
        for seed, worker in enumerate(some):
            worker.tell("work", "op", 2 * rounds + seed, 200, KEYS, {"most": 300})
        while not all(worker.answered() for worker in some):
            deleted += group.exists()
            shutil.rmtree(group, ignore_errors=True)
        assert [worker.answer()["done"] for worker in some] == [200, 200]
        rounds += 1
    for worker in some:
        worker.do("work", "op", 5, 2, KEYS)
    assert len(set(memories(some))) == 1


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_versions(path, tmp_path):
    """A relation at its first version, and a later one that adds 1 to every v and has twice the keys: another index."""
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    more = pa.table({"k": np.arange(-KEYS, 0), "v": np.zeros(KEYS, np.int64), "s": ["none"] * KEYS})
    with hr.Relation.open(copy) as first:
        first.apply(upserts=pa.concat_tables([numbered(KEYS, add=1), more]))
        with hr.Relation.open(copy) as second:
            yield copy, first.version, second.version


def test_a_new_version_is_taken_over_in_the_same_memory(workers, two_versions, group):
    path, old, new = two_versions
    some = workers(2)
    batch = batches_of(9, 1)[0]
    for version, add in ((old, 0), (new, 1), (old, 0), (new, 1)):
        made(some, path, group, 2, version=version)
        names = set()
        for worker in some:
            check(batch, worker.do("join", "op", batch), add)
            names.add(worker.do("shared_memory", "op")["name"])
        assert len(names) == 1
    first, second = some
    made([first], path, group, 2, version=old)
    check(batch, first.do("join", "op", batch))
    made([second], path, group, 2, version=new)
    check(batch, second.do("join", "op", batch), 1)
    assert len(set(memories(some))) == 1, "an idle process holds the memory of a version that nobody joins with"


def test_another_version_is_refused_while_one_is_at_work(workers, two_versions, group):
    path, old, new = two_versions
    first, second = workers(2)
    made([first], path, group, 2, version=old)
    made([second], path, group, 2, version=new)
    batch = batches_of(10, 1)[0]
    assert first.do("begin", "op", batch)
    assert not second.do("enter", "op")
    check(batch, first.do("finish", "op"))
    check(batch, second.do("join", "op", batch), 1)
    assert second.do("begin", "op", batch)
    assert not first.do("enter", "op")
    check(batch, second.do("finish", "op"), 1)
    check(batch, first.do("join", "op", batch))


def test_oracle_versions_that_alternate_never_mix(workers, two_versions, group):
    path, old, new = two_versions
    some = workers(2)
    for worker in some:
        for version in (old, new):
            worker.do("make", str(version), path, group, 2, {"version": version, "memory": MEMORY, "whole": False})
    joined = 0
    for turn, batch in enumerate(batches_of(11, 40, rows=800)):
        turns = [(old, 0), (new, 1)] if turn % 2 else [(new, 1), (old, 0)]
        for worker, (version, _) in zip(some, turns, strict=True):
            worker.tell("join", str(version), batch)
        for worker, (_, add) in zip(some, turns, strict=True):
            out = worker.answer()
            if out is not None:
                joined += 1
                check(batch, out, add)
    assert joined > 20
    assert max(worker.do("descriptors") for worker in some) < 80


def test_an_operator_of_its_own_is_not_misled_by_what_others_put_into_the_shared_memory(workers, two_versions, group):
    """A process that finds no slot joins alone, with the relation it has: its index must not lie in the others' shared memory."""
    path, old, new = two_versions
    first, second = workers(2)
    made([first], path, group, 2, version=old)
    batch = batches_of(12, 1)[0]
    check(batch, first.do("join", "op", batch))
    made([second], path, group, 2, version=new)
    assert second.do("begin", "op", batch)
    first.do("make", "alone", path, group, 2, {"version": old, "memory": MEMORY, "group": None})
    check(batch, first.do("joined", "alone", batch))
    check(batch, second.do("finish", "op"), 1)


def test_two_operators_of_a_process_are_not_misled_by_each_others_shared_memory(workers, two_versions, group):
    path, old, new = two_versions
    first, second = workers(2)
    made([first], path, group, 2, version=old)
    first.do("make", "few", path, group, 2, {"version": old, "memory": "4MiB"})
    one, two = batches_of(13, 2)
    check(one, first.do("join", "op", one))
    check(one, first.do("join", "few", one))
    second.do("make", "few", path, group, 2, {"version": new, "memory": "4MiB"})
    check(one, second.do("join", "few", one), 1)
    check(two, first.do("join", "op", two))


def test_a_relation_made_anew_under_the_same_name_is_another(workers, tmp_path, group):
    """Within one second, with the same version and sizes: only its files' tags tell it from the one before."""
    for add in range(4):
        hr.Relation.create(tmp_path / "r", numbered(2000, add), key="k", overwrite=add > 0).close()
        worker = made(workers(1), tmp_path / "r", group, 2)[0]
        batch = stream(np.random.default_rng(add), 1500, 2000, skewed=False)
        for _ in range(2):
            check(batch, worker.do("join", "op", batch), add)


# -- pins, without processes -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    where = tmp_path_factory.mktemp("pins") / "r"
    return hr.Relation.create(where, numbered(6000), key="k", page_size="4KiB")


STEPS = st.lists(st.tuples(st.sampled_from(["join", "begin", "finish", "die"]), st.integers(0, 2)), max_size=60)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_oracle_readers_see_their_generation_to_the_end(small, tmp_path_factory, steps, seed):
    """Workers of one group, here in one process: each opens the memory anew, so their locks are as apart as of three."""
    directory = tmp_path_factory.mktemp("g")
    rng = np.random.default_rng(seed)

    def operator():
        return AdaptiveJoin(small, on="k", memory="900KiB", whole=False, group=Group(directory, 3))

    ops = [operator() for _ in range(3)]
    reading: dict[int, tuple] = {}
    for what, n in [*steps, *(("finish", n) for n in range(3))]:
        if what == "finish" and n in reading:
            batch, results, some = reading.pop(n)
            check(batch, pa.Table.from_batches([*some, *results]))
            ops[n].leave()
        elif what == "die" and n in reading:
            # private: the header is written as a killed process leaves it
            shared, slot = ops[n]._membership.shared, ops[n]._membership.slot
            header = shared.slot_header(slot).copy()
            reading.pop(n)[1].close()
            ops[n].leave()
            # As a killed process leaves it: pinned, at work, and without its lock
            for field in ("pin", "busy", "made_for"):
                shared.slot_header(slot)[field] = header[field]
            ops[n] = operator()
        elif what == "begin" and n not in reading:
            assert ops[n].enter()
            batch = stream(rng, 3000, 6000, skewed=True)
            results = ops[n].join(batch)
            reading[n] = batch, results, [next(results)]
        elif what == "join" and n not in reading:
            for _ in range(4):
                assert ops[n].enter()
                batch = stream(rng, int(rng.integers(1, 4000)), 6000, skewed=bool(rng.integers(2)))
                check(batch, pa.Table.from_batches(ops[n].join(batch)))
                ops[n].leave()


def test_a_worker_that_comes_late_to_a_generation_writes_nothing_into_its_regions(small, tmp_path, monkeypatch):
    """Between the moment a worker has read the list of segments and the one it looks at them, others publish."""
    busy, late = (
        AdaptiveJoin(small, on="k", memory="560KiB", whole=False, group=Group(tmp_path / "g", 2)) for _ in range(2)
    )
    rng = np.random.default_rng(4)
    seen: list[list[bytes]] = []

    def many(first: int):
        for n in range(100):  # a stream that changes: other tuples, in segments of other sizes
            keys = 2 * ((first + n * 25 + rng.integers(0, 700, 1500)) % 6000)
            batch = pa.record_batch({"k": keys, "seq": np.arange(1500)})
            check(batch, pa.Table.from_batches(busy.join(batch)))

    def regions():
        shared = busy._membership.shared  # private: the test is about bytes that no reader may write
        return [bytes(shared.memory.piece(*shared.region(n))) for n in range(9)]

    attach = SharedHotSet._attach  # private: the moment between two steps of it is what the test is about

    def slow(self, segment):
        if self.slot == 1 and not seen:
            seen.append(regions())
            many(2500)
            seen.append(regions())
        return attach(self, segment)

    assert busy.enter()
    many(0)
    monkeypatch.setattr(SharedHotSet, "_attach", slow)
    assert late.enter()
    assert seen[0] != seen[1]
    assert [n for n, (a, b) in enumerate(zip(seen[1], regions(), strict=True)) if a != b] == []


def test_a_slice_taken_again_does_not_ask_a_filter_that_was_given_up_meanwhile(small, tmp_path, monkeypatch):
    """Another worker gives the filter up while this one joins; then this one has to make room, and frees it itself."""
    one, two = (
        AdaptiveJoin(small, on="k", memory="900KiB", whole=False, group=Group(tmp_path / "g", 2)) for _ in range(2)
    )
    rng = np.random.default_rng(6)
    assert one.enter()
    assert two.enter()
    for _ in range(3):
        batch = stream(rng, 2000, 6000, skewed=True)
        check(batch, pa.Table.from_batches(one.join(batch)))
    # private: a store gets full at a moment that no stream brings about for sure
    match, happened = one._execution._match, []

    def full(batch):
        if not happened:
            happened.append(two._memory.hot.keep_filter(False))
            raise StoreFull
        return match(batch)

    monkeypatch.setattr(one._execution, "_match", full)
    batch = stream(rng, 2000, 6000, skewed=False)
    check(batch, pa.Table.from_batches(one.join(batch)))
    assert happened == [True]


def test_oracle_the_filter_goes_and_comes_back_under_readers(small, tmp_path):
    """A reader in the middle of its results has the filter of its generation, or none, whatever the others do with it."""
    ops = [AdaptiveJoin(small, on="k", memory="900KiB", whole=False, group=Group(tmp_path / "g", 3)) for _ in range(3)]
    rng = np.random.default_rng(7)
    for op in ops:
        assert op.enter()
    reader, one, two = ops
    for turn in range(12):
        batch = stream(rng, 3000, 6000, skewed=True)
        results = reader.join(batch)
        some = [next(results)]
        assert one._memory.hot.keep_filter(bool(turn % 2))  # private: the plan decides it by what it has measured
        for _ in range(3):
            other = stream(rng, 3000, 6000, skewed=True)
            check(other, pa.Table.from_batches(two.join(other)))
        check(batch, pa.Table.from_batches([*some, *results]))


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    where = tmp_path_factory.mktemp("large") / "r"
    hr.Relation.create(where, numbered(LARGE), key="k", shards=1).close()
    return where


@pytest.mark.parametrize("order", ["stream", "any"])
@pytest.mark.parametrize("count", [2, 4])
def test_contract_all_processes_together_stay_within_the_budget(workers, large, path, group, count, order):
    limit = 24 << 20
    busy, idle = workers(count), workers(2)
    some = [*busy, *idle]
    for worker in some:  # what Python, Arrow and Numba take for the first time is not the join's
        worker.do("make", "warm", path, group, count + 2, {"memory": "4MiB", "order": order})
        worker.do("prepare", 0, 10, KEYS, 4000, True)
        worker.do("burden", "warm")
        worker.do("drop", "warm")
    made(some, large, group, count, memory=limit, order=order)
    before = {worker.pid: worker.do("prepare", 9, 4, LARGE, 20_000, True) for worker in idle}
    for worker in idle:
        worker.do("burden", "op")
    together = []
    for skewed, rows in ((False, 80_000), (True, 10_000)):
        for seed, worker in enumerate(busy):
            had = worker.do("prepare", seed, 500_000 // rows // count, LARGE, rows, skewed)
            before[worker.pid] = min(had, before.get(worker.pid, had))
        for worker in busy:
            worker.tell("burden", "op")
        most, shared, done = 0, 0, False
        while not done:  # and once when all are done: the rest may have come and gone between two looks
            done = all(worker.answered(0.003) for worker in busy)
            present = idle[0].do("shared_memory", "op")["bytes"]
            own = [private(pid) - had for pid, had in before.items()]
            shared, most = max(shared, present), max(most, present + sum(own))
        for worker in busy:
            worker.answer()
        assert shared <= limit
        together.append(most)
        # A process that used the join for the first time keeps a little, whether it works or idles.
        assert most < 1.15 * limit + 2**20 * len(some), (shared, own)
    assert max(together) > limit / 2, together
    facts = busy[0].do("stats", "op")
    assert facts["memory_peak"] <= facts["memory_limit"] == limit


def test_contract_slots_left_behind_give_way_to_a_hot_set_that_grows(workers, large, group):
    """Four had large buffers for a scattered stream; then one goes on, with a stream that wants a large hot set."""
    limit = 24 << 20
    some = made(workers(4), large, group, 4, memory=limit)
    for seed, worker in enumerate(some):
        worker.do("prepare", seed, 4, LARGE, 150_000, False)
        worker.tell("burden", "op")
    for worker in some:
        worker.answer()
    one = some[0]
    before = one.do("stats", "op")["agreed"]
    one.do("prepare", 5, 300, LARGE, 3000, True)
    one.do("burden", "op")
    assert one.do("stats", "op")["agreed"] > before
    assert one.do("shared_memory", "op")["bytes"] <= limit


def test_contract_shared_memories_are_let_go(workers, two_versions, group):
    """Versions that come and go, and damaged cards, leave no memory open in a process that lives on."""
    path, old, new = two_versions
    first, second = workers(2)
    batch = batches_of(14, 1)[0]
    counts = []
    for _ in range(12):
        for worker, version, add in ((first, old, 0), (second, new, 1)):
            made([worker], path, group, 2, version=version)
            check(batch, worker.do("join", "op", batch), add)
        shutil.rmtree(group)
        counts.append((first.do("descriptors"), second.do("descriptors")))
    assert counts[-1] == counts[2]


def test_the_layout_is_that_of_the_budget(small, tmp_path):
    """Nothing lies over anything else."""
    op = AdaptiveJoin(small, on="k", memory="900KiB", whole=False, group=Group(tmp_path / "g", 3))
    assert op.enter()
    shared: GroupMemory = op._membership.shared  # private, as all below: the layout is nobody's but its own
    pieces = [(0, shared.header_type.itemsize)]
    pieces += [place for places in shared._sidecars.values() for place in places]
    pieces += [shared._sketch, *(shared.region(n) for n in range(9))]
    for slot in range(3):
        pieces += [shared.read_buffer_memory(slot), shared.young_memory(slot)]
    ends = [0]
    for at, size in sorted(pieces):
        assert at >= ends[-1]
        ends.append(at + size)
    assert ends[-1] <= shared.size == os.fstat(shared.memory._fd).st_size


@pytest.mark.parametrize("order", ["stream", "any"])
def test_contract_what_a_process_has_read_moves_nothing_that_the_group_shares(tmp_path, group, order):
    """One has found the relation in the page cache, the other has read nothing: each must find what the other left."""
    rows = pa.table({"k": np.arange(5000), "v": np.arange(5000) * 3})
    where = hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB").path
    stream = pa.record_batch({"k": np.arange(0, 5000, 49)})
    for memory in range(1 << 20, 4 << 20, 100_000):
        operators = []
        for delay in (0.0, np.inf, 0.0):
            relation = hr.Relation.open(where)
            relation.disk._delay = delay  # private: what a read took, which depends on the machine
            assert relation.disk.cached == (delay == 0)
            operators.append(
                AdaptiveJoin(relation, on="k", memory=memory, whole=False, order=order, group=Group(group, 2))
            )
        for op in operators:  # one after the other, in the slot that the last one left
            assert op.enter()
            assert sum(out.num_rows for out in op.run([stream, stream])) == 2 * stream.num_rows
            op.leave()
        # private: the name of the shared content is how members agree that they share it
        assert len({op._membership.shared.content for op in operators}) == 1
        if order == "stream":
            assert operators[1].stats.hits > 0, "it has not found what the first one fetched"
