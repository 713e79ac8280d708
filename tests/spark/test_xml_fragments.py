"""`hr.xml_fragments`: documents of a directory and of a column, in batches and in streams, whole or put aside."""

import gzip
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lxml import etree
from pyspark.errors import PythonException

import headrace as hr
from headrace.xml import Twig
from tests.support.spark_streams import last_again, streamed

pytestmark = pytest.mark.spark

TWIG = "//item[id][name]"
LATIN = "<?xml version='1.0' encoding='latin1'?><a><b.c>é</b.c><b.c>f</b.c></a>"


def documents(directory, **texts):
    directory.mkdir(exist_ok=True)
    for name, text in texts.items():
        data = text if isinstance(text, bytes) else text.encode()
        (directory / f".{name}").write_bytes(data)
        (directory / f".{name}").rename(directory / f"{name}.xml")
    return directory


def items(*numbers):
    return "<site>" + "".join(f"<item id='i{n}'><name>n{n}</name></item>\n" for n in numbers) + "</site>"


def counted(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def expected(**texts):
    rows = ((row, name) for name, text in texts.items() for b in Twig(TWIG).fragments([text]) for row in b.to_pylist())
    return Counter((*row.values(), name) for row, name in rows)


def by_name(table):
    return Counter((*row[:-1], row[-1].rpartition("/")[2].removesuffix(".xml")) for row in counted(table).elements())


def letters(directory):
    files = directory.glob("batch=*/part-*.parquet")
    return sorted((row for file in files for row in pq.read_table(file).to_pylist()), key=lambda row: row["source"])


def test_a_directory_as_a_batch(spark, tmp_path):
    """Spark reads no contents: it would refuse files of more than ten bytes. Names are taken as they are."""
    folder = tmp_path / "in [1]{2} * %41"
    texts = {"a": items(1, 2), "b %41+c": items(2, 3)}
    documents(folder, **texts)
    documents(
        folder / "below", d=gzip.compress(items(4).encode()), e=pa.compress(items(5).encode(), "zstd", asbytes=True)
    )
    (folder / "_ignored.xml").write_text("<")
    wanted = expected(**{name: text.encode() for name, text in texts.items()}, d=items(4).encode(), e=items(5).encode())
    spark.conf.set("spark.sql.sources.binaryFile.maxLength", "10")
    try:
        df = hr.xml_fragments(folder, TWIG, spark=spark)
        assert df.columns == ["item", "id", "name", "document"]
        assert not df.isStreaming
        found = df.toArrow()
    finally:
        spark.conf.unset("spark.sql.sources.binaryFile.maxLength")
    assert by_name(found) == wanted
    assert str(folder / "below" / "d.xml") in found.column("document").to_pylist()
    one = hr.xml_fragments(folder, TWIG, document=None, options={"pathGlobFilter": "a*.xml"}).toArrow()
    assert [tuple(row.values()) for row in one.to_pylist()] == [(1, "i1", "n1"), (4, "i2", "n2")]


def test_a_stream_of_files_with_dead_letters_once_across_restarts(spark, tmp_path):
    folder, dead, checkpoint = (tmp_path / name for name in ("in", "dead", "checkpoint"))
    good = {f"g{n}": items(n, n + 1) for n in range(3)}
    documents(folder, **good, bad=items(7)[:-7] + "\n<item>")

    def run():
        df = hr.xml_fragments(folder, TWIG, streaming=True, dead_letters=dead, spark=spark)
        assert df.isStreaming
        query = df.writeStream.format("parquet").trigger(availableNow=True)
        query = query.option("path", str(tmp_path / "out")).option("checkpointLocation", str(checkpoint)).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    def loaded():
        return by_name(spark.read.parquet(str(tmp_path / "out")).toArrow())

    run()
    wanted = expected(**{name: text.encode() for name, text in good.items()})
    assert loaded() == wanted
    (letter,) = letters(dead)
    assert letter == {
        "reason": "the document ends before its root element does",
        "record": None,
        "source": str(folder / "bad.xml"),
        "line": 3,
        "column": 7,
        "fragments": 0,
    }
    # The micro-batch is run again, in other tasks; the sink has it already or takes it anew, and each letter is there once.
    before = sorted(dead.rglob("*.parquet"))
    last_again(checkpoint)
    log = tmp_path / "out" / "_spark_metadata"
    for file in (*log.glob("0"), *log.glob(".0.crc")):
        file.unlink()
    for file in (tmp_path / "out").glob("part-*"):
        file.unlink()
    run()
    assert loaded() == wanted
    assert letters(dead) == [letter]
    assert sorted(dead.rglob("*.parquet")) != before
    documents(folder, late=items(9))
    run()
    assert loaded() == wanted + expected(late=items(9).encode())
    assert letters(dead) == [letter]


def test_without_a_place_for_dead_letters_the_error_names_the_file_and_the_place(spark, tmp_path):
    folder = documents(tmp_path / "in", bad="<a>\n <b></a>")
    with pytest.raises(PythonException, match=r"bad\.xml, line 2, column \d+: an end tag does not have the name"):
        hr.xml_fragments(folder, "//b", spark=spark).collect()


def test_a_column_of_documents_keeps_other_columns(spark, tmp_path):
    """Text is text whatever it declares, bytes may be compressed, null is no document; both operators of a query have letters."""
    dead = tmp_path / "dead"
    texts = spark.createDataFrame(
        [(1, LATIN), (2, None), (3, "<a>")],
        "id int, `do.c` string",
    )
    blobs = spark.createDataFrame(
        [(4, gzip.compress(b"<a><b.c>z</b.c></a>")), (5, b"<a")], "id int, x binary"
    ).coalesce(1)
    one = hr.xml_fragments(texts.coalesce(1), "//b.c", keep="ID", dead_letters=dead, partial="keep")
    assert one.columns == ["b.c", "id"]
    other = hr.xml_fragments(blobs, "//b.c", column="x", keep=["id"], dead_letters=dead)
    both = one.unionAll(other)
    for _ in range(2):  # evaluated twice, and no letter more
        assert counted(both.toArrow()) == Counter([("é", 1), ("f", 1), ("z", 4)])
    assert [(row["record"], row["source"]) for row in letters(dead)] == [("<a>", '{"id": 3}'), ("<a", '{"id": 5}')]


def test_a_stream_of_a_column(spark, tmp_path):
    pq.write_table(pa.table({"doc": [items(1), items(2)], "n": [1, 2]}), tmp_path / "rows.parquet")
    stream = spark.readStream.schema("doc string, n long").option("pathGlobFilter", "*.parquet").parquet(str(tmp_path))
    out = streamed(hr.xml_fragments(stream, TWIG, keep=["n"]))
    assert counted(out) == Counter([(1, "i1", "n1", 1), (1, "i2", "n2", 2)])


def test_what_is_refused_when_it_is_asked_for(spark, tmp_path):
    df = spark.sql("select 1 as id, 'x' as a, 'y' as b")
    for arguments, message in (
        ((df, "//a"), "column= must name the column of documents; text or binary are a, b"),
        ((df, "//c", {"column": "id"}), "column='id' has type int; documents are text or binary"),
        ((df, "//c", {"column": "d"}), "there is no column 'd'; the DataFrame has id, a, b"),
        (
            (df, "//B", {"column": "a", "keep": ["b"]}),
            "column 'b' would be beside that of the twig //B; rename it before",
        ),
        ((df, "//c", {"column": "a", "streaming": True}), "streaming= is for a directory"),
        ((tmp_path, "//document", {"spark": spark}), "column 'document' would be .*; document= gives it another name"),
        ((tmp_path, "//a", {"keep": "a"}), "column= and keep= are for a DataFrame"),
        ((tmp_path / "none", "//a"), "found nothing at .*none', expected a directory"),
        (("s3://bucket/x", "//a"), "documents='s3://bucket/x' is not a local directory"),
        ((tmp_path, "//a["), "//a"),
        ((tmp_path, 7), "twig=7 is not a twig"),
        ((7, "//a"), "documents=7 is neither a DataFrame nor the path"),
        ((tmp_path, "//a", {"memory": "1KiB"}), "names asked for 49KiB"),
        ((tmp_path, "//a", {"partial": "no"}), "partial='no' is not supported"),
    ):
        first, twig, *more = arguments
        with pytest.raises(hr.HeadraceError, match=message):
            hr.xml_fragments(first, twig, **(more[0] if more else {}))


def test_differential_nothing_is_lost_at_splits(spark, tmp_path):
    """Beside lxml, and Spark's own XML source where it reads files whole: by lines, as it splits them, it has no such rows.

    Row tags in comments, '>' in attributes, names that begin as the row's does, lines of any length and none at all.
    """
    item = (
        '<item id="{n}" note="a > b"><name>n{n} &amp; é</name>{more}</item>\n'
        "<!-- <item id='no'><name>no</name></item> --><items/>\n"
    )
    nested = ("<deep>" * (n % 5) + "x" * (n * 37 % 211) + "</deep>" * (n % 5) for n in range(400))
    text = "".join(item.format(n=n, more=more) for n, more in enumerate(nested))
    document = f"<?xml version='1.0'?>\n<site>{text}</site>".encode()
    folder = documents(tmp_path / "in", a=document, b=document.replace(b"\n", b""))
    root = etree.fromstring(document)
    wanted = Counter({(one.get("id"), one.findtext("name")): 2 for one in root.iter("item")})
    assert len(wanted) == 400
    reader = spark.read.schema("_id string, name string").option("rowTag", "item")
    assert counted(reader.xml(str(folder)).toArrow()) == wanted
    try:
        for size in (1009, 20_011):
            spark.conf.set("spark.sql.files.maxPartitionBytes", str(size))
            ours = hr.xml_fragments(folder, "//item[@id][name]", document=None, spark=spark).drop("item")
            assert counted(ours.toArrow()) == wanted
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
