"""Pipelines that read XML: columns and mistakes without Spark, and a run with dead letters."""

import re

import pytest

from headrace.pipeline.check import check_draft
from headrace.pipeline.read import read_draft
from headrace.pipeline.spark_check import describe_with_spark

XML = """
name = "sales"
every = "10ms"

[source]
format = "xml"
path = "incoming"
twig = "//sale[@id][product][quantity > 0]"
content = { product = ["text", "xml"] }
optional = ["product"]
document = "file"
files_per_batch = 2

[[step]]
filter = "quantity < 100"

[[step]]
select = ["cast(`@id` as long) as sale", "product", "file"]

[sink]
format = "delta"
path = "warehouse"
"""


def problems(place, *changes):
    place.write(XML, *changes)
    draft = read_draft(place.file, {})
    check_draft(draft)
    return {(problem.line, problem.key): problem.message for problem in draft.problems}


def test_columns_are_those_of_the_twig_and_the_document(place):
    place.write(XML)
    checked = place.check()
    assert checked.schemas[0].names == ["sale", "@id", "product", "product (xml)", "quantity", "file"]
    plan = place.read().explain()
    assert plan["source"]["twig"] == "//sale[@id][product][quantity > 0]"
    place.write(XML, ('document = "file"', "document = false"))
    assert "file" not in place.check().schemas[0].names


def test_every_mistake_is_named_with_its_key(place):
    found = problems(
        place,
        ('[product][quantity > 0]"', '[product"'),
        ('path = "incoming"', 'path = "nowhere"'),
        ("files_per_batch = 2", "files_per_batch = 0\npartial = 'dropped'"),
    )
    assert found[8, "source.twig"].startswith("found '//sale[@id][product', which is not a twig: ")
    assert "expected ]" in found[8, "source.twig"]
    assert "found nothing at 'nowhere', expected a directory" in found[7, "source.path"]
    assert found[12, "source.files_per_batch"] == "found 0, expected 1 or more"
    assert "did you mean 'drop'" in found[13, "source.partial"]


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        (("{ product =", "{ prodct ="), "content", "column='prodct' is not supported; choose one of sale, .*'product'"),
        (('"xml"] }', '"html"] }'), "content", "content of product='html' is not supported"),
        (('["text", "xml"]', "7"), "content", "expected what columns show"),
        (('["product"]', '["sale"]'), "optional", "'sale' is the root of"),
        (('["product"]', '["prodct"]'), "optional", "column='prodct' is not supported"),
        (('"file"\n', '"Product"\n'), "document", "'Product' is a column of the twig too"),
        (('document = "file"', 'memory = "100KiB"'), "memory", "asked for"),
        (('document = "file"', 'documnt = "file"'), "documnt", "is not a key of a source of XML documents.*'document'"),
        (('twig = "//sale', 'twig = 7\n# "//sale'), "twig", "expected a twig, such as"),
        (('twig = "//sale', 'twg = "//sale'), "twig", "is missing in a source of XML documents; 'twg' is there"),
    ],
)
def test_a_mistake_has_its_key(place, change, key, message):
    found = {name: said for (_, name), said in problems(place, change).items()}
    assert re.search(message, found[f"source.{key}"])


@pytest.mark.spark
def test_documents_are_loaded_and_those_that_cannot_be_read_are_put_aside(place, spark):
    def sales(*numbers):
        return "<sales>\n" + "".join(f"<sale id='{n}'><quantity>{n}</quantity></sale>" for n in numbers) + "</sales>"

    place.write(XML)
    place.arrive("a.xml", sales(0, 1, 2, 100))
    place.arrive("b.xml", sales(7)[:-3])
    place.arrive("c.xml", sales(3))
    pipeline = place.read()
    describe_with_spark(pipeline, spark, place.check())
    outcome = place.run(spark)
    assert [(row["sale"], row["file"].rpartition("/")[2]) for row in place.loaded()] == [
        (1, "a.xml"), (2, "a.xml"), (3, "c.xml")
    ]  # fmt: skip
    assert outcome.status.dead == 1
    (letter,) = place.dead()
    assert letter["source"] == str(place.root / "incoming" / "b.xml")
    assert (letter["line"], letter["fragments"]) == (3, 0)
    assert letter["reason"].startswith("the document ends before")
    place.arrive("d.xml", sales(4))
    again = place.run(spark)
    assert (len(place.loaded()), len(place.dead()), again.status.dead) == (4, 1, 1)
