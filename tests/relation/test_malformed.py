"""What was written wrong, with checksums that fit: found, named, and never followed out of a page or out of the relation."""

import json
import os
import re
import shutil
import socket
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.relation.manifest import Manifest
from headrace.semistream import ALGORITHMS
from tests.support.killable_children import table
from tests.support.malformed_pages import (
    ROWS,
    USED,
    bitmap_of,
    data_of,
    rewrite_manifest,
    rewrite_page,
    rewrite_sidecar,
)
from tests.support.relation_oracle import scanned

SIZE = 4096
KEYS = np.arange(600) * 7
TABLE = pa.table({"k": KEYS, "s": [None if i % 5 == 0 else "text" * (i % 9) for i in range(600)], "v": KEYS / 3})
COMPOSITE = pa.table({"a": [f"key {i:03}" for i in range(600)], "b": KEYS, "v": KEYS / 3})
POPULAR = {"order": "frequency", "frequencies": pa.table({"k": KEYS, "frequency": KEYS[::-1]})}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    parent = tmp_path_factory.mktemp("pristine")
    options = {"page_size": SIZE, "shards": 1}
    hr.Relation.create(parent / "key", TABLE, key="k", **options).close()
    hr.Relation.create(parent / "composite", COMPOSITE, key=["a", "b"], **options).close()
    hr.Relation.create(parent / "frequency", TABLE, key="k", page_size=SIZE, **POPULAR).close()
    return parent


@pytest.fixture
def root(pristine, tmp_path) -> Path:
    shutil.copytree(pristine, tmp_path, dirs_exist_ok=True)
    return tmp_path / "key"


def pages_of(root: Path) -> Path:
    (path,) = root.glob("*.pages")
    return path


def set_word(number: int, value: int):
    def edit(words) -> None:
        words[number] = value

    return edit


def set_offset(column: int, row: int, value: int):
    """The offset of a value of variable width."""

    def edit(words) -> None:
        words[int(words[data_of(column)]) // 4 + row] = value

    return edit


def overlap(words) -> None:
    """All columns in the same place, which has room for more rows than all of them have side by side."""
    words[ROWS] = (SIZE - 64) // 8
    words[USED] = SIZE
    words[bitmap_of(1)] = 0
    words[data_of(1)] = words[data_of(2)] = words[data_of(0)]


WRONG = {
    "no end of rows": set_word(ROWS, 0xFFFFFFFF),
    "a row too many": lambda words: set_word(ROWS, int(words[ROWS]) + 1)(words),
    "more in use than a page": set_word(USED, SIZE + 8),
    "less in use than there is": set_word(USED, 64),
    "keys outside": set_word(data_of(0), SIZE - 8),
    "keys far outside": set_word(data_of(0), 0x7FFFFFF8),
    "keys in the header": set_word(data_of(0), 8),
    "strings outside": set_word(data_of(1), SIZE - 4),
    "values far outside": set_word(data_of(2), 0xFFFFFFF8),
    "nulls outside": set_word(bitmap_of(1), SIZE - 1),
    "a string that ends outside": lambda words: set_offset(1, int(words[ROWS]), SIZE)(words),
    "a string that ends before it begins": set_offset(1, 3, 0xFFFFFF00),
    "offsets that begin late": set_offset(1, 0, 4),
    "columns in the same place": overlap,
}


def read_by_join(algorithm: str):
    def read(rel: hr.Relation) -> None:
        op = ALGORITHMS[algorithm](rel, "k", "1MiB")
        list(op.run([pa.record_batch({"k": KEYS}), pa.record_batch({"k": KEYS})]))

    return read


READS = {
    "lookup": lambda rel: rel.lookup(KEYS),
    "scan": scanned,
    "verify": hr.Relation.verify,
    "apply": lambda rel: rel.apply(upserts=TABLE),
    "compact": hr.Relation.compact,
    "diff": lambda rel: hr.snapshot_diff(TABLE, rel),
    **{name: read_by_join(name) for name in ALGORITHMS if name != "xhybridjoin"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_page_that_leads_outside_of_itself_is_refused_by_every_reader(wrong, root):
    path = pages_of(root)
    rewrite_page(path, SIZE, 2, WRONG[wrong])
    for read in READS.values():
        with hr.Relation.open(root) as rel, pytest.raises(hr.DamagedRelation) as found:
            read(rel)
        assert str(found.value) == f"shard 0, page 2 of {path}: its rows or offsets lie outside of it"
    assert Manifest.load(max(root.glob("manifest-*"))).version == 1, "a writer committed what it could not read"


@pytest.mark.parametrize("wrong", ["no end of rows", "columns in the same place", "strings outside"])
def test_pages_stored_by_frequency_are_checked_too(wrong, root):
    root = root.with_name("frequency")
    rewrite_page(pages_of(root), SIZE, 1, WRONG[wrong])
    for read in (hr.Relation.verify, READS["lookup"], read_by_join("xhybridjoin")):
        with hr.Relation.open(root) as rel, pytest.raises(hr.DamagedRelation, match=r"page 1 .*lie outside of it"):
            read(rel)


def test_a_composite_key_that_is_no_encoding(root):
    """The terminator of its string is missing: decoding would go on through memory."""
    root = root.with_name("composite")

    def edit(words) -> None:
        raw = words.view(np.uint8)
        start = int(words[data_of(0)])
        rows = int(words[ROWS])
        data = start + 4 * (rows + 1)
        raw[data : data + int(words[start // 4 + rows])] = ord("x")

    rewrite_page(pages_of(root), SIZE, 1, edit)
    with hr.Relation.open(root) as rel:
        with pytest.raises(hr.DamagedRelation) as found:
            scanned(rel)
        assert str(found.value) == f"{root}: a key in it is not made of string, int64; verify() names the page"
        with pytest.raises(hr.DamagedRelation, match=r"shard 0, page 1 of .*: a key in it is not of the key's types"):
            rel.verify()


def test_a_key_out_of_its_types_range(tmp_path):
    root = tmp_path / "r"
    hr.Relation.create(root, pa.table({"k": pa.array([1, 2], pa.int8())}), key="k", shards=1, page_size=SIZE).close()
    rewrite_page(pages_of(root), SIZE, 0, lambda words: set_word(int(words[data_of(0)]) // 4 + 3, 1)(words))
    with hr.Relation.open(root) as rel:
        with pytest.raises(hr.DamagedRelation, match=f"^{re.escape(str(root))}: a key in it is not of type int8"):
            scanned(rel)
        with pytest.raises(hr.DamagedRelation, match=r"shard 0, page 0 of .*: a key in it is not of the key's types"):
            rel.verify()


# -- what verify compares --------------------------------------------------------------------------


def swap_rows(words) -> None:
    keys = int(words[data_of(0)]) // 4
    words[keys : keys + 2], words[keys + 2 : keys + 4] = (
        words[keys + 2 : keys + 4].copy(),
        words[keys : keys + 2].copy(),
    )


def set_key(row: int, value: int):
    def edit(words) -> None:
        words[int(words[data_of(0)]) // 4 + 2 * row] = value

    return edit


CONTRADICTIONS = {
    "out of order": (lambda root: rewrite_page(pages_of(root), SIZE, 2, swap_rows), "out of order|first key"),
    "another first key": (
        lambda root: rewrite_page(pages_of(root), SIZE, 0, set_key(0, 0xFFFFFFFF)),
        "page 0 .*: (its first key is not|the filter does not know)",
    ),
    "a key that the filter lacks": (
        lambda root: rewrite_sidecar(root, 0, "filter", lambda a: a["words"].fill(0)),
        "page 0 .*the filter does not know one of its keys",
    ),
    "another fence": (
        lambda root: rewrite_sidecar(root, 0, "index", lambda a: a["values"].view(np.int64).__setitem__(1, 1)),
        "page 1 .*its first key is not the one in the index",
    ),
    "a key said to span pages": (
        lambda root: rewrite_sidecar(root, 0, "index", lambda a: a["continues"].__setitem__(1, 1)),
        "page 1 .*wrong about a key that spans it and the page before",
    ),
    "a histogram of other keys": (
        lambda root: rewrite_sidecar(root, 0, "stats", lambda a: a["histogram"].__setitem__(0, 5)),
        r"\.stats: its histogram does not count 600 keys",
    ),
    "other rows": (
        lambda root: rewrite_manifest(root, lambda m: setattr(m.shards[0], "rows", 601)),
        r"its field shards\[0\]\.rows is 601; the pages hold 600",
    ),
    "other distinct keys": (
        lambda root: rewrite_manifest(root, lambda m: setattr(m.shards[0], "distinct", 599)),
        r"its field shards\[0\]\.distinct is 599; the pages hold 600",
    ),
    "other bytes in use": (
        lambda root: rewrite_manifest(root, lambda m: setattr(m.shards[0], "used_bytes", m.shards[0].used_bytes - 8)),
        r"its field shards\[0\]\.used_bytes is",
    ),
    "fewer of the most frequent": (
        lambda root: rewrite_manifest(root, lambda m: setattr(m.shards[0], "max_frequency", 0)),
        r"its field shards\[0\]\.max_frequency is 0; the pages hold 1",
    ),
    "other nulls": (
        lambda root: rewrite_manifest(root, lambda m: m.nulls.update(v=1)),
        r"its field nulls\['v'\] is 1; the pages hold 0",
    ),
    "other variable bytes": (
        lambda root: rewrite_manifest(root, lambda m: m.variable_bytes.update(s=1)),
        r"its field variable_bytes\['s'\] is 1; the pages hold",
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_verify_finds_parts_that_contradict_each_other(what, root):
    write, said = CONTRADICTIONS[what]
    with hr.Relation.open(root) as rel:
        rel.verify()
    write(root)
    with hr.Relation.open(root) as rel, pytest.raises(hr.DamagedRelation, match=said):
        rel.verify()


def test_verify_compares_a_secondary_index(root):
    root = root.with_name("frequency")
    rewrite_sidecar(root, 0, "index", lambda arrays: arrays["first"].__setitem__(slice(None), 0))
    with (
        hr.Relation.open(root) as rel,
        pytest.raises(hr.DamagedRelation, match="does not lead to it for one of its keys"),
    ):
        rel.verify()


# -- sidecars --------------------------------------------------------------------------------------

OTHER_ARRAYS = {
    "places outside": ("index", lambda a: a.update(places=np.arange(len(a["continues"])) + 1)),
    "places of another file": ("index", lambda a: a.update(places=np.arange(len(a["continues"])) + (7 << 32))),
    "places before the first": ("index", lambda a: a.update(places=np.arange(len(a["continues"])) - 1)),
    "a page too few": ("index", lambda a: a.update(values=a["values"][8:])),
    "no flags": ("index", lambda a: a.update(continues=a["continues"][:0])),
    "another type": ("index", lambda a: a.update(values=a["values"].view(np.int64))),
    "another name": ("index", lambda a: a.update(more=a.pop("places"))),
    "half a key": ("index", lambda a: a.update(values=a["values"][:-4])),
    "no filter": ("filter", lambda a: a.update(words=a["words"][:0])),
    "part of a block": ("filter", lambda a: a.update(words=a["words"][:-1])),
    "counts without keys": ("stats", lambda a: a.update(counts=np.ones(9, np.int64))),
    "a short histogram": ("stats", lambda a: a.update(histogram=a["histogram"][:3])),
}


@pytest.mark.parametrize("what", OTHER_ARRAYS)
def test_arrays_that_do_not_fit_are_refused(what, root):
    part, edit = OTHER_ARRAYS[what]
    rewrite_sidecar(root, 0, part, edit)
    (path,) = root.glob(f"*.{part}")
    with hr.Relation.open(root) as rel, pytest.raises(hr.DamagedRelation) as found:
        rel.verify()
    assert found.value.file == str(path)
    if part == "index":
        with hr.Relation.open(root) as rel, pytest.raises(hr.DamagedRelation):
            rel.lookup(KEYS)


@pytest.mark.parametrize("offsets", [[0, 5, 3], [4, 5, 6], [0, 1, 1 << 40]])
def test_offsets_of_keys_that_lead_outside(offsets, root):
    root = root.with_name("composite")

    def edit(arrays) -> None:
        arrays["offsets"] = np.array([*offsets, *arrays["offsets"][3:]])

    rewrite_sidecar(root, 0, "index", edit)
    with hr.Relation.open(root) as rel, pytest.raises(hr.DamagedRelation, match="not those of such a file"):
        scanned(rel)


def test_a_frequency_index_that_leads_outside(root):
    root = root.with_name("frequency")
    rewrite_sidecar(root, 0, "index", lambda arrays: arrays["first"].__setitem__(5, 10_000))
    with hr.Relation.open(root) as rel, pytest.raises(hr.DamagedRelation, match="pages that are not there"):
        rel.lookup(KEYS)


# -- the manifest ----------------------------------------------------------------------------------


def in_shard(**values):
    return lambda m: [setattr(m.shards[0], name, value) for name, value in values.items()]


def in_file(**values):
    return lambda m: [setattr(m.shards[0].files[0], name, value) for name, value in values.items()]


FIELDS = {
    "version": (lambda m: setattr(m, "version", 0), "version is 0; expected a whole number from 1"),
    "page_size": (lambda m: setattr(m, "page_size", 0), "page_size is 0; expected a whole number from 4,096"),
    "odd page_size": (lambda m: setattr(m, "page_size", 5000), "page_size is 5000; expected a multiple of 4,096"),
    "large page_size": (lambda m: setattr(m, "page_size", 1 << 40), "page_size is"),
    "fill": (lambda m: setattr(m, "fill", 1.5), "fill is 1.5; expected a share"),
    "fill NaN": (lambda m: setattr(m, "fill", float("nan")), "fill is nan"),
    "order": (lambda m: setattr(m, "order", "random"), "order is 'random'; expected 'key' or 'frequency'"),
    "key": (lambda m: setattr(m, "key", ("x",)), r"key is \['x'\]; expected columns of the schema \(k, s, v\)"),
    "key of lists": (lambda m: setattr(m, "key", (["k"],)), "key is"),
    "key of doubles": (lambda m: setattr(m, "key", ("v",)), "its schema is not one of a relation: column 'v'"),
    "lists": (
        lambda m: setattr(m, "schema", m.schema.append(pa.field("l", pa.list_(pa.int8())))),
        "its schema is not one of a relation: column 'l'",
    ),
    "a column twice": (
        lambda m: setattr(m, "schema", m.schema.append(pa.field("v", pa.int8()))),
        "its schema is not one of a relation: column name 'v'",
    ),
    "large strings": (
        lambda m: setattr(m, "schema", pa.schema([*m.schema, pa.field("l", pa.large_string())])),
        "its field schema is",
    ),
    "nulls": (lambda m: setattr(m, "nulls", {"s": 0}), "nulls is .*expected a number for each of s, v"),
    "negative nulls": (lambda m: m.nulls.update(s=-1), r"nulls\['s'\] is -1"),
    "variable_bytes": (lambda m: setattr(m, "variable_bytes", []), r"variable_bytes is \[\]"),
    "no shards": (lambda m: setattr(m, "shards", []), "shards is"),
    "rows": (in_shard(rows=-1), r"shards\[0\]\.rows is -1"),
    "rows that do not fit": (
        in_shard(rows=1 << 40),
        r"shards\[0\]\.rows is .*expected no more than [\d,]+ bytes can hold",
    ),
    "rows as text": (in_shard(rows="many"), r"shards\[0\]\.rows is 'many'"),
    "distinct": (in_shard(distinct=601), r"shards\[0\]\.distinct is 601; expected no more than 600 rows"),
    "pages": (in_shard(pages=10_000), r"shards\[0\]\.pages is 10000; expected no more pages than its files have"),
    "used_bytes": (in_shard(used_bytes=1 << 40), r"shards\[0\]\.used_bytes is"),
    "bytes of a file": (in_file(bytes=4095), r"shards\[0\]\.files\[0\]\.bytes is 4095"),
    "pages of a file": (in_file(pages=1 << 40), r"shards\[0\]\.files\[0\]\.pages is"),
    "a name elsewhere": (
        in_file(name="../secret"),
        r"name is '\.\./secret'; expected the name of a \.pages file of shard 0",
    ),
    "an absolute name": (in_file(name="/etc/passwd"), "name is '/etc/passwd'"),
    "a name of another shard": (in_file(name="shard-0001-000001.pages"), "name is 'shard-0001-000001.pages'"),
    "a name of 1 MB": (in_file(name="x" * (1 << 20)), r"name is 'x+\.\.\.; expected"),
    "a sidecar elsewhere": (
        lambda m: setattr(m.shards[0].index, "name", "../shard-0000-000001.index"),
        r"shards\[0\]\.index\.name is",
    ),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_manifest_is_checked_field_by_field(field, root):
    edit, said = FIELDS[field]
    rewrite_manifest(root, edit)
    with pytest.raises(hr.DamagedRelation, match=said) as found:
        hr.Relation.open(root)
    assert found.value.file == str(root / "manifest-000001.json")
    assert len(str(found.value)) < 400 + len(found.value.file)


def without(name):
    return lambda body: body.pop(name)


TEXTS = {
    "no date": (without("created"), "created is None; expected a text"),
    "an endless format": (
        lambda body: body.update(format=float("inf")),
        "it is not the manifest of a Headrace relation",
    ),
    "a negative format": (lambda body: body.update(format=-1), "it is not the manifest of a Headrace relation"),
    "an unknown field of a shard": (
        lambda body: body["shards"][0].update(colour="red"),
        r"shards\[0\]\.'colour' is 'red'; expected no fields but rows, pages",
    ),
    "an unknown field of a file": (
        lambda body: body["shards"][0]["index"].update(colour="red"),
        r"shards\[0\]\.index\.'colour' is 'red'; expected no fields but name",
    ),
    "pages of a sidecar": (
        lambda body: body["shards"][0]["index"].update(pages="many"),
        r"shards\[0\]\.index\.pages is 'many'; expected a whole number",
    ),
}


@pytest.mark.parametrize("what", TEXTS)
def test_fields_that_are_missing_or_that_nobody_writes(what, root):
    edit, said = TEXTS[what]
    path = root / "manifest-000001.json"
    body = json.loads(path.read_text())
    body.pop("checksum")
    edit(body)
    path.write_text(json.dumps({**body, "checksum": zlib.crc32(json.dumps(body, sort_keys=True).encode())}))
    with pytest.raises(hr.DamagedRelation, match=said):
        hr.Relation.open(root)


@pytest.mark.parametrize("name", ["manifest-0000009.json", "manifest-00000\u0669.json"])
def test_a_manifest_whose_name_no_version_has_is_none(name, children, root):
    (root / name).write_text("{}")
    ended = children.wait(children.start("compact", root), timeout=60)
    assert (ended["signal"], ended["result"]) == (None, 2), "it hangs, or takes the name for that of a version"


# -- files that are none ---------------------------------------------------------------------------


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


INSTEAD = {"fifo": make_fifo, "dangling link": make_dangling, "directory": Path.mkdir, "socket": make_socket}


@pytest.mark.parametrize("kind", INSTEAD)
def test_what_is_no_regular_file_hangs_nothing(kind, children, tmp_path, monkeypatch):
    """In place of each file of a relation, and under names that the next version will have."""
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    hr.Relation.create(tmp_path / "whole", table(300, 1), key="k", page_size=4096).close()
    names = [str(path.relative_to(tmp_path / "whole")) for path in (tmp_path / "whole").rglob("*") if path.is_file()]
    replaced = ["manifest-000000.json", "shard-0000-000002.pages", "shard-0001-000002.index"]
    names += [*replaced, "manifest-000002.json", "locks/writer"]
    assert len(names) == 15
    for name in names:
        root = tmp_path / "r"
        shutil.copytree(tmp_path / "whole", root)
        (root / name).unlink(missing_ok=True)
        INSTEAD[kind](root / name)
        ended = children.wait(children.start("use", root), timeout=60)
        assert ended["signal"] is None, f"{name}: it hangs"
        if ended["error"] is None:
            assert name in replaced, f"{name} was used"
        else:
            assert ended["error"].startswith(("DamagedRelation", "IsADirectoryError")), f"{name}: {ended['error']}"
        shutil.rmtree(root)


def test_a_link_to_a_sound_file_elsewhere_is_not_followed(root):
    path = pages_of(root)
    path.rename(root.parent / "elsewhere.pages")
    path.symlink_to(root.parent / "elsewhere.pages")
    with pytest.raises(hr.DamagedRelation, match="it is not a regular file"):
        hr.Relation.open(root)


def test_locks_that_are_no_directory(root):
    shutil.rmtree(root / "locks")
    (root / "locks").symlink_to(root / "nowhere")
    with pytest.raises(hr.DamagedRelation, match="locks: it is not a directory"):
        hr.Relation.open(root)
