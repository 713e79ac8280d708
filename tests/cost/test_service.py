"""The harness measures what it says: by hand where that is possible, and two ways where it is not."""

import re
from functools import partial

import pyarrow as pa
import pytest

from headrace.bench import Bursty, MeasuringOptions, RelationSpec, Steady, Zipf, make_relation, service_rate
from headrace.bench.service import _MeasuredJoin
from headrace.bench.streams import KEY
from headrace.cost import HDD, SSD, Facts, disk_of, predict
from headrace.errors import BadInput, MemoryRefused
from headrace.metrics import Factors
from headrace.relation.disk import Disk
from headrace.semistream import AdaptiveJoin, HybridJoin, MeshJoin

ROWS = 20_000
STREAM = Zipf(ROWS, 0.5)


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    return tmp_path_factory.mktemp("relations")


@pytest.fixture
def relation(where):
    return make_relation(where, RelationSpec(ROWS), disk=disk_of(HDD))


def test_a_rate_by_hand(where):
    factors = Factors(c_E=1e-3, c_S=2e-3, c_A=3e-3, c_H=5e-4, c_O=4e-3, c_X=0)
    disk = Disk("simulated", seek=0.5, transfer=0.01, factors=factors)
    rel = make_relation(where, RelationSpec(650), disk=disk)
    assert rel.num_pages == 10
    found = service_rate(MeshJoin, rel, Zipf(650, 0.0), "200KB", w=30, b=5)
    # A round is 2 iterations: each reads 5 pages, probes 325 tuples, and 30 stream tuples leave, come and
    # enter. Each finds its match in one of the two.
    seconds = 2 * (0.5 + 5 * 0.01 + 325 * 5e-4 + 30 * (1e-3 + 2e-3 + 3e-3)) + found.results * 4e-3
    assert found.tuples == 60 and 45 < found.results < 75
    assert found.seconds == pytest.approx(seconds)
    assert found.rate == pytest.approx(60 / seconds)
    assert (found.pages_read, found.reads, found.iterations) == (10, 2, 2)


def test_a_scan_goes_on_where_it_ended(where):
    def seconds(follow):
        rel = make_relation(where, RelationSpec(650), disk=Disk("simulated", seek=0.5, transfer=0.01, follow=follow))
        return service_rate(MeshJoin, rel, Zipf(650, 0.0), "200KB", w=30, b=2).seconds

    # 5 reads a round: the first goes back to the start of the relation, four follow
    assert seconds(0.5) == seconds(None)
    assert seconds(None) - seconds(0.1) == pytest.approx(4 * 0.4)


@pytest.mark.parametrize("operator", ["meshjoin", "rmeshjoin", "ameshjoin", "adaptive"])
def test_twice_the_same(relation, operator):
    measuring = MeasuringOptions(loops=1)
    first = service_rate(operator, relation, STREAM, "300KB", measuring=measuring)
    assert service_rate(operator, relation, STREAM, "300KB", measuring=measuring).rate == pytest.approx(
        first.rate, rel=1e-9
    )
    assert first.memory_peak <= first.memory == 300_000


@pytest.mark.parametrize("operator", ["meshjoin", "rmeshjoin", "ameshjoin"])
def test_a_scan_is_measured_from_its_begin_to_its_end(relation, operator):
    found = service_rate(operator, relation, STREAM, "300KB")
    assert found.pages_read == pytest.approx(relation.num_pages, rel=0.05)  # the last read may be of the next scan


def test_a_join_that_follows_the_rate_takes_all_of_a_stream_that_is_always_there(where):
    """With few tuples an iteration, a tenth more than came is not one more: it must know that the stream waits for it."""
    relation = make_relation(where, RelationSpec(100_000), disk=disk_of(HDD))
    found = service_rate("ameshjoin", relation, STREAM, "150KB", measuring=MeasuringOptions(loops=1))
    model = predict("ameshjoin", Facts.of(relation, skew=0.5, stream_bytes=STREAM.tuple_bytes), 150_000)
    assert model.parameters["w"] < 5
    assert found.rate == pytest.approx(model.rate, rel=0.1)


@pytest.mark.parametrize("operator", ["meshjoin", "rmeshjoin"])
def test_both_methods_agree(relation, operator):
    saturated = service_rate(operator, relation, STREAM, "300KB", measuring=MeasuringOptions(loops=2))
    sustained = service_rate(
        operator, relation, STREAM, "300KB", measuring=MeasuringOptions(loops=2), method="sustained"
    )
    assert sustained.method == "sustained"
    assert sustained.rate == pytest.approx(saturated.rate, rel=0.1)


def test_a_stream_in_bursts_needs_room(relation):
    def rate(backlog, schedule):
        measuring = MeasuringOptions(loops=1, backlog=backlog)
        options = {"method": "sustained", "measuring": measuring, "schedule": schedule}
        return service_rate("meshjoin", relation, STREAM, "300KB", **options).rate

    def bursty(rate):
        return Bursty(rate, 2.0)

    few, many = rate(200, bursty), rate(2_000, bursty)
    assert few < 0.7 * many
    assert many < 0.9 * rate(200, Steady)


def test_overflow_is_noticed(relation):
    from headrace.bench import service, streams

    def at(factor):
        rate = factor * saturated.rate
        # The search for a sustained rate makes such runs, and does not say how any of them ended.
        options = MeasuringOptions()
        run = service._MeasuredJoin.of(partial(MeshJoin, relation, "k"), STREAM, 300_000, options)  # private: see above
        return service._at_rate(run, options, streams.Steady(rate), rate, 10 * saturated.tuples)  # private: see above

    saturated = service_rate(MeshJoin, relation, STREAM, 300_000)
    assert at(1.2) is None
    kept_up = at(0.9)
    assert kept_up is not None and kept_up.backlog < saturated.tuples


def test_more_memory_gives_a_higher_rate(relation):
    rates = [service_rate("meshjoin", relation, STREAM, memory).rate for memory in (200_000, 400_000, 800_000)]
    assert rates == sorted(rates) and rates[-1] > 1.5 * rates[0]


def test_skew_helps_a_join_that_keeps_popular_tuples(where):
    rel = make_relation(where, RelationSpec(ROWS), disk=disk_of(SSD))
    even, skewed = (service_rate("adaptive", rel, Zipf(ROWS, z, "permuted"), "300KB") for z in (0.0, 1.2))
    assert skewed.rate > 1.5 * even.rate
    assert skewed.hit_ratio > even.hit_ratio


def test_a_batch_is_part_of_the_memory(relation):
    found = service_rate("adaptive", relation, STREAM, "400KB", measuring=MeasuringOptions(batch=5_000))
    assert 100_000 < found.memory_peak <= 400_000
    with pytest.raises(MemoryRefused, match="leave nothing of a memory of 400,000 bytes"):
        service_rate("adaptive", relation, STREAM, "400KB", measuring=MeasuringOptions(batch=20_000))


@pytest.mark.parametrize("operator", ["meshjoin", "rmeshjoin"])
def test_a_memory_too_small_for_a_scan_is_refused_with_one_that_would_do(relation, operator):
    with pytest.raises(MemoryRefused, match="each iteration of a scan") as refusal:
        service_rate(operator, relation, STREAM, "32KB")
    enough = re.search(r"give (\S+) or more", str(refusal.value))[1]
    assert service_rate(operator, relation, STREAM, enough, measuring=MeasuringOptions(loops=1)).rate > 0


def test_a_function_may_make_the_operator(relation):
    found = service_rate(lambda r, on, memory: MeshJoin(r, on, memory, b=7), relation, STREAM, "300KB")
    assert found.algorithm == "MeshJoin"
    assert found.reads == -(-relation.num_pages // 7)


def test_results_are_those_of_the_join(relation):
    op = AdaptiveJoin(relation, "k", "400KB")
    out = pa.Table.from_batches(op.run(STREAM.batches(5_000)))
    assert out.num_rows == 5_000  # every key is there, once


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operator": "hashjoin"}, "operator='hashjoin'"),
        ({"method": "guessed"}, "method='guessed'"),
    ],
)
def test_unknown_names_are_refused(relation, arguments, message):
    with pytest.raises(BadInput, match=message):
        service_rate(**{"operator": "meshjoin", "relation": relation, "stream": STREAM, "memory": "300KB"} | arguments)


@pytest.mark.parametrize("name", ["loops", "tuples", "batch", "backlog"])
def test_a_measurement_of_nothing_is_refused(name):
    with pytest.raises(BadInput, match=f"{name}=0"):
        MeasuringOptions(**{name: 0})


def test_a_join_is_let_fill_up_over_so_many_tuples(relation):
    run = _MeasuredJoin.of(partial(HybridJoin, relation, KEY), STREAM, 300_000, MeasuringOptions(fill=4_000))
    held = []
    while run.feed.taken < 6_000:
        run.take_all()
        held.append((run.feed.taken, run.waiting))
    room = run.op.capacity
    assert all(waits <= room * taken / 4_000 + 1 for taken, waits in held if taken < 4_000)
    assert max(waits for _, waits in held) > 0.8 * room
