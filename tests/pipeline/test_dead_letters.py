"""Dead letters without Spark: what is kept, and that each record is kept once whatever happened to the run."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.dead_letters import DeadLetterSplitter, count, last_done, settle
from headrace.pipeline.reasons import why

SCHEMA = pa.schema(
    {"sale": pa.int64(), "quantity": pa.int32(), "at": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string())}
)


def rows(*records):
    """Batches as they come from Spark: the columns, the malformed record or null, and where it comes from."""
    sales = [None if isinstance(r, str) else r for r in records]
    texts = [r if isinstance(r, str) else None for r in records]
    columns = [pa.array(sales, pa.int64()), pa.array([1] * len(records), pa.int32())]
    columns += [pa.array([None] * len(records), f.type) for f in list(SCHEMA)[2:]]
    return pa.record_batch([*columns, pa.array(texts, pa.string()), pa.array(["f"] * len(records))], list("abcdef"))


def kept(directory):
    return sorted(r["record"] for r in pq.read_table(directory).to_pylist()) if directory.is_dir() else []


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["{", "x"])), max_size=5), max_size=3))
def test_oracle_good_rows_go_on_and_the_others_are_kept(tmp_path_factory, batches):
    directory = tmp_path_factory.mktemp("d") / "dead"
    letters = DeadLetterSplitter(str(directory), "json", SCHEMA, ("sale",))
    out = list(letters.sort((rows(*b) for b in batches), "3", 1))
    everything = [r for b in batches for r in b]
    assert [v for b in out for v in b.column(0).to_pylist()] == [r for r in everything if isinstance(r, int)]
    dead = [r for r in everything if not isinstance(r, int)]
    assert len(kept(directory)) == len(dead) == count(directory)
    assert sum(r in ("{", "x") for r in kept(directory)) == sum(isinstance(r, str) for r in dead)
    assert [p.name for p in directory.rglob("*.parquet")] == (["part-00001.parquet"] if dead else [])


def test_a_task_that_is_repeated_keeps_nothing_twice(tmp_path):
    letters = DeadLetterSplitter(str(tmp_path), "json", SCHEMA, ())
    for _ in range(2):
        list(letters.sort(iter([rows(1, "{", "x")]), "0", 0))
    assert kept(tmp_path) == ["x", "{"]


def test_tasks_of_two_sources_with_one_number_have_files_of_their_own(tmp_path):
    for name, record in (("", "{"), ("payments", "x")):
        list(DeadLetterSplitter(str(tmp_path), "json", SCHEMA, (), name=name).sort(iter([rows(record)]), "0", 0))
    assert kept(tmp_path) == ["x", "{"]
    assert count(tmp_path) == 2
    settle(tmp_path, -1, begin=True)
    assert count(tmp_path) == 0


def test_a_task_that_fails_leaves_nothing(tmp_path):
    letters = DeadLetterSplitter(str(tmp_path), "json", SCHEMA, ())

    def broken():
        yield rows("{")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(letters.sort(broken(), "0", 0))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_bytes_that_are_no_text_are_shown_escaped(tmp_path):
    batch = rows("{")
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"{\xff}"))
    batch = batch.set_column(4, "e", broken)
    list(DeadLetterSplitter(str(tmp_path), "json", SCHEMA, ()).sort(iter([batch]), "0", 0))
    (found,) = pq.read_table(tmp_path).to_pylist()
    assert found["record"] == r"{\xff}"
    assert found["reason"].startswith("not UTF-8 text")


def write(directory, batch, partition, *records):
    list(DeadLetterSplitter(str(directory), "json", SCHEMA, ()).sort(iter([rows(*records)]), str(batch), partition))


def test_a_restart_that_cuts_the_batch_into_other_tasks_keeps_each_record_once(tmp_path):
    write(tmp_path, 0, 0, "a")
    write(tmp_path, 1, 0, "b")
    write(tmp_path, 1, 1, "c")  # and then it was killed: batch 1 is not done
    settle(tmp_path, 0, begin=True)
    assert kept(tmp_path) == ["a"]
    write(tmp_path, 1, 0, "b", "c")
    settle(tmp_path, 1)
    assert kept(tmp_path) == ["a", "b", "c"]
    assert not list(tmp_path.glob(".aside-*"))


def test_a_restart_whose_sink_had_the_batch_already_keeps_its_records(tmp_path):
    write(tmp_path, 1, 0, "b")
    settle(tmp_path, 0, begin=True)
    settle(tmp_path, 1)  # done, and no task ran
    assert kept(tmp_path) == ["b"]


def test_killed_again_and_again(tmp_path):
    write(tmp_path, 1, 0, "b")
    settle(tmp_path, 0, begin=True)
    settle(tmp_path, 0, begin=True)  # killed before batch 1 began
    write(tmp_path, 1, 1, "b")
    settle(tmp_path, 0, begin=True)  # killed after its tasks, before it was done
    write(tmp_path, 1, 2, "b")
    settle(tmp_path, 1, begin=True)
    assert kept(tmp_path) == ["b"]


def test_the_last_batch_that_is_done(tmp_path):
    assert last_done(tmp_path) == -1
    (tmp_path / "commits").mkdir()
    for name in ("0", "10", "9", ".11.crc", "12.tmp"):
        (tmp_path / "commits" / name).touch()
    assert last_done(tmp_path) == 10


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("", "not JSON: the record is empty"),
        ('{"sale": 1', "not JSON: expecting ',' delimiter (character 11)"),
        ("7", "found 7, expected an object with the columns sale, quantity, at, tags"),
        ('{"quantity": 3000000000}', "column 'quantity': found 3000000000, expected int"),
        ('{"sale": true}', "column 'sale': found True, expected long"),
        ('{"sale": 1.5}', "column 'sale': found 1.5, expected long"),
        ('{"at": "yesterday"}', "column 'at': found 'yesterday', expected timestamp"),
        ('{"tags": "x"}', "column 'tags': found 'x', expected array<string>"),
        ('{"quantity": "\\u001b[31m"}', r"column 'quantity': found '\x1b[31m', expected int"),
        ("[" * 100_000, "not JSON: nested too deep"),
    ],
)
def test_reasons_of_json(record, reason):
    assert why(record, "json", SCHEMA) == reason


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("1;2", "found 2 values, expected 4: sale, quantity, at, tags"),
        ("x;2;;", "column 'sale': found 'x', expected long"),
        ("1;99999999999;;", "column 'quantity': found '99999999999', expected int"),
    ],
)
def test_reasons_of_csv(record, reason):
    assert why(record, "csv", SCHEMA, ";") == reason
