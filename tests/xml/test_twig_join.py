"""TwigJoin against brute force: fragments of all documents by enumeration, joined by exact string values."""

import itertools
from collections import Counter

import numpy as np
import pytest
from lxml import etree

from headrace.errors import BadInput, IllFormed, MemoryRefused
from headrace.xml import Twig, TwigJoin
from tests.support.xml_documents import document, enumerated, orders, string_value

TWIG = "//a[b][//c]"


def fragments(text, twig, optional=()):
    """The fragments of a document by enumeration: columns in the order of the twig, root by its number, the others by text."""
    root = etree.fromstring(text)
    numbers = orders(root)
    absent = {twig.columns.index(name) for name in optional}
    return [
        tuple(numbers[bound] if k == 0 else string_value(bound) for k, bound in enumerate(one))
        for one in enumerated(root, twig.plan.nodes, optional=absent)
    ]


def brute_force(texts, twigs, on, optional=None):
    """All combinations of fragments with the same key, by trying all; a fragment without one joins nothing."""
    optional = optional or [()] * len(texts)
    sides = [fragments(*one) for one in zip(texts, twigs, optional, strict=True)]
    places = [twig.columns.index(column) for twig, column in zip(twigs, on, strict=True)]
    return Counter(
        tuple(itertools.chain(*rows))
        for rows in itertools.product(*sides)
        if rows[0][places[0]] is not None and len({row[at] for row, at in zip(rows, places, strict=True)}) == 1
    )


def rows(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def run(op, texts, size=50):
    """Feed all documents in turn, `size` bytes at a time; a shorter one ends first."""
    found = []
    for at in range(0, max(map(len, texts)) + size, size):
        for name, text in zip(op.twigs, texts, strict=True):
            if at < len(text):
                found += rows(op.feed(name, text[at : at + size]))
            elif at - size < len(text):
                found += rows(op.end(name))
    return found + rows(op.finish())


def large(seed, count, keys):
    """A document of many elements a with few keys b, and some text that fills memory."""
    rng = np.random.default_rng(seed)
    parts = [f"<a><b>{k}</b><i><c>{n}{'x' * 200}</c></i></a>" for n, k in enumerate(rng.integers(0, keys, count))]
    return f"<r>{''.join(parts)}</r>".encode()


@pytest.mark.parametrize("flush", ["rrpj", "rpj", "random"])
def test_oracle_two_streams_of_random_documents(flush):
    rng = np.random.default_rng(11)
    made = 0
    for number in range(25):
        texts = [document(rng, 40), document(rng, 40)]
        twigs = [Twig(TWIG), Twig("//*[a][c]", optional=["a"])]
        op = TwigJoin({"x": twigs[0], "y": twigs[1]}, on={"x": "//c", "y": "a"}, memory="8MiB", flush=flush)
        expected = brute_force(texts, twigs, ["//c", "a"], [(), ("a",)])
        assert Counter(run(op, texts, int(rng.integers(5, 60)))) == expected, (number, texts)
        made += sum(expected.values())
    assert made > 50


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_oracle_several_streams_on_one_key(streams):
    rng = np.random.default_rng(streams)
    made = 0
    for number in range(8):
        texts = [document(rng, 45) for _ in range(streams)]
        twigs = [Twig("//*[b]")] * streams
        names = [f"s{n}" for n in range(streams)]
        op = TwigJoin(dict(zip(names, twigs, strict=True)), on=dict.fromkeys(names, "b"), memory="16MiB")
        expected = brute_force(texts, twigs, ["b"] * streams)
        assert Counter(run(op, texts, int(rng.integers(5, 60)))) == expected, (number, texts)
        made += sum(expected.values())
    assert made > 10


@pytest.mark.parametrize("streams", [2, 3])
@pytest.mark.parametrize("flush", ["rrpj", "rpj", "random"])
def test_oracle_a_join_that_spills_is_complete(streams, flush):
    """Fragments take several times the memory: the join flushes, and what it flushed is joined in the end."""
    count = {2: 2500, 3: 1800}[streams]
    texts = [large(seed, count, count) for seed in range(streams)]
    names = [f"s{n}" for n in range(streams)]
    op = TwigJoin(
        dict.fromkeys(names, TWIG), on=dict.fromkeys(names, "b"), memory={2: "4MiB", 3: "6MiB"}[streams], flush=flush
    )
    found = Counter(run(op, texts, 20_000))
    assert op.stats.flushes > 0
    assert op.budget.peak <= op.budget.limit
    by_key = []
    for text in texts:
        root = etree.fromstring(text)
        number = {element: n for n, element in enumerate(root.iter())}
        side = {}
        for a in root.iter("a"):
            side.setdefault(a.findtext("b"), []).append((number[a], a.findtext("b"), a.findtext("i/c")))
        by_key.append(side)
    expected = Counter(
        tuple(itertools.chain(*combination))
        for key in by_key[0]
        for combination in itertools.product(*(side.get(key, []) for side in by_key))
    )
    assert found == expected
    assert sum(expected.values()) > 1000


def test_oracle_every_chunk_border_gives_the_same():
    left = "<r><a b='é'><b>x&amp;</b><c/></a><a><b>y</b></a></r>".encode()
    right = b"<r><k>x&amp;</k><k><![CDATA[y]]></k><k>x&amp;</k></r>"
    expected = Counter([(1, "x&", "x&"), (1, "x&", "x&"), (5, "y", "y")])
    for cut in range(max(len(left), len(right)) + 1):
        op = TwigJoin({"l": "//a[b]", "r": "//k"}, on={"l": "b", "r": "k"}, memory="4MiB")
        found = rows(op.feed("l", left[:cut])) + rows(op.feed("r", right[:cut]))
        found += rows(op.feed("r", right[cut:])) + rows(op.feed("l", left[cut:]))
        found += rows(op.end("l")) + rows(op.end("r")) + rows(op.finish())
        assert Counter(found) == expected, cut


def test_results_come_while_documents_arrive_and_one_side_may_end_first():
    op = TwigJoin({"a": "//x[k]", "b": "//y"}, on={"a": "k", "b": "y"}, memory="8MiB")
    assert rows(op.feed("a", b"<r><x><k>1</k></x></r>")) == rows(op.end("a")) == []
    assert rows(op.feed("b", b"<r><y>1")) == []
    assert rows(op.feed("b", b"</y>")) == [(1, "1", "1")]  # a has ended, b goes on
    with pytest.raises(BadInput, match="the stream 'b' has not ended; call end"):
        list(op.finish())
    with pytest.raises(BadInput, match="the stream 'a' has ended"):
        op.feed("a", b"<r/>")
    assert rows(op.feed("b", b"</r>")) == rows(op.end("b")) == rows(op.finish()) == []
    assert op.fragments_made == {"a": 1, "b": 1}
    assert op.stats.results == 1


def test_an_ill_formed_document_ends_and_the_others_go_on():
    op = TwigJoin({"a": "//k", "b": "//k"}, on={"a": "k", "b": "k"}, memory="8MiB")
    assert rows(op.feed("b", b"<r><k>1</k><k>2</k>")) == []
    found = []
    with pytest.raises(IllFormed, match=r"a, line 1, column 16: .* 1 fragments were made before"):
        for batch in op.feed("a", b"<r><k>1</k><k>2</k2></r>"):
            found += rows([batch])
    assert found == [("1", "1")]
    with pytest.raises(BadInput, match="refused as ill-formed"):
        op.end("a")
    assert rows(op.feed("b", b"<k>1</k></r>")) == [("1", "1")]
    assert rows(op.end("b")) == rows(op.finish()) == []


def test_a_document_that_is_cut_off_is_found_at_its_end():
    op = TwigJoin({"a": "//k", "b": "//k"}, on={"a": "k", "b": "k"}, memory="8MiB")
    assert rows(op.feed("a", b"<r><k>1</k>")) == []
    with pytest.raises(IllFormed, match="the document ends before its root element does"):
        list(op.end("a"))


def test_one_budget_holds_machines_and_join():
    op = TwigJoin({"a": "//k", "b": "//k"}, on={"a": "k", "b": "k"}, memory="4MiB")
    held = op.budget.held()
    assert held["join"] > 900 << 10
    assert held["input buffer"] > 0
    assert op.budget.used <= op.budget.limit == 4 << 20
    with pytest.raises(MemoryRefused, match="texts of open elements asked to grow"):
        for _ in range(100):
            list(op.feed("a", b"<k>" + b"x" * 100_000))


@pytest.mark.parametrize(
    ("memory", "reason"),
    [("512KiB", "asked"), ("3100KiB", r"too small: the scanners of the documents hold .*; give at least 3\.\d?MiB")],
)
def test_memory_too_small_is_refused_by_name(memory, reason):
    with pytest.raises(MemoryRefused, match=reason):
        TwigJoin({"a": "//k", "b": "//k"}, on={"a": "k", "b": "k"}, memory=memory)


@pytest.mark.parametrize(
    ("twigs", "arguments", "reason"),
    [
        ({"a": "//x[k]"}, {"on": {"a": "k"}}, "two or more streams"),
        ({"a": "//x[k]", "b": "//y"}, {"on": {"a": "k"}}, "no key of stream 'b'; choose one of y"),
        ({"a": "//x[k]", "b": "//y"}, {"on": {"a": "k", "b": "z"}}, r"on\['b'\]='z' is not supported; choose one of y"),
        ({"a": "//x[k]", "b": "//y"}, {"on": {"a": "k", "c": "y"}}, "on='c' is not supported; choose one of a, b"),
        ({"a": "//x[k]", "b": "//y"}, {"on": {"a": "x", "b": "y"}}, r"on\['a'\]='x' does not show text"),
        ({"a": "//x[k]", "b": "//y"}, {"on": "k"}, "must say the key of each stream"),
        ({"a": "//x[k]", "b": "//y"}, {"on": {"a": "k", "b": "y"}, "flush": "best"}, "flush='best' is not supported"),
        (dict.fromkeys("abc", "//y"), {"on": dict.fromkeys("abc", "y"), "flush": "la"}, "decides between two sides"),
    ],
)
def test_what_cannot_be_joined_is_refused(twigs, arguments, reason):
    with pytest.raises(BadInput, match=reason):
        TwigJoin(twigs, **arguments)


def test_streams_that_are_not_there_are_refused():
    op = TwigJoin({"a": "//k", "b": "//k"}, on={"a": "k", "b": "k"})
    with pytest.raises(BadInput, match="stream='c' is not supported; choose one of a, b"):
        op.feed("c", b"")


def test_start_sends_fragments_at_the_end_of_an_inner_element():
    """Steps before the start neither hold a fragment back nor multiply it."""
    text = b"<r><s><s><x k='1'><n>a</n><n>b</n></x></s></s></r>"
    made = Twig("/r//s//x[k][n]", start=2)
    assert made.columns == ["x", "k", "n"]
    matcher = made.matcher()
    assert rows(matcher.feed(text[: text.index(b"</x>") + 4])) == [(3, "1", "a"), (3, "1", "b")]
    assert rows(matcher.feed(text[text.index(b"</x>") + 4 :])) == rows(matcher.end()) == []
    whole = Twig("/r//s//x[k][n]")
    assert len(rows(whole.fragments([text]))) == 4
    for start, reason in ((9, "is not a step"), (-1, "is not a step"), (True, "is not a step")):
        with pytest.raises(BadInput, match=reason):
            Twig("/r//s", start=start)
    with pytest.raises(BadInput, match="leaves out the step 'r', which has predicates"):
        Twig("/r[a]/s", start=1)


def test_oracle_fragments_that_start_at_an_inner_step():
    rng = np.random.default_rng(12)
    made = 0
    for _ in range(150):
        text = document(rng, 25)
        path = ("/", "//")[rng.integers(0, 2)] + ("a", "*")[rng.integers(0, 2)]
        path += ("/", "//")[rng.integers(0, 2)] + ("b", "*")[rng.integers(0, 2)] + "[c][//ab]"
        inner, whole = Twig(path, start=1), Twig(path)
        expected = {one[1:] for one in enumerated(etree.fromstring(text), whole.plan.nodes)}
        numbers = orders(etree.fromstring(text))
        assert len(rows(inner.fragments([text]))) == len(expected), (path, text)
        made += len(expected)
        assert numbers
    assert made > 50
