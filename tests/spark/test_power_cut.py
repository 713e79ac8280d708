"""What a power cut can take from `hr.load`: nothing that counts, and what Spark has left half-written is named."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import headrace as hr
from headrace.files import LocalFiles, using
from headrace.spark.checkpoint import LocalCheckpoint, local_checkpoint
from headrace.spark.delta.log_sync import sync_entries
from tests.support.delta_tables import append, on_disk, sink_of, write
from tests.support.spark_streams import files, finished, source

pytestmark = pytest.mark.spark


class Recording(LocalFiles):
    """Notes what this process has on disk, in order."""

    def __init__(self, root: Path) -> None:
        self.root, self.synced = root, []

    def fsync(self, fd):
        self._note(Path(f"/proc/self/fd/{fd}").readlink())
        super().fsync(fd)

    def sync_directory(self, path):
        self._note(path)
        super().sync_directory(path)

    def _note(self, path):
        if Path(path).is_relative_to(self.root):
            self.synced.append(str(Path(path).relative_to(self.root)))


def numbers(first, end):
    return pa.table({"v": pa.array(range(first, end), pa.int64())})


def run(spark, root):
    finished(hr.load(source(spark, root / "in"), root / "t", checkpoint=root / "c", trigger={"availableNow": True}))


def loaded(root):
    return Counter(DeltaTable(str(root / "t")).to_pyarrow_table()["v"].to_pylist())


def test_what_a_commit_stands_on_is_on_disk_before_it(spark, tmp_path):
    files(tmp_path / "in", numbers(0, 3), numbers(3, 5))
    with using(recording := Recording(tmp_path)):
        run(spark, tmp_path)
    order = recording.synced
    for batch in (0, 1):
        entry = order.index(f"t/_delta_log/{batch + 1:020d}.json")
        assert "t/_delta_log" in order[entry:]
        for before in (f"sources/0/{batch}", f"offsets/{batch}", "metadata"):
            assert f"c/{before}" in order[:entry]
        assert {"c", "c/offsets", "c/sources", "c/sources/0"} <= set(order[:entry])
    assert order.index("t/_delta_log/00000000000000000000.json") < order.index("c/metadata")  # the table itself
    assert {"t", "."} <= set(order)


def test_oracle_what_spark_left_half_written_is_named_and_its_removal_loses_nothing(spark, tmp_path):
    files(tmp_path / "in", numbers(0, 3), numbers(3, 5))
    run(spark, tmp_path)
    shutil.copytree(tmp_path / "t", tmp_path / "t before")  # micro-batch 2 is not loaded when the power fails
    files(tmp_path / "in", numbers(5, 9))
    run(spark, tmp_path)
    shutil.copytree(tmp_path / "c", tmp_path / "c after")
    files(tmp_path / "in", numbers(20, 23))
    expected = Counter([*range(9), *range(20, 23)])
    for name, left, table in (
        ("offsets/2", b"v1\n{", "t before"),
        ("sources/0/2", b"", "t before"),
        ("commits/2", b"", "t"),
    ):
        for there in ("t", "c"):
            if (tmp_path / there).exists() and table != there:
                shutil.rmtree(tmp_path / there)
        shutil.copytree(tmp_path / "c after", tmp_path / "c")
        if table != "t":
            shutil.copytree(tmp_path / table, tmp_path / "t")
            (tmp_path / "c" / "commits" / "2").unlink()
        (tmp_path / "c" / name).write_bytes(left)
        with pytest.raises(hr.OutsideFailure, match=rf"/c/{name} is cut short") as refused:
            run(spark, tmp_path)
        for path in re.findall(r"[^ ,]+(?=, )", str(refused.value).split(": remove ")[1]):
            Path(path).unlink(missing_ok=True)
        run(spark, tmp_path)
        assert loaded(tmp_path) == expected, name


@pytest.mark.parametrize("note", [b'v1\n{"orders":{"0":0}}', b'\0v1\n{"orders":{"0":0}}'], ids=["plain", "of Kafka"])
def test_what_a_source_has_noted_is_whole_or_cut_short(tmp_path, note):
    directory = tmp_path / "sources" / "0"
    directory.mkdir(parents=True)
    (directory / "0").write_bytes(note)
    LocalCheckpoint(tmp_path).check()
    for end in range(len(note)):
        (directory / "0").write_bytes(note[:end])
        with pytest.raises(hr.OutsideFailure, match="sources/0/0 is cut short"):
            LocalCheckpoint(tmp_path).check()


def test_metadata_that_is_cut_short_is_named(tmp_path):
    (tmp_path / "metadata").write_bytes(b'{"id":"7')
    with pytest.raises(hr.OutsideFailure, match=f"remove {tmp_path}, and start"):
        LocalCheckpoint(tmp_path).check()
    assert local_checkpoint("hdfs://name/c") is None
    assert local_checkpoint("file:///a%20b") == Path("/a b")


def test_a_commit_is_on_disk_although_others_have_committed_since(tmp_path):
    sink = sink_of(tmp_path / "t", numbers(0, 1).schema)
    append(sink, numbers(0, 1), "mine", 0)
    append(sink, numbers(1, 2), "other", 0)
    sink.table.create_checkpoint()
    with using(recording := Recording(tmp_path / "t" / "_delta_log")):
        sync_entries(sink.path, sink.table.version(), "mine")
    last = f"{2:020d}"
    assert recording.synced == [f"{last}.json", f"{1:020d}.json", f"{last}.checkpoint.parquet", "_last_checkpoint", "."]


def test_files_of_a_task_and_all_directories_above_them_are_on_disk(tmp_path):
    sink = sink_of(tmp_path / "t", pa.schema({"a": pa.int64(), "b": pa.string(), "v": pa.int64()}), "a", "b")
    rows = pa.record_batch({"a": [1, 1, 2], "b": ["x", "y", "x"], "v": [1, 2, 3]})
    with using(recording := Recording(tmp_path / "t")):
        facts = write(sink, [rows])
    made = [fact["path"] for fact in facts]
    assert recording.synced[-len(made) - 6 :] == [*made, ".", "a=1", "a=1/b=x", "a=1/b=y", "a=2", "a=2/b=x"]


def test_a_task_that_fails_leaves_no_file(tmp_path):
    def rows():
        yield pa.record_batch({"v": range(10)})
        raise RuntimeError("lost")

    sink = sink_of(tmp_path / "t", numbers(0, 1).schema)
    with pytest.raises(RuntimeError, match="lost"):
        write(sink, rows())
    assert on_disk(tmp_path / "t") == set()


@pytest.mark.parametrize("name", ["00000000000000000001.json", "00000000000000000001.checkpoint.parquet"])
def test_a_log_that_is_cut_short_is_named_and_its_removal_gives_the_table_back(tmp_path, name):
    sink = sink_of(tmp_path / "t", numbers(0, 1).schema)
    append(sink, numbers(0, 1))
    sink.table.create_checkpoint()
    path = tmp_path / "t" / "_delta_log" / name
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(hr.OutsideFailure, match=f"{name} is cut short.*remove it") as refused:
        sink_of(tmp_path / "t", numbers(0, 1).schema)
    path.unlink()
    if "_last_checkpoint" in str(refused.value):
        path.with_name("_last_checkpoint").unlink()
        assert sink_of(tmp_path / "t", numbers(0, 1).schema).last("app") == 0
