"""The models against hand calculation, against the shapes of the papers' figures, and against simulated runs."""

from collections import deque
from dataclasses import replace
from itertools import pairwise

import pytest

from headrace.bench import service_rate
from headrace.bench.relations import RelationSpec, make_relation
from headrace.bench.service import MeasuringOptions
from headrace.bench.streams import KEY, Zipf
from headrace.cost import Facts, least_memory, predict, sustains
from headrace.cost.machines import HDD, disk_of
from headrace.cost.models import MODELS, mesh_cost
from headrace.cost.tune import buffer_curve
from headrace.errors import BadInput
from headrace.semistream import ALGORITHMS, AdaptiveJoin
from headrace.semistream.mesh.mesh_cost import MeshCost

ROWS = 100_000


@pytest.fixture(scope="module")
def open_relation(tmp_path_factory):
    directory = tmp_path_factory.mktemp("relations")

    def opened(algorithm, stream, machine="hdd"):
        popular = stream if algorithm == "xhybridjoin" else None
        return make_relation(directory, RelationSpec(ROWS, popularity=popular), disk=disk_of(machine))

    return opened


@pytest.fixture
def facts(open_relation):
    return Facts.of(open_relation("meshjoin", None))


def test_every_algorithm_has_a_model():
    assert set(MODELS) == set(ALGORITHMS)


def test_equations_1_to_3_of_mesh_by_hand():
    """10 pages of 4 tuples, b = 3, w = 5: H holds ceil(10 / 3) = 4 packets."""
    cost = MeshCost(
        pages=10,
        rows_per_page=4,
        page_bytes=100,
        stream_bytes=20,
        slot_bytes=50,
        pointer_bytes=8,
        seek=1.0,
        transfer=0.1,
        stream=0.02,
        probe=0.01,
        output=0.03,
        matches=1.0,
    )
    assert cost.memory(5, 3) == 3 * 100 + 5 * 20 + 5 * 4 * (8 + 50)
    assert cost.w(1560, 3) == 5
    assert cost.loop(5, 3) == pytest.approx((1.0 + 3 * 0.1) + 5 * 0.02 + 12 * 0.01 + 5 * 0.03)
    assert cost.rate(1560, 3) == pytest.approx(5 / 1.67)


def test_fig_5_of_mesh_memory_has_a_minimum_and_rate_a_maximum(facts):
    rates = [rate for _, rate in buffer_curve(facts, memory=1 << 20)]
    top = rates.index(max(rates))
    assert 0 < top < len(rates) - 1
    assert rates[0] < 0.6 * rates[top] > rates[-1]
    memories = [memory for _, memory in buffer_curve(facts, rate=rates[top])]
    least = memories.index(min(memories))
    assert 0 < least < len(memories) - 1
    assert memories[0] > 1.5 * memories[least] < memories[-1]
    # The same point, seen from both sides.
    assert memories[least] == pytest.approx(1 << 20, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("share", [0.05, 0.1])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_predictions_are_near_simulated_runs(open_relation, algorithm, share, exponent):
    stream = Zipf(ROWS, exponent, order="permuted")
    relation = open_relation(algorithm, stream)
    memory = int(share * relation.num_pages * relation.page_size)
    if algorithm == "xhybridjoin":
        memory += relation.index_bytes  # a key and its page for every row: more than a tenth of R
    options = {"skew": exponent} if "hybrid" in algorithm else {"order": "any"} if algorithm == "adaptive" else {}
    # SSIJ's split moves on, in small steps: more join phases show its mean.
    measuring = MeasuringOptions(tuples=100_000 if algorithm == "ssij" else None)
    measured = service_rate(algorithm, relation, stream, memory, measuring=measuring, **options)
    found = predict(algorithm, Facts.of(relation, skew=exponent, stream_bytes=stream.tuple_bytes), memory)
    # Both move their split by what they see, in steps: docs/reproduction/models.md shows what is not within 10%.
    tolerance = 0.15 if algorithm in ("ssij", "adaptive") and exponent else 0.1
    assert found.rate == pytest.approx(measured.rate, rel=tolerance), found.why


def rate_in_batches(op, stream, batch):
    """Tuples a second of a simulated machine that joins batch after batch to its end, once the join is warm."""
    feed, clock = stream.open(), op.relation.disk.clock
    warm, measured = (
        (10, 4) if batch >= ROWS // 5 else (30, 10)
    )  # batches: by now its split has moved to where it stays
    for i in range(warm + measured):
        if i == warm:
            begun = clock.now()
        deque(op.join(feed.take(batch)), maxlen=0)
    return measured * batch / (clock.now() - begun)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "exponent"), [(0.05, 0.0), (0.05, 1.0), (0.1, 0.0), (0.3, 1.0)])
def test_the_prediction_for_adaptive_in_stream_order_is_within_a_tenth_of_simulated_runs(
    open_relation, share, exponent
):
    stream, batch = Zipf(ROWS, exponent, order="permuted"), 5000
    relation = open_relation("adaptive", stream)
    memory = int(share * relation.num_pages * relation.page_size)
    measured = rate_in_batches(AdaptiveJoin(relation, on=KEY, memory=memory, order="stream"), stream, batch)
    facts = Facts.of(relation, skew=exponent, stream_bytes=stream.tuple_bytes, batch_rows=batch, order="stream")
    found = predict("adaptive", facts, memory)
    assert found.rate == pytest.approx(measured, rel=0.1), found.why


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("batch", [1000, 5000, 30_000])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_the_prediction_for_adaptive_in_batches_is_near_simulated_runs(open_relation, share, batch, exponent):
    """As on Spark: rows of a batch wait for each other, and none for the next batch."""
    stream = Zipf(ROWS, exponent, order="permuted")
    relation = open_relation("adaptive", stream)
    memory = int(share * relation.num_pages * relation.page_size)
    measured = rate_in_batches(AdaptiveJoin(relation, on=KEY, memory=memory, order="any"), stream, batch)
    facts = Facts.of(relation, skew=exponent, stream_bytes=stream.tuple_bytes, batch_rows=batch)
    found = predict("adaptive", facts, memory)
    # It moves its split by what it sees, in steps. Where a batch misses about as many rows as can wait, a step too few has it
    # read in two phases where the model has one.
    tolerance = 0.25 if (share, batch, exponent) == (0.1, 30_000, 1.0) else 0.15
    assert found.rate == pytest.approx(measured, rel=tolerance), found.why


@pytest.mark.parametrize("algorithm", sorted(MODELS))
def test_least_memory_is_the_inverse_of_rate(facts, algorithm):
    facts = replace(facts, ordered=True, scattered=False, skew=0.8)
    memory = 4 << 20
    rate = predict(algorithm, facts, memory).rate
    assert rate > 0
    found = least_memory(algorithm, facts, 0.8 * rate)
    assert found.rate >= 0.8 * rate
    assert found.memory <= memory
    assert sustains(algorithm, facts, found.memory, 0.8 * rate)
    assert not sustains(algorithm, facts, int(0.97 * found.memory), 0.81 * rate)


@pytest.mark.parametrize("algorithm", sorted(MODELS))
def test_parts_add_up_to_the_memory(facts, algorithm):
    found = predict(algorithm, replace(facts, ordered=True), 4 << 20)
    assert sum(found.parts.values()) <= 4 << 20
    assert sum(found.parts.values()) >= 0.9 * (4 << 20)
    assert found.why


@pytest.mark.parametrize("algorithm", sorted(MODELS))
def test_more_memory_is_not_slower(facts, algorithm):
    facts = replace(facts, ordered=True, skew=0.8)
    rates = [predict(algorithm, facts, memory).rate for memory in (1 << 20, 2 << 20, 4 << 20, 8 << 20)]
    assert all(b >= 0.97 * a for a, b in pairwise(rates)), rates


@pytest.mark.parametrize("algorithm", sorted(MODELS))
def test_a_memory_too_small_is_a_rate_of_zero_with_what_would_do(facts, algorithm):
    found = predict(algorithm, replace(facts, ordered=True), 2000)
    assert found.rate == 0
    assert "need" in found.why


def test_algorithms_that_ask_something_of_the_relation_say_so(facts):
    assert "unique" in predict("hybridjoin", replace(facts, unique=False), 8 << 20).why
    assert "order='frequency'" in predict("xhybridjoin", facts, 8 << 20).why


def test_skew_helps_the_caches_and_not_meshjoin(facts):
    even, skewed = facts, replace(facts, skew=1.0)
    assert predict("meshjoin", even, 1 << 20).rate == predict("meshjoin", skewed, 1 << 20).rate
    for algorithm in ("inl", "adaptive"):
        assert predict(algorithm, skewed, 2 << 20).rate > 1.1 * predict(algorithm, even, 2 << 20).rate
    # SSIJ keeps pages: where hot keys lie anywhere it gains 7% by the model and 12% measured, side by side 1.5 and 2.3 times.
    together = replace(skewed, scattered=False)
    assert predict("ssij", skewed, 2 << 20).rate > predict("ssij", even, 2 << 20).rate
    assert predict("ssij", together, 2 << 20).rate > 1.5 * predict("ssij", even, 2 << 20).rate


def test_absent_keys_cost_reads_where_no_filter_turns_them_away(facts):
    unknown = replace(facts, absent=0.9, skew=1.0, batch_rows=2000)
    without = predict("adaptive", replace(unknown, filter_bytes=1 << 40), 4 << 20)
    # Rows that miss are read for together, so what they cost without a filter is not ten times as much.
    assert predict("adaptive", unknown, 4 << 20).rate > 1.5 * without.rate
    assert predict("inl", unknown, 4 << 20).rate < predict("inl", replace(facts, skew=1.0), 4 << 20).rate


def test_a_small_batch_costs_meshjoin_a_scan(facts):
    found = predict("meshjoin", replace(facts, batch_rows=100), 1 << 20)
    cost = mesh_cost(facts)
    b = found.parameters["b"]
    scan = -(-facts.pages // b) * cost.loop(0, b)
    assert found.rate == pytest.approx(100 / (scan + 100 * (cost.stream + cost.output)))
    assert "a scan" in found.why


def test_a_rate_that_no_memory_reaches_is_refused_with_the_best(facts):
    with pytest.raises(BadInput, match=r"meshjoin does not keep up with 1,000,000,000 .* it reaches"):
        least_memory("meshjoin", facts, 1e9)
    with pytest.raises(BadInput, match=r"hybridjoin does not keep up .* unique keys"):
        least_memory("hybridjoin", replace(facts, unique=False), 10)


@pytest.mark.parametrize(("what", "value"), [("skew", -1.0), ("absent", 1.5), ("stream_bytes", 0), ("batch_rows", 0)])
def test_facts_refuse_what_cannot_be(open_relation, what, value):
    with pytest.raises(BadInput, match=f"{what}={value!r}"):
        Facts.of(open_relation("meshjoin", None), **{what: value})
    with pytest.raises(BadInput, match="seek=-1"):
        replace(HDD, seek=-1)


def test_wrong_names_are_refused(facts):
    with pytest.raises(BadInput, match="algorithm='mesh' is not supported; choose one of adaptive"):
        predict("mesh", facts, 1 << 20)
    with pytest.raises(BadInput, match="rate=0"):
        least_memory("meshjoin", facts, 0)
