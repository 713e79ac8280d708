"""Every mistake in a pipeline file is named: line, key, what was found, what was expected, and the near word."""

import pytest

from headrace.errors import BadInput
from headrace.pipeline.document import BadPipeline
from headrace.pipeline.parts import SINKS, SOURCES, STEPS
from tests.support.pipeline_place import SALES


def problems(place, *changes, **environment):
    place.write(SALES, *changes)
    with pytest.raises(BadPipeline) as caught:
        place.read(**environment)
    return caught.value.problems


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (('name = "sales"', 'name = "../sales"'), 2, "name: found '../sales', expected a name of letters"),
        (
            ('name = "sales"', 'nmae = "sales"'),
            1,
            "name: is missing in the file; 'nmae' is there: did you mean 'name'?",
        ),
        (('every = "10ms"', 'evry = "10ms"'), 3, "did you mean 'every'?"),
        (('every = "10ms"', 'every = "soon"'), 3, "every: found 'soon', expected a duration: '10s'"),
        (('every = "10ms"', "cores = 0"), 3, "cores: found 0, expected 1 or more"),
        (('format = "json"', 'format = "jsn"'), 6, "source.format: found 'jsn', expected one of"),
        (('format = "json"', 'format = "jsn"'), 6, "did you mean 'json'?"),
        (('format = "json"', 'formt = "json"'), 5, "'formt' is there: did you mean 'format'?"),
        (('path = "incoming"', 'pth = "incoming"'), 7, "source.pth: is not a key of a source of files"),
        (('path = "incoming"', "path = 7"), 7, "source.path: found 7, expected a text"),
        (('path = "incoming"', 'path = ""'), 7, "source.path: found '', expected a text"),
        (
            ('path = "incoming"', 'path = "x"\nheader = "perhaps"'),
            8,
            "source.header: found 'perhaps', expected true or false",
        ),
        (('sale = "long"', 'sale = "lnog"'), 10, "source.columns.sale: found 'lnog', expected one of boolean"),
        (('sale = "long"', 'sale = "lnog"'), 10, "did you mean 'long'?"),
        (('sale = "long"', 'sale = "long"\nSALE = "int"'), 9, "Spark sees 'SALE' twice"),
        (('[source.columns]\nsale = "long"\nproduct_id = "long"\nquantity = "int"', "columns = {}"), 9, "at least one"),
        (('enrich = "products.rel"', 'enrch = "products.rel"'), 14, "did you mean 'enrich' for 'enrch'?"),
        (('on = "product_id"', 'on = "product_id"\nfilter = "a"'), 14, "step 1: found enrich and filter in one step"),
        (('on = "product_id"', "on = 3"), 16, "step 1, on: found 3, expected a column"),
        (('memory = "4MiB"', 'memry = "4MiB"'), 17, "did you mean 'memory'?"),
        (('memory = "4MiB"', 'memory = "4 MegaB"'), 17, "step 1, memory: found '4 MegaB', expected a size"),
        (('memory = "4MiB"', 'how = "lft"'), 17, "did you mean 'left'?"),
        (('memory = "4MiB"', "condition = { betwen = ['a', 'b', 'c'] }"), 17, "did you mean 'between'?"),
        (("[[step]]", "[step]"), 14, "step: found a table, expected tables [[step]]"),
        (('format = "delta"', 'format = "delta"\npartition = "sale"'), 21, "did you mean 'partition_by'?"),
        (("[sink]", "[snk]"), 19, "snk: is not a key of the file"),
        (("[sink]", "[snk]"), 1, "sink: is missing, expected one table [sink] with a format"),
    ],
)
def test_a_mistake_is_named(place, change, line, words):
    found = problems(place, change)
    assert any(p.line == line and words in str(p) for p in found), [str(p) for p in found]
    assert all(str(p).startswith(f"{place.file}:{p.line}: ") for p in found)


def test_all_mistakes_are_named_at_once_in_the_order_of_lines(place):
    found = problems(place, ('"json"', '"jsn"'), ('"4MiB"', '"much"'), ('"delta"', '"dleta"'), ('"10ms"', '"x"'))
    assert [p.key for p in found] == ["every", "source.format", "step 1, memory", "sink.format"]


def test_a_value_of_the_environment_is_not_in_the_message(place):
    (found,) = problems(place, ('"4MiB"', '"${MEMORY}"'), MEMORY="hunter2!")
    assert "found '${MEMORY}', expected a size" in str(found)
    assert "hunter2" not in str(found)


@pytest.mark.parametrize("step", ['filter = "quantity > ${N}"', 'select = ["${N}"]'])
def test_no_sql_is_built_from_the_environment(place, step):
    (found,) = problems(place, ('enrich = "products.rel"\non = "product_id"\nmemory = "4MiB"', step), N="0 OR true")
    assert "expected an SQL expression without values from the environment" in str(found)


def test_a_file_is_read(place):
    place.write(
        SALES, ('path = "incoming"', 'path = "${DIR}/in"\n[spark]\nsql.shuffle.partitions = 2\n[source.options]\n')
    )
    place.write(SALES, ('path = "incoming"', 'path = "${DIR}/in"'))
    pipeline = place.read(DIR="/data")
    assert str(pipeline.at(pipeline.source.path)) == "/data/in"
    assert pipeline.state == place.root / "sales.state"
    assert "/data" not in repr(pipeline) + repr(pipeline.source) + repr(pipeline.document)


def test_settings_of_spark_need_no_quotes(place):
    place.write(SALES + '\n[spark]\nsql.shuffle.partitions = 2\n"spark.driver.memory" = "2g"\ntask.cpus = true\n')
    assert place.read().head.spark == {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.task.cpus": "true",
    }


def test_a_missing_file_is_named(place):
    place.file.unlink()
    with pytest.raises(BadInput, match=r"there is no pipeline file at .*sales\.toml"):
        place.read()


def test_the_reference_names_every_format_step_and_key():
    from pathlib import Path

    from headrace.pipeline.models import PipelineSettings

    page = (Path(__file__).parents[2] / "docs/reference/pipeline.md").read_text()
    names = {*SOURCES, *STEPS, *SINKS, *PipelineSettings.model_fields}
    for model in {*SOURCES.values(), *STEPS.values(), *SINKS.values()}:
        names |= set(model.model_fields)
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
