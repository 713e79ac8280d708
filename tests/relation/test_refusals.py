"""What cannot be stored is refused before anything is written, and the message says what to do."""

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from tests.support.relation_oracle import check_same, leftovers

GOOD = pa.table({"k": [1, 2], "v": ["a", "b"]})


def refused(tmp_path, data, kind=hr.BadInput, **options) -> str:
    """The message; nothing is left behind."""
    with pytest.raises(kind) as caught:
        hr.Relation.create(tmp_path / "r", data, **{"key": "k", **options})
    assert leftovers(tmp_path / "r") == []
    assert not (tmp_path / "r").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [2]]),
        pa.array([[1], [2]], pa.large_list(pa.int64())),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
        pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        pa.array([Decimal(1), Decimal(2)], pa.decimal256(50, 0)),
        pa.DictionaryArray.from_arrays([0, 1], pa.array([[1], [2]])),
        pa.RunEndEncodedArray.from_arrays([1, 2], [5, 6]),
        pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
    ],
    ids=lambda a: str(a.type),
)
def test_unstorable_types_are_named(column, tmp_path):
    message = refused(tmp_path, pa.table({"k": [1, 2], "odd": column}), hr.UnsupportedType)
    assert "'odd'" in message
    assert str(column.type) in message or str(getattr(column.type, "value_type", "?")) in message


def test_an_unstorable_type_inside_a_struct_is_named_in_full(tmp_path):
    nested = pa.array([{"inner": {"list": [1]}}])
    message = refused(tmp_path, pa.table({"k": [1], "s": nested}), hr.UnsupportedType)
    assert "'s_inner_list'" in message
    assert "list<" in message


@pytest.mark.parametrize(
    "key",
    [
        pa.array([1, 2], pa.uint64()),
        pa.array([1, 2], pa.uint8()),
        pa.array([1.0, 2.0], pa.float32()),
        pa.array([1.0, 2.0], pa.float64()),
        pa.array([True, False]),
        pa.array([dt.time(1), dt.time(2)]),
        pa.array([dt.timedelta(1), dt.timedelta(2)]),
        pa.nulls(2),
    ],
    ids=lambda a: str(a.type),
)
@pytest.mark.parametrize("names", ["k", ["v", "k"]])
def test_types_that_cannot_be_keys_are_named(key, names, tmp_path):
    message = refused(tmp_path, pa.table({"k": key, "v": ["a", "b"]}), hr.UnsupportedType, key=names)
    assert "'k'" in message
    assert str(key.type) in message
    assert "key" in message


@pytest.mark.parametrize("key", ["nope", ["k", "nope"]])
def test_a_missing_key_column_is_named_with_those_there_are(key, tmp_path):
    message = refused(tmp_path, GOOD, key=key)
    assert "'nope'" in message
    assert "k, v" in message


@pytest.mark.parametrize("key", [[], ()])
def test_no_key(key, tmp_path):
    assert "key" in refused(tmp_path, GOOD, key=key)


def test_a_key_column_named_twice(tmp_path):
    assert "'k'" in refused(tmp_path, GOOD, key=["k", "k"])


def test_names_that_clash_once_structs_are_flattened(tmp_path):
    clash = pa.table({"k": [1], "a_b": [2], "a": pa.array([{"b": 3}])})
    message = refused(tmp_path, clash)
    assert "'a_b'" in message
    assert "2 times" in message


def test_two_columns_of_one_name(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["k", "v", "v"])
    assert "'v'" in refused(tmp_path, twice)


@pytest.mark.parametrize("size", [1, 4095, 4097, 6000, "5KiB", "8KB"])
def test_page_sizes_are_multiples_of_4_kib(size, tmp_path):
    message = refused(tmp_path, GOOD, page_size=size)
    assert repr(size) in message
    assert "4KiB" in message


@pytest.mark.parametrize("size", [0, -4096, "many", None, 4096.0])
def test_page_sizes_are_sizes(size, tmp_path):
    assert repr(size) in refused(tmp_path, GOOD, page_size=size)


@pytest.mark.parametrize("fill", [0, -0.5, 1.0001, 80, float("nan"), float("inf")])
def test_fill_is_a_share_of_a_page(fill, tmp_path):
    message = refused(tmp_path, GOOD, fill=fill)
    assert f"fill={fill}" in message


@pytest.mark.parametrize("shards", [0, -1])
def test_a_relation_has_shards(shards, tmp_path):
    assert f"shards={shards}" in refused(tmp_path, GOOD, shards=shards)


@pytest.mark.parametrize("memory", [0, "lots", -1])
def test_memory_is_a_size(memory, tmp_path):
    assert repr(memory) in refused(tmp_path, GOOD, memory=memory)


def test_null_keys_is_a_choice(tmp_path):
    assert "refuse, drop" in refused(tmp_path, GOOD, null_keys="keep")


def test_null_keys_are_refused_with_their_number(tmp_path):
    table = pa.table({"k": [1, None, None], "v": [1, 2, 3]})
    message = refused(tmp_path, table)
    assert "'k'" in message
    assert "2 null" in message
    assert "null_keys='drop'" in message


def test_null_keys_can_be_dropped(tmp_path):
    table = pa.table({"a": [1, None, 3, 0], "b": ["x", "y", None, ""], "v": [1, 2, 3, 4]})
    rel = hr.Relation.create(tmp_path / "r", table, key=["a", "b"], null_keys="drop")
    check_same(rel, pa.table({"a": [1, 0], "b": ["x", ""], "v": [1, 4]}))
    only = pa.table({"a": pa.array([None, None], pa.int64())})
    check_same(hr.Relation.create(tmp_path / "s", only, key="a", null_keys="drop"), only.slice(0, 0))


@pytest.mark.parametrize("extra", [0, 1, 7, 4000, 9000])
def test_a_row_larger_than_a_page_is_told_the_size_to_use(extra, tmp_path):
    table = pa.table({"k": ["a", "big", "c"], "v": ["x", "y" * (4096 + extra), "z"], "w": [None, 1, 2]})
    message = refused(tmp_path, table, page_size=4096)
    assert "'big'" in message
    size = int(message.split("page_size=")[1].split()[0])
    assert size % 4096 == 0
    with hr.Relation.create(tmp_path / "good", table, key="k", page_size=size) as rel:
        check_same(rel, table)
    (tmp_path / "s").mkdir()
    if size > 8192:
        refused(tmp_path / "s", table, page_size=size - 4096)


def test_rows_up_to_the_last_byte_of_a_page(tmp_path):
    """Every length around the limit is stored whole or refused: nothing is written past a page."""
    stored = []
    for length in range(3900, 4100):
        table = pa.table({"k": [2, 1, 3], "v": ["a", "x" * length, None], "w": pa.array([None, 7, 8], pa.int8())})
        try:
            rel = hr.Relation.create(tmp_path / str(length), table, key="k", page_size=4096, shards=1, fill=1.0)
        except hr.BadInput:
            continue
        check_same(rel, table)
        rel.close()
        stored.append(length)
    assert stored == list(range(3900, stored[-1] + 1))
    assert 3900 < stored[-1] < 4096


def test_more_columns_than_a_page_can_hold(tmp_path):
    wide = pa.table({"k": [1], **{f"c{i}": [i] for i in range(300)}})
    assert "page_size" in refused(tmp_path, wide, page_size=4096)
    with hr.Relation.create(tmp_path / "r", wide, key="k", page_size="16KiB") as rel:
        check_same(rel, wide)


@pytest.mark.parametrize("text", [False, True])
def test_the_page_size_that_two_thousand_columns_need_is_given_and_does(text, tmp_path):
    wide = pa.table({"k": [1, 2], **{f"c{i}": ["" if text else i, None] for i in range(1999)}})
    message = refused(tmp_path, wide)
    assert "a row of 2,000 columns needs" in message and "a page has 8,192" in message
    assert ("the bytes of 1,999 columns of text or binary come on top" in message) == text
    size = int(re.search(r"create the relation with page_size=(\d+) or more", message)[1])
    check_same(hr.Relation.create(tmp_path / "r", wide, key="k", page_size=size), wide)


@pytest.mark.parametrize(
    "data", [5, None, [{"k": 1}], {"k": [1]}, pa.array([1]), np.zeros(3)], ids=lambda d: type(d).__name__
)
def test_data_of_another_kind_is_refused_with_what_is_expected(data, tmp_path):
    message = refused(tmp_path, data)
    assert type(data).__name__ in message
    assert "Table" in message


def test_a_path_without_data(tmp_path):
    missing = tmp_path / "none.parquet"
    assert str(missing) in refused(tmp_path, missing)


def test_an_existing_path_is_not_replaced_unasked(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "diary.txt").write_text("dear")
    with pytest.raises(hr.BadInput, match=r"exists.*overwrite=True"):
        hr.Relation.create(tmp_path / "r", GOOD, key="k")
    assert (tmp_path / "r" / "diary.txt").read_text() == "dear"


@pytest.mark.parametrize("what", ["directory", "file"])
def test_overwrite_replaces_relations_and_nothing_else(what, tmp_path):
    """One wrong path must not cost somebody a home directory."""
    root = tmp_path / "r"
    keep = root / "diary.txt" if what == "directory" else root
    keep.parent.mkdir(exist_ok=True)
    keep.write_text("dear")
    with pytest.raises(hr.HeadraceError, match=str(root)):
        hr.Relation.create(root, GOOD, key="k", overwrite=True)
    assert keep.read_text() == "dear"


def test_a_refusal_leaves_the_old_relation(tmp_path):
    hr.Relation.create(tmp_path / "r", GOOD, key="k")
    with pytest.raises(hr.BadInput):
        hr.Relation.create(tmp_path / "r", pa.table({"k": [None]}), key="k", overwrite=True)
    assert leftovers(tmp_path / "r") == []
    check_same(hr.Relation.open(tmp_path / "r"), GOOD)


def test_a_source_that_fails_leaves_nothing(tmp_path):
    def batches():
        yield GOOD.to_batches()[0]
        raise OSError("the network went away")

    reader = pa.RecordBatchReader.from_batches(GOOD.schema, batches())
    with pytest.raises(OSError, match="network"):
        hr.Relation.create(tmp_path / "r", reader, key="k")
    assert list(tmp_path.iterdir()) == []


# -- text, paths and long values -------------------------------------------------------------------


def invalid_text(*values: bytes) -> pa.Array:
    """Bytes that Arrow takes for strings without a look at them."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"k": [1, 2], "v": invalid_text(b"fine", b"\xff\xfe")}),
        pa.table({"k": [1, 2], "v": pa.DictionaryArray.from_arrays([0, 0], invalid_text(b"\xc3("))}),
        pa.table({"k": invalid_text(b"a", b"\xed\xa0\x80"), "v": [1, 2]}),
        pa.table({"k": [1], "s": pa.StructArray.from_arrays([invalid_text(b"\x80")], ["v"])}),
    ],
    ids=["payload", "dictionary", "key", "struct"],
)
def test_text_that_is_not_utf_8_is_refused(table, tmp_path):
    message = refused(tmp_path, table)
    assert "holds text that is not UTF-8" in message
    assert "cast the column to binary" in message


def test_text_that_is_not_utf_8_is_refused_by_apply(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", GOOD, key="k")
    with pytest.raises(hr.BadInput, match="column 'v' holds text that is not UTF-8"):
        rel.apply(upserts=pa.table({"k": [1], "v": invalid_text(b"\xff")}))
    assert rel.refresh().version == 1


@pytest.mark.parametrize(
    "url", ["s3://bucket/r", "S3A://bucket/r", "abfss://c@a.dfs.core.windows.net/r", "hdfs:/r", "gs://b"]
)
def test_a_url_is_no_path(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (url, Path(url)):
        with pytest.raises(hr.BadInput, match=r"is not a local directory; .*object stores are not"):
            hr.Relation.create(given, GOOD, key="k")
        with pytest.raises(hr.BadInput, match="is not a local directory"):
            hr.Relation.open(given)
        with pytest.raises(hr.BadInput, match=r"data=.* is not a local directory"):
            hr.Relation.create(tmp_path / "r", given, key="k")
    with pytest.raises(hr.BadInput, match="is not a local directory"):
        hr.delta(url)
    assert list(tmp_path.iterdir()) == []


def test_a_file_url_is_a_path(tmp_path):
    hr.Relation.create(f"file://{tmp_path}/r", GOOD, key="k").close()
    with hr.Relation.open(tmp_path / "r") as rel:
        check_same(rel, GOOD)


LONG = "x" * (1 << 20)


ONE = pa.table({"k": [LONG], "v": ["a"]})
LONG_VALUES = {
    "larger than a page": lambda texts, numbers: texts.apply(upserts=ONE),
    "in both": lambda texts, numbers: texts.apply(upserts=ONE, deletes=[LONG]),
    "no number": lambda texts, numbers: numbers.lookup([LONG]),
    "no text": lambda texts, numbers: texts.lookup([10**4000]),
    "upserts of another type": lambda texts, numbers: numbers.apply(upserts=ONE),
    "twice in a snapshot": lambda texts, numbers: hr.snapshot_diff(pa.concat_tables([ONE, ONE]), texts),
    "a size": lambda texts, numbers: hr.Relation.create(texts.path, GOOD, key="k", page_size=LONG, overwrite=True),
    "a choice": lambda texts, numbers: hr.Relation.create(texts.path, GOOD, key="k", null_keys=LONG),
    "a URL": lambda texts, numbers: hr.Relation.open(f"s3://{LONG}"),
}


@pytest.mark.parametrize("what", LONG_VALUES)
def test_no_message_carries_a_whole_value(what, tmp_path):
    texts = hr.Relation.create(tmp_path / "texts", pa.table({"k": ["a"], "v": ["b"]}), key="k")
    numbers = hr.Relation.create(tmp_path / "numbers", GOOD, key="k")
    with pytest.raises(hr.HeadraceError) as caught:
        LONG_VALUES[what](texts, numbers)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("key", [None, 5, ["k", None], [["k"]]])
def test_a_key_that_is_no_name_is_refused_with_the_names_there_are(key, tmp_path):
    message = refused(tmp_path, GOOD, key=key)
    assert message.startswith(f"key={key} is not a column's name; give the column or columns to join on")
    assert message.endswith("the data have k, v")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shards": "two"}, "shards='two' is not possible; give a whole number, 1 or more"),
        ({"shards": 1.5}, "shards=1.5 is not possible"),
        ({"shards": True}, "shards=True is not possible"),
        ({"shards": 0}, "shards=0 is not possible"),
        ({"shards": 32_768}, "shards=32768 is too many; a relation has 32,767 at most"),
        ({"fill": "0.8"}, "fill='0.8' is not a share of a page"),
        ({"fill": None}, "fill=None is not a share of a page"),
        ({"memory": "lots"}, "memory='lots' is not a size; give '64MiB'"),
        ({"page_size": "8 pages"}, "page_size='8 pages' is not a size"),
        ({"page_size": "1GiB"}, "page_size='1GiB' is too large; a page has 64MiB at most"),
        ({"progress": True}, "progress=True is not a function"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(given, message, tmp_path):
    assert refused(tmp_path, GOOD, **given).startswith(message)


@pytest.mark.parametrize("path", [5, None, ["r"], 1.5])
def test_a_path_that_is_none_is_refused(path):
    for call in (hr.Relation.open, lambda path: hr.Relation.create(path, GOOD, key="k")):
        with pytest.raises(hr.BadInput) as caught:
            call(path)
        assert str(caught.value) == f"path={path} is not a path; give a text or a pathlib.Path"


def test_an_open_relation_is_no_path(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", GOOD, key="k")
    with pytest.raises(hr.BadInput, match=r"path=Relation\(.* is not a path"):
        hr.Relation.open(rel)


@pytest.mark.parametrize("keys", ["abc", 5, None, b"abc", 2.5])
def test_one_value_is_no_list_of_keys(keys, tmp_path):
    """A text would be taken for its letters."""
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": ["a", "b"]}), key="k")
    with pytest.raises(hr.BadInput) as caught:
        rel.lookup(keys)
    shown = repr(keys)
    assert str(caught.value) == f"keys={shown} is one value of 'k'; give a list: [{shown}]"


def test_a_near_name_and_a_directory_of_relations_are_pointed_to(tmp_path):
    hr.Relation.create(tmp_path / "all" / "products.rel", GOOD, key="k")
    (tmp_path / "all" / "product").mkdir()
    with pytest.raises(hr.NotARelation) as caught:
        hr.Relation.open(tmp_path / "all" / "product.rel")
    assert str(caught.value).endswith(f"(did you mean '{tmp_path}/all/products.rel'?)")
    with pytest.raises(hr.NotARelation, match=r"it holds relations: did you mean '.*/all/products.rel'"):
        hr.Relation.open(tmp_path / "all")
    with pytest.raises(hr.NotARelation, match=r"there is no relation at .*; create one with Relation.create$"):
        hr.Relation.open(tmp_path / "all" / "customers.rel")


@pytest.mark.parametrize("version", ["1", 1.0, True])
def test_a_version_is_a_number(version, tmp_path):
    hr.Relation.create(tmp_path / "r", GOOD, key="k")
    with pytest.raises(hr.BadInput, match=f"version={version!r} is not a version's number"):
        hr.Relation.open(tmp_path / "r", version=version)


def test_columns_as_one_text_and_an_empty_path(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", GOOD, key="k")
    for call in (lambda: rel.lookup([1], columns="v"), lambda: list(rel.scan(columns="v"))):
        with pytest.raises(hr.BadInput, match=r"columns='v' is one text; give a list of names: \['v'\]"):
            call()
    with pytest.raises(hr.BadInput, match="path='' is empty"):
        hr.Relation.open("")


def test_arguments_in_the_wrong_order_give_one_line():
    with pytest.raises(hr.BadInput) as caught:
        hr.Relation.create(GOOD, "r", key="k")
    assert "\n" not in str(caught.value) and "is not a path" in str(caught.value)
