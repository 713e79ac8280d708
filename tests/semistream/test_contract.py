"""What every semi-stream operator keeps, written once: it finds them in headrace.semistream by itself. STYLE 13"""

import inspect
from collections import Counter
from itertools import islice
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
import headrace.semistream
from headrace import errors
from headrace.clock import ManualClock
from headrace.relation import Disk
from headrace.semistream.base import SemiStreamJoin
from tests.support.join_oracle import join, make_case, tuples


class HotSetJoin(headrace.semistream.AdaptiveJoin):
    """AdaptiveJoin as it is where the relation does not fit: the cases here are so small that it does."""

    def __init__(self, *args, **options):
        super().__init__(*args, whole=False, **options)


class HotSetConditionalJoin(headrace.semistream.ConditionalJoin):
    """The same of ConditionalJoin."""

    def __init__(self, *args, **options):
        super().__init__(*args, whole=False, **options)


OPERATORS = [
    operator
    for name in headrace.semistream.__all__
    if inspect.isclass(operator := getattr(headrace.semistream, name)) and issubclass(operator, SemiStreamJoin)
] + [HotSetJoin, HotSetConditionalJoin]
HOWS = ["inner", "left", "semi", "anti"]


@pytest.fixture(params=OPERATORS, ids=lambda operator: operator.__name__)
def operator(request):
    return request.param


@pytest.fixture
def case(operator):
    """Its relation has every key once where the operator asks for that."""
    case = make_case(20241, "composite")
    if operator.unique_keys:
        first = (
            case.rows.append_column("row", pa.array(range(case.rows.num_rows)))
            .group_by(case.key)
            .aggregate([("row", "min")])
        )
        case.rows = case.rows.take(first["row_min"])
    return case


@pytest.fixture
def create(operator):
    """Relation.create, by popularity where the operator asks for that."""

    def make(path, rows, key, **given):
        if operator.needs_popularity:
            frequencies = rows.select(key).append_column("frequency", pa.array(np.arange(rows.num_rows) % 17))
            given = {"order": "frequency", "frequencies": frequencies} | given
        return hr.Relation.create(path, rows, key=key, **given)

    return make


@pytest.fixture
def relation(tmp_path, case, create):
    return create(tmp_path / "r", case.rows, case.key, page_size="4KiB", disk=Disk("simulated"))


def test_contract_the_small_cases_are_held_whole_unless_told_not_to(relation, case):
    for operator, held in ((headrace.semistream.AdaptiveJoin, "table"), (HotSetJoin, "hot set")):
        op = operator(relation, on=case.key, memory="600KiB")
        list(op.run(case.batches))
        assert held in op.stats.memory


@pytest.mark.parametrize("how", HOWS)
def test_contract_every_tuple_leaves_and_the_stats_add_up(operator, relation, case, how):
    op = operator(relation, on=case.key, memory="1MiB", how=how)
    got = tuples(op.run(case.batches))
    assert sorted(map(repr, got)) == sorted(map(repr, join(case.rows, case.batches, case.key, how, ["v", "s", "b"])))
    op.stats.check()
    assert op.stats.tuples_in == sum(batch.num_rows for batch in case.batches)
    assert op.stats.results == len(got)
    assert op.stats.pages_read >= op.stats.pages_requested
    assert op.stats.bytes_read == op.stats.pages_read * relation.page_size


def test_contract_memory_stays_in_the_budget_and_is_named(operator, relation, case):
    op = operator(relation, on=case.key, memory="600KiB")
    for _ in op.run(case.batches * 3):
        assert op.budget.used <= op.budget.limit
    assert op.budget.peak <= op.budget.limit == op.stats.memory_limit
    assert op.stats.memory_peak == op.budget.peak
    assert sum(op.stats.memory.values()) == op.budget.used


def test_contract_memory_is_noted_in_every_step(operator, relation, case):
    """A join that is stepped says what it holds after each step, as one that is run to its end does."""
    order = {"order": "any"} if issubclass(operator, headrace.semistream.AdaptiveJoin) else {}
    op = operator(relation, on=case.key, memory="600KiB", **order)
    if op.as_waiting() is None:
        pytest.skip("its tuples do not wait, so that it has no steps")
    for batch in case.batches:
        op.offer(batch)
        assert op.stats.memory_peak == op.budget.peak > 0
        for _ in op.advance():
            assert op.stats.memory_peak == op.budget.peak
        assert op.stats.memory_peak == op.budget.peak
        assert op.stats.memory == op.budget.held()
    for _ in op.drain():
        pass
    assert op.stats.memory_peak == op.budget.peak


def test_contract_a_budget_too_small_is_refused_with_one_that_would_do(operator, relation, case):
    with pytest.raises(errors.MemoryRefused) as refused:
        operator(relation, on=case.key, memory=5000)
    least = str(refused.value).rsplit("give ", 1)[1].split(" ")[0]
    tuples(operator(relation, on=case.key, memory=round(1.01 * hr.units.parse_size(least))).run(case.batches))


def test_contract_deterministic(operator, case, create, tmp_path):
    runs = []
    for name in ("a", "b"):
        disk = Disk("simulated", clock=ManualClock())
        relation = create(tmp_path / name, case.rows, case.key, page_size="4KiB", disk=disk)
        op = operator(relation, on=case.key, memory="600KiB")
        out = list(op.run(case.batches * 3))
        runs.append((out, op.stats.as_dict(), disk.clock.now()))
    assert runs[0] == runs[1]


def test_contract_inputs_are_not_changed(operator, relation, case):
    before = [batch.serialize().to_pybytes() for batch in case.batches]
    tuples(operator(relation, on=case.key, memory="1MiB", how="left").run(case.batches))
    assert [batch.serialize().to_pybytes() for batch in case.batches] == before


def test_contract_results_do_not_share_memory_with_the_operator(operator, relation, case):
    """A result kept by its consumer stays as it was while the operator goes on."""
    op = operator(relation, on=case.key, memory="600KiB")
    kept, texts = [], []
    for batch in op.run(case.batches * 3):
        kept.append(batch)
        texts.append(repr(batch.to_pylist()))
    assert [repr(batch.to_pylist()) for batch in kept] == texts


def test_contract_survives_snapshot_and_restore(operator, relation, case):
    whole = operator(relation, on=case.key, memory="600KiB")
    expected = [tuples(whole.join(batch)) for batch in case.batches * 2]
    op = operator(relation, on=case.key, memory="600KiB")
    got = []
    for batch in case.batches * 2:
        got.append(tuples(op.join(batch)))
        snapshot = op.snapshot()
        op = operator(relation, on=case.key, memory="600KiB")
        op.restore(snapshot)
    assert got == expected


def test_contract_empty_stream_empty_batches_and_empty_relation(operator, case, create, tmp_path):
    empty = create(tmp_path / "e", case.rows.slice(0, 0), case.key)
    for how in HOWS:
        assert list(operator(empty, on=case.key, memory="1MiB", how=how).run([])) == []
        got = tuples(operator(empty, on=case.key, memory="1MiB", how=how).run(case.batches))
        assert got == join(case.rows.slice(0, 0), case.batches, case.key, how, ["v", "s", "b"])
    nothing = case.batches[0].slice(0, 0)
    out = list(operator(empty, on=case.key, memory="1MiB").run([nothing, nothing]))
    assert [batch.num_rows for batch in out] == [0]
    assert out[0].schema.names == [*nothing.schema.names, "v_right", "s_right", "b_right"]


def test_contract_a_giant_key_is_joined_within_the_budget(operator, tmp_path):
    if operator.unique_keys:
        pytest.skip("it takes relations with unique keys only")
    n = 60_000  # 3 MB of tuples for one key
    rows = pa.table({"k": np.zeros(n, np.int64), "v": np.arange(n), "s": [f"text {i:06}" for i in range(n)]})
    relation = hr.Relation.create(tmp_path / "g", rows, key="k", page_size="4KiB")
    stream = pa.record_batch({"k": pa.array([1, 0, None, 0], pa.int64()), "seq": [0, 1, 2, 3]})
    op = operator(relation, on="k", memory="400KiB", how="left")
    out = pa.Table.from_batches(op.run([stream]))
    if not operator.in_order:
        out = out.sort_by([("seq", "ascending"), ("v", "ascending")])
    assert out["seq"].to_pylist() == [0] + [1] * n + [2] + [3] * n
    assert out["v"].to_pylist() == [None, *range(n), None, *range(n)]
    op.stats.check()
    assert op.budget.peak <= op.budget.limit


STEPS = ("advance", "drain", "take_in", "refresh", "join", "run")


def step_of(op, name, batch):
    """A step for one more batch; a join without such a step joins it to its end."""
    if name == "run":
        return op.run([batch])
    if name == "join" or not hasattr(op, name):
        return op.join(batch)
    op.offer(batch)
    return getattr(op, name)()


@pytest.mark.parametrize("order", ["any", "stream"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_contract_no_result_is_lost_or_comes_twice_when_a_step_is_dropped(operator, relation, case, how, order):
    """The next step says so, whichever step it was and however much of it was read; all that came before is exact."""
    options = {} if operator is headrace.semistream.IndexNestedLoop else {"order": order}
    dropped = dict.fromkeys(STEPS, 0)
    for seed in range(30):
        random = Random(seed)
        op = operator(relation, on=case.key, memory="600KiB", how=how, **options)
        got, offered, unread = [], [], None
        while unread is None and len(offered) < 12:
            offered.append(random.choice(case.batches))
            name, most = random.choice(STEPS), random.choice([1, 2, 1000, 1000, 1000])
            some = list(islice(step_of(op, name, offered[-1]), most))  # and the step is dropped
            got += tuples(some)
            if len(some) == most and some[-1].num_rows:  # `run` ends with a batch of no rows if there is no result
                unread = name
        expected = Counter(join(case.rows, offered, case.key, how, ["v", "s", "b"]))
        if unread is None:
            got += tuples(op.drain()) if hasattr(op, "drain") else []
            assert Counter(got) == expected, f"seed {seed}"
            op.stats.check()
            continue
        dropped[unread] += 1
        assert not Counter(got) - expected, f"seed {seed}"
        for name in STEPS:
            with pytest.raises(errors.BadInput, match=f"of this {operator.__name__} were not read to the end"):
                list(step_of(op, name, offered[-1]))
    assert sum(dropped.values()) > 5


def test_contract_steps_are_taken_one_after_the_other(operator, relation, case):
    """While a step is being read no other begins; one that nobody has begun to read has done nothing."""
    op = operator(relation, on=case.key, memory="600KiB", how="left")
    batch = max(case.batches, key=len)
    reading, other = op.join(batch), op.join(batch)
    next(reading)
    with pytest.raises(errors.BadInput, match="read each step to its end before the next"):
        next(other)


def test_contract_wrong_words_are_refused_by_name(operator, relation, case):
    with pytest.raises(errors.BadInput, match="how='outer' is not supported; choose one of inner, left, semi, anti"):
        operator(relation, on=case.key, memory="1MiB", how="outer")
    if not operator.any_column:
        with pytest.raises(errors.BadInput, match="whose key is k0, k1"):
            operator(relation, on="k0", memory="1MiB")
    with pytest.raises(errors.BadInput, match="'nope'"):
        operator(relation, on=case.key, memory="1MiB", columns=["nope"])
    op = operator(relation, on=case.key, memory="1MiB")
    with pytest.raises(errors.BadInput, match="no column 'k1'"):
        tuples(op.run([pa.record_batch({"k0": [1], "x": [1]})]))
    with pytest.raises(errors.BadInput, match=r"'k0' has type string.*int64"):
        tuples(op.run([pa.record_batch({"k0": ["a"], "k1": ["b"]})]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a"], pa.string_view()),
        pa.array([b"a"], pa.binary_view()),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.RunEndEncodedArray.from_arrays([1], [5]),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    ],
    ids=lambda array: str(array.type),
)
def test_contract_stream_columns_of_types_that_cannot_be_joined_are_refused_by_name(operator, relation, case, column):
    op = operator(relation, on=case.key, memory="1MiB")
    batch = case.batches[0].slice(0, 1)
    with pytest.raises(
        errors.UnsupportedType, match=r"stream column 'odd' has type .*; cast it to another type"
    ) as refused:
        tuples(op.run([batch.append_column("odd", column)]))
    assert str(column.type) in str(refused.value)


def test_contract_unsigned_64_bit_keys_are_refused_by_name(operator, relation, case):
    op = operator(relation, on=case.key, memory="1MiB")
    batch = case.batches[0]
    at = batch.schema.names.index("k0")
    assert batch.column(at).type == pa.int64()
    with pytest.raises(errors.BadInput, match=r"stream column 'k0' has type uint64.*cast the stream column to int64"):
        tuples(op.run([batch.set_column(at, "k0", pa.nulls(batch.num_rows, pa.uint64()))]))
