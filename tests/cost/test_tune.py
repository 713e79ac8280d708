"""Both questions of [MESH] §3.3, and the choice of an algorithm."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.cost import Facts, Observed, best_rates, choose, least_memories
from headrace.cost.machines import disk_of
from headrace.cost.models import MODELS
from headrace.cost.tune import buffer_curve, curve, memories_around, plot
from headrace.errors import BadInput, MemoryRefused

ROWS = 50_000


@pytest.fixture(scope="module")
def relation(tmp_path_factory):
    rows = pa.table({"id": np.arange(ROWS), **{f"c{i}": np.arange(ROWS) for i in range(13)}})
    return hr.Relation.create(tmp_path_factory.mktemp("r") / "r", rows, key="id", disk=disk_of("hdd"))


@pytest.fixture
def facts(relation):
    return Facts.of(relation, skew=0.5)


def test_both_questions_answer_for_every_algorithm_and_agree(facts):
    rates = best_rates(facts, 2 << 20)
    assert {p.algorithm for p in rates.predictions} == set(MODELS)
    assert [p.rate for p in rates.predictions] == sorted((p.rate for p in rates.predictions), reverse=True)
    best = rates.predictions[0]
    memories = least_memories(facts, 0.9 * best.rate)
    assert {p.algorithm for p in memories.predictions} == set(MODELS)
    assert memories.predictions[0].memory <= 2 << 20
    assert memories.recommended == memories.predictions[0].algorithm
    unable = [p for p in memories.predictions if p.rate == 0]
    assert {"xhybridjoin"} <= {p.algorithm for p in unable}
    assert all(p.why for p in unable)


def test_nobody_can(facts):
    assert best_rates(facts, 1000).recommended is None
    assert least_memories(facts, 1e12).recommended is None
    with pytest.raises(MemoryRefused, match=r"too small for every algorithm: .*adaptive: index and buffers need"):
        choose(facts, 1000)


def test_the_best_is_chosen_and_the_reason_names_the_next(facts):
    chosen = choose(facts, 2 << 20, rate=1000)
    best = chosen.predictions[0]
    assert next(p for p in chosen.predictions if p.algorithm == chosen.algorithm).rate >= 0.95 * best.rate
    assert f"{chosen.algorithm} is expected to join" in chosen.why
    assert "the stream brings 1,000" in chosen.why
    assert "more than any" in choose(facts, 2 << 20, rate=1e9).why
    only = choose(facts, 2 << 20, algorithms=["inl", "meshjoin"])
    assert only.algorithm == "meshjoin"
    assert set(only.parameters) == {"w", "b"}
    assert "next is inl" in only.why


def test_of_two_that_are_as_good_the_one_that_asks_less(facts):
    chosen = choose(facts, 2 << 20, algorithms=["ameshjoin", "meshjoin"])
    assert chosen.algorithm == "meshjoin"


def test_small_batches_are_not_for_meshjoin(facts):
    few = replace(facts, batch_rows=50, skew=1.2)
    assert choose(few, 2 << 20).algorithm not in ("meshjoin", "ameshjoin", "rmeshjoin")


def test_wrong_words_are_refused(facts):
    with pytest.raises(BadInput, match="algorithm='nope' is not supported"):
        choose(facts, 1 << 20, algorithms=["nope"])
    with pytest.raises(BadInput, match="names none to choose from"):
        choose(facts, 1 << 20, algorithms=[])
    with pytest.raises(BadInput, match="rate=-5"):
        least_memories(facts, -5)
    with pytest.raises(BadInput, match="one of them"):
        buffer_curve(facts)
    with pytest.raises(BadInput, match="in any memory"):
        buffer_curve(facts, rate=1e9)


def test_a_sample_tells_skew_absent_keys_and_sizes(relation):
    rng = np.random.default_rng(4)
    p = np.arange(1.0, ROWS + 1) ** -0.9
    keys = rng.permutation(ROWS)[rng.choice(ROWS, 20_000, p=p / p.sum())]
    keys[rng.random(keys.size) < 0.25] += 10 * ROWS
    batches = [pa.record_batch({"id": part, "x": part}) for part in np.array_split(keys, 5)]
    seen = Observed.of(batches, relation, "id", seconds=2.0)
    assert seen.absent == pytest.approx(0.25, abs=0.03)
    assert seen.skew == pytest.approx(0.9, abs=0.15)
    assert (seen.tuples, seen.batch_rows, seen.stream_bytes, seen.rate) == (20_000, 4000, 16, 10_000)
    facts = seen.facts(relation)
    assert (facts.batch_rows, facts.absent, facts.skew) == (4000, seen.absent, seen.skew)
    assert seen.facts(relation, in_batches=False).batch_rows is None
    assert choose(facts, 4 << 20, rate=seen.rate).algorithm in MODELS


def test_a_sample_of_nulls_or_of_nothing(relation):
    nulls = pa.record_batch({"id": pa.nulls(10, pa.int64())})
    assert Observed.of([nulls], relation, "id").distinct == 0
    with pytest.raises(BadInput, match="has no rows"):
        Observed.of([nulls.slice(0, 0)], relation, "id")


def test_a_sample_with_a_composite_key_under_other_names(tmp_path):
    rows = pa.table({"a": np.arange(1000) // 10, "b": [f"t{i % 10}" for i in range(1000)], "v": np.arange(1000)})
    relation = hr.Relation.create(tmp_path / "c", rows, key=["a", "b"])
    stream = pa.record_batch({"x": [1, 2, 3, 999], "y": ["t1", "t1", "t9", "t0"]})
    seen = Observed.of([stream], relation, {"x": "a", "y": "b"})
    assert (seen.absent, seen.distinct) == (0.25, 4)


def test_a_curve_rises_with_memory(facts):
    points = curve("meshjoin", facts, memories_around(1 << 20, facts))
    rates = [p.rate for p in points]
    assert len(points) > 10
    assert rates == sorted(rates)


@pytest.mark.parametrize("asked", ["rate", "memory"])
def test_the_plot_is_a_picture(facts, tmp_path, asked):
    pytest.importorskip("matplotlib")
    answer = best_rates(facts, 1 << 20) if asked == "rate" else least_memories(facts, 2000)
    path = plot(facts, answer, tmp_path / "curves.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match=r"does not end in \.png"):
        plot(facts, answer, tmp_path / "curves.pdf")


def test_a_plot_of_what_nobody_can_is_still_a_picture(facts, tmp_path):
    pytest.importorskip("matplotlib")
    assert plot(facts, least_memories(facts, 1e12), tmp_path / "none.png").exists()
