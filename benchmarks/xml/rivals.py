"""What one would use instead: expat, lxml's iterparse, SaxonC over the whole document, and Spark's XML source."""

from __future__ import annotations

import atexit
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from benchmarks.xml import TWIG
from benchmarks.xml.python_machine import PythonMachine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# -- expat and lxml --------------------------------------------------------------------------------------------------------


def tokenise_expat(file: Path) -> int:
    """A callback of expat for every tag and text."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = note
    with file.open("rb") as source:
        parser.ParseFile(source)
    return count


def tokenise_lxml(file: Path) -> int:
    """Start and end events of lxml's iterparse; elements are emptied when they end, so that memory stays small."""
    from lxml import etree

    count = 0
    for event, element in etree.iterparse(str(file), events=("start", "end")):
        count += 1
        if event == "end":
            element.clear()
    return count


def twig_expat(file: Path) -> int:
    """The same machine in Python, called back by expat."""
    machine = PythonMachine(TWIG)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = machine.start, machine.end
    parser.CharacterDataHandler = machine.text
    with file.open("rb") as source:
        parser.ParseFile(source)
    return machine.fragments


def twig_lxml(file: Path) -> int:
    """The same machine in Python over lxml's iterparse; elements are emptied when they end, so that memory stays small."""
    from lxml import etree

    machine = PythonMachine(TWIG)
    for event, element in etree.iterparse(str(file), events=("start", "end")):
        if event == "start":
            machine.start(element.tag, element.attrib)
            continue
        if element.text:
            machine.text(element.text)
        machine.end(element.tag)
        element.clear()
    return machine.fragments


def twig_iterparse(file: Path) -> int:
    """What one would write for this twig alone: lxml's iterparse hands out items, and keeps the tree of all others."""
    from lxml import etree

    count = 0
    for _, item in etree.iterparse(str(file), events=("end",), tag="item"):
        identity, names = item.get("id"), [child.text for child in item.iterchildren("name")]
        count += len(names) if identity is not None else 0
        item.clear()
    return count


def first_iterparse(file: Path) -> int:
    """The bytes that iterparse has read when it hands out the first item."""
    from lxml import etree

    with file.open("rb") as source:
        next(etree.iterparse(source, events=("end",), tag="item"))
        return source.tell()


def join_iterparse(file: Path) -> int:
    """Items in a dictionary, which is looked into for each closed auction. It relies on items coming first."""
    from lxml import etree

    items: dict[str, list[str]] = {}
    count = 0
    for _, element in etree.iterparse(str(file), events=("end",), tag=("item", "closed_auction")):
        if element.tag == "item":
            items.setdefault(element.get("id"), []).extend(child.text for child in element.iterchildren("name"))
        else:
            price = element.findtext("price")
            joined = [
                (name, price) for ref in element.iterchildren("itemref") for name in items.get(ref.get("item"), ())
            ]
            count += len(joined)
        element.clear()
    return count


# -- SaxonC ----------------------------------------------------------------------------------------------------------------

_TWIG_QUERY = "count(for $i in //item[@id], $n in $i/name return concat($i/@id, $n))"
_JOIN_QUERY = """
let $items := map:merge(for $i in //item[@id][name] return map:entry(string($i/@id), $i))
return count(for $c in //closed_auction[price], $r in $c/itemref/@item, $i in $items(string($r))
             return concat($i/name, $c/price))
"""  # a map, as the free edition does not look for a join in a query and would compare each with each


def twig_saxon(file: Path) -> int:
    """A query over the whole document."""
    return _saxon(file, _TWIG_QUERY)


def join_saxon(file: Path) -> int:
    """A join by a map of items, over the whole document."""
    return _saxon(file, _JOIN_QUERY)


def first_saxon(file: Path) -> int:
    """The bytes that are read before the first item: all."""
    _saxon(file, "string((//item)[1]/@id)")
    return file.stat().st_size


@cache
def _processor() -> Any:
    from saxonche import PySaxonProcessor

    return PySaxonProcessor(license=False)


def _saxon(file: Path, query: str) -> int:
    processor = _processor()
    xquery = processor.new_xquery_processor()
    xquery.declare_namespace("map", "http://www.w3.org/2005/xpath-functions/map")
    xquery.set_context(xdm_item=processor.parse_xml(xml_file_name=str(file)))
    xquery.set_query_content(query)
    found = str(xquery.run_query_to_value())
    return int(found) if found.isdigit() else 0


# -- Spark -----------------------------------------------------------------------------------------------------------------


def _items(spark: SparkSession, file: Path) -> DataFrame:
    rows = spark.read.format("xml").option("rowTag", "item").schema("_id string, name string").load(str(file))
    return rows.where("_id is not null and name is not null")


def twig_spark(spark: SparkSession, file: Path) -> int:
    """Items by their tag, with a schema given, so that none is looked for; all names are made."""
    count, _ = _items(spark, file).selectExpr("count(*)", "sum(length(concat(_id, name)))").collect()[0]
    return int(count)


def join_spark(spark: SparkSession, file: Path) -> int:
    """Items and closed auctions, each read by its tag, and Spark's join."""
    schema = "itemref struct<_item: string>, price string"
    closed = spark.read.format("xml").option("rowTag", "closed_auction").schema(schema).load(str(file))
    pairs = _items(spark, file).join(closed.selectExpr("itemref._item as _id", "price"), "_id")
    count, _ = pairs.selectExpr("count(*)", "sum(length(concat(name, price)))").collect()[0]
    return int(count)


@cache
def local_spark() -> SparkSession:
    """A session that lasts as long as this process."""
    from benchmarks.spark.session import session

    stack = ExitStack()
    work = stack.enter_context(tempfile.TemporaryDirectory())
    atexit.register(stack.close)
    return stack.enter_context(session(Path(work)))
