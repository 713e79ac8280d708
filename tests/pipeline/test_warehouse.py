"""Pipelines with the steps of a warehouse: keys, duplicates, deadlines, shedding, rows without a match, PostgreSQL."""

import json

import pyarrow as pa
import pytest

import headrace as hr
from headrace.pipeline.document import BadPipeline
from headrace.pipeline.spark_check import describe_with_spark
from tests.support.pipeline_place import SALES, joined, sale

pytestmark = pytest.mark.spark

STEP = 'enrich = "products.rel"\non = "product_id"\nmemory = "4MiB"'
KEYS = """
surrogate_keys = "keys.rel"
key = "product_id"
source = "${SHOP}"
memory = "4MiB"

[[step]]
duplicates = "old.rel"
on = "sale"
columns = ["note"]
memory = "4MiB"

[[step]]
filter = "not duplicate"

[[step]]
select = ["sale", "product_id", "skey"]
"""


@pytest.fixture
def lookups(place):
    empty = pa.schema({"source": pa.string(), "product_id": pa.int64(), "skey": pa.int64(), "inferred": pa.bool_()})
    hr.Relation.create(place.root / "keys.rel", empty.empty_table(), key=["source", "product_id"]).close()
    hr.Relation.create(place.root / "old.rel", pa.table({"sale": [3, 4], "note": ["a", None]}), key="sale").close()


def test_surrogate_keys_and_duplicates(place, spark, lookups):
    place.write(SALES, (STEP, KEYS))
    place.arrive("a.json", *(sale(i, i % 3) for i in range(10)))
    checked = place.check(SHOP="hunter2!")
    assert checked.schemas[2].names == ["sale", "product_id", "quantity", "skey", "note", "duplicate"]
    describe_with_spark(place.read(SHOP="hunter2!"), spark, checked)
    assert checked.schemas[-1].names == ["sale", "product_id", "skey"]
    place.run(spark, SHOP="hunter2!")
    rows = place.loaded()
    assert sorted(row["sale"] for row in rows) == [0, 1, 2, 5, 6, 7, 8, 9]
    with hr.Relation.open(place.root / "keys.rel") as keys:
        known = {r["product_id"]: (r["skey"], r["source"]) for b in keys.scan() for r in b.to_pylist()}
    assert sorted(known.values()) == [(1, "hunter2!"), (2, "hunter2!"), (3, "hunter2!")]
    assert all(row["skey"] == known[row["product_id"]][0] for row in rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('key = "product_id"', 'key = "prodct_id"'), "step 1, key: there is no column 'prodct_id'"),
        (
            ('key = "product_id"', 'key = "product_id"\nsurrogate = "sky"'),
            "step 1, surrogate: there is no column 'sky'",
        ),
        (('"keys.rel"', '"kyes.rel"'), "step 1, surrogate_keys: there is no relation at"),
        (('on = "sale"', 'on = "sal"'), "step 2, on: there is no column 'sal'"),
        (('columns = ["note"]', 'columns = ["not"]'), "step 2, columns: there is no column 'not'"),
        (('key = "product_id"', 'ky = "product_id"'), "did you mean 'key'?"),
    ],
)
def test_mistakes_in_them_are_named(place, lookups, change, words):
    place.write(SALES.replace(STEP, KEYS), change)
    with pytest.raises(BadPipeline) as caught:
        place.check(SHOP="s")
    assert any(words in str(problem) for problem in caught.value.problems), str(caught.value)


def test_a_deadline_once(place, spark):
    place.products().close()
    place.write(SALES, ('memory = "4MiB"', 'memory = "4MiB"\ndeadline = "10m"\nshards = 2'))
    place.arrive("a.json", *(sale(i) for i in range(30)))
    outcome = place.run(spark)
    assert place.loaded() == sorted((joined(sale(i)) for i in range(30)), key=str)
    assert sum(stats.late for stats in outcome.status.joins.values()) == 0
    assert (place.root / "sales.state/run-log").is_dir()


def test_rows_without_a_match_are_put_aside_and_shedding_keeps_what_it_can(place, spark):
    place.products().close()
    place.write(
        SALES, ('memory = "4MiB"', 'memory = "4MiB"\nunmatched = "dead_letter"\nshards = 2\nversion_column = "v"')
    )
    place.arrive("a.json", sale(1), sale(2, 999))
    outcome = place.run(spark)
    assert place.loaded() == [joined(sale(1)) | {"v": 1}]
    assert sum(stats.dead_letters for stats in outcome.status.joins.values()) == 1
    assert list((place.root / "sales.state/run-log").rglob("*.parquet"))
    place.write(
        SALES,
        ('name = "sales"', 'name = "shedding"'),
        ('memory = "4MiB"', 'memory = "4MiB"\nshed = "sample"\ntarget_delay = "1m"'),
        ('"warehouse"', '"kept"'),
    )
    outcome = place.run(spark)
    assert (outcome.status.rows, outcome.status.shed) == (2, 0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('unmatched = "retri"', "did you mean 'retry'?"),
        ('shed = "topv"', "did you mean 'topw'?"),
        ('deadline = "soon"', "step 1, deadline: found 'soon', expected a duration"),
    ],
)
def test_mistakes_about_waiting_are_named(place, line, words):
    place.write(SALES, ('memory = "4MiB"', line))
    with pytest.raises(BadPipeline, match=words.replace("?", r"\?")):
        place.read()


POSTGRESQL = """
name = "orders"
every = "10ms"

[source]
format = "postgresql"
url = "${URL}"
table = "orders"
by = "id"

[[step]]
enrich = "products.rel"
on = "product_id"
memory = "4MiB"
columns = ["price"]

[sink]
format = "postgresql"
url = "${URL}"
table = "priced"
key = "id"
"""


def test_from_postgresql_to_postgresql(place, spark, database):
    place.products().close()
    place.write(POSTGRESQL)
    database.query("CREATE TABLE orders (id bigint, product_id bigint)")
    database.query("CREATE TABLE priced (id bigint PRIMARY KEY, product_id bigint, price bigint)")
    database.query("INSERT INTO orders SELECT i, i % 40 FROM generate_series(1, 20) AS i")
    assert place.check(URL=database.url).schemas[-1].names == ["id", "product_id", "price"]
    place.run(spark, URL=database.url)
    database.query("INSERT INTO orders SELECT i, i % 40 FROM generate_series(21, 30) AS i")
    assert place.run(spark, URL=database.url).status.rows == 10
    assert database.rows("SELECT * FROM priced ORDER BY id") == [
        [str(i), str(i % 40), str(7 * (i % 40))] for i in range(1, 31)
    ]


def test_a_deadline_once_into_postgresql(place, spark, database):
    place.products().close()
    place.write(POSTGRESQL, ('columns = ["price"]', 'columns = ["price"]\ndeadline = "10m"\nshards = 2'))
    database.query("CREATE TABLE orders (id bigint, product_id bigint)")
    database.query("CREATE TABLE priced (id bigint PRIMARY KEY, product_id bigint, price bigint)")
    database.query("INSERT INTO orders SELECT i, i % 40 FROM generate_series(1, 20) AS i")
    outcome = place.run(spark, URL=database.url)
    assert sum(stats.deferred for stats in outcome.status.joins.values()) > 0
    assert database.rows("SELECT * FROM priced ORDER BY id") == [
        [str(i), str(i % 40), str(7 * (i % 40))] for i in range(1, 21)
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('table = "orders"', 'table = "oders"'), "source: "),
        (('by = "id"', 'by = "ide"'), "source: "),
        (('table = "priced"', 'table = "prized"'), "sink.table: "),
        (('key = "id"', 'key = "idd"'), "sink.key: there is no column 'idd'"),
        (
            ('columns = ["price"]\n', 'columns = ["price"]\nversion_column = "version"\n'),
            "sink.table: there is no column 'version'",
        ),
    ],
)
def test_what_the_server_does_not_have_is_named(place, database, change, words):
    place.products().close()
    place.write(POSTGRESQL, change)
    database.query("CREATE TABLE orders (id bigint, product_id bigint)")
    database.query("CREATE TABLE priced (id bigint PRIMARY KEY, product_id bigint, price bigint)")
    with pytest.raises(BadPipeline) as caught:
        place.check(URL=database.url)
    assert any(words in str(problem) for problem in caught.value.problems), str(caught.value)


def test_a_server_that_does_not_answer_and_a_secret_that_stays_one(place):
    place.products().close()
    place.write(POSTGRESQL)
    with pytest.raises(BadPipeline) as caught:
        place.check(URL="postgresql://ann:hunter2!@127.0.0.1:1/shop")
    assert all("hunter2" not in str(problem) for problem in caught.value.problems)
    assert caught.value.problems[0].line == 5


KAFKA = """
name = "topics"
every = "10ms"

[source]
format = "kafka"
servers = "${SERVERS}"
topic = "pipeline-in"
rows_per_batch = 7
columns = { sale = "long", product_id = "long", quantity = "int" }

[[step]]
enrich = "products.rel"
on = "product_id"
memory = "4MiB"

[sink]
format = "kafka"
servers = "${SERVERS}"
topic = "pipeline-out"
key = "sale"
"""


def test_from_kafka_to_kafka(place, spark, kafka):
    place.products().close()
    place.write(KAFKA)
    texts = [json.dumps(sale(i)) for i in range(10)] + ["{", json.dumps({"sale": "x"})]
    server = {"kafka.bootstrap.servers": kafka.servers}
    df = spark.createDataFrame([(text,) for text in texts], "value string")
    df.write.format("kafka").options(**server, topic="pipeline-in").save()
    outcome = place.run(spark, SERVERS=kafka.servers)
    assert (outcome.status.rows, outcome.status.dead) == (12, 2)
    out = spark.read.format("kafka").options(**server, subscribe="pipeline-out").load()
    rows = out.selectExpr("CAST(key AS STRING) AS k", "CAST(value AS STRING) AS v").collect()
    assert sorted((row.k, row.v) for row in rows) == sorted(
        (str(i), json.dumps(joined(sale(i)), separators=(",", ":"))) for i in range(10)
    )
