"""`hr.xquery`: the results of headrace.xml.xquery of all combinations of documents, both semantics, once over a replay."""

from collections import Counter
from itertools import product

import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.xml import xquery
from tests.support.batch_sink import Sink, collected
from tests.support.spark_streams import counted, finished, last_again
from tests.support.xml_files import xml_files

pytestmark = pytest.mark.spark

#: Elements with several keys in common, with none, nested ones that are bound once, and attributes and texts to escape.
PAIRS = """for $a in doc("a.xml")//g[t]//x, $b in doc("b.xml")//y where $a/k = $b/k and $b/n != "no"
    return <r>{$b/@id, $a/n}<z>{$b/n}</z></r>"""
ONE = 'for $a in doc("a.xml")//x where $a/k > 1 return <r>{$a/n}</r>'
THREE = """for $a in doc("a.xml")//x, $b in doc("b.xml")//y, $c in doc("a.xml")//x
    where $a/k = $b/@id and $b/@id = $c/k return <r>{$a/n, $b/n, $c/n}</r>"""
A = [
    b"<r><g><t/><g><t/><x><k>1</k><k>2</k><n>a&amp;1</n></x></g><x><n>none</n></x></g></r>",
    b"<r><x><k>1</k><n>out</n></x><g><t/><x><k>2</k><n>a2</n><n>a3</n></x></g></r>",
]
B = [b"<r><y id='2'><k>1</k><k>2</k><k>3</k><n>b1</n></y><y id='1'><k>2</k><n>no</n></y></r>"]
SMALL = {"memory": "3MiB", "shards": 2, "partitions": 4, "workers": 2}


def embedded(text, semantics, a=A, b=B):
    """The results for every document of a variable with every one of the others."""
    found = Counter()
    if text is ONE:
        pairs = [(one, b"<r/>") for one in a]
    else:
        pairs = product(a, b)
    for one, other in pairs:
        for batch in xquery(text, {"a.xml": one, "b.xml": other}, memory="16MiB", semantics=semantics):
            found += counted(batch)
    return found


@pytest.mark.parametrize("semantics", ["xquery", "fragments"])
def test_differential_batches_as_xquery_has_them(spark, tmp_path, semantics):
    """One variable and two, of files and of a column."""
    column = spark.createDataFrame([(n, text.decode()) for n, text in enumerate(B)], "n int, body string").coalesce(1)
    docs = {"a.xml": xml_files(tmp_path / "a", *A), "b.xml": (column, {"column": "body"})}
    for text, least in ((ONE, 2), (PAIRS, 2)):
        out = hr.xquery(spark, text, docs, semantics=semantics, **SMALL)
        assert out.columns == ["result"] and not out.isStreaming
        wanted = embedded(text, semantics)
        assert wanted.total() >= least
        assert counted(out.toArrow()) == wanted


def test_differential_three_variables_of_which_two_have_the_same_document(spark, tmp_path):
    docs = {"a.xml": xml_files(tmp_path / "a", A[1]), "b.xml": xml_files(tmp_path / "b", *B)}
    wanted = embedded(THREE, "xquery", a=A[1:])
    assert wanted
    assert counted(hr.xquery(spark, THREE, docs, **SMALL).toArrow()) == wanted


def test_differential_streams_once_over_a_replay(spark, tmp_path):
    docs = {"a.xml": xml_files(tmp_path / "a", *A), "b.xml": xml_files(tmp_path / "b", *B)}
    out = hr.xquery(spark, PAIRS, docs, streaming=True, state=tmp_path / "state", **SMALL)
    sink = Sink()
    finished(sink.run(out, tmp_path / "check"))
    assert sink.rows == embedded(PAIRS, "xquery")
    again = last_again(tmp_path / "check")
    later = b"<r><y id='9'><k>2</k><n>b9</n></y></r>"
    xml_files(docs["b.xml"], later)
    query = sink.run(out, tmp_path / "check")
    finished(query)
    attempts = sink.sent[again]
    assert len(attempts) == 2 and attempts[0] == attempts[1] and attempts[0]
    assert sink.rows == embedded(PAIRS, "xquery", b=[*B, later])
    assert collected(out, query) == Counter()  # nothing is owed, and hr.finish knows the join


def test_what_is_refused_when_it_is_asked_for(spark, tmp_path):
    docs = {"a.xml": tmp_path, "b.xml": tmp_path}
    for text, given, message in (
        (PAIRS, tmp_path, "docs=.* must have the documents by their names"),
        (PAIRS, {"a.xml": tmp_path}, "document='b.xml' is not supported; choose one of a.xml"),
        (PAIRS, {**docs, "b.xml": b"<r/>"}, r"docs\['b.xml'\]=.* are no documents; .* headrace.xml.xquery"),
        (
            PAIRS,
            {**docs, "b.xml": (tmp_path, {"keep": "k"})},
            r"docs\['b.xml'\]='keep' is not supported; choose one of",
        ),
        ("for $a in", docs, "expected"),
    ):
        with pytest.raises(BadInput, match=message):
            hr.xquery(spark, text, given)
    with pytest.raises(BadInput, match="give state=DIRECTORY"):
        hr.xquery(spark, PAIRS, docs, streaming=True)
