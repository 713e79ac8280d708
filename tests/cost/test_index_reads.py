"""Reads of an index that is not in memory as a whole: what plans and models say of them, beside simulated runs."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.cost import Facts, predict
from headrace.cost.machines import HDD, SSD
from headrace.relation import Disk
from headrace.relation.index_memory import IndexLevels
from headrace.semistream import ALGORITHMS, SSIJ, AdaptiveJoin, HybridJoin, IndexNestedLoop, XHybridJoin
from tests.support.paged_relations import by_frequency, by_key, long_keys

BILLION, BUDGET = 10**9, 64 << 20
ROWS_A_PAGE = 100  # of 65 bytes in pages of 8 KiB that are 80% full
TEXT_ROWS, INTEGER_ROWS = 26_000, 200_000


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    where = tmp_path_factory.mktemp("index")
    by_key(where / "key", TEXT_ROWS, shards=1).close()
    by_frequency(where / "frequency", INTEGER_ROWS).close()
    return where


def a_billion(paths, name):
    """The facts of a relation that is not there: a billion rows, by key or by popularity."""
    pages = BILLION // ROWS_A_PAGE
    entries = BILLION if name == "frequency" else pages
    with hr.Relation.open(paths / name) as relation:
        return replace(
            Facts.of(relation, machine=SSD),
            rows=BILLION,
            pages=pages,
            page_size=8192,
            distinct_keys=BILLION,
            index_bytes=12 * BILLION if name == "frequency" else 9 * pages,
            filter_bytes=BILLION * 12 // 8,
            levels=IndexLevels.of_entries(entries, 8192),
            integer_key=True,
        )


@pytest.mark.parametrize("algorithm", ["inl", "hybridjoin", "ssij", "adaptive"])
def test_a_billion_rows_in_64_mib(paths, algorithm):
    """The index has 86 MiB. Its upper part, the first keys of 20,921 leaves, is in memory; a tuple reads one page, and at most
    another that the plan reads through."""
    facts = a_billion(paths, "key")
    assert facts.index_bytes > BUDGET
    found = predict(algorithm, facts, BUDGET)
    assert found.rate > 0
    assert found.parts["index"] < BUDGET / 4
    # HYBRIDJOIN looks up the oldest tuple alone, for all that its partition serves. For AdaptiveJoin 800,000 rows wait, which
    # share 20,921 leaves. The others look every tuple up.
    assert 0 < found.work.index_pages < (0.1 if algorithm in ("hybridjoin", "adaptive") else 2)
    without = predict(algorithm, replace(facts, levels=None), BUDGET)
    assert without.rate == 0 and "need" in without.why


def test_a_billion_keys_by_popularity_in_64_mib(paths):
    """The index has 11 GiB and 2.1 million leaves, whose first keys do not fit either: two levels are read."""
    facts = a_billion(paths, "frequency")
    plan = XHybridJoin.plan(facts.plan_facts("xhybridjoin"), BUDGET)
    assert plan.index.level == 1
    assert 1 < plan.index.reads <= 2
    assert sum(plan.parts.values()) <= BUDGET
    found = predict("xhybridjoin", facts, BUDGET)
    assert found.rate > 0 and 0 < found.work.index_pages < 2


@pytest.mark.parametrize("operator", [IndexNestedLoop, HybridJoin, SSIJ, AdaptiveJoin])
def test_plans_of_a_billion_rows_stay_in_the_budget(paths, operator):
    facts = a_billion(paths, "key").plan_facts("")
    plan = operator.plan(facts, BUDGET)
    index = plan.index_memory if operator is AdaptiveJoin else plan.index
    assert index.paged and index.level == 0
    assert 0.9 < index.reads <= 1.0
    parts = {"all": plan.limit} if operator is AdaptiveJoin else plan.parts
    assert sum(parts.values()) <= BUDGET


def measured(op, batches, warm):
    """Index pages a tuple that left, of the batches behind the first few, and what was counted."""
    seen = []

    def left():
        return op.stats.index_pages_read, op.stats.tuples_in - (op.waiting if op.as_waiting() else 0)

    def watched():
        for i, batch in enumerate(batches):
            if i == warm:
                seen.append(left())
            yield batch
        seen.append(left())

    for _ in op.run(watched()):
        pass
    (pages, tuples), (more, all_tuples) = seen
    return (more - pages) / (all_tuples - tuples)


CASES = [
    ("key", "inl", 500, 1500, {}),
    ("key", "hybridjoin", 500, 400, {"skew": 0.0}),
    ("key", "ssij", 500, 1500, {}),
    ("key", "adaptive", 500, 1500, {"order": "any"}),
    ("key", "adaptive", 500, 1500, {"order": "stream"}),
    ("frequency", "inl", 1000, 5000, {}),
    ("frequency", "xhybridjoin", 1000, 3000, {"skew": 0.0}),
    ("frequency", "ssij", 1000, 5000, {}),
    ("frequency", "adaptive", 1000, 5000, {"order": "any"}),
    ("frequency", "adaptive", 1000, 5000, {"order": "stream"}),
]


@pytest.mark.parametrize(("name", "algorithm", "kib", "rows", "options"), CASES)
def test_predicted_reads_of_the_index_are_near_simulated_runs(paths, name, algorithm, kib, rows, options):
    relation = hr.Relation.open(paths / name, disk=Disk("simulated", seek=9e-3, transfer=1.5e-4))
    rng = np.random.default_rng(0)

    def batch():
        keys = 2 * rng.integers(0, relation.num_rows, rows)
        keys = pa.array(keys) if name == "frequency" else long_keys(keys)
        return pa.record_batch({"k": keys, "a": rng.random(rows)})

    batches = [batch() for _ in range(6)]
    op = ALGORITHMS[algorithm](relation, on="k", memory=kib << 10, **options)
    assert op.stats.index_pages_read == 0
    found = measured(op, batches, warm=3)
    in_batches = options.get("order") == "stream"
    facts = Facts.of(
        relation,
        stream_bytes=batches[0].nbytes / rows,
        order=options.get("order", "any"),
        batch_rows=rows if in_batches else None,
    )
    assert facts.index_bytes > 1.4 * (kib << 10)
    expected = predict(algorithm, facts, kib << 10)
    assert expected.work.index_pages == pytest.approx(found, rel=0.2), expected.why
    assert expected.parts["index"] == op.stats.memory["index"]


def test_where_the_index_fits_models_count_no_reads_of_it(paths):
    with hr.Relation.open(paths / "key") as relation:
        facts = Facts.of(relation, machine=HDD)
        for algorithm in ("inl", "hybridjoin", "ssij", "adaptive"):
            found = predict(algorithm, facts, relation.index_bytes + (1 << 20))
            assert found.work.index_pages == 0
            assert found.parts["index"] == relation.index_bytes
            assert found == predict(algorithm, replace(facts, levels=None), relation.index_bytes + (1 << 20))
