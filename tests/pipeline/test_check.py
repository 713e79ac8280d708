"""``--check`` without Spark: paths, relations, columns on their way to the sink."""

import shutil
import socket

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema

from headrace.cli.exit_codes import exit_code
from headrace.pipeline.check import check_draft, check_pipeline
from headrace.pipeline.document import BadPipeline
from headrace.pipeline.explain import explain
from headrace.pipeline.read import read_draft
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
    assert [line.split(":")[0] for line in found] == ["7", "16", "20"]


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


EVERYTHING = """
name = "sales"
every = soon
cores = 2

[source]
format = "json"
path = "nowhere"
required = ["sal"]
pth = "x"

[source.columns]
sale = "lnog"
product_id = "long"
quantity = "int"

[[step]]
enrich = "products.rel"
on = "produkt_id"
columns = ["prize"]
memory = "1KiB"
deadline = "5s"
algorithm = "inl"

[[step]]
enrich = "prodcts.rel"
on = "product"

[[step]]
enrich = "${RELATION}"
on = "quantity"
algorithm = "meshjion"

[[step]]
selct = ["sale"]

[sink]
format = "delta"
path = "warehouse"
partition_by = "dya"
"""


def every_problem(place, text, **environment):
    place.write(text)
    draft = read_draft(place.file, environment)
    check_draft(draft)
    return sorted(str(p).removeprefix(f"{place.file}:") for p in draft.problems)


def test_one_check_names_mistakes_of_every_kind(place):
    (place.root / "warehouse").write_text("")
    found = every_problem(place, EVERYTHING)
    wanted = [
        "3: not TOML",
        "8: source.path: found nothing at 'nowhere'",
        "9: source.required: there is no column 'sal'",
        "10: source.pth: is not a key of a source of files",
        "13: source.columns.sale: found 'lnog'",
        "17: step 1: deadline='5s' works with algorithm='auto'",
        "19: step 1, on: there is no column 'produkt_id'",
        "20: step 1, columns: there is no column 'prize'",
        "26: step 2, enrich: there is no relation at",
        "27: step 2, on: there is no column 'product'",
        "30: step 3, enrich: the environment has no RELATION",
        "32: step 3, algorithm: ",
        "34: step 4: found selct",
        "39: sink.path: found a file at",
    ]
    for words in wanted:
        assert any(line.startswith(words) for line in found), (words, found)
    assert any(line.startswith("17: step 1: ") and "1KiB" in line for line in found), found


def test_a_mistake_hides_no_other_and_is_said_once(place):
    text = EVERYTHING.replace('[[step]]\nselct = ["sale"]\n\n', "").replace("prodcts", "products")
    found = every_problem(place, text.replace("${RELATION}", "products.rel"))
    assert any("sink.partition_by: there is no column 'dya'" in line for line in found), found
    assert len(set(found)) == len(found)
    # Nothing is said of values that the file does not have.
    assert not [line for line in found if "every" in line or "no column 'sale'" in line]


def test_after_a_header_that_does_not_parse_only_toml_is_judged(place):
    place.write(SALES.replace("[sink]", "[sink").replace('"10ms"', "ten"))
    with pytest.raises(BadPipeline) as caught:
        place.read()
    assert [problem.line for problem in caught.value.problems] == [3, 19]


def test_a_broken_line_is_not_missing_too(place):
    found = every_problem(place, SALES.replace('format = "json"', "format = json").replace('"4MiB"', '"4Mega"'))
    assert [line.split(":")[0] for line in found] == ["17", "6"]


def test_settings_that_do_not_go_together(place):
    assert "works with algorithm='auto'" in only(place, ('memory = "4MiB"', 'deadline = "5s"\nalgorithm = "inl"'))
    assert "order='stream' cannot be kept" in only(place, ('memory = "4MiB"', 'deadline = "5s"\norder = "stream"'))
    assert "both say what becomes" in only(place, ('memory = "4MiB"', 'how = "left"\nunmatched = "null"'))
    assert "needs shed=..." in only(place, ('memory = "4MiB"', 'target_delay = "5s"'))
    condition = 'algorithm = "inl"\ncondition = { between = ["quantity", "price", "product_id"] }'
    assert "joins by equality of the key alone" in only(place, ('memory = "4MiB"', condition))


def test_servers_that_nobody_reaches(place):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound and not listening: connections are refused
        kafka = f'format = "kafka"\nservers = "127.0.0.1:{port}"\ntopic = "t"'
        found = only(place, ('format = "json"\npath = "incoming"', kafka))
        assert "source.servers: no server can be reached (127.0.0.1:" in found
        free.listen()
        place.write(SALES, ('format = "json"\npath = "incoming"', kafka))
        place.check()
    postgresql = 'format = "postgresql"\nurl = "postgresql://ann:hunter2@127.0.0.1:1/shop"\ntable = "t"\nby = "b"'
    columns = '\n[source.columns]\nsale = "long"\nproduct_id = "long"\nquantity = "int"\n'
    found = problems(place, ('format = "json"\npath = "incoming"\n' + columns, postgresql), ('"4MiB"', '"1KiB"'))
    assert len(found) == 2, found
    assert "hunter2" not in "".join(found)


def test_a_damaged_relation_is_said_to_be_damaged(place):
    (manifest,) = (place.root / "products.rel").glob("*manifest*")
    content = manifest.read_bytes()
    manifest.write_bytes(content[:-20] + b"x" * 20)
    place.write(SALES, ('path = "incoming"', 'path = "nowhere"'))
    with pytest.raises(BadPipeline) as caught:
        place.check()
    assert caught.value.damaged
    assert [p.damaged for p in caught.value.problems] == [False, True]
    assert exit_code(caught.value) == 1


def test_no_message_and_no_plan_shows_a_secret_option(place):
    options = '\n[source.options]\n"sasl.password" = "hunter2!"\nurl = "https://ann:hunter2!@proxy/"\n'
    place.write(SALES, ("\n[[step]]", options + "\n[[step]]"))
    pipeline = place.read()
    assert "hunter2" not in str(explain(pipeline, check_pipeline(pipeline)))
    assert "hunter2" not in pipeline.document.hide("login with hunter2! failed at https://bob:other@x/y?token=hunter3")
    assert "hunter3" not in pipeline.document.hide("login with hunter2! failed at https://bob:other@x/y?token=hunter3")


def test_names_are_compared_as_the_pipelines_spark_compares_them(place):
    names = 'on = "Product_ID"\ncolumns = ["PRICE"]\ncondition = { compare = ["Quantity", "<", "Price"] }'
    place.write(SALES, ('on = "product_id"', names))
    assert place.check().schemas[1].names == ["sale", "product_id", "quantity", "price"]
    exact = ('every = "10ms"', 'every = "10ms"\nspark = { sql.caseSensitive = true }')
    assert "there is no column 'Product_ID'" in " ".join(problems(place, exact, ('on = "product_id"', names)))
    renamed = (
        ('product_id = "long"\nquantity', 'Price = "long"\nquantity'),
        ('on = "product_id"', 'on = { sale = "product_id" }'),
    )
    place.write(SALES, *renamed)
    assert place.check().schemas[1].names == ["sale", "Price", "quantity", "price_right"]
    # Two names in Spark, which a Delta table would take for one.
    assert "column 'Price' is there twice" in " ".join(problems(place, *renamed, exact))
    keys = (
        'enrich = "products.rel"\non = "product_id"',
        'surrogate_keys = "products.rel"\nkey = "PRODUCT_ID"\nsurrogate = "Price"',
    )
    place.write(SALES, keys)
    assert place.check().schemas[1].names == ["sale", "product_id", "quantity", "price"]


def test_a_column_that_is_not_the_key_is_joined_by_a_scan(place):
    place.write(SALES, ('on = "product_id"', 'on = { quantity = "price" }'))
    checked = place.check()
    assert checked.schemas[1].names == ["sale", "product_id", "quantity", "product_id_right"]
    assert type(checked.operators[0]).__name__ == "MeshJoin"
    step = explain(place.read(), checked)["steps"][0]
    assert (step["algorithm"], step["why"]) == ("meshjoin", "no key to look up")


def test_conditions_on_texts(place):
    changes = (
        ('product_id = "long"\nquantity', 'product_id = "string"\nquantity'),
        ('on = "product_id"', 'condition = { edit_distance = { left = "product_id", right = "price", at_most = 1 } }'),
    )
    assert "relation column 'price' has type int64, and EditDistance" in " ".join(problems(place, *changes))
