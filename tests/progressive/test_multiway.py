"""The multi-way join: complete in limited memory, with probes in the order that the text has, or learns."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadInput, MemoryRefused, SpillError, UnsupportedType
from headrace.kernels import multiway
from headrace.progressive import POLICIES, RRPJ, FlushPolicy, MultiWayJoin
from headrace.progressive.probing import PROBINGS

SEVERAL = [name for name, policy in POLICIES.items() if not policy.two_sided]
Keys = list[list[Any]]  # of each stream


def brute(streams: Keys) -> Counter[Any]:
    """All n-tuples of positions with equal keys, from a dictionary for each stream."""
    where: list[dict[Any, list[int]]] = []
    for keys in streams:
        found: dict[Any, list[int]] = {}
        for i, key in enumerate(keys):
            if key is not None:
                found.setdefault(key, []).append(i)
        where.append(found)
    shared = set(where[0]).intersection(*where[1:])
    return Counter(ids for key in shared for ids in product(*(found[key] for found in where)))


def ids(out: list[pa.RecordBatch], n: int) -> Counter[Any]:
    return Counter(row for b in out for row in zip(*(b[f"i{t}"].to_pylist() for t in range(n)), strict=True))


def rows(stream: int, keys: list[Any], first: int = 0, type_: Any = None) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, type_), f"i{stream}": np.arange(first, first + len(keys))})


def batches(streams: Keys, size: int, seed: int, type_: Any = None) -> list[tuple[int, pa.RecordBatch]]:
    """Batches of all streams in a random order; those of a stream in its own."""
    rng = np.random.default_rng(seed)
    cut = [
        [rows(t, keys[at : at + size], at, type_) for at in range(0, len(keys), size)] for t, keys in enumerate(streams)
    ]
    turns = rng.permutation([t for t, some in enumerate(cut) for _ in some]).tolist()
    return [(t, cut[t].pop(0)) for t in turns]


def play(op: MultiWayJoin, come: list[tuple[int, pa.RecordBatch]]) -> list[pa.RecordBatch]:
    out: list[pa.RecordBatch] = []
    for t, batch in come:
        out += op.insert(t, batch)
    out += op.finish()
    op.stats.check()
    assert op.stats.memory_peak <= op.budget.limit
    return out


def drawn(n: int, size: int, domain: int, seed: int, skew: float = 0.0, nulls: float = 0.05) -> Keys:
    """Streams of keys; a part `skew` of them has the key 7."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        keys = np.where(rng.random(size) < skew, 7, rng.integers(0, domain, size)).tolist()
        out.append([None if absent else key for key, absent in zip(keys, rng.random(size) < nulls, strict=True)])
    return out


# -- oracle ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probing", PROBINGS)
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_oracle_every_probing_with_memory_for_a_quarter(n: int, probing: Any) -> None:
    streams = drawn(n, 600, 400, n, skew=0.01)
    given = {"selectivity": list(range(n))} if probing == "apriori" else {}
    op = MultiWayJoin("k", n, "1MiB", probing, capacity=150 * n, **given)
    out = play(op, batches(streams, 70, n))
    want = brute(streams)
    assert len(want) > 300
    assert ids(out, n) == want
    assert op.stats.flushes > 15 and op.stats.in_memory and op.stats.disk_disk
    assert op.stats.tuples_in == [600] * n and op.stats.skipped == [keys.count(None) for keys in streams]


@pytest.mark.parametrize("flush", SEVERAL)
def test_oracle_every_flush_policy_is_complete_and_deterministic(flush: str) -> None:
    streams = drawn(3, 500, 200, 1)
    come = batches(streams, 60, 2)
    runs = [play(MultiWayJoin("k", 3, "1MiB", flush=flush, capacity=150), come) for _ in range(2)]
    assert ids(runs[0], 3) == brute(streams)
    assert [b.to_pylist() for b in runs[0]] == [b.to_pylist() for b in runs[1]]


@pytest.mark.parametrize("flush", ["la", "foresight"])
def test_oracle_policies_for_two_sides_serve_two_streams(flush: str) -> None:
    streams = drawn(2, 500, 100, 3)
    op = MultiWayJoin("k", 2, "1MiB", flush=flush, capacity=100)
    assert ids(play(op, batches(streams, 60, 2)), 2) == brute(streams)
    with pytest.raises(BadInput, match=f"flush='{flush}' decides between two sides, and there are 3 streams"):
        MultiWayJoin("k", 3, flush=flush)


@settings(max_examples=60, deadline=None)
@given(
    streams=st.integers(2, 5).flatmap(
        lambda n: st.lists(st.lists(st.sampled_from([None, 0, 1, 2, 9]), max_size=9), min_size=n, max_size=n)
    ),
    size=st.integers(1, 4),
    capacity=st.integers(1, 8),
    seed=st.integers(0, 5),
    flush=st.sampled_from(["rrpj", "rrpj-f", "allflush", "xjoin", "random"]),
    probing=st.sampled_from(["rop", "rop-literal", "sequential"]),
)
def test_oracle_tiny_streams(streams: Keys, size: int, capacity: int, seed: int, flush: str, probing: Any) -> None:
    n = len(streams)
    op = MultiWayJoin("k", n, "1MiB", probing, flush, capacity=capacity, partitions=2)
    out = play(op, batches(streams, size, seed, pa.int64()))
    assert ids(out, n) == brute(streams)


@pytest.mark.parametrize("capacity", [None, 90])
def test_oracle_texts(capacity: int | None) -> None:
    streams = [[None if key is None else f"key {key}" for key in keys] for keys in drawn(3, 400, 150, 5)]
    op = MultiWayJoin("k", 3, "1MiB", capacity=capacity)
    assert ids(play(op, batches(streams, 50, 1)), 3) == brute(streams)


def test_oracle_keys_whose_hashes_are_equal_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.relation.keys import ByteKeys

    monkeypatch.setattr(ByteKeys, "hashes", lambda self: np.zeros(len(self), np.uint64))
    streams = [["a", "b", "c", "b"], ["b", "a", "d"], ["b", "e", "a", "a"]]
    for capacity in (None, 4):
        op = MultiWayJoin("k", 3, "1MiB", capacity=capacity)
        assert ids(play(op, batches(streams, 2, 1)), 3) == brute(streams)
    assert op.stats.disk_disk


def test_a_giant_key_takes_bounded_steps_in_memory() -> None:
    op = MultiWayJoin("k", 3, "1MiB")
    for t in (0, 1):
        assert not list(op.insert(t, rows(t, [7] * 3000)))
    results = op.insert(2, rows(2, [7]))  # nine million results, of which a few are read
    sizes = [next(results).num_rows for _ in range(5)]
    assert max(sizes) < 1000 and op.stats.results == sum(sizes)
    assert op.stats.memory_peak <= op.budget.limit
    assert op.stats.complete == 1


def test_oracle_a_giant_key_larger_than_a_block_on_disk() -> None:
    """Blocks have 16 KiB of the 384 KiB for three streams, and the key takes 26 KiB of two of them."""
    streams = [[7] * 600 + list(range(300)), [7] * 600 + list(range(100, 400)), [7, *range(50, 350)]]
    op = MultiWayJoin("k", 3, "384KiB", "rop", "allflush", capacity=150, partitions=1)
    out = play(op, batches(streams, 100, 3))
    want = brute(streams)
    assert len(want) > 360_000 and op.stats.disk_disk > 200_000
    assert sum(b.num_rows for b in out) == len(want)
    arrays = [np.concatenate([b[f"i{t}"].to_numpy() for b in out]) for t in range(3)]
    got = np.unique(arrays[0] * 10**8 + arrays[1] * 10**4 + arrays[2])
    assert got.tolist() == sorted(i * 10**8 + j * 10**4 + k for i, j, k in want)
    assert max(b.num_rows for b in out) < 2000


def test_oracle_a_stream_that_comes_after_all_others_have_ended() -> None:
    streams = drawn(4, 400, 200, 8)
    op = MultiWayJoin("k", 4, "1MiB", capacity=120)
    come = [(t, rows(t, streams[t][at : at + 100], at)) for t in (2, 0, 3, 1) for at in range(0, 400, 100)]
    assert ids(play(op, come), 4) == brute(streams)


def test_without_a_flush_nothing_is_left_for_the_end() -> None:
    streams = drawn(3, 500, 100, 4)
    op = MultiWayJoin("k", 3, "8MiB")
    out: list[pa.RecordBatch] = []
    for t, batch in batches(streams, 60, 1):
        out += op.insert(t, batch)
    assert ids(out, 3) == brute(streams)
    assert not list(op.finish()) and op.stats.pages_written == 0


def test_a_stream_that_never_comes_leaves_no_results() -> None:
    op = MultiWayJoin("k", 3, "1MiB", capacity=50)
    for at in range(5):
        for t in (0, 2):
            assert not list(op.insert(t, rows(t, list(range(40)), 40 * at)))
    assert not list(op.finish())
    assert op.stats.flushes and op.stats.pages_read == 0


def test_only_partitions_with_tuples_on_disk_are_written_in_the_end() -> None:
    op = MultiWayJoin("k", 3, "1MiB", flush=RRPJ(share=10), capacity=600)
    for t in range(3):
        list(op.insert(t, rows(t, list(range(200)))))
    list(op.insert(0, rows(0, [1000], 200)))
    flushed = op.stats.flushed
    assert op.stats.flushes == 1
    list(op.finish())
    assert 0 < op.stats.flushed - flushed < 200


def test_oracle_what_memory_has_not_joined_by_its_stamps() -> None:
    """The kernel of the clean-up beside brute force, with room for one and for many."""
    rng = np.random.default_rng(12)
    for n in (2, 3, 4):
        sizes = rng.integers(1, 6, (n, 4))
        begins = np.concatenate([[0], np.cumsum(sizes.reshape(-1))[:-1]]).reshape(n, 4)
        arrived = 2 * rng.permutation(int(sizes.sum())) + 1  # arrivals have odd stamps, departures even ones
        departed = arrived + 2 * rng.integers(0, sizes.sum(), arrived.size) + 1
        departed[rng.random(arrived.size) < 0.6] = 1 << 61
        want = Counter(
            rows
            for g in range(4)
            for rows in product(*(range(begins[t, g], begins[t, g] + sizes[t, g]) for t in range(n)))
            if departed[list(rows)].min() < arrived[list(rows)].max()
        )
        assert 0 < len(want) < np.prod(sizes, axis=0).sum()
        for room in (1, 3, 1000):
            state, at, bounds = np.zeros(2, np.int64), np.empty(n, np.int64), np.empty(4 * (n + 1), np.int64)
            got: Counter[Any] = Counter()
            while state[0] < 4:
                out = np.empty(n * room, np.int64)
                ends = (begins + sizes).reshape(-1)
                made = multiway.owed(n, begins.reshape(-1), ends, arrived, departed, state, at, bounds, out)
                got.update(map(tuple, out.reshape(n, room)[:, :made].T.tolist()))
            assert got == want


def test_contract_batches_are_left_as_they_were_and_results_are_their_own() -> None:
    come = batches(drawn(3, 200, 60, 13), 40, 1)
    before = [batch.to_pylist() for _, batch in come]
    out = play(MultiWayJoin("k", 3, "1MiB", capacity=90), come)
    assert [batch.to_pylist() for _, batch in come] == before
    assert all(b.validate(full=True) is None and b.schema == out[0].schema for b in out)


# -- columns ---------------------------------------------------------------------------------------------------------------


def test_a_key_appears_once_and_other_names_get_the_number_of_their_stream() -> None:
    op = MultiWayJoin(["k", "key", "k"], 3, "1MiB")
    list(op.insert(0, pa.record_batch({"k": pa.array([1], pa.int32()), "v": ["a"]})))
    list(op.insert(1, pa.record_batch({"v": ["b"], "key": [1]})))
    [out] = op.insert(2, pa.record_batch({"v": ["c"], "k": [1]}))
    assert out.to_pylist() == [{"k": 1, "v": "a", "v_1": "b", "v_2": "c"}]
    assert out.schema.field("k").type == pa.int32()
    op = MultiWayJoin("k", 2, "1MiB", suffix=None)
    list(op.insert(0, pa.record_batch({"k": [1], "v": [1]})))
    with pytest.raises(BadInput, match="column 'v' is in stream 0 and in stream 1; rename one, or give a suffix"):
        op.insert(1, pa.record_batch({"k": [1], "v": [1]}))
    op = MultiWayJoin("k", 2, "1MiB")
    list(op.insert(0, pa.record_batch({"k": [1], "v": [1], "v_1": [1]})))
    with pytest.raises(BadInput, match="'v' of stream 1 would be 'v_1' in results, and so is a column of stream 0"):
        op.insert(1, pa.record_batch({"k": [1], "v": [1]}))


def test_streams_that_have_a_key_and_nothing_else() -> None:
    op = MultiWayJoin("k", 3, "1MiB", capacity=4)
    out = []
    for _ in range(3):
        for t in range(3):
            out += op.insert(t, pa.record_batch({"k": [1, 2]}))
    out += op.finish()
    assert Counter(key for b in out for key in b["k"].to_pylist()) == {1: 27, 2: 27}
    assert out[0].schema.names == ["k"]


# -- probing ---------------------------------------------------------------------------------------------------------------


class Model:
    """Alg. 5 over sets of keys, one tuple after the other."""

    def __init__(self, n: int, probing: str, selectivity: Any = None, fade: int | None = None) -> None:
        self.n, self.probing, self.selectivity = n, probing, selectivity
        self.keep = 1.0 if fade is None else float(np.exp(-1 / fade))
        self.tables: list[set[int]] = [set() for _ in range(n)]
        self.probes, self.partial, self.complete = [0] * n, [0] * n, 0
        self.hits, self.tried, self.counter = [0.0] * n, [0.0] * n, [0.0] * n

    def order(self) -> list[int]:
        scores = {
            "sequential": list(range(self.n)),
            "apriori": self.selectivity,
            "rop-literal": self.counter,
            "rop": [(hit + 1) / (tried + 2) for hit, tried in zip(self.hits, self.tried, strict=True)],
        }[self.probing]
        return sorted(range(self.n), key=lambda t: (scores[t], t))

    def arrive(self, own: int, key: int) -> None:
        self.counter = [self.keep * counter for counter in self.counter]
        done = 1
        for t in self.order():
            if t == own:
                continue
            hit = key in self.tables[t]
            self.probes[t] += 1
            self.hits[t], self.tried[t] = self.keep * self.hits[t] + hit, self.keep * self.tried[t] + 1
            if not hit:
                break
            done += 1
            if done < self.n:
                self.partial[t] += 1
                self.counter[t] += 1
        self.complete += done == self.n
        self.tables[own].add(key)


@pytest.mark.parametrize("fade", [None, 50])
@pytest.mark.parametrize("probing", PROBINGS)
def test_oracle_probes_and_partial_results_are_those_of_the_algorithm(probing: Any, fade: int | None) -> None:
    rng = np.random.default_rng(3)
    chances = [0.9, 0.2, 0.6, 0.4]
    streams = [np.flatnonzero(rng.random(500) < chance).tolist() for chance in chances]
    streams = [rng.permutation(keys).tolist() for keys in streams]
    given = chances if probing == "apriori" else None
    counts = []
    for size in (1, 37):  # one after the other, and many tuples of a stream at a time
        come = batches(streams, size, 4)
        model, op = Model(4, probing, given, fade), MultiWayJoin("k", 4, "8MiB", probing, selectivity=given, fade=fade)
        for t, batch in come:
            list(op.insert(t, batch))
            for key in batch["k"].to_pylist():
                model.arrive(t, key)
            assert op.stats.probes.tolist() == model.probes
        assert op.stats.partial.tolist() == model.partial and op.stats.complete == model.complete > 20
        counts.append(sum(model.probes))
    assert counts[0] != counts[1]


def test_probes_do_not_hang_on_how_a_stream_is_divided_into_batches() -> None:
    streams = drawn(3, 300, 400, 6, nulls=0)
    counts = []
    for size in (300, 100, 1):
        op = MultiWayJoin("k", 3, "8MiB")
        for t in range(3):
            for at in range(0, 300, size):
                list(op.insert(t, rows(t, streams[t][at : at + size], at)))
        counts.append((op.stats.probes.tolist(), op.stats.partial.tolist(), op.stats.complete))
    assert counts[0] == counts[1] == counts[2]


def probes_of(probing: Any, streams: Keys, **more: Any) -> int:
    op = MultiWayJoin("k", len(streams), "32MiB", probing, **more)
    for t, batch in batches(streams, 20, 1):
        list(op.insert(t, batch))
    return int(op.stats.probes.sum())


def test_rop_probes_little_more_than_with_known_selectivities() -> None:
    rng = np.random.default_rng(2)
    chances = [1.0, 0.8, 0.6, 0.4, 0.1]
    streams = [rng.permutation(np.flatnonzero(rng.random(3000) < chance)).tolist() for chance in chances]
    best = probes_of("apriori", streams, selectivity=chances)
    assert best <= probes_of("rop", streams) <= 1.05 * best
    assert best <= probes_of("rop-literal", streams) <= 1.2 * best
    assert probes_of("sequential", streams) > 1.5 * best


def test_counters_fade_so_that_a_changed_selectivity_shows() -> None:
    """Of lower keys stream 1 has 80% and stream 2 has 20%, of higher ones it is the other way round."""
    rng = np.random.default_rng(1)
    low, high = np.arange(4000), np.arange(4000, 8000)
    has = [np.concatenate([low[rng.random(4000) < a], high[rng.random(4000) < b]]) for a, b in ((0.8, 0.2), (0.2, 0.8))]
    found = {}
    for fade in (200, None):
        op = MultiWayJoin("k", 3, "32MiB", fade=fade)
        for t, keys in enumerate(has, 1):
            list(op.insert(t, rows(t, keys.tolist())))
        for part, keys in (("low", rng.choice(low, 6000)), ("high", rng.choice(high, 1500))):
            list(op.insert(0, rows(0, keys.tolist())))
            found[fade, part] = [t for t in op.order if t]
    assert found == {(200, "low"): [2, 1], (200, "high"): [1, 2], (None, "low"): [2, 1], (None, "high"): [2, 1]}


# -- refusals and errors -----------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    for streams in (1, 0, "3", True):
        with pytest.raises(BadInput, match=f"streams={streams!r} is not a number of streams to join; give 2 or more"):
            MultiWayJoin("k", streams)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"on=\['a', 'b'\] is not a key of 3 streams"):
        MultiWayJoin(["a", "b"], 3)
    with pytest.raises(BadInput, match="probing='best' is not supported; choose one of rop, rop-literal, sequential"):
        MultiWayJoin("k", 3, probing="best")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="probing='apriori' needs selectivity="):
        MultiWayJoin("k", 3, probing="apriori")
    with pytest.raises(BadInput, match="probing='rop' takes no selectivity="):
        MultiWayJoin("k", 3, selectivity=[1, 2, 3])
    with pytest.raises(BadInput, match=r"selectivity=\[1, 2\] is not a number for each of 3 streams"):
        MultiWayJoin("k", 3, probing="apriori", selectivity=[1, 2])
    with pytest.raises(BadInput, match="fade=0 is not a number of probes"):
        MultiWayJoin("k", 3, fade=0)
    with pytest.raises(BadInput, match="capacity=0"):
        MultiWayJoin("k", 3, capacity=0)
    with pytest.raises(MemoryRefused, match=r"'256KiB' is too small for 3 streams with RRPJ; give at least 384KiB"):
        MultiWayJoin("k", 3, "256KiB")
    op = MultiWayJoin("k", 3, "1MiB")
    for stream in (3, -1, "0", True):
        with pytest.raises(BadInput, match=f"stream={stream!r} is not a stream; give a number from 0 to 2"):
            op.insert(stream, rows(0, [1]))  # type: ignore[arg-type]
    list(op.insert(0, rows(0, [1, 1])))
    results = op.insert(1, rows(1, [1]))
    with pytest.raises(BadInput, match="results of the last insert were not read to the end"):
        op.insert(1, rows(1, [1]))
    list(results)
    list(op.finish())
    for call in (lambda: op.insert(2, rows(2, [1])), op.finish):
        with pytest.raises(BadInput, match="has been finished"):
            call()


WRONG: dict[str, tuple[Any, str]] = {
    "another type": (lambda t: pa.record_batch({"k": ["a"], f"i{t}": [1]}), "column 'k' of stream 1 has type string"),
    "no key": (lambda t: pa.record_batch({f"i{t}": [1]}), "stream 1"),
    "a key of doubles": (lambda t: pa.record_batch({"k": [0.5], f"i{t}": [1]}), "stream 1|'k'"),
    "a table": (lambda t: pa.table({"k": [1], f"i{t}": [1]}), "Table is no batch of stream 1"),
    "a huge tuple": (
        lambda t: pa.record_batch({"k": [1], f"i{t}": [1], "word": ["x" * (1 << 19)]}),
        "a tuple of stream 1 is larger than 256KiB|columns",
    ),
}


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_contract_a_refused_batch_leaves_the_join_as_it_was(name: str, begun: bool) -> None:
    make, says = WRONG[name]
    op = MultiWayJoin("k", 3, "1MiB", capacity=50)
    out = [*op.insert(0, rows(0, list(range(40))))]
    if begun:
        out += op.insert(1, rows(1, [1, 2], 100))
    before = str(deepcopy((op.stats, op.partition_stats, op.budget.held())))
    with pytest.raises((BadInput, MemoryRefused, UnsupportedType), match=says):
        op.insert(1, make(1))
    assert str((op.stats, op.partition_stats, op.budget.held())) == before
    out += op.insert(1, rows(1, list(range(30))))
    out += op.insert(2, rows(2, list(range(20))))
    out += op.finish()
    assert len(ids(out, 3)) == 20 + 2 * begun


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file can grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 12_000])
def test_contract_a_full_disk_loses_no_results(room: int) -> None:
    streams = drawn(3, 400, 200, 9)
    op, out = MultiWayJoin("k", 3, "1MiB", flush=RRPJ(share=40), capacity=120), list[pa.RecordBatch]()
    for at in range(0, 400, 100):
        for t in range(3):
            batch = rows(t, streams[t][at : at + 100], at)
            if at == 200 and t == 1:
                with full_disk(room), pytest.raises(SpillError, match="call again"):
                    out.extend(op.insert(t, batch))
            else:
                out += op.insert(t, batch)
    with full_disk(room), pytest.raises(SpillError):
        out.extend(op.finish())
    out += op.finish()
    assert ids(out, 3) == brute(streams)
    op.stats.check()


@pytest.mark.parametrize("read", [0, 1, 3])
def test_results_of_an_iterator_that_was_dropped_come_with_the_next_call(read: int) -> None:
    streams = drawn(3, 300, 40, 10)
    op, out = MultiWayJoin("k", 3, "384KiB", capacity=120), list[pa.RecordBatch]()
    for t, batch in batches(streams, 60, 1):
        results = op.insert(t, batch)
        out += [one for _, one in zip(range(read), results, strict=False)]
        del results
    for _ in range(3):
        out += [one for _, one in zip(range(read), op.finish(), strict=False)]
    out += op.finish()
    assert ids(out, 3) == brute(streams)


def test_a_policy_that_fails_once_loses_no_results() -> None:
    class Moody(FlushPolicy):
        failed = False

        def scores(self, stats: Any) -> Any:
            if not self.failed:
                self.failed = True
                raise ZeroDivisionError
            return stats.held

    streams = drawn(3, 300, 100, 11)
    op, out = MultiWayJoin("k", 3, "1MiB", flush=Moody(), capacity=100), list[pa.RecordBatch]()
    failures = 0
    for t, batch in batches(streams, 60, 1):
        try:
            out.extend(op.insert(t, batch))
        except ZeroDivisionError:
            failures += 1
    assert failures == 1
    assert ids([*out, *op.finish()], 3) == brute(streams)


def test_a_policy_whose_scores_are_wrong_is_told_of_which_stream() -> None:
    class Wrong(FlushPolicy):
        def scores(self, stats: Any) -> Any:
            scores = np.zeros(stats.held.shape)
            scores[2, 0] = np.nan
            return scores

    op = MultiWayJoin("k", 3, "1MiB", flush=Wrong(), capacity=10)
    with pytest.raises(BadInput, match=r"Wrong\.scores gave NaN for partition 0 of stream 2"):
        list(op.insert(0, rows(0, list(range(100)))))


def test_a_directory_for_segments_that_is_not_there(tmp_path: Path) -> None:
    op = MultiWayJoin("k", 2, "1MiB", spill=tmp_path / "later")
    with pytest.raises(FileNotFoundError):
        op.insert(0, rows(0, [1]))
    (tmp_path / "later").mkdir()
    list(op.insert(0, rows(0, [1])))
    assert sum(out.num_rows for out in op.insert(1, rows(1, [1]))) == 1


def test_oracle_a_few_long_tuples_among_short_ones() -> None:
    words = ["x" * (50_000 if i % 100 == 7 else 3) for i in range(400)]
    op = MultiWayJoin("k", 3, "384KiB")
    out: list[pa.RecordBatch] = []
    for t in range(3):
        out += op.insert(t, pa.record_batch({"k": np.arange(400), f"w{t}": words}))
    out += op.finish()
    assert sorted(k for b in out for k in b["k"].to_pylist()) == list(range(400))
    assert op.stats.flushes
