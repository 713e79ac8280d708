"""Relations that are made from PostgreSQL and Delta tables, and follow them: what is new once, and nothing twice."""

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.sources.refresh import RefreshResult

CHANGES = """
CREATE TABLE items (k int PRIMARY KEY, v text);
CREATE TABLE item_changes (n bigserial, x xid8 DEFAULT pg_current_xact_id(), op text, k int, v text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO item_changes (op, k, v) VALUES ('D', OLD.k, OLD.v);
  ELSE INSERT INTO item_changes (op, k, v) VALUES (left(TG_OP, 1), NEW.k, NEW.v); END IF; RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION note();
"""


def rows(path) -> dict:
    with hr.Relation.open(path) as rel:
        found = pa.Table.from_batches(rel.scan(), rel.schema).to_pylist()
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: row["v"] for row in found}


def test_a_relation_follows_a_change_table(database, tmp_path):
    database.query(CHANGES)
    database.query("INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 500) g")
    with pytest.raises(hr.BadInput, match=r"by=\('x', 'a column that counts the changes'\)"):
        hr.postgresql("items", url=database.url, by="x", changes="item_changes", operation="op")
    source = hr.postgresql("items", url=database.url, by=("x", "n"), changes="item_changes", operation="op")
    with hr.Relation.create(tmp_path / "rel", source, key="k") as rel:
        assert rel.num_rows == 500 and hr.refresh(rel, source).changes == 0
        # several changes of a key in one transaction: the last counts
        database.query(
            "BEGIN; DELETE FROM items WHERE k = 1; INSERT INTO items VALUES (1, 'a'); UPDATE items SET v = 'b' WHERE k = 1;"
            " INSERT INTO items VALUES (900, 'x'); DELETE FROM items WHERE k = 900; DELETE FROM items WHERE k = 2; COMMIT"
        )
        done = hr.refresh(rel, source)
        assert (done.version, done.upserts, done.deletes, done.changes) == (2, 1, 2, 1)
        assert hr.refresh(rel, source) == RefreshResult(2, 0, 0, 0)
        assert rows(tmp_path / "rel") == {1: "b"} | {k: f"v{k}" for k in range(3, 501)}
        # more than is held at a time: several versions, and the same end
        for n in range(6):
            database.query(f"UPDATE items SET v = repeat('{n}', 3000) WHERE k BETWEEN {n * 10 + 10} AND {n * 10 + 60}")
        done = hr.refresh(rel, source, memory="150kB")
        assert done.changes > 1 and hr.refresh(rel, source).changes == 0
        wanted = dict(row for row in ((int(k), v) for k, v in database.rows("SELECT k, v FROM items")))
        assert rows(tmp_path / "rel") == wanted


def test_a_relation_follows_the_table_itself_and_marks_of_deletion(database, tmp_path):
    database.query("CREATE TABLE t (k int PRIMARY KEY, v text, at bigint, gone bool)")
    database.query("INSERT INTO t VALUES (1, 'a', 1, false), (2, 'b', 2, NULL)")
    source = hr.postgresql("t", url=database.url, by="at", operation="gone")
    rel = hr.Relation.create(tmp_path / "rel", source, key="k")
    assert rel.schema.names == ["k", "v", "at"]
    database.query("UPDATE t SET gone = true, at = 3 WHERE k = 1; INSERT INTO t VALUES (3, 'c', 4, false)")
    assert hr.refresh(rel, source).deletes == 1 and rows(tmp_path / "rel") == {2: "b", 3: "c"}
    # compacted in between: what it holds is still known
    rel.compact()
    assert hr.refresh(rel, source).changes == 0
    other = hr.postgresql("t", url=database.url, by="k")
    with pytest.raises(hr.BadInput, match=r"was made from postgresql \"t\" by \"t\" at, and cannot follow"):
        hr.refresh(rel, other)
    plain = hr.Relation.create(tmp_path / "plain", pa.table({"k": [1]}), key="k")
    with pytest.raises(hr.BadInput, match="from data that have no versions"):
        hr.refresh(plain, source)
    assert "***" in repr(source) and "host=" not in repr(source) + str(rel.refresh().notes)


def test_an_empty_table_and_keys_that_are_not_unique(database, tmp_path):
    database.query("CREATE TABLE t (k int, v text, at bigint)")
    source = hr.postgresql("t", url=database.url, by="at")
    rel = hr.Relation.create(tmp_path / "rel", source, key="k")
    assert rel.num_rows == 0 and hr.refresh(rel, source).changes == 0
    database.query("CREATE TABLE bad (k int, d date); INSERT INTO bad VALUES (1, 'infinity')")
    with pytest.raises(hr.UnsupportedType, match="holds infinity"):  # in the middle of it
        hr.Relation.create(tmp_path / "bad", hr.postgresql("bad", url=database.url, by="k"), key="k")
    assert not (tmp_path / "bad").exists()
    database.query("INSERT INTO t VALUES (1, 'a', 1), (1, 'b', 2), (NULL, 'c', NULL)")
    assert hr.refresh(rel, source).upserts == 1 and rows(tmp_path / "rel") == {1: "b"}
    database.query("INSERT INTO t VALUES (NULL, 'c', 9)")
    with pytest.raises(hr.BadInput, match="null in key column"):
        hr.refresh(rel, source)
    database.query("DELETE FROM t WHERE k IS NULL")
    several = hr.Relation.create(tmp_path / "several", source, key="k")
    with pytest.raises(hr.BadInput, match="keys with several rows"):
        hr.refresh(several, source)


OPS = st.lists(
    st.tuples(st.sampled_from(["append", "delete", "update", "move", "overwrite", "compact"]), st.integers(0, 7)),
    max_size=6,
)


@settings(max_examples=8, deadline=None)
@example(ops=[("move", 1), ("append", 0), ("delete", 2), ("update", 7)], feed=True, by_part=True, each=False)
@example(ops=[("move", 1), ("compact", 0), ("delete", 2), ("overwrite", 3)], feed=False, by_part=True, each=False)
@given(ops=OPS, feed=st.booleans(), by_part=st.booleans(), each=st.booleans())
def test_oracle_a_relation_follows_a_delta_table(tmp_path_factory, ops, feed, by_part, each):
    root = tmp_path_factory.mktemp("delta")
    path, where = str(root / "t"), root / "rel"
    schema = pa.schema({"k": pa.int64(), "p": pa.string(), "v": pa.string()})

    def table(keys, tag: str) -> pa.Table:
        return pa.table(
            [pa.array(keys, pa.int64()), [f"p{k % 2}" for k in keys], [f"{tag}{k}" for k in keys]], schema=schema
        )

    configuration = {"delta.enableChangeDataFeed": "true"} if feed else {}
    write_deltalake(
        path, table([0, 1, 2, 3], "s"), partition_by=["p"] if by_part else None, configuration=configuration
    )
    source = hr.delta(path)
    rel = hr.Relation.create(where, source, key="k")
    for n, (what, k) in enumerate(ops):
        delta = DeltaTable(path)
        if what == "append":
            write_deltalake(path, table([100 + 10 * n, 101 + 10 * n], f"{n}-"), mode="append")
        elif what == "delete":
            delta.delete(f"k = {k}")
        elif what == "update":
            delta.update(updates={"v": f"'u{n}'"}, predicate=f"k <= {k}")
        elif what == "move":
            delta.update(updates={"k": f"k + {1000 * (n + 1)}"}, predicate=f"k = {k}")
        elif what == "overwrite":
            write_deltalake(path, table([k, 50 + n], f"o{n}-"), mode="overwrite")
        else:
            delta.optimize.compact()
        if each:
            hr.refresh(rel, source)
    hr.refresh(rel, source, memory="1kB" if feed else "1MB")
    assert rows(where) == {row["k"]: row["v"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert hr.refresh(rel, source).changes == 0
    rel.close()


def test_delta_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(hr.BadInput, match="no Delta table at"):
        hr.Relation.create(tmp_path / "rel", hr.delta(tmp_path / "nowhere"), key="k")
    write_deltalake(str(tmp_path / "t"), pa.table({"k": np.arange(10), "v": ["x"] * 10}))
    with pytest.raises(hr.BadInput, match="columns names 'z'"):
        hr.Relation.create(tmp_path / "rel", hr.delta(tmp_path / "t", columns=["z"]), key="k")
    source = hr.delta(tmp_path / "t", columns=["k"])
    rel = hr.Relation.create(tmp_path / "rel", source, key="k")
    assert rel.schema.names == ["k"]
    write_deltalake(str(tmp_path / "t"), pa.table({"k": np.arange(10, 90_000), "v": ["x"] * 89_990}), mode="append")
    with pytest.raises(hr.BadInput, match=r"version 1 of .* replaces files of over 100KiB"):
        hr.refresh(rel, source, memory="100KiB")
    assert hr.refresh(rel, source).upserts == 89_990


def test_a_delta_table_that_changes_its_columns_is_followed_up_to_there(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"k": [1]}))
    source = hr.delta(path)
    rel = hr.Relation.create(tmp_path / "rel", source, key="k")
    write_deltalake(path, pa.table({"k": [2]}), mode="append")
    write_deltalake(path, pa.table({"k": [3], "w": ["x"]}), mode="append", schema_mode="merge")
    with pytest.raises(hr.BadInput, match="upserts have a column 'w' that the relation does not"):
        hr.refresh(rel, source)
    assert rel.refresh().num_rows == 2
    assert hr.refresh(rel, hr.delta(path, columns=["k"])).upserts == 1  # only those that it has
