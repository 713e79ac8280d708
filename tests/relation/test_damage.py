"""Bytes on disk that are not the bytes written: found on read, and named by file, shard and page."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.relation.manifest import FORMAT, Manifest
from headrace.relation.sidecar import read_arrays, write_arrays
from tests.support.relation_oracle import check_same, scanned

SIZE = 4096
SHARDS = 3
TABLE = pa.table(
    {
        "k": np.arange(600) * 7919 % 10007,
        "s": [None if i % 5 == 0 else "text" * (i % 9) for i in range(600)],
        "v": np.arange(600) / 3,
    }
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "r"
    hr.Relation.create(root, TABLE, key="k", page_size=SIZE, shards=SHARDS, fill=0.9).close()
    return root


@pytest.fixture
def root(pristine, ram_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(pristine, ram_path / "r"))


def files(root, suffix) -> list[Path]:
    return sorted(root.glob(f"*.{suffix}"))


def look_up_all(rel):
    return rel.lookup(TABLE["k"])


READS = {"lookup": look_up_all, "scan": scanned, "verify": hr.Relation.verify}


def caught(root, read, **options) -> hr.DamagedRelation:
    with pytest.raises(hr.DamagedRelation) as found, hr.Relation.open(root, **options) as rel:
        READS[read](rel)
    error = found.value
    assert error.file in str(error)
    return error


def flip(path: Path, at: int, pattern: int = 0xFF) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ pattern]))


class Flipped:
    """One byte of a file wrong inside the block, right again after it."""

    def __init__(self, path: Path, at: int, pattern: int) -> None:
        self.path, self.at, self.pattern = path, at, pattern

    def __enter__(self) -> None:
        flip(self.path, self.at, self.pattern)

    def __exit__(self, *_: object) -> None:
        flip(self.path, self.at, self.pattern)


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", READS)
def test_a_damaged_byte_of_any_page_is_named(read, root):
    """A sample across shards, pages and positions; the kernel's test tries every position."""
    tried = 0
    for shard, path in enumerate(files(root, "pages")):
        size = path.stat().st_size
        positions = {*range(0, size, 211), *range(0, size, SIZE), *range(SIZE - 1, size, SIZE)}
        for at in sorted(positions):
            with Flipped(path, at, (1, 0x80, 0xFF)[at % 3]):
                error = caught(root, read)
            where = (error.file, error.shard, error.page)
            assert where == (str(path), shard, at // SIZE), (at, str(error))
            tried += 1
    assert tried > 140
    check_same(hr.Relation.open(root), TABLE)


@pytest.mark.parametrize("kind", ["buffered", "direct", "simulated"])
def test_every_disk_checks(kind, pristine, tmp_path):
    root = Path(shutil.copytree(pristine, tmp_path / "r"))  # on disk: memory may refuse to be read past the page cache
    path = files(root, "pages")[1]
    flip(path, SIZE + 1000)
    try:
        error = caught(root, "verify", disk=kind)
    except hr.BadInput as refused:
        pytest.skip(str(refused))
    assert (error.file, error.shard, error.page) == (str(path), 1, 1)


def test_only_the_damaged_page_is_lost(root):
    path = files(root, "pages")[0]
    flip(path, 500)
    rel = hr.Relation.open(root)
    lost, fine = 0, 0
    for key in TABLE["k"].to_pylist():
        try:
            fine += rel.lookup([key]).num_rows
        except hr.DamagedRelation as error:
            lost += 1
            assert (error.shard, error.page) == (0, 0)
    assert lost > 0
    assert fine == TABLE.num_rows - lost


def test_the_message_is_one_a_person_can_act_on(root):
    path = files(root, "pages")[2]
    flip(path, 2 * SIZE + 9)
    assert str(caught(root, "verify")) == (f"shard 2, page 2 of {path}: its checksum does not match its bytes")


def test_damage_while_the_relation_is_open(root):
    with hr.Relation.open(root) as rel:
        look_up_all(rel)
        flip(files(root, "pages")[0], 77)
        with pytest.raises(hr.DamagedRelation, match="shard 0, page 0"):
            look_up_all(rel)


@pytest.mark.parametrize("read", READS)
def test_pages_swapped_within_a_file(read, root):
    path = files(root, "pages")[1]
    raw = path.read_bytes()
    path.write_bytes(raw[SIZE : 2 * SIZE] + raw[:SIZE] + raw[2 * SIZE :])
    error = caught(root, read)
    assert (error.file, error.shard, error.page) == (str(path), 1, 0)
    assert "another place" in error.reason


@pytest.mark.parametrize("read", READS)
def test_pages_swapped_between_shards(read, root):
    a, b = files(root, "pages")[:2]
    x, y = a.read_bytes(), b.read_bytes()
    a.write_bytes(x[:SIZE] + y[SIZE : 2 * SIZE] + x[2 * SIZE :])
    b.write_bytes(y[:SIZE] + x[SIZE : 2 * SIZE] + y[2 * SIZE :])
    error = caught(root, read)
    assert (error.file, error.shard, error.page) == (str(a), 0, 1)
    assert "another place" in error.reason


def test_a_page_written_to_the_wrong_file_of_its_shard(root):
    """After an update a shard has two files, and both have a page 0."""
    with hr.Relation.open(root) as rel:
        rel.apply(upserts=TABLE.slice(0, 60).set_column(2, "v", pa.array(np.full(60, -1.0))))
    old, new = (p for p in files(root, "pages") if p.name.startswith("shard-0001"))
    with new.open("r+b") as file:
        file.write(old.read_bytes()[:SIZE])
    error = caught(root, "verify")
    assert (error.file, error.shard, error.page) == (str(new), 1, 0)


def test_a_page_file_of_another_relation(root, ram_path):
    """Same name, same size, sound pages: a backup put back in the wrong place."""
    other = TABLE.set_column(2, "v", pa.array(np.full(600, -1.0)))
    hr.Relation.create(ram_path / "other", other, key="k", page_size=SIZE, shards=SHARDS, fill=0.9)
    theirs, ours = files(ram_path / "other", "pages")[0], files(root, "pages")[0]
    assert theirs.stat().st_size == ours.stat().st_size
    shutil.copy(theirs, ours)
    error = caught(root, "verify")
    assert (error.file, error.shard) == (str(ours), 0)


def test_pages_of_zeros(root):
    path = files(root, "pages")[0]
    raw = bytearray(path.read_bytes())
    raw[SIZE : 2 * SIZE] = bytes(SIZE)
    path.write_bytes(raw)
    error = caught(root, "verify")
    assert (error.shard, error.page) == (0, 1)


# -- whole files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 100, SIZE, SIZE + 1, "all"])
def test_a_truncated_page_file(cut, root):
    path = files(root, "pages")[1]
    size = path.stat().st_size
    os.truncate(path, 0 if cut == "all" else size - cut)
    with pytest.raises(hr.DamagedRelation, match="truncated") as found:
        hr.Relation.open(root)
    assert (found.value.file, found.value.shard) == (str(path), 1)
    assert f"{size:,}" in str(found.value)


@pytest.mark.parametrize("more", [1, SIZE])
def test_an_extended_page_file(more, root):
    path = files(root, "pages")[2]
    with path.open("ab") as file:
        file.write(bytes(more))
    with pytest.raises(hr.DamagedRelation, match="something was added") as found:
        hr.Relation.open(root)
    assert (found.value.file, found.value.shard) == (str(path), 2)


@pytest.mark.parametrize("read", READS)
def test_truncated_while_the_relation_is_open(read, root):
    path = files(root, "pages")[0]
    with hr.Relation.open(root) as rel:
        os.truncate(path, SIZE + 10)
        with pytest.raises(hr.DamagedRelation) as found:
            READS[read](rel)
    assert (found.value.file, found.value.shard) == (str(path), 0)
    assert "could not be read in full" in str(found.value)


def test_a_missing_page_file(root):
    path = files(root, "pages")[0]
    path.unlink()
    with pytest.raises(hr.DamagedRelation, match="missing") as found:
        hr.Relation.open(root)
    assert (found.value.file, found.value.shard) == (str(path), 0)


# -- sidecars --------------------------------------------------------------------------------------

SIDECARS = ["index", "filter", "stats"]


@pytest.mark.parametrize("suffix", SIDECARS)
def test_every_damaged_byte_of_a_sidecar_is_found(suffix, root):
    path = files(root, suffix)[1]
    with hr.Relation.open(root) as rel:
        rel.opened.arrays(1, suffix)
        for at in range(path.stat().st_size):
            for pattern in (1, 0x80):
                with Flipped(path, at, pattern), pytest.raises(hr.DamagedRelation) as found:
                    rel.opened.arrays(1, suffix)
                assert (found.value.file, found.value.shard) == (str(path), 1), at
        rel.opened.arrays(1, suffix)


@pytest.mark.parametrize("suffix", SIDECARS)
def test_verify_reads_every_sidecar(suffix, root):
    for shard, path in enumerate(files(root, suffix)):
        for at in range(0, path.stat().st_size, 37):
            with Flipped(path, at, 0x10):
                error = caught(root, "verify")
            assert (error.file, error.shard, error.page) == (str(path), shard, None)


@pytest.mark.parametrize("read", ["lookup", "scan"])
def test_reads_do_not_trust_a_damaged_index(read, root):
    path = files(root, "index")[2]
    flip(path, path.stat().st_size - 100)
    error = caught(root, read)
    assert (error.file, error.shard) == (str(path), 2)


def test_frequencies_do_not_trust_damaged_statistics(root):
    path = files(root, "stats")[0]
    flip(path, 100)
    with pytest.raises(hr.DamagedRelation) as found:
        hr.Relation.open(root).key_frequencies()
    assert (found.value.file, found.value.shard) == (str(path), 0)


@pytest.mark.parametrize("suffix", SIDECARS)
@pytest.mark.parametrize("how", ["truncated", "emptied", "extended", "missing", "text"])
def test_sidecars_of_another_size_or_none(suffix, how, root):
    path = files(root, suffix)[1]
    raw = path.read_bytes()
    new = {"truncated": raw[:-1], "emptied": b"", "extended": raw + b"\0", "text": b"x" * len(raw)}
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(new[how])
    error = caught(root, "verify")
    assert (error.file, error.shard) == (str(path), 1)


@pytest.mark.parametrize("suffix", SIDECARS)
@pytest.mark.parametrize("read", ["verify", "lookup"])
def test_sidecars_swapped_between_shards(suffix, read, root):
    """Both are sound files of this relation; rows must not go missing without a word."""
    if read == "lookup" and suffix != "index":
        return  # a lookup reads neither
    by_size = {}
    for path in files(root, suffix):
        by_size.setdefault(path.stat().st_size, []).append(path)
    a, b = max(by_size.values(), key=len)[:2]
    x, y = a.read_bytes(), b.read_bytes()
    a.write_bytes(y)
    b.write_bytes(x)
    assert caught(root, read).file in (str(a), str(b))


def test_arrays_come_back_as_they_went(tmp_path):
    arrays = {
        "words": np.arange(5, dtype=np.uint32),
        "none": np.empty(0, np.int64),
        "bytes": np.array([0, 255], np.uint8),
        "é": np.array([-1.5, np.nan]),
    }
    size = write_arrays(tmp_path / "a", arrays, 77)
    assert size == (tmp_path / "a").stat().st_size
    with (tmp_path / "a").open("rb") as file:
        found = read_arrays(file.fileno(), tmp_path / "a", 0, size, 77)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].tobytes() == array.tobytes()


# -- the manifest ----------------------------------------------------------------------------------


def test_no_damaged_byte_of_a_manifest_goes_unnoticed(root):
    """Refused by name, or (a blank between two words) of no consequence."""
    path = root / "manifest-000001.json"
    raw = path.read_bytes()
    sound = Manifest.load(path)
    format_at = raw.index(b'"format"')
    refused = 0
    for at in range(len(raw)):
        for pattern in (1, 0x10, 0x80):
            path.write_bytes(raw[:at] + bytes([raw[at] ^ pattern]) + raw[at + 1 :])
            try:
                found = Manifest.load(path)
            except hr.DamagedRelation as error:
                assert error.file == str(path)
                refused += 1
            except hr.NewerFormat:
                assert format_at < at < format_at + 14
                refused += 1
            else:
                assert found == sound, f"byte {at} changed to {raw[at] ^ pattern:#x}"
    assert refused > 2.4 * len(raw)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"5",
        b'"x"',
        b"{}",
        b"\xff\xfe",
        b"\0" * 100,
        b'{"relation": "other"}',
        b'{"relation": "headrace"}',
        b'{"relation": "headrace", "format": "one"}',
        b'{"relation": "headrace", "format": null}',
        b'{"relation": "headrace", "format": 1}',
    ],
)
def test_something_else_in_place_of_a_manifest(text, root):
    (root / "manifest-000001.json").write_bytes(text)
    with pytest.raises(hr.DamagedRelation) as found:
        hr.Relation.open(root)
    assert found.value.file == str(root / "manifest-000001.json")


def test_a_truncated_manifest(root):
    path = root / "manifest-000001.json"
    raw = path.read_bytes()
    for size in range(0, len(raw), 100):
        path.write_bytes(raw[:size])
        with pytest.raises(hr.DamagedRelation, match=re.escape(str(path))):
            hr.Relation.open(root)


def test_the_manifest_of_another_version(root):
    """A copy under another number is not that version."""
    shutil.copy(root / "manifest-000001.json", root / "manifest-000002.json")
    with pytest.raises(hr.DamagedRelation, match=r"manifest-000002\.json"):
        hr.Relation.open(root)


# -- not relations at all --------------------------------------------------------------------------


def test_a_missing_path(tmp_path):
    with pytest.raises(hr.NotARelation, match=re.escape(f"no relation at {tmp_path / 'r'}")):
        hr.Relation.open(tmp_path / "r")
    assert list(tmp_path.iterdir()) == [], "opening made something"


def test_a_foreign_file(tmp_path):
    (tmp_path / "r").write_text("dear diary")
    with pytest.raises(hr.NotARelation, match=re.escape(f"{tmp_path / 'r'} is a file")):
        hr.Relation.open(tmp_path / "r")


@pytest.mark.parametrize("inside", [[], ["diary.txt"], ["part-0.parquet"], ["manifest.json"]])
def test_a_foreign_directory(inside, tmp_path):
    (tmp_path / "r").mkdir()
    for name in inside:
        (tmp_path / "r" / name).write_text("dear")
    with pytest.raises(hr.NotARelation, match=re.escape(str(tmp_path / "r"))):
        hr.Relation.open(tmp_path / "r")
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == inside, "opening made something"


def test_a_newer_format(root):
    path = root / "manifest-000001.json"
    body = json.loads(path.read_bytes())
    path.write_text(json.dumps({**body, "format": FORMAT + 1, "unheard": "of"}))
    with pytest.raises(hr.NewerFormat) as found:
        hr.Relation.open(root)
    assert str(path) in str(found.value)
    assert str(FORMAT + 1) in str(found.value)
    assert "upgrade" in str(found.value)


@pytest.mark.parametrize("name", ["r", "sales[2024]", "what?", "a*b", "r.rel"])
def test_a_half_finished_create(name, tmp_path):
    """What a stopped create leaves is a sibling; the name itself was never given."""
    root = tmp_path / name
    draft = tmp_path / f"{name}.unfinished-999999999-0123abcd"
    draft.mkdir()
    (draft / "shard-0000-000001.pages").write_bytes(bytes(SIZE))
    os.utime(draft, (0, 0))  # long ago: of another host it may be at work until then
    with pytest.raises(hr.UnfinishedRelation) as found:
        hr.Relation.open(root)
    assert str(root) in str(found.value)
    assert draft.name in str(found.value)
    with pytest.raises(hr.UnfinishedRelation, match=re.escape(str(draft))):
        hr.Relation.open(draft)
    with hr.Relation.create(root, TABLE, key="k") as rel:
        check_same(rel, TABLE)
    assert [p.name for p in tmp_path.iterdir()] == [name], "leftovers are not removed"


def test_each_refusal_is_a_class_of_its_own():
    kinds = [hr.NotARelation, hr.UnfinishedRelation, hr.NewerFormat, hr.DamagedRelation]
    kinds += [hr.VersionGone, hr.VersionConflict]
    for kind in kinds:
        assert issubclass(kind, hr.RelationError)
        assert not any(issubclass(kind, other) for other in kinds if other is not kind)


# -- after updates ---------------------------------------------------------------------------------


def test_damage_in_the_files_of_an_update(root):
    with hr.Relation.open(root) as rel:
        rel.apply(upserts=TABLE.slice(0, 100), deletes=TABLE["k"].slice(300, 50))
    fresh = [p for p in files(root, "pages") if p.name.endswith("-000002.pages")]
    assert len(fresh) == SHARDS
    for shard, path in enumerate(fresh):
        for at in range(0, path.stat().st_size, 997):
            with Flipped(path, at, 0x04):
                error = caught(root, "verify")
            assert (error.file, error.shard, error.page) == (str(path), shard, at // SIZE)


def test_a_damaged_relation_is_not_built_upon(root):
    """An update reads what it rewrites; it must not carry damage on under a fresh checksum."""
    flip(files(root, "pages")[0], 1000)
    with hr.Relation.open(root) as rel:
        with pytest.raises(hr.DamagedRelation, match="shard 0, page 0"):
            rel.apply(upserts=TABLE)
        with pytest.raises(hr.DamagedRelation, match="shard 0, page 0"):
            rel.compact()
    assert hr.Relation.open(root).version == 1
