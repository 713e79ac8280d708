"""Twigs as a user sees them: columns, comparisons, batches, memory, many at once, and what is refused."""

import math
from decimal import Decimal, localcontext

import numpy as np
import psutil
import pyarrow as pa
import pytest
from lxml import etree

from headrace.bench.auctions import auctions
from headrace.errors import BadInput, IllFormed, MemoryRefused
from headrace.xml import Limits, Twig, Twigs


def rows(twig, chunks, **arguments):
    made = Twig(twig) if isinstance(twig, str) else twig
    return [tuple(row.values()) for batch in made.fragments(chunks, **arguments) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("//item[id][name]", ["item", "id", "name"]),
        ("//closed_auction[itemref/id][price]", ["closed_auction", "itemref", "itemref/id", "price"]),
        (
            "//issue[volume][//article[title][//author]]",
            ["issue", "volume", "//article", "//article/title", "//article//author"],
        ),
        ("//Expt[/Info/ID][./AC]", ["Expt", "Info", "Info/ID", "AC"]),
        ("/a/b[@c]//*", ["a", "b", "b/@c", "b//*"]),
        ("//a[b][b]/a", ["a", "b", "b#2", "a#2"]),
        ("//a [ b = 'x' ] [ contains ( c , \"]\" ) ]", ["a", "b", "c"]),
        ("//contains[contains]", ["contains", "contains#2"]),
        ("//x:a-1.b[é]", ["x:a-1.b", "é"]),
        ("//@id", ["@id"]),
    ],
)
def test_columns_are_paths_from_the_root(path, columns):
    assert Twig(path).columns == columns


@pytest.mark.parametrize(
    ("path", "at", "reason"),
    [
        ("", 1, "begins with / or //"),
        ("a", 1, "begins with / or //"),
        ("//", 3, "expected a name"),
        ("//a[", 5, "expected a name"),
        ("//a[]", 5, "expected a name"),
        ("//a[b", 6, "expected ]"),
        ("//a[1]", 5, "a position is not supported"),
        ("//a[b and c]", 7, "expected ]"),
        ("//a[not(b)]", 8, "expected ]"),
        ("//a[b = c]", 9, "a text in quotes or a number"),
        ("//a[contains(b)]", 15, "expected ,"),
        ("//a/..", 5, "expected a name"),
        ("//a[. = 1]", 7, "after the point"),
        ("//a::b", 4, "':' is not part of the grammar"),
        ("//a|//b", 4, r"'\|' is not part of the grammar"),
        ("//@a/b", 6, "an attribute has no children"),
        ("//@a[b]", 6, "an attribute has no predicates"),
        ("/@a", 3, "begin with //@"),
        ("//a[@*]", 7, "@\\* is not supported"),
    ],
)
def test_what_is_not_in_the_grammar_is_refused_with_its_position(path, at, reason):
    with pytest.raises(BadInput, match=f"at character {at}: .*{reason}"):
        Twig(path)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"content": {"x": "text"}}, "column='x' is not supported; choose one of a, b"),
        ({"content": {"b": "tree"}}, "content of b='tree' is not supported"),
        ({"content": {"a": (), "b": ()}}, "leaves no column"),
        ({"optional": ["a"]}, "only a branch can be optional"),
        ({"optional": ["c"]}, "column='c' is not supported"),
    ],
)
def test_columns_that_are_not_there_are_refused(arguments, reason):
    with pytest.raises(BadInput, match=reason):
        Twig("//a[b]", **arguments)


def test_what_a_column_shows():
    made = Twig("//a[b][c]", content={"a": "xml", "b": ("text", "order", "xml"), "c": "order"}, optional=["c"])
    assert made.schema == pa.schema(
        [("a", pa.string()), ("b", pa.string()), ("b (order)", pa.int64()), ("b (xml)", pa.string()), ("c", pa.int64())]
    )
    text = b"<r><a><b>1<i>2</i></b></a><a b='3'><c/></a></r>"
    assert rows(made, [text]) == [
        ("<a><b>1<i>2</i></b></a>", "12", 2, "<b>1<i>2</i></b>", None),
        ("<a b='3'><c/></a>", "3", 5, "3", 6),
    ]
    assert rows("//a[b]", [b"<r><a><b/></a><a><b></b></a><a/></r>"]) == [(1, ""), (3, "")]  # empty texts are not null


@pytest.mark.parametrize(
    "value", ["5", "5.0", " 5\n", "05", "-5", "4.9999", "+5", "", "x", ".5", "5.", "-", ".", "5 5", "٥"]
)
@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_oracle_numbers_are_compared_as_xpath_does(value, operator):
    root = etree.fromstring(f"<a><b>{value}</b></a>")
    for literal in ("5", "'5'", "-5", "0.5", "'x'", "' 5.0 '"):
        path = f"//a[b {operator} {literal}]"
        assert bool(rows(path, [etree.tostring(root, encoding="utf-8")])) == bool(root.xpath(path)), path


def test_an_exponent_is_no_number():
    """So says XPath 1.0; lxml, which has the other comparisons right, takes it."""
    assert rows("//a[b = 5]", [b"<a><b>5e0</b></a>"]) == []
    assert rows("//a[b != 5]", [b"<a><b>5e0</b></a>"]) == [(0, "5e0")]


def test_oracle_digits_are_rounded_as_doubles_are():
    """Texts with many digits, at and around the middle between two doubles: equal to a literal if they round to it."""
    rng = np.random.default_rng(8)
    literals = [
        0.1,
        1.0,
        2.0**53,
        123456.789,
        5e-324,
        1.7976931348623157e308,
        0.0,
        *rng.random(8),
        *(rng.random(4) * 1e20),
    ]
    for number in literals:
        with localcontext() as context:
            context.prec = 2000
            near = []
            for other in (math.nextafter(number, math.inf), math.nextafter(number, -math.inf)):
                middle = (Decimal(number) + Decimal(other)) / 2 if math.isfinite(other) else Decimal(2**1024 - 2**970)
                near += [middle, middle * (1 + Decimal(10) ** -300), middle * (1 - Decimal(10) ** -300)]
            texts = [f"{x:f}" for x in [*near, Decimal(number)]]
        literal = f"{Decimal(number):f}"
        text = "<r>" + "".join(f"<a><b>{t}</b></a>" for t in texts) + "</r>"
        for operator, holds in (("=", float.__eq__), ("<", float.__lt__), (">=", float.__ge__)):
            found = [row[1] for row in rows(f"//a[b {operator} {literal}]", [text.encode()])]
            assert found == [t for t in texts if holds(float(t), number)], (number, operator)


@pytest.mark.parametrize(
    ("predicate", "values"),
    [
        ("b = 'x'", ["x"]), ("b != 'x'", ["xy", "", "yxz"]), ("contains(b, 'x')", ["x", "xy", "yxz"]),
        ("contains(b, '')", ["x", "xy", "", "yxz"]),
        ("contains(b, 'xy')", ["xy"]), ("b = ''", [""]),
    ],
)  # fmt: skip
def test_texts_are_compared_as_they_are(predicate, values):
    text = b"<r><a><b>x</b></a><a><b>xy</b></a><a><b/></a><a><b>y<!-- . -->x<i>z</i></b></a></r>"
    assert [row[1] for row in rows(f"//a[{predicate}]", [text])] == values


def test_products_are_enumerated_in_bounded_batches():
    side = 60
    text = b"<a>" + b"<b/>" * side + b"<c/>" * side + b"<d/>" * side + b"</a>"
    made = Twig("//a[b][c][d]", content=dict.fromkeys("abcd", "order"))
    count = 0
    last = None
    for batch in made.fragments([text]):
        assert batch.num_rows <= 8192
        count += batch.num_rows
        last = batch
    assert count == side**3
    assert last.to_pylist()[-1] == {"a": 0, "b": side, "c": 2 * side, "d": 3 * side}


def test_a_text_larger_than_a_batch_is_a_fragment_all_the_same():
    long = "x" * 1_000_000
    assert rows("//a[b]", [f"<r><a><b>{long}</b></a><a b='{long}'/></r>".encode()]) == [(1, long), (3, long)]


def test_what_can_match_no_more_is_thrown_away():
    """The root stays open to the end of the document, and all branches but one fail: memory is that of what can match."""
    text = [
        b"<r>",
        *[b"<a><b>some text</b><x/></a><a><b>other</b><i><b/></i></a>"] * 20_000,
        b"<a><b>last</b><c/></a>",
        b"</r>",
    ]
    made = Twig("/r[//a[b][c]]", content={"//a/b": ("text", "xml")})
    machine = made.matcher(memory="4MiB").machine
    found = [row for chunk in text for _, batch in machine.feed(chunk) for row in batch.to_pylist()]
    assert [row["//a/b"] for row in found] == ["last"]
    assert machine.budget.peak_by_part["partial solutions"] < 1 << 17
    assert machine.budget.peak_by_part["texts of open elements"] < 1 << 17


@pytest.mark.parametrize(
    ("made", "inside", "part"),
    [
        (Twig("/r[a]", content={"r": "order", "a": "order"}), b"<a/>", "partial solutions"),
        (Twig("/r[a]"), b"<a>some text that is held</a>", "texts of open elements|partial solutions"),
        (Twig("/r", content={"r": "text"}), b"text", "texts of open elements"),
        (Twig("/r", content={"r": "xml"}), b"<b/>", "subtrees of open elements"),
        (
            Twig("/r[//a]"),
            b"<b a='a long value of an attribute'/>",
            "attribute values|partial solutions|wait for the end",
        ),
    ],
)
def test_open_solutions_beyond_the_budget_are_refused_by_name(made, inside, part):
    matcher = made.matcher(memory="3MiB")
    with pytest.raises(MemoryRefused, match=rf"({part}).* asked to grow .* of 3MiB is left"):
        for chunk in (b"<r>", *[inside * 1000] * 2000):
            list(matcher.feed(chunk))
    assert matcher.machine.budget.used <= 3 << 20
    with pytest.raises(BadInput, match="begin again with a new machine"):
        list(matcher.feed(b"<a/>"))


def test_a_budget_too_small_to_begin_is_refused():
    with pytest.raises(MemoryRefused, match="input buffer asked"):
        Twig("//a").matcher(memory="64KiB")


def test_fragments_before_an_error_come_before_it():
    matcher = Twig("//b").matcher(file="f.xml")
    found = []
    with pytest.raises(IllFormed, match=r"f.xml, line 1, column 19: .*; 2 fragments were made before"):
        for batch in matcher.feed(b"<a><b>1</b><b><b/></c></a>"):
            found += batch["b"].to_pylist()
    assert found == ["1", ""]


def test_an_iterator_that_was_left_is_refused_by_the_next_call():
    matcher = Twig("//b").matcher()
    next(matcher.feed(b"<a><b/>"))
    with pytest.raises(BadInput, match="not read to its end"):
        list(matcher.feed(b"</a>"))


def test_fragments_come_with_the_chunk_that_ends_them():
    matcher = Twig("//b").matcher()
    assert [b.num_rows for b in matcher.feed(b"<a><b>")] == []
    assert [b.num_rows for b in matcher.feed(b"</b>")] == [1]
    assert [b.num_rows for b in matcher.feed(b"<b></b")] == []
    assert [b.num_rows for b in matcher.feed(b">")] == [1]


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "windows-1252", "utf-8-sig"])
def test_other_encodings_are_transcoded_in_any_chunks(codec):
    name = "UTF-16" if "16" in codec else "UTF-8" if codec == "utf-8-sig" else codec
    text = f"<?xml version='1.0' encoding='{name}'?><a><b>é ü</b><b c='ß'/></a>".encode(codec)
    for size in (1, 2, 3, 50, 1000):
        assert rows("//b", [text[at : at + size] for at in range(0, len(text), size)]) == [("é ü",), ("",)]


def test_many_twigs_make_no_more_events_than_their_names_do():
    """The scan is shared: a thousand twigs over the same names take the events of one, and one table of names."""
    text = b"<r>" + b"<a><b>1</b><c/><d/></a>" * 100 + b"</r>"
    one, many = Twigs(["//a[b]"]).machine(), Twigs(["//a[b]"] * 1000).machine()
    for machine in (one, many):
        found = list(machine.feed(text))
        assert sum(batch.num_rows for _, batch in found) == 100 * len(machine.twigs)
    assert one.stats.events == many.stats.events == 5 * 100
    assert one.stats.bytes_scanned == many.stats.bytes_scanned == len(text)
    assert (one.stats.fragments, many.stats.fragments) == (100, 100_000)
    assert one.stats.memory_peak < 2 << 20


def test_twigs_without_a_twig_are_refused():
    with pytest.raises(BadInput, match="at least one twig"):
        Twigs([])


@pytest.mark.parametrize("arguments", [{"depth": 0}, {"name": -1}, {"names": "x"}, {"depth": 1 << 24}])
def test_limits_that_are_none_are_refused(arguments):
    with pytest.raises(BadInput, match="Limits"):
        Limits(**arguments)


def test_memory_does_not_grow_with_the_document():
    """The process itself is measured: 200 MB of a document, and not a tenth of it more memory."""
    part = b"".join(auctions(1_000_000))
    part = part[part.index(b"<regions>") : part.index(b"</site>")]
    matcher = Twig("//item[id][name]").matcher(memory="8MiB")
    process = psutil.Process()
    found = 0
    before = peak = 0
    for number in range(200):
        for batch in matcher.feed((b"<site>" if number == 0 else b"") + part):
            found += batch.num_rows
        if number == 5:
            before = process.memory_info().rss
        peak = max(peak, process.memory_info().rss)
    assert list(matcher.feed(b"</site>")) == list(matcher.end()) == []
    assert found == 200 * part.count(b"<item ")
    assert peak - before < 16 << 20
    assert matcher.machine.budget.peak < 8 << 20
