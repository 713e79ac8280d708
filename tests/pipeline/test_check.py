"""``--check`` without Spark: paths, relations, columns on their way to the sink."""

import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema

from headrace.pipeline.document import BadPipeline
from tests.support.pipeline_place import SALES

STEP = 'enrich = "products.rel"\non = "product_id"\nmemory = "4MiB"'


def problems(place, *changes, **environment):
    place.write(SALES, *changes)
    with pytest.raises(BadPipeline) as caught:
        place.check(**environment)
    return [str(p).removeprefix(f"{place.file}:") for p in caught.value.problems]


def only(place, *changes):
    (found,) = problems(place, *changes)
    return found


@pytest.fixture(autouse=True)
def products(place):
    place.products().close()


def test_columns_are_followed_from_source_to_sink(place):
    place.write(SALES, ("[sink]", '[[step]]\nselect = ["price", "sale"]\n[sink]'))
    checked = place.check()
    assert [s.names for s in checked.schemas] == [
        ["sale", "product_id", "quantity"],
        ["sale", "product_id", "quantity", "price"],
        ["price", "sale"],
    ]
    assert checked.spark == []


def test_sql_is_left_to_spark(place):
    place.write(SALES, ("[sink]", '[[step]]\nselect = ["price * 2 AS p"]\n[[step]]\nfilter = "p > 1"\n[sink]'))
    checked = place.check()
    assert checked.spark == [("step", 1, "select"), ("step", 2, "filter")]
    assert checked.schemas[2:] == [None, None]


def test_a_source_that_is_not_there(place):
    shutil.rmtree(place.root / "incoming")
    assert only(place) == "7: source.path: found nothing at 'incoming', expected a directory; make it first"


def test_a_required_column_that_is_not_there(place):
    found = only(place, ('path = "incoming"', 'path = "incoming"\nrequired = ["sal"]'))
    assert (
        found
        == "8: source.required: there is no column 'sal'; expected one of sale, product_id, quantity; did you mean 'sale'?"
    )


def test_a_relation_that_is_not_there(place):
    found = only(place, ('"products.rel"', '"prodcts.rel"'))
    assert found.startswith("15: step 1, enrich: there is no relation at")


def test_a_column_to_join_on_that_is_not_there(place):
    found = only(place, ('on = "product_id"', 'on = { product = "product_id" }'))
    assert found.startswith(
        "16: step 1, on: there is no column 'product'; expected one of sale, product_id, quantity; did you"
    )


def test_a_key_of_another_type(place):
    found = only(place, ('product_id = "long"', 'product_id = "date"'))
    assert found.startswith("14: step 1: ")
    assert "product_id" in found


def test_a_column_of_the_relation_that_is_not_there(place):
    found = only(place, ('memory = "4MiB"', 'columns = ["prize"]'))
    assert (
        found
        == "17: step 1, columns: there is no column 'prize'; expected one of product_id, price; did you mean 'price'?"
    )


def test_an_algorithm_that_is_not_there(place):
    found = only(place, ('memory = "4MiB"', 'algorithm = "meshjion"'))
    assert found.startswith("17: step 1, algorithm: ")
    assert "did you mean 'meshjoin'?" in found


def test_too_little_memory(place):
    found = only(place, ('memory = "4MiB"', 'memory = "1KiB"'))
    assert found.startswith("14: step 1: ")


def test_nothing_to_join_on(place):
    found = only(place, ('on = "product_id"', ""))
    assert found == "14: step 1, on: is missing in an enrich step: say which column to join on"


def test_a_table_that_does_not_fit(place):
    schema = pa.schema({"sale": pa.string(), "product_id": pa.int64(), "quantity": pa.int32()})
    DeltaTable.create(str(place.root / "warehouse"), DeltaSchema.from_arrow(schema))
    found = only(place)
    assert found.startswith("19: sink: the columns do not fit the table at")
    assert "'price' is not in the table" in found
    assert "'sale' is long and the table has string" in found


def test_a_partition_column_that_is_not_there(place):
    found = only(place, ('path = "warehouse"', 'path = "warehouse"\npartition_by = "dya"'))
    assert found.startswith("22: sink.partition_by: there is no column 'dya'")


def test_a_file_where_a_directory_should_be(place):
    (place.root / "warehouse").write_text("")
    assert only(place).startswith("21: sink.path: found a file at")


def test_a_read_only_directory(place, read_only):
    assert "cannot be written to" in only(place, ('path = "warehouse"', f'path = "{read_only}/warehouse"'))
    found = only(place, ('every = "10ms"', f'state = "{read_only}/state"'))
    assert found.startswith("3: state: ")
    assert "cannot be written to" in found


def test_several_steps_that_are_wrong_are_all_named(place):
    two = f"{STEP}\n[[step]]\n{STEP}".replace('on = "product_id"', 'on = "x"')
    found = problems(place, (STEP, two), ('path = "incoming"', 'path = "nowhere"'))
    assert [line.split(":")[0] for line in found] == ["7", "16", "18"]


def test_kafka_values_need_columns(place):
    place.write("""
        name = "k"
        [source]
        format = "kafka"
        servers = "127.0.0.1:9"
        topic = "sales"
        [sink]
        format = "console"
        """)
    with pytest.raises(BadPipeline, match=r"4: source.columns|3: source.columns"):
        place.check()
