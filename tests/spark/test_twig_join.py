"""`hr.twig_join`: the results of TwigJoin of all combinations of documents, in batches and in streams, once over a replay."""

from collections import Counter
from itertools import product

import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.xml import Twig, TwigJoin
from tests.support.batch_sink import Sink, collected
from tests.support.spark_streams import counted, finished, last_again
from tests.support.xml_files import xml_files

pytestmark = pytest.mark.spark

ITEMS = Twig("//item[ref/@id][Name][name]", optional=["ref", "Name"])
SALES = Twig("//sale[item][price.eur]")
NOTES = Twig("//note[on]")
ON = {"a": "ref/@id", "b": "item", "c.d": "on"}
SMALL = {"memory": "3MiB", "shards": 2, "partitions": 4, "workers": 2}


def items(*keys):
    """An item has no key if it is None."""
    made = (f"<item>{'' if k is None else f'<ref id={k!r}/>'}<name>n{n}</name></item>" for n, k in enumerate(keys))
    return f"<site>{''.join(made)}</site>".encode()


def sales(*keys):
    return (
        f"<r>{''.join(f'<sale item={k!r}><price.eur>{n}</price.eur></sale>' for n, k in enumerate(keys))}</r>".encode()
    )


def notes(*keys):
    return f"<r>{''.join(f'<note><on>{k}</on></note>' for k in keys)}</r>".encode()


def embedded(twigs, documents):
    """The rows of TwigJoin: every document of a side with every one of the others."""
    found = Counter()
    for some in product(*documents):
        op = TwigJoin(twigs, {name: ON[name] for name in twigs}, memory="16MiB")
        batches = []
        for name, document in zip(twigs, some, strict=True):
            batches += [*op.feed(name, document), *op.end(name)]
        for batch in (*batches, *op.finish()):
            found += counted(batch)
    return found


def test_differential_batches_as_twig_join_has_them(spark, tmp_path):
    """Two sides and three, of files and of a column; keys that are null, names with points, slashes, or unlike only in case."""
    twigs = {"a": ITEMS, "b": SALES, "c.d": NOTES}
    documents = [
        [items("i1", "i2", None, "i2"), items("i3", "")],
        [sales("i2", "i2", "", "i1", "x")],
        [notes("i2", "i1")],
    ]
    folders = [xml_files(tmp_path / name[0], *texts) for name, texts in zip(twigs, documents, strict=True)]
    rows = [(7, text.decode()) for text in documents[1]]
    column = spark.createDataFrame(rows, "feed int, body string").coalesce(1)
    two = {"a": (folders[0], ITEMS), "b": (folders[1], SALES)}
    out = hr.twig_join(two, {name: ON[name] for name in two}, spark=spark, **SMALL)
    assert not out.isStreaming
    assert out.columns == TwigJoin({"a": ITEMS, "b": SALES}, {"a": "ref/@id", "b": "item"}).schema.names
    wanted = embedded({"a": ITEMS, "b": SALES}, documents[:2])
    assert wanted.total() == 6
    assert counted(out.toArrow()) == wanted
    three = {**two, "b": (column, SALES, {"keep": "feed"}), "c.d": (folders[2], NOTES)}
    out = hr.twig_join(three, ON, spark=spark, **SMALL)
    assert out.columns[-3:] == ["b.feed", "c.d.note", "c.d.on"]
    found = out.toArrow()
    assert counted(found.drop_columns("b.feed")) == embedded(twigs, documents)
    assert found.column("b.feed").to_pylist() == [7] * 5


def test_differential_streams_once_over_a_replay(spark, tmp_path):
    """A micro-batch that is sent again gives the same results, and what it saw is joined once with documents that come later."""
    first = [[items("i1", "i2", None), items("i2", "i3")], [sales("i2", "i2", "i4"), sales("i3", "i1")]]
    later = [[items("i4", "i2")], [sales("i3", "i5")]]
    folders = [xml_files(tmp_path / name, *texts) for name, texts in zip("ab", first, strict=True)]
    one = {"options": {"maxFilesPerTrigger": 1}}
    out = hr.twig_join(
        {"a": (folders[0], ITEMS, one), "b": (folders[1], SALES, one)},
        {"a": "ref/@id", "b": "item"},
        streaming=True,
        dead_letters=tmp_path / "dead",
        spark=spark,
        state=tmp_path / "state",
        **SMALL,
    )
    sink = Sink()
    finished(sink.run(out, tmp_path / "check"))
    twigs = {"a": ITEMS, "b": SALES}
    assert sink.rows == embedded(twigs, first)
    again = last_again(tmp_path / "check")
    for folder, texts in zip(folders, later, strict=True):
        xml_files(folder, *texts)
    xml_files(folders[0], items("i2")[:-3])  # ill-formed: it is put aside
    query = sink.run(out, tmp_path / "check")
    finished(query)
    attempts = sink.sent[again]
    assert len(attempts) == 2 and attempts[0] == attempts[1] and attempts[0]
    assert sink.rows == embedded(twigs, [a + b for a, b in zip(first, later, strict=True)])
    assert len(list((tmp_path / "dead").rglob("*.parquet"))) == 1
    assert collected(out, query) == Counter()  # nothing is owed, and hr.finish knows the join


def test_what_is_refused_when_it_is_asked_for(spark, tmp_path):
    df = spark.sql("select 'x' as a, 'y' as b")
    sides, on = {"a": (tmp_path, "//a[x]"), "b": (tmp_path, "//b[x]")}, {"a": "x", "b": "x"}
    for given, keys, message in (
        ({"a": (tmp_path, "//a")}, {}, "sides=.* must have two or more sides"),
        ({**sides, "b": tmp_path}, on, r"sides\['b'\]=.* is not a side; give \(documents, twig\)"),
        ({**sides, "b": (tmp_path, 7)}, on, r"the twig of sides\['b'\] is 7"),
        (
            {**sides, "b": (tmp_path, "//b[x]", {"memory": 1})},
            on,
            r"sides\['b'\]='memory' is not supported; choose one of",
        ),
        ({**sides, "b": (df, "//b[x]")}, on, "column= must name the column of documents"),
        (sides, {"a": "x"}, "has no key of stream 'b'"),
        (sides, {"a": "a", "b": "x"}, r"on\['a'\]='a' does not show text"),
    ):
        with pytest.raises(BadInput, match=message):
            hr.twig_join(given, keys, spark=spark)
    with pytest.raises(BadInput, match="give state=DIRECTORY"):
        hr.twig_join(sides, on, streaming=True, spark=spark)
