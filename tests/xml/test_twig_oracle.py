"""Fragments against the enumeration of all bindings, against XPath, and against each other."""

from collections import Counter

import elementpath
import numpy as np
import pytest
from lxml import etree

from headrace.xml import Twig, Twigs, machine, tokeniser
from tests.support.xml_documents import document, enumerated, orders, string_value, twig
from tests.support.xml_files import real_files, some_real_files, uses_entities


def rows(made, chunks, **arguments):
    return [tuple(row.values()) for batch in made.fragments(chunks, **arguments) for row in batch.to_pylist()]


def both_contents(path, **arguments):
    """A twig that shows number and text of every node."""
    columns = Twig(path).columns
    return Twig(path, content=dict.fromkeys(columns, ("order", "text")), **arguments)


def expected(text, made, strict=False, optional=frozenset()):
    root = etree.fromstring(text)
    numbers = orders(root)
    found = enumerated(root, made.plan.nodes, strict, optional)
    return Counter(
        tuple(x for bound in one for x in ((numbers[bound], string_value(bound)) if bound else (None, None)))
        for one in found
    )


def check(seed, count):
    rng = np.random.default_rng(seed)
    matched = 0
    for number in range(count):
        text, path, strict = document(rng), twig(rng), bool(rng.integers(0, 2))
        columns = Twig(path).columns[1:]
        optional = [c for c in columns if rng.random() < 0.15]
        made = both_contents(path, strict=strict, optional=optional)
        cut = int(rng.integers(0, len(text) + 1))
        found = rows(made, [text[:cut], text[cut:]])
        known = expected(text, made, strict, {made.columns.index(c) for c in optional})
        assert Counter(found) == known, (seed, number, path, strict, optional, text)
        matched += bool(known)
    assert matched > count / 10


@pytest.mark.parametrize("seed", range(4))
def test_oracle_fragments_are_all_bindings_of_the_query_nodes(seed):
    check(seed, 300)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_oracle_fragments_of_ten_thousand_documents_each(seed):
    check(seed, 10_000)


def test_differential_buffers_of_any_size_give_the_same(monkeypatch):
    """Small buffers are full at every turn: records are thrown away, parts grow, and batches end in the middle of a product."""
    rng = np.random.default_rng(7)
    cases = [(document(rng, 80, 8), both_contents(twig(rng, 4, number % 2 == 0))) for number in range(150)]
    xmls = [Twig(made.path, content=dict.fromkeys(made.columns, "xml")) for _, made in cases]
    known = [(rows(made, [text]), rows(xml, [text])) for (text, made), xml in zip(cases, xmls, strict=True)]
    assert sum(len(found) for found, _ in known) > 1500
    # private: sizes that no user need choose
    for name, size in (("ROWS", 3), ("_OUT", 8), ("_POOL", 16), ("_ARENA", 4)):
        monkeypatch.setattr(machine, name, size)
    for name, size in (("PIECE", 29), ("_EVENTS", 12)):
        monkeypatch.setattr(tokeniser, name, size)
    assert known == [(rows(made, [text]), rows(xml, [text])) for (text, made), xml in zip(cases, xmls, strict=True)]


def test_oracle_the_worked_example_of_the_text():
    text = b"<S><T/><S><T/><F/></S></S>"
    made = Twig("//S[//T][//F]", content=dict.fromkeys(("S", "//T", "//F"), "order"))
    # In the order of their ends: S2 before S1, which the text has the other way round.
    assert rows(made, [text]) == [(2, 3, 4), (0, 1, 4), (0, 3, 4)]
    before = [list(made.matcher().feed(text[: text.index(b"</S>") + n])) for n in (3, 4)]
    assert [[b.num_rows for b in found] for found in before] == [[], [1]]


def as_xpath(path):
    """The same in XPath 1.0, whose `contains` looks at the first node of a path alone, and holds for "" if there is none."""
    out, at = "", 0
    while (found := path.find("contains(", at)) >= 0:
        depth, comma = 0, found + len("contains(")
        while depth or path[comma] != ",":
            depth += (path[comma] in "[(") - (path[comma] in "])")
            comma += 1
        end = path.index(")", comma)
        inside = as_xpath(path[found + len("contains(") : comma])
        out, at = out + path[at:found] + f"{inside}[contains(.{path[comma:end]})]", end + 1
    return out + path[at:]


def test_contains_in_xpath():
    assert as_xpath('//a[b[contains(//c[d = "x"], "y")]]') == '//a[b[//c[d = "x"][contains(., "y")]]]'


def check_xpath(seed, count):
    """A path whose last step has no branch selects its root elements; lxml and elementpath must select the same ones."""
    rng = np.random.default_rng(seed)
    compared = 0
    for number in range(count):
        tests = number % 2 == 0
        text = document(rng)
        path = "//" + ("a", "b", "*")[rng.integers(0, 3)] + f"[{twig(rng, 3, tests).lstrip('/')}]"
        # In XPath a path in a predicate that begins with / or // begins at the document: a point makes it relative.
        relative = as_xpath(path).replace("[/", "[./")
        root = etree.fromstring(text)
        numbers = orders(root)
        made = Twig(path, content=dict.fromkeys(Twig(path).columns, "order"), strict=True)
        found = sorted({row[0] for row in rows(made, [text])})
        assert found == [numbers[e, ""] for e in root.xpath(relative)], (path, text)
        if not tests:  # elementpath refuses to compare a text that is not a number
            selected = elementpath.select(root, relative, parser=elementpath.XPath1Parser)
            assert found == [numbers[e, ""] for e in selected], (path, text)
        compared += bool(found)
    assert compared > count / 10


def test_differential_roots_of_strict_twigs_are_what_xpath_selects():
    check_xpath(5, 200)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200, 210))
def test_differential_roots_of_ten_thousand_strict_twigs_each_are_what_xpath_selects(seed):
    check_xpath(seed, 10_000)


def check_real(path):
    """Elements of a real document with a child and an attribute: twigs of names that occur in it, and lxml's tree."""
    text = path.read_bytes()
    if uses_entities(text):
        return 0
    try:
        root = etree.fromstring(text, etree.XMLParser(resolve_entities=False, huge_tree=True))
    except etree.XMLSyntaxError:
        return 0
    elements = [e for e in root.iter(etree.Element) if e.prefix is None]
    numbers, compared = orders(root), 0
    parents = {
        (etree.QName(e).localname, etree.QName(c).localname, name)
        for e in elements
        for c in e.iterchildren(etree.Element)
        if c.prefix is None
        for name in c.attrib
        if name.isidentifier()
    }
    for outer, inner, name in sorted(parents)[:5]:
        known = [
            numbers[e, ""]
            for e in elements
            if etree.QName(e).localname == outer
            and any(
                c.prefix is None and etree.QName(c).localname == inner and name in c.attrib
                for c in e.iterchildren(etree.Element)
            )
        ]
        columns = Twig(f"//{outer}[{inner}/@{name}]").columns
        made = Twig(f"//{outer}[{inner}/@{name}]", content=dict.fromkeys(columns, "order"), strict=True)
        found = sorted({row[0] for row in rows(made, [text])})
        assert len(found) == len(known), (path, outer, inner, name)
        # lxml does not count declarations of namespaces among the attributes.
        assert found == known or any(e.nsmap for e in root.iter(etree.Element)), (path, outer, inner, name)
        compared += bool(known)
    return compared


def test_differential_elements_of_real_documents_are_those_of_lxml():
    files = some_real_files(20)
    assert sum(check_real(path) for path in files) > 0 or len(files) < 20


@pytest.mark.soak
def test_differential_elements_of_all_real_documents_are_those_of_lxml():
    files = real_files()
    assert sum(check_real(path) for path in files) > len(files) or len(files) < 20


def test_differential_many_twigs_give_what_each_gives_alone():
    rng = np.random.default_rng(6)
    paths = [twig(rng) for _ in range(60)]
    texts = [document(rng, 60, 8) for _ in range(10)]
    for text in texts:
        found = {}
        for number, batch in Twigs(paths).fragments([text]):
            found.setdefault(number, []).extend(tuple(row.values()) for row in batch.to_pylist())
        assert found == {n: r for n, path in enumerate(paths) if (r := rows(Twig(path), [text]))}


def test_oracle_every_chunk_border_of_a_document_gives_the_same():
    text = (
        '\ufeff<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE r [<!ENTITY e "x>"> <!-- c --> <?p d?>]>\r\n<r>'
        "<été id='1 &lt;&#x20AC;\t2\r\n3'>a&amp;b\r\nc<![CDATA[d]]e\r]]><!-- - -->"
        '<?pi x?></été ><b k="v"\n/>]]é\U0001f600</r><!-- end -->\n'
    ).encode()
    made = Twig("/r[été[@id]][b/k]", content={"r": ("text", "xml"), "été": ("text", "xml"), "b": "xml"})
    whole = rows(made, [text])
    body = text[text.index(b"<r>") : text.index(b"</r>") + 4].decode()
    assert whole == [
        (
            "a&b\ncd]]e\n]]é\U0001f600",
            body,
            "a&b\ncd]]e\n",
            body[3 : body.index("</été >") + 7],
            "1 <€ 2 3",
            '<b k="v"\n/>',
            "v",
        )
    ]
    for cut in range(len(text) + 1):
        assert rows(made, [text[:cut], text[cut:]]) == whole, cut
    assert rows(made, [text[n : n + 1] for n in range(len(text))]) == whole


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("//a//a", "<a><a><a/></a></a>", [(1, 2), (0, 1), (0, 2)]),
        ("//a/a", "<a><a><a/></a></a>", [(1, 2), (0, 1)]),
        ("/a", "<a><a/></a>", [(0,)]),
        ("//*", "<a><b/></a>", [(1,), (0,)]),
        ("//a[b][b]", "<a><b/><b/></a>", [(0, 1, 1), (0, 1, 2), (0, 2, 1), (0, 2, 2)]),
        ("//ab", "<a><ab/><abc/><a/></a>", [(1,)]),
        ("//a[b]", "<r><a><c/></a><b/><a/></r>", []),  # an entry that fails leaves its stack: it adopts nothing
        ("//a[@b]", "<a b=''><b/></a>", [(0, 1)]),
        ("//a[b]", "<a b=''><b/></a>", [(0, 2)]),  # a child element comes before the attribute of its name
        ("//a[//b]", "<a b='1'><c b='2'><b/></c><d b='3'/></a>", [(0, 4), (0, 6), (0, 1)]),
        ("//@b", "<a b='1'><c b='2'/></a>", [(1,), (3,)]),
        ("//a[c/b]", "<a><c b='x'/></a>", [(0, 1, 2)]),
    ],
)  # fmt: skip
def test_fragments_of_small_documents(path, text, found):
    columns = Twig(path).columns
    assert rows(Twig(path, content=dict.fromkeys(columns, "order")), [text.encode()]) == found


def test_deep_recursion_multiplies_and_holds_each_solution_once():
    depth = 300
    text = b"<a>" * depth + b"</a>" * depth
    made = Twig("//a//a", content={"a": "order", "//a": "order"})
    found = rows(made, [text])
    assert Counter(found) == Counter((i, j) for i in range(depth) for j in range(i + 1, depth))
    machine = made.matcher().machine
    for _ in machine.feed(text):
        pass
    assert (
        machine.budget.peak_by_part["partial solutions"] <= 2 * 2 * depth * 11 * 8
    )  # a record of each query node, and room to grow
