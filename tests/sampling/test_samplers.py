"""Samplers: against plain ones tuple by tuple, in any division into batches, and on from a snapshot."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.sampling import Chain, Expire, FairWindow, Fifo, Reservoir, WinRes
from headrace.sampling.snapshot import SNAPSHOT
from headrace.splitmix import draw
from tests.support.sample_streams import below, cut, in_time, numbers, stream, words

SAMPLERS = [Reservoir, Fifo, Expire, WinRes, FairWindow, Chain]
WINDOWS = [hr.rows(60), hr.time("60ms", on="t", late="20ms")]
JITTER = np.random.default_rng(8).integers(-25, 25, 1_000)
STREAM = stream(700, np.maximum(0, np.arange(700) // 2 * 2 + JITTER[:700]))


# -- plain samplers: lists, one tuple at a time ------------------------------------------------------------------------------


def plain_reservoir(size, drawn):
    held = []
    for n, word in enumerate(drawn, 1):
        if len(held) < size:
            held.append(n)
        elif below(word, n) < size:
            held[below(word, n)] = n
    return sorted(held)


def plain_fifo(size, drawn):
    held = []
    for n, word in enumerate(drawn, 1):
        if len(held) < size:
            held.append(n)
        elif below(word, n) < size:
            held = [*held[1:], n]
    return held


def plain_expire(size, window, drawn):
    held = []
    for n, word in enumerate(drawn, 1):
        dead = [i for i, m in enumerate(held) if m <= n - window]
        if len(held) < size:
            held.append(n)
        elif n <= window:
            if below(word, n) < size:
                held[below(word, n)] = n
        elif dead:
            held[dead[0]] = n
    return sorted(held)


def plain_winres(size, window, drawn, stream_=False):
    held = []
    for n, word in enumerate(drawn, 1):
        dead = [i for i, m in enumerate(held) if m <= n - window]
        rho = below(word, n if stream_ else window)
        if len(held) < size:
            held.append(n)
        elif dead:
            held[dead[0]] = n
        elif rho < size:
            held[rho] = n
    return sorted(held)


@given(
    size=st.integers(1, 12),
    more=st.integers(0, 30),
    n=st.integers(0, 120),
    seed=st.integers(0, 99),
    step=st.integers(1, 50),
)
def test_oracle_windows_by_sequence(size, more, n, seed, step):
    window, drawn = size + more, words(seed, n)
    rows = hr.rows(window)
    asked = {
        Reservoir(size, window=rows, seed=seed): plain_reservoir(size, drawn),
        Fifo(size, window=rows, seed=seed): plain_fifo(size, drawn),
        Expire(size, window=rows, seed=seed): plain_expire(size, window, drawn),
        WinRes(size, window=rows, seed=seed): plain_winres(size, window, drawn),
        WinRes(size, window=rows, seed=seed, draw="stream"): plain_winres(size, window, drawn, stream_=True),
        FairWindow(size, window=rows, seed=seed): sorted(
            sorted(range(max(1, n - window + 1), n + 1), key=lambda m: drawn[m - 1])[:size]
        ),
    }
    for sampler, expected in asked.items():
        for batch in cut(stream(n, start=1), [step]) or [stream(0)]:
            sampler.insert(batch)
        assert numbers(sampler) == expected, sampler


times_of = st.lists(st.integers(0, 12), max_size=60).map(lambda gaps: np.cumsum(gaps).tolist())


@given(
    size=st.integers(1, 9),
    times=times_of,
    back=st.lists(st.integers(0, 40), min_size=60, max_size=60),
    seed=st.integers(0, 9),
)
def test_oracle_fair_windows_by_time(size, times, back, seed):
    """Equal times, a clock that goes back, late tuples, and silences longer than the window."""
    times = [max(0, t - b) if b > 25 else t for t, b in zip(times, back, strict=False)]
    arrived = in_time(times, 10)
    drawn = words(seed, len(arrived))
    now = max(times, default=0)
    live = [(drawn[i], row) for i, (row, time, _) in enumerate(arrived) if now - time < 30]
    sampler = FairWindow(size, window=hr.time("30ms", on="t", late="10ms"), seed=seed)
    for batch in cut(stream(len(times), times), [1, 7, 3]) or [stream(0)]:
        sampler.insert(batch)
    assert numbers(sampler) == sorted(row for _, row in sorted(live)[:size])
    assert sampler.stats.late == len(times) - len(arrived)


@given(times=times_of, seed=st.integers(0, 9))
def test_oracle_chains_by_time(times, seed):
    arrived = in_time(times, 5)
    now = max(times, default=0)
    size, stride = 4, 1 << 20
    expected = []
    for j in range(size):
        tags = draw(seed, 0, np.arange(1, len(arrived) + 1) * stride + j)
        live = [(tags[i], row) for i, (row, time, _) in enumerate(arrived) if now - time < 30]
        expected += [min(live)[1]] if live else []
    sampler = Chain(size, window=hr.time("30ms", on="t", late="5ms"), seed=seed)
    for batch in cut(stream(len(times), times), [5]) or [stream(0)]:
        sampler.insert(batch)
    assert numbers(sampler) == sorted(expected)


# -- what every sampler keeps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS, ids=["rows", "time"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_contract_any_division_into_batches_gives_the_same_sample(sampler, window):
    samples = []
    for sizes in ([700], [1], [1, 13, 200], [64]):
        s = sampler(20, window=window, seed=4)
        for batch in cut(STREAM, sizes):
            s.insert(batch)
        samples.append(s.sample())
    assert all(sample == samples[0] for sample in samples)
    other = sampler(20, window=window, seed=5)
    other.insert(STREAM)
    assert other.sample() != samples[0]


@pytest.mark.parametrize("sampler", [Reservoir, WinRes, FairWindow])
def test_contract_a_batch_that_is_taken_in_by_parts_gives_the_same_sample(sampler):
    rows = pa.record_batch({"x": np.arange(150_000)})
    whole, parts = sampler(50, window=hr.rows(100_000)), sampler(50, window=hr.rows(100_000))
    whole.insert(rows)
    for batch in cut(rows, [40_000, 999]):
        parts.insert(batch)
    assert whole.sample() == parts.sample() and whole.stats.tuples_in == 150_000


@pytest.mark.parametrize("window", WINDOWS, ids=["rows", "time"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_contract_a_snapshot_after_every_batch_goes_on_the_same(sampler, window):
    whole = sampler(20, window=window, seed=4)
    part = sampler(20, window=window, seed=4)
    for batch in cut(STREAM, [1, 40, 23]):
        again = _written(part.snapshot())
        part = sampler(20, window=window, seed=4)
        part.restore(pa.ipc.open_stream(again))
        whole.insert(batch)
        part.insert(batch)
        assert part.sample() == whole.sample()
        assert part.stats.late == whole.stats.late


def _written(parts):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SNAPSHOT) as writer:
        for part in parts:
            writer.write_batch(part)
    return sink.getvalue()


def test_a_snapshot_of_another_sampler_is_refused():
    s = FairWindow(5, window=hr.rows(10))
    s.insert(stream(3))
    with pytest.raises(hr.BadInput, match=r"seed=0.*seed=1"):
        FairWindow(5, window=hr.rows(10), seed=1).restore(s.snapshot())
    with pytest.raises(hr.BadInput, match="is not a part of a snapshot"):
        s.restore([stream(3)])


@pytest.mark.parametrize("window", WINDOWS, ids=["rows", "time"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_contract_rows_are_what_came_and_input_is_left_alone(sampler, window):
    given_ = stream(700, np.asarray(STREAM["t"]).astype(np.int64))
    s = sampler(20, window=window, seed=4)
    for batch in cut(STREAM, [90]):
        s.insert(batch)
    sample = s.sample()
    assert sample.schema == STREAM.schema
    assert sample == STREAM.take(pa.array(numbers(s))) and sample.num_rows
    assert given_ == STREAM


@pytest.mark.parametrize("sampler", [Expire, WinRes, FairWindow, Chain])
@pytest.mark.parametrize("window", WINDOWS, ids=["rows", "time"])
def test_contract_nothing_in_a_window_sample_has_expired(sampler, window):
    s = sampler(10, window=window, seed=4)
    times = np.asarray(STREAM["t"]).astype(np.int64)
    for i, batch in enumerate(cut(STREAM, [7])):
        s.insert(batch)
        came = min(700, 7 * (i + 1))
        held = np.array(numbers(s))
        if window == WINDOWS[0]:
            assert (held >= came - 60).all()
        else:
            assert (times[held] > times[:came].max() - 60).all()


@pytest.mark.parametrize("sampler", [Expire, WinRes, FairWindow])
def test_a_sample_as_large_as_the_window_is_the_window(sampler):
    s = sampler(50, window=hr.rows(50))
    for batch in cut(stream(333), [1, 20]):
        s.insert(batch)
    assert numbers(s) == list(range(283, 333))


# -- memory ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [hr.rows(300), hr.time("300ms", on="t")], ids=["rows", "time"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_contract_a_sample_by_memory_stays_in_it(sampler, window):
    s = sampler(memory="24KiB", window=window, seed=1)
    first = None
    for batch in cut(stream(4_000), [100]):
        s.insert(batch)
        first = first or s.size
        assert sum(s.stats.memory.values()) <= 24 * 1024
    assert s.stats.memory_peak <= s.stats.memory_limit == 24 * 1024
    assert first == s.size > 5
    long = stream(400, np.arange(4_000, 4_400)).set_column(1, "s", pa.array(["long" * 60] * 400))
    for batch in cut(long, [50]):
        s.insert(batch)
    if sampler not in (Reservoir, Fifo):  # which take few of them
        assert s.size < first
    assert 0 < len(numbers(s)) <= s.size
    assert s.stats.memory_peak <= 24 * 1024
    again = sampler(memory="24KiB", window=window, seed=1)
    again.restore(s.snapshot())
    assert again.sample() == s.sample() and again.size == s.size


def test_a_smaller_sample_is_still_fair():
    """Which tuples leave a sample that must become smaller does not depend on their age."""
    ages = np.zeros(2)
    for seed in range(200):
        s = FairWindow(memory="16KiB", window=hr.rows(40), seed=seed)
        s.insert(stream(80))
        wide = stream(40, start=80).set_column(1, "s", pa.array(["w" * 1000] * 40))
        s.insert(wide)
        held = np.array(numbers(s))
        assert held.size < 20
        ages += np.bincount(held >= 100, minlength=2)
    assert abs(ages[0] / ages.sum() - 0.5) < 4 * 0.5 / np.sqrt(ages.sum())


def test_a_tuple_too_large_for_the_memory_is_refused():
    s = Reservoir(memory="8KiB", window=None)
    with pytest.raises(hr.MemoryRefused, match="8KiB"):
        s.insert(stream(1).set_column(1, "s", pa.array(["w" * 100_000])))


def test_candidates_are_as_many_as_is_said():
    s = FairWindow(100, window=hr.rows(10_000))
    for batch in cut(stream(60_000), [1_000]):
        s.insert(batch)
        assert s.stats.held <= 2 * 100 * (1 + np.log(100)) + 64


# -- bad input -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FairWindow(11, window=hr.rows(10)), "size=11 is larger than the window of 10 rows"),
        (lambda: Expire(0, window=hr.rows(10)), "size=0 is not a number of tuples"),
        (lambda: Expire(2.5, window=hr.rows(10)), "size=2.5 is not a number of tuples"),
        (lambda: WinRes(5, window=hr.rows(0)), r"rows\(0\) is not a window"),
        (lambda: WinRes(5, window=hr.rows(-3)), r"rows\(-3\) is not a window"),
        (lambda: hr.time("0s", on="t"), "length='0s' must be more than 0"),
        (lambda: hr.time("-1s", on="t"), "length='-1s' is not a duration"),
        (lambda: hr.time("1s", on=""), "on='' is not a column name"),
        (lambda: hr.time("1s", on="t", late=-1), "late=-1 must be at least 0"),
        (lambda: Chain(5), "window=None is not a window"),
        (lambda: FairWindow(5, window=10), "window=10 is not a window"),
        (lambda: FairWindow(window=hr.rows(10)), "either size=.* or memory="),
        (lambda: FairWindow(5, memory=100, window=hr.rows(10)), "either size=.* or memory="),
        (lambda: FairWindow(memory=-1, window=hr.rows(10)), "memory=-1 must be at least 1 byte"),
        (lambda: WinRes(5, window=hr.rows(10), draw="both"), "draw='both'.*window, stream"),
        (lambda: Chain(2**20 + 1, window=hr.rows(2**21)), "more than 1048576 chains"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, says):
    with pytest.raises(hr.BadInput, match=says):
        make()


def test_bad_batches_are_refused_by_name_and_change_nothing():
    s = FairWindow(5, window=hr.time("1s", on="t"))
    with pytest.raises(hr.BadInput, match="no column 't', which the window is on"):
        s.insert(pa.record_batch({"x": [1]}))
    with pytest.raises(hr.UnsupportedType, match="'t' of the stream has type int64; a window by time"):
        s.insert(pa.record_batch({"t": [1]}))
    with pytest.raises(hr.BadInput, match="insert a batch first"):
        s.sample()
    s.insert(stream(3))
    with pytest.raises(hr.BadInput, match="has columns x, where the first had x, s, t"):
        s.insert(pa.record_batch({"x": [1]}))
    with pytest.raises(hr.BadInput, match="Table is no batch"):
        s.insert(pa.table({"x": [1]}))
    assert numbers(s) == [0, 1, 2] and s.stats.tuples_in == 3


def test_tuples_without_a_time_are_counted_and_dropped():
    s = FairWindow(5, window=hr.time("1s", on="t"))
    s.insert(pa.record_batch({"x": [1, 2, 3], "t": pa.array([5, None, 7], pa.timestamp("us"))}))
    assert numbers(s) == [1, 3] and s.stats.untimed == 1 and s.stats.tuples_in == 3


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32(), pa.date64()])
def test_windows_by_time_take_every_kind_of_time(type_):
    """A row is live while it is less than the length before the latest: 3 days before is too old for a window of 3 days."""
    days = pa.array([86_400_000 * day for day in (0, 1, 2, 3, 3)], pa.timestamp("ms")).cast(type_)
    s = FairWindow(9, window=hr.time("3d", on="t"))
    s.insert(pa.record_batch({"x": [0, 1, 2, 3, 4], "t": days}))
    assert numbers(s) == [1, 2, 3, 4]
