"""PostgreSQL as a sink: upserts, exactly once; what does not fit is refused before anything is written."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.sources.connection import PostgreSQLError, connected
from headrace.sources.secret import SecretUrl
from headrace.sources.upsert import UpsertTarget

pytestmark = pytest.mark.spark

ROWS = pa.schema({"k": pa.int64(), "v": pa.string(), "at": pa.int64()})


def target(database, ddl: str, rows: pa.Schema = ROWS, key=("k",), latest_by=None) -> UpsertTarget:
    database.query(ddl)
    return UpsertTarget.describe("t", database.url, rows, key, latest_by)


def batch(target: UpsertTarget, number: int, *tasks: list[tuple], app: str = "app") -> int | None:
    """A micro-batch, without Spark; every task is tried twice and counts once."""
    if target.last(app) >= number:
        return None
    stage, tags = target.new_stage(app), []
    schema = pa.schema([(c.name, c.arrow or pa.decimal128(20, 6)) for c in target.columns])
    for n, rows in enumerate(tasks):
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
        table = pa.table(arrays, schema=schema)
        stage.copy(iter(table.to_batches()), n)  # an attempt that the driver never heard of
        tags.append(stage.copy(iter(table.to_batches(max_chunksize=2)), n)[0])
    return target.merge(stage, app, number, tags)


def test_rows_are_inserted_replaced_and_never_twice(database):
    t = target(database, "CREATE TABLE t (k int PRIMARY KEY, v text, at bigint DEFAULT 0)")
    assert batch(t, 0, [(1, "a", 1), (2, "b", 1)], [(3, None, 1)]) == 3
    assert batch(t, 0, [(1, "again", 1)]) is None
    assert batch(t, 1, [(2, "B", 2), (4, "d|\n'", 2)]) == 2
    stage = t.new_stage("app")  # a driver that is thought dead, and was about to merge the same batch
    tag, rows = stage.copy(iter(pa.table({"k": [9], "v": ["late"], "at": [9]}).to_batches()), 0)
    assert rows == 1 and t.merge(stage, "app", 1, [tag]) is None
    assert batch(t, 0, [(5, "other", 1)], app="other") == 1
    found = database.query("SELECT json_agg(t.v ORDER BY k) FROM t")
    assert found == '["a", "B", null, "d|\\n\'", "other"]'
    t.drop(stage)
    assert database.rows("SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace%'") == [["headrace_loads"]]


def test_the_latest_row_of_a_key_stays(database):
    t = target(database, "CREATE TABLE t (k int PRIMARY KEY, v text, at bigint)", latest_by="at")
    batch(t, 0, [(1, "new", 5), (1, "old", 3), (1, "none", None)], [(2, "x", 1)])
    assert database.rows("SELECT * FROM t ORDER BY k") == [["1", "new", "5"], ["2", "x", "1"]]
    batch(t, 1, [(1, "late", 4), (2, "y", 2)])
    assert database.rows("SELECT * FROM t ORDER BY k") == [["1", "new", "5"], ["2", "y", "2"]]


def test_a_key_twice_in_a_batch_is_refused_with_its_value(database):
    t = target(database, "CREATE TABLE t (k int PRIMARY KEY, v text, at bigint)")
    with pytest.raises(hr.BadInput, match=r"key k = '7' comes more than once.*latest_by"):
        batch(t, 0, [(7, "a", 1), (7, "b", 1)])
    assert database.query("SELECT count(*) FROM t") == "0" and t.last("app") == -1
    with pytest.raises(hr.BadInput, match="key column 'k' holds 1 null"):
        batch(t, 0, [(None, "a", 1)])


def test_types_that_cross_as_text_and_numbers_that_do_not_fit(database):
    rows = pa.schema({"n": pa.decimal128(20, 6), "m": pa.decimal128(20, 6), "u": pa.string(), "s": pa.int64()})
    t = target(database, "CREATE TABLE t (n numeric(8,2), m numeric, u uuid, s smallint)", rows, key=())
    uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    schema = pa.schema({"c0": pa.decimal128(20, 6), "c1": pa.decimal128(20, 6), "c2": pa.string(), "c3": pa.int64()})

    def load(*row) -> None:
        stage = t.new_stage("app")
        values = pa.table([pa.array([v], f.type) for v, f in zip(row, schema, strict=True)], schema=schema)
        t.merge(stage, "app", t.last("app") + 1, [stage.copy(iter(values.to_batches()), 0)[0]])

    load(Decimal("1.25"), Decimal("1.123456"), uuid, 7)
    load(None, None, None, None)
    assert database.rows("SELECT * FROM t") == [["1.25", "1.123456", uuid, "7"], ["", "", "", ""]]
    with pytest.raises(hr.BadInput, match=r"'n' holds a value that is no numeric\(8,2\)"):
        load(Decimal("1.239"), None, None, 1)
    with pytest.raises(hr.BadInput, match="'s' holds a value that is no smallint"):
        load(None, None, None, 70_000)
    with pytest.raises(PostgreSQLError, match="invalid input syntax for type uuid"):
        load(None, None, "no uuid", 1)
    assert database.query("SELECT count(*) FROM t") == "2"


def test_what_does_not_fit_is_refused_before_anything_is_written(database):
    ddl = "CREATE TABLE t (k int, v text, at bigint, must int NOT NULL DEFAULT 1, twice int GENERATED ALWAYS AS (k * 2) STORED)"
    with pytest.raises(hr.BadInput, match=r"key=\['k'\] has no unique index.*CREATE UNIQUE INDEX ON \"t\" \(\"k\"\)"):
        target(database, ddl)
    for rows, options, message in [
        (ROWS.append(pa.field("z", pa.int64())), {}, "'z' is not in \"t\""),
        (pa.schema({"k": pa.string()}), {}, "'k' has type string, and \"t\" has integer"),
        (pa.schema({"twice": pa.int32()}), {"key": ()}, "'twice'.*computed by the server"),
        (ROWS, {"key": ("z",)}, "key names 'z'"),
        (ROWS, {"key": (), "latest_by": "at"}, "latest_by='at' needs key"),
    ]:
        with pytest.raises((hr.BadInput, hr.UnsupportedType), match=message):
            UpsertTarget.describe("t", database.url, rows, options.get("key", ("k",)), options.get("latest_by"))
    database.query("ALTER TABLE t ALTER must DROP DEFAULT")
    with pytest.raises(hr.BadInput, match="needs a value for column 'must'"):
        UpsertTarget.describe("t", database.url, ROWS, (), None)
    with pytest.raises(hr.BadInput, match="no table"):
        UpsertTarget.describe("nowhere", database.url, ROWS, (), None)


def test_a_stream_is_enriched_and_upserted_and_a_batch_repeated(spark, database, tmp_path):
    database.query('CREATE TABLE "Stock" (k bigint PRIMARY KEY, name text, price numeric(8,2))')
    rel = hr.Relation.create(
        tmp_path / "rel", pa.table({"k": list(range(50)), "name": [f"n{k}" for k in range(50)]}), key="k"
    )
    (tmp_path / "in").mkdir()

    def run() -> None:
        stream = spark.readStream.schema("k long, price decimal(8,2)").parquet(str(tmp_path / "in"))
        query = hr.load_postgresql(
            hr.enrich(stream, rel, on="k"),
            "Stock",
            key="k",
            url=database.url,
            checkpoint=tmp_path / "checkpoint",
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(120)

    for number, keys in enumerate([range(60), range(40, 45)]):
        price = pa.array([Decimal(f"{k}.{number}5") for k in keys], pa.decimal128(8, 2))
        pq.write_table(pa.table({"k": list(keys), "price": price}), tmp_path / "in" / f"{number}.parquet")
        run()
    wanted = [[str(k), f"n{k}", f"{k}.{'15' if 40 <= k < 45 else '05'}"] for k in range(50)]
    assert database.rows('SELECT k, name, price FROM "Stock" ORDER BY k') == wanted
    # As after a kill between the merge and Spark's own commit: the same micro-batch again, which must do nothing.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    database.query('DELETE FROM "Stock" WHERE k >= 40')
    run()
    assert database.rows('SELECT k, name, price FROM "Stock" ORDER BY k') == wanted[:40]
    rel.close()

    day = spark.range(3).selectExpr("id AS k", "'x' AS name")
    first = hr.load_postgresql(day, "Stock", key="k", url=database.url, transaction=("nightly", 1))
    again = hr.load_postgresql(day, "Stock", key="k", url=database.url, transaction=("nightly", 1))
    assert (first.rows, first.repeated, again.rows, again.repeated) == (3, False, 0, True)
    with pytest.raises(hr.BadInput, match="checkpoint='c' is for a streaming"):
        hr.load_postgresql(day, "Stock", url=database.url, checkpoint="c")


def test_what_waits_at_the_end_is_finished_once(spark, database, tmp_path):
    database.query("CREATE TABLE sold (n bigint PRIMARY KEY, k bigint, name text)")
    names = pa.table({"k": list(range(5000)), "name": [f"n{k}" for k in range(5000)]})
    rel = hr.Relation.create(tmp_path / "rel", names, key="k", page_size="4KiB")
    (tmp_path / "in").mkdir()

    def run(part: int):
        n = list(range(200 * part, 200 * part + 200))
        rows = pa.table({"n": n, "k": [x * 37 % 5000 for x in n]})
        pq.write_table(rows, tmp_path / "in" / f"{part}.parquet")
        stream = spark.readStream.schema("n long, k long").parquet(str(tmp_path / "in"))
        defer = hr.Defer(deadline="1h", state=tmp_path / "state", shards=2)
        late = hr.enrich(stream, rel, on="k", memory="2MiB", defer=defer)
        query = hr.load_postgresql(
            late, "sold", url=database.url, checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True}
        )
        assert query.awaitTermination(120)
        return query

    def loaded() -> list[list[str]]:
        return database.rows("SELECT n, k, name FROM sold ORDER BY n")

    def wanted(parts: int) -> list[list[str]]:
        return [[str(x), str(x * 37 % 5000), f"n{x * 37 % 5000}"] for x in range(200 * parts)]

    query = run(0)
    assert len(loaded()) < 200
    before = len(loaded())
    assert hr.finish(query).rows == 200 - before
    assert loaded() == wanted(1)
    assert hr.finish(query).rows == 0
    query = run(1)
    # Killed between the merge and the note of it: the database knows, and the rows have no key that would refuse them twice.
    database.query("ALTER TABLE sold DROP CONSTRAINT sold_pkey")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark.state.stateful.Finishing.close", lambda self: None)
        hr.finish(query)
    assert loaded() == wanted(2)
    query = run(2)
    # Killed before the merge: the rows wait again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sources.upsert.UpsertTarget.merge", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            hr.finish(query)
    query = run(3)
    hr.finish(query)
    assert loaded() == wanted(4)
    rel.close()


def test_two_drivers_with_one_batch_write_it_once(database):
    t = target(database, "CREATE TABLE t (k int, v text, at bigint)", key=())
    stage = t.new_stage("app")
    tags = [stage.copy(iter(pa.table({"k": [n], "v": ["x"], "at": [1]}).to_batches()), 0)[0] for n in range(2)]
    with connected(SecretUrl.of(database.url)) as other:  # holds the number while the first merge waits for it
        other.execute("INSERT INTO headrace_loads VALUES ('\"t\"', 'app', 0)")
        import threading

        done: list = []
        waiting = threading.Thread(target=lambda: done.append(t.merge(stage, "app", 0, tags[:1])))
        waiting.start()
        other.commit()
        waiting.join(300)
    assert done == [None] and database.query("SELECT count(*) FROM t") == "0"
