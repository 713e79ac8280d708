"""XQuery as a user sees it: the scenarios of the text, the plan, what is refused and where, borders of chunks, errors, memory."""

import io
import itertools
from collections import Counter

import numpy as np
import psutil
import pytest
from lxml import etree

from headrace.errors import BadInput, IllFormed, MemoryRefused
from headrace.xml import DocumentMatcher, XQuery, xquery
from headrace.xml.fwr.variable_rows import VariableRows
from tests.support.xml_queries import Saxon, canonical

SYMBOLS = b"""<symbols>
  <symbolTuple>
    <symbol>MSFT</symbol>
    <description>Microsoft</description>
    <market>NasdaqGS</market>
    <industry>Software</industry>
  </symbolTuple>
  <symbolTuple>
    <symbol>GOOG</symbol>
    <description>Google</description>
    <market>NasdaqGS</market>
    <industry>Internet Info Providers</industry>
  </symbolTuple>
</symbols>"""
QUOTES = b"""<quotes>
  <quoteTuple>
    <symbol>MSFT</symbol>
    <shareVolume>75169443</shareVolume>
    <lastSale>26.72</lastSale>
    <currency>USD</currency>
  </quoteTuple>
  <quoteTuple>
    <symbol>GOOG</symbol>
    <shareVolume>6379234</shareVolume>
    <lastSale>443.03</lastSale>
    <currency>USD</currency>
  </quoteTuple>
</quotes>"""
NEWS = b"""<items>
  <item>
    <title>CNA</title>
    <section>
      <techNews>
        <blurb>Google to bolster privacy of
          online searchers</blurb>
        <keyword>Google</keyword>
        <article>...</article>
      </techNews>
      <techNews>
        <blurb>Japanese researchers unveil
          medical mini robot</blurb>
        <keyword>Robotics</keyword>
        <article>...</article>
      </techNews>
      <businessNews>
        ...
      </businessNews>
    </section>
  </item>
  <item>
    <title>BBC</title>
    ...
  </item>
</items>"""
BLOGS = b"""<items>
  <blog>
    <name>John Doe</name>
    <entries>
      <entry>
        <entryId>1</entryId>
        <title>Jobs at Google</title>
        <description>...</description>
        <tag>Google</tag>
      </entry>
    </entries>
  </blog>
</items>"""
STOCKS = """
    for $s in doc("symbol.xml")//symbolTuple, $q in doc("quotes.xml")//quoteTuple
    where $s/symbol = $q/symbol
    return <stock>{$s/symbol}{$s/description, $q/lastSale}</stock>"""
LATEST = """(for $s in doc("news.xml")//item
 for $q in doc("blogs.xml")//entry
 where $q/tag=$s//techNews/keyword
 and contains($s/title, "CNA")
return
  <resultTuple>
    {($s//techNews/blurb), ($s//techNews/article), ($q/entryId) }
  </resultTuple>)"""
PAIRS = 'for $a in doc("a.xml")//x, $b in doc("b.xml")//y where $a/k = $b/k return <r>{$a/n, $b/n}</r>'


def results(batches):
    return [row["result"] for batch in batches for row in batch.to_pylist()]


# -- the scenarios of the text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["xquery", "fragments"])
def test_scenario_a_of_the_text_symbols_and_quotes(semantics, tmp_path):
    documents = {"symbol.xml": SYMBOLS, "quotes.xml": QUOTES}
    found = results(xquery(STOCKS, documents, memory="8MiB", semantics=semantics))
    assert Counter(found) == Counter(
        [
            "<stock><symbol>MSFT</symbol><description>Microsoft</description><lastSale>26.72</lastSale></stock>",
            "<stock><symbol>GOOG</symbol><description>Google</description><lastSale>443.03</lastSale></stock>",
        ]
    )
    assert canonical(found) == Saxon(tmp_path).results(STOCKS, documents)


def test_scenario_b_of_the_text_news_and_blogs(tmp_path):
    documents = {"news.xml": NEWS, "blogs.xml": BLOGS}
    found = results(xquery(LATEST, documents, memory="8MiB"))
    blurbs = [blurb.text for blurb in etree.fromstring(NEWS).iter("blurb")]
    [result] = found  # one pair: an item and an entry that share the keyword Google
    made = etree.fromstring(result)
    assert [child.tag for child in made] == ["blurb", "blurb", "article", "article", "entryId"]
    assert [child.text for child in made if child.tag == "blurb"] == blurbs
    assert canonical(found) == Saxon(tmp_path).results(LATEST, documents)


def test_scenario_b_as_fragments_is_one_pair_if_the_twig_binds_the_news():
    """Blurb and keyword belong together only if a variable is bound to the techNews that has both."""
    query = """for $s in doc("news.xml")//techNews for $q in doc("blogs.xml")//entry where $q/tag = $s/keyword
               return <resultTuple>{$s/keyword, $q/entryId}</resultTuple>"""
    documents = {"news.xml": NEWS, "blogs.xml": BLOGS}
    one = ["<resultTuple><keyword>Google</keyword><entryId>1</entryId></resultTuple>"]
    assert results(xquery(query, documents, semantics="fragments")) == one
    # Bound to the item, each of two blurbs with each of two articles is a fragment of its own.
    assert len(results(xquery(LATEST, documents, semantics="fragments"))) == 4


def test_the_query_as_printed_returns_no_blurb():
    """It says $s/blurb, and blurb lies deeper than a child of item."""
    query = LATEST.replace("$s//techNews/blurb", "$s/blurb").replace("$s//techNews/article", "$s/article")
    for semantics in ("xquery", "fragments"):
        found = results(xquery(query, {"news.xml": NEWS, "blogs.xml": BLOGS}, semantics=semantics))
        assert found == ["<resultTuple><entryId>1</entryId></resultTuple>"]


def test_explain_draws_the_plan():
    plan = XQuery(LATEST).explain()
    assert (
        plan
        == """construct <resultTuple> of {$s//techNews/blurb}, {$s//techNews/article}, {$q/entryId}
└─ join on $q/tag = $s//techNews/keyword (ProgressiveJoin, flush='rrpj', 1024 partitions)
   ├─ $s: keep elements with contains($s/title, "CNA")
   │      twig //item[contains(title, "CNA")]
   │      twig //item//techNews/keyword
   │      twig //item//techNews/blurb
   │      twig //item//techNews/article
   │      twig //item
   │      document "news.xml"
   └─ $q: twig //entry/tag
          twig //entry/entryId
          twig //entry
          document "blogs.xml\""""
    )
    found = xquery(LATEST, {"news.xml": NEWS, "blogs.xml": BLOGS}, semantics="fragments")
    assert '   ├─ $s: twig //item[contains(title, "CNA")][//techNews/keyword][//techNews/blurb]' in found.explain()
    assert "(optional: //techNews#2, //techNews#3)" in found.explain()


# -- what is refused, and where ------------------------------------------------------------------------------------------------

FOR = 'for $s in doc("a.xml")//b '


@pytest.mark.parametrize(
    ("query", "line", "column", "reason"),
    [
        ("", 1, 1, "expected 'for', the query ends there"),
        ("let $a := 1 return <r></r>", 1, 1, "expected 'for', found 'let'; let is not supported"),
        ("some $a in 1 satisfies 1", 1, 1, "some … satisfies is not supported"),
        ("if (1) then 2 else 3", 1, 1, "if"),
        ("declare variable $x := 1; for", 1, 1, "a prolog"),
        ("(: hello :) for", 1, 1, "comments"),
        ("count(for $s in doc('a')//b return <r></r>)", 1, 1, r"the function count\(\) is not supported"),
        ("for s in", 1, 5, r"expected '\$' and the name of a variable, found 's'"),
        ('for $s at $i in doc("a.xml")//b return <r></r>', 1, 8, "expected 'in', found 'at'; a position variable"),
        ('for $s as element() in doc("a")//b', 1, 8, "types"),
        ("for $s in $t/a return <r></r>", 1, 11, "a path of another variable is not supported"),
        ('for $s in collection("a")//b', 1, 11, r"expected doc\(.*, found 'collection'; the function collection\(\)"),
        ("for $s in doc(a)//b", 1, 15, "expected a text in quotes, found 'a'"),
        ('for $s in doc("a.xml") return <r></r>', 1, 24, "expected '/' or '//' and a step, found 'return'"),
        ('for $s in doc("a.xml")//b[1] return', 1, 27, "a position is not supported"),
        ('for $s in doc("a.xml")//b[c = 1] return', 1, 23, "a comparison in the path of a variable"),
        ('for $s in doc("a.xml")//b/text() return', 1, 27, r"text\(\) is not supported"),
        ('for $s in doc("a.xml")/child::b return', 1, 24, "the axis child::"),
        ('for $s in doc("a.xml")//b/.. return', 1, 27, r"'.' and '..' are not supported"),
        ('for $s in doc("a.xml")//b, $s in doc("b.xml")//c', 1, 28, r"\$s is bound twice"),
        (FOR + "let $t := $s/c return <r></r>", 1, 27, "expected 'for', 'where' or 'return', found 'let'; let is not"),
        (FOR + "order by $s/c return <r></r>", 1, 27, "order by is not supported"),
        (FOR + "group by $s return <r></r>", 1, 27, "group by is not supported"),
        (
            FOR + "\nwhere $s/c = 1 or $s/d = 2 return <r></r>",
            2,
            16,
            "expected 'and' or 'return', found 'or'; or is not",
        ),
        (FOR + "where not($s/c) return <r></r>", 1, 33, r"the function not\(\) is not supported"),
        (FOR + "where $s/c return <r></r>", 1, 38, "expected a comparison: .*, found 'return'"),
        (FOR + "where $s/c eq 1 return <r></r>", 1, 38, "eq is not supported; write ="),
        (FOR + "where 1 = $s/c return <r></r>", 1, 33, r"expected a path of a variable, as \$s/title, found '1'"),
        (FOR + "where $t/c = 1 return <r></r>", 1, 33, r"\$t is not bound by a for; the variables are \$s"),
        (FOR + "where $s/c = return <r></r>", 1, 40, "expected a path of a variable, a text in quotes or a number"),
        (FOR + "where $s/c = 1e3 return <r></r>", 1, 40, "an exponent"),
        (FOR + "where $s/c = 1 + 2 return <r></r>", 1, 42, "arithmetic is not supported"),
        (FOR + "where contains($s/c, $s/d) return <r></r>", 1, 48, "expected a text in quotes"),
        (FOR + "where starts-with($s/c, 'x') return <r></r>", 1, 33, r"starts-with\(\) is not supported"),
        (FOR + "where $s/c[ return <r></r>", 1, 37, "'.' is not closed"),
        (FOR + "where $s/c = 'a\"b''c' return <r></r>", 1, 40, "has both"),
        (FOR + "where $s/c = 'a&b' return <r></r>", 1, 42, "does not begin a reference"),
        (FOR + "where $s/c[//d] = 1 return <r></r>", 1, 37, "begins at the document in XQuery"),
        (FOR + "where $s/c[d < 'x'] = 1 return <r></r>", 1, 33, "by order in a predicate"),
        (FOR + "return $s/c", 1, 34, "expected an element"),
        (FOR + "return element r { $s }", 1, 34, "computed constructors"),
        (FOR + "return <r/>", 1, 34, "an empty-element constructor is not supported; write <r></r>"),
        (FOR + "return <r id='1'></r>", 1, 37, "attributes in <r> are not supported"),
        (FOR + "return <r>{$s/c}", 1, 34, "<r> is not closed by </r>"),
        (FOR + "return <r>{$s/c}</s>", 1, 43, "expected </r>"),
        (FOR + "return <r>{$s/c", 1, 42, "expected ',' or '}', the query ends there"),
        (FOR + "return <r>{}</r>", 1, 38, "expected a path of a variable"),
        (FOR + "return <r>{($s/c, $s/d)}</r>", 1, 43, r"expected '\)'"),
        (FOR + "return <r>{count($s/c)}</r>", 1, 38, r"the function count\(\)"),
        (FOR + "return <r>{for $t in $s/c return $t}</r>", 1, 38, "found 'for'"),
        (FOR + "return <r>}</r>", 1, 37, "write }} for the character"),
        (FOR + "return <r><!-- c --></r>", 1, 37, "comments, CDATA"),
        (FOR + "return <r>{$s/c, $s/@k}</r>", 1, 44, "an attribute comes before all other content of <r>"),
        (FOR + "return <r>{$s/@k, $s//@k}</r>", 1, 45, "the attribute 'k' twice"),
        (FOR + "return <r></r> order", 1, 42, "expected the end of the query, found 'order'"),
        ("(" + FOR + "return <r></r>", 1, 42, "expected '.' that ends the query"),
    ],
)
def test_what_the_grammar_leaves_out_is_refused_with_its_place(query, line, column, reason):
    with pytest.raises(BadInput, match=rf"the query, line {line}, column {column}: .*{reason}"):
        XQuery(query)


TWO = 'for $a in doc("a.xml")//x, $b in doc("b.xml")//y '


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (TWO + "return <r></r>", r"column 28: no equality in where joins \$b with \$a; a product"),
        (TWO + "where $a/k < $b/k return <r></r>", "only = joins variables"),
        (TWO + "where $a/k = $b/k and $a/l = $b/l return <r></r>", r"\$a is joined on \$a/k and on \$a/l"),
    ],
)
def test_joins_on_other_than_one_value_are_refused(query, reason):
    with pytest.raises(BadInput, match=reason):
        XQuery(query)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"docs": {"a.xml": b""}}, "document='b.xml' is not supported; choose one of a.xml"),
        ({"docs": [b""]}, "must have the documents by their names"),
        (
            {"docs": {"a.xml": "news.xml", "b.xml": b""}},
            r"docs\['a.xml'\]='news.xml' is not a document; give its bytes",
        ),
        ({"docs": {"a.xml": 5, "b.xml": b""}}, "is not a document"),
        ({"docs": {"a.xml": b"", "b.xml": b""}, "semantics": "sql"}, "semantics='sql' is not supported"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments, reason):
    with pytest.raises(BadInput, match=reason):
        xquery(PAIRS, **arguments)
    with pytest.raises(BadInput, match="a query is a text"):
        xquery(5, {})


# -- construction --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("<r></r>", "<r></r>"),
        ("<r> {$s/c} </r>", "<r><c>1</c><c/></r>"),  # white space between tags and braces is no content
        ("<r> {{x}} &lt;&#32; <b></b> </r>", "<r> {x} &lt;  <b></b></r>"),
        ("<r>&#32;</r>", "<r> </r>"),
        ("<r>{$s/@k}x{$s/d}</r>", '<r k="&lt;&quot;&amp;&#10;">x</r>'),
        ("<r>{$s/none, $s//c}</r>", "<r><c>1</c><c/></r>"),
        ("<r>{$s}{$s/c}</r>", "<r><b k='&lt;\"&amp;&#10;'><c>1</c><c/></b><c>1</c><c/></r>"),
    ],
)
def test_elements_are_constructed_as_xquery_does(returned, expected, tmp_path):
    document = b"<a><b k='&lt;\"&amp;&#10;'><c>1</c><c/></b></a>"
    assert results(xquery(FOR + "return " + returned, {"a.xml": document})) == [expected]
    assert canonical([expected]) == Saxon(tmp_path).results(FOR + "return " + returned, {"a.xml": document})


def test_a_result_with_an_attribute_twice_is_refused_when_it_comes():
    with pytest.raises(BadInput, match=r"column 38: \$s//@k has 2 attributes for one result"):
        list(xquery(FOR + "return <r>{$s//@k}</r>", {"a.xml": b"<b k='1'><c k='2'/></b>"}))


def test_fragments_take_an_attribute_for_a_child_of_its_name():
    document = b"<a><b id='&lt;i&gt;'/><b><id>2</id></b></a>"
    query = FOR + "where $s/id != 'x' return <r>{$s/id}</r>"
    found = results(xquery(query, {"a.xml": document}, semantics="fragments"))
    assert found == ["<r>&lt;i&gt;</r>", "<r><id>2</id></r>"]
    assert results(xquery(query, {"a.xml": document})) == ["<r><id>2</id></r>"]  # XQuery says @id


def test_pairs_with_several_values_in_common_are_one_result():
    a = b"<r><x><k>1</k><k>2</k><k>2</k><n>a</n></x></r>"
    b = b"<r><y><k>2</k><k>1</k><k>3</k><n>b</n></y></r>"
    documents = {"a.xml": a, "b.xml": b}
    assert results(xquery(PAIRS, documents)) == ["<r><n>a</n><n>b</n></r>"]
    assert len(results(xquery(PAIRS, documents, semantics="fragments"))) == 3


def test_numbers_and_texts_are_compared_as_the_reference_says():
    document = b"<a><b><c>10</c></b><b><c>9</c></b><b><c>x</c></b><b/></a>"

    def found(condition):
        return [r.count("<c>") and r[len("<r><c>") : -len("</c></r>")] for r in results(
            xquery(FOR + f"where {condition} return <r>{{$s/c}}</r>", {"a.xml": document})
        )]  # fmt: skip

    assert found("$s/c > 9") == ["10"]
    assert found("$s/c > '9'") == ["x"]  # texts by code points
    assert found("$s/c != 9") == ["10", "x"]
    assert found("$s > 9") == ["10"]
    assert found("contains($s/c, '')") == ["10", "9", "x", 0]


# -- documents that arrive -----------------------------------------------------------------------------------------------------


def test_results_come_while_documents_arrive():
    op = XQuery(PAIRS.replace("//x", "/r/x"), memory="8MiB")
    assert results(op.feed("a.xml", b"<r><x><k>1</k><n>a</n></x><x><k>")) == []
    assert results(op.feed("b.xml", b"<r><y><k>1</k><n>b</n></y")) == []
    assert results(op.feed("b.xml", b">")) == ["<r><n>a</n><n>b</n></r>"]
    assert results(op.feed("b.xml", b"</r>")) == results(op.end("b.xml")) == []  # one side ends first
    assert results(op.feed("a.xml", b"1</k></x>")) == ["<r><n>b</n></r>"]
    with pytest.raises(BadInput, match=r"the document 'a.xml' has not ended"):
        list(op.finish())
    assert results(op.feed("a.xml", b"</r>")) == results(op.end("a.xml")) == results(op.finish()) == []
    assert op.results == op.stats.results == 2


@pytest.mark.parametrize("semantics", ["xquery", "fragments"])
def test_oracle_every_chunk_border_gives_the_same(semantics):
    a = "<r><x><k>1</k><k>é&lt;</k><n>a<i/>b</n></x><x k='1'/></r>".encode()
    b = "<r><y><k>é&lt;</k><k><![CDATA[1]]></k><n/></y><y><k>2</k></y></r>".encode()
    query = PAIRS.replace("<r>{", "<r>{$b/@z, ")
    whole = Counter(results(xquery(query, {"a.xml": a, "b.xml": b}, memory="4MiB", semantics=semantics)))
    assert sum(whole.values()) == (1 if semantics == "xquery" else 3)
    for cut in range(max(len(a), len(b)) + 1):
        documents = {"a.xml": [a[:cut], a[cut:]], "b.xml": [b[:cut], b[cut:]]}
        assert Counter(results(xquery(query, documents, memory="4MiB", semantics=semantics))) == whole, cut


def test_an_ill_formed_document_is_refused_after_the_results_before():
    documents = {
        "a.xml": [b"<r><x><k>1</k></x>", b"\n<x><k>2</k></x></rr>", b"never read"],
        "b.xml": [b"<r><y><k>1</k><n>b</n></y><y><k>2</k></y>", b"</r>"],
    }
    found = []
    with pytest.raises(IllFormed, match=r"a.xml, line 2, column 16: .*; 2 results were made before"):
        for batch in xquery(PAIRS, documents, memory="8MiB"):
            found += results([batch])
    assert found == ["<r><n>b</n></r>", "<r></r>"]


def test_the_other_document_may_go_on_after_an_ill_formed_one():
    op = XQuery(PAIRS, memory="8MiB")
    assert results(op.feed("a.xml", b"<r><x><k>1</k></x>")) == []
    with pytest.raises(IllFormed):
        list(op.feed("a.xml", b"</x>"))
    assert results(op.feed("b.xml", b"<r><y><k>1</k></y></r>")) == ["<r></r>"]
    assert results(op.end("b.xml")) == results(op.finish()) == []


def many(seed, count, tag):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, count, (count, 2))
    words = [f"{tag}{n}{'x' * 150}" for n in range(count)]
    parts = [f"<{tag}><k>{k}</k><k>{l}</k><n>{w}</n></{tag}>" for (k, l), w in zip(keys, words, strict=True)]
    return f"<r>{''.join(parts)}</r>".encode(), [({*pair}, w) for pair, w in zip(keys.tolist(), words, strict=True)]


@pytest.mark.parametrize("semantics", ["xquery", "fragments"])
def test_oracle_a_query_whose_join_spills_is_complete(semantics):
    (a, left), (b, right) = many(1, 1500, "x"), many(2, 1500, "y")
    op = XQuery(PAIRS, memory="4MiB", semantics=semantics)
    found = []
    for at in range(0, len(a), 30_000):
        found += results(op.feed("a.xml", a[at : at + 30_000]))
        if at < len(b):
            found += results(op.feed("b.xml", b[at : at + 30_000]))
    for at in range(-(-len(a) // 30_000) * 30_000, len(b), 30_000):
        found += results(op.feed("b.xml", b[at : at + 30_000]))
    found += results(op.end("a.xml")) + results(op.end("b.xml")) + results(op.finish())
    assert op.stats.flushes > 0
    assert op.budget.peak <= op.budget.limit
    by_key = {}
    for keys, word in right:
        for key in keys:
            by_key.setdefault(key, []).append(word)
    pairs = Counter((word, other) for keys, word in left for key in keys for other in by_key.get(key, []))
    assert len(pairs) > 1000
    if semantics == "xquery":
        expected = Counter(f"<r><n>{word}</n><n>{other}</n></r>" for word, other in pairs)
        assert Counter(found) == expected
    else:
        # An element with the same key twice has a fragment for each.
        assert {*found} == {f"<r><n>{word}</n><n>{other}</n></r>" for word, other in pairs}
        assert len(found) >= sum(pairs.values())


def test_memory_does_not_grow_with_the_document():
    """A hundred thousand elements of a path from the root on: only open ones, and those that the join keeps, are held."""
    op = XQuery('for $s in doc("a.xml")/r/b where $s/c = "no" return <r>{$s}</r>', memory="4MiB")
    part = b"<b><c>yes</c><d>some text that is returned if there is a result</d></b>" * 1000
    peaks = []
    for chunk in itertools.chain([b"<r>"], [part] * 100):
        assert results(op.feed("a.xml", chunk)) == []
        peaks.append(op.budget.peak)
    assert peaks[-1] == peaks[3]


def test_the_process_stays_in_the_budget_while_the_join_spills():
    """The process itself is measured: 6 MB of two documents, whose elements do not fit 6 MiB, and hardly more memory."""

    def run(count):
        op = XQuery(PAIRS, memory="6MiB")
        found = 0
        for number in range(count):
            for name, tag in (("a.xml", "x"), ("b.xml", "y")):
                keys = range(number * 1000, number * 1000 + 1000)
                shift = 3 if tag == "y" else 1  # pairs are far apart
                parts = [f"<{tag}><k>{k * shift}</k><n>{k:0200d}</n></{tag}>" for k in keys]
                chunk = ("<r>" if number == 0 else "") + "".join(parts) + ("</r>" if number == count - 1 else "")
                found += sum(batch.num_rows for batch in op.feed(name, chunk.encode()))
        for last in (op.end("a.xml"), op.end("b.xml"), op.finish()):
            found += sum(batch.num_rows for batch in last)
        return op, found

    run(3)  # kernels are loaded, and buffers of Arrow and NumPy are there
    before = psutil.Process().memory_info().rss
    op, found = run(12)
    assert found == -(-12_000 // 3)
    assert op.stats.flushes > 0
    assert op.budget.peak <= 6 << 20
    assert psutil.Process().memory_info().rss - before < 8 << 20


def test_elements_that_recur_are_remembered_in_the_budget():
    """Of //a[z]//b an element may be bound again when an outer a ends: each is a result once, and its number is kept."""
    inner = b"<a><z/>" + b"<b/>" * 3 + b"</a>"
    query = 'for $s in doc("a.xml")//a[z]//b return <r></r>'
    op = XQuery(query, memory="4MiB")
    assert len(results(op.feed("a.xml", b"<a>" + inner))) == 3
    assert len(results(op.feed("a.xml", b"<b/><z/></a>"))) == 1
    assert op.budget.held()["numbers of elements of $s that were bound"] > 0


def test_memory_that_is_too_small_is_refused_by_name():
    with pytest.raises(MemoryRefused, match="the scanners of the documents hold"):
        XQuery(PAIRS, memory="3300KiB")
    op = XQuery(FOR + "return <r>{$s/c}</r>", memory="3MiB")
    with pytest.raises(MemoryRefused, match="asked to grow"):
        for _ in range(1000):
            list(op.feed("a.xml", b"<b>" + b"<c>text</c>" * 1000))


def test_two_variables_may_share_a_document():
    query = """for $s in doc("a.xml")//b, $t in doc("a.xml")//c where $s/@k = $t/@k return <r>{$s/@k}</r>"""
    document = b"<a><b k='1'><c k='2'/></b><b k='2'><c k='2'/></b></a>"
    assert results(xquery(query, {"a.xml": document})) == ['<r k="2"></r>'] * 2


# -- a variable over many documents --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["xquery", "fragments"])
def test_a_variable_is_bound_anew_in_every_document(semantics):
    """Numbers of elements begin again in each, and rows of elements that an ill-formed document left open are forgotten."""
    query = 'for $a in doc("a.xml")//g[t]//x return <r>{$a/n}</r>'
    matcher = DocumentMatcher(VariableRows(query, semantics, 0), memory="16MiB")
    whole = b"<r><g><t/><x><n>1</n></x></g></r>"

    def rows(document):
        return [row for batch in matcher.fragments(lambda: io.BytesIO(document)) for row in batch.to_pylist()]

    assert rows(whole) == [{"$a/n": "<n>1</n>"}]
    with pytest.raises(IllFormed, match="ends before its root element does"):
        rows(b"<r><g><t/><g><t/><x><n>0</n></x></g>")
    assert rows(whole) == rows(whole) == [{"$a/n": "<n>1</n>"}]
