"""XQuery against Saxon, and its fragments against an enumeration of all combinations."""

import numpy as np
import pytest

from headrace.errors import BadInput
from headrace.xml import xquery
from tests.support.xml_queries import (
    BINDINGS,
    NUMBERS,
    PLAIN,
    WORDS,
    Saxon,
    canonical,
    data_document,
    fragment_results,
    one_of,
    random_query,
)

DOCS = ("left.xml", "right.xml", "third.xml")


def answer(query, documents, rng, **arguments):
    """The results over documents that come in chunks of random sizes."""
    size = int(rng.integers(3, 80))
    chunks = {name: [text[at : at + size] for at in range(0, len(text), size)] for name, text in documents.items()}
    arguments = {"memory": "8MiB", **arguments}
    return canonical(row["result"] for batch in xquery(query, chunks, **arguments) for row in batch.to_pylist())


def check_saxon(seed, count, directory):
    rng = np.random.default_rng(seed)
    saxon = Saxon(directory)
    answered = 0
    for number in range(count):
        documents = {name: data_document(rng, 25) for name in DOCS[:2]}
        query = random_query(rng, 1 if rng.random() < 0.3 else 2)
        expected = saxon.results(query, documents)
        assert answer(query, documents, rng) == expected, (seed, number, query, documents)
        answered += bool(expected)
    assert answered > count / 6


@pytest.mark.parametrize("seed", range(3))
def test_oracle_saxon_answers_the_same(seed, tmp_path):
    check_saxon(seed, 80, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_oracle_saxon_answers_thousands_of_queries_the_same(seed, tmp_path):
    check_saxon(seed, 3000, tmp_path)


def test_oracle_three_variables_on_one_value(tmp_path):
    """Variables that two equalities compare have one value in each element: attributes."""
    rng = np.random.default_rng(21)
    saxon = Saxon(tmp_path)
    answered = 0
    for _ in range(20):
        documents = {name: data_document(rng, 15) for name in DOCS}
        query = f"""
            for $s in doc("left.xml"){one_of(rng, BINDINGS)}, $q in doc("right.xml")//*[@k], $t in doc("third.xml")//*
            where $s//@k = $q/@k and $q/@k = $t{one_of(rng, ("/@k", "/b/@k", "//@k"))}
            return <r>{{$q/@k}}{{$s/b, $t/c}}</r>"""
        expected = saxon.results(query, documents)
        assert answer(query, documents, rng, memory="16MiB") == expected, (query, documents)
        answered += bool(expected)
    assert answered > 5


def test_three_variables_with_several_values_between_are_refused_when_they_come():
    documents = {
        "a.xml": b"<r><x><k>1</k></x></r>",
        "b.xml": b"<r><x><k>1</k><k>2</k></x></r>",
        "c.xml": b"<r><x><k>2</k></x></r>",
    }
    query = """for $a in doc("a.xml")//x, $b in doc("b.xml")//x, $c in doc("c.xml")//x
               where $a/k = $b/k and $b/k = $c/k return <r></r>"""
    with pytest.raises(BadInput, match=r"an element of \$b has 2 values of \$b/k, which several equalities compare"):
        list(xquery(query, documents))
    assert list(xquery(query, documents, semantics="fragments")) == []


def check_fragments(seed, count):
    rng = np.random.default_rng(seed)
    answered = 0
    for number in range(count):
        documents = {name: data_document(rng, 16) for name in DOCS[:2]}
        bindings = [
            (v, doc, one_of(rng, ("//a", "//b", "//*", "/*//a", "//a/b", "/*/*", "//a//b")))
            for v, doc in zip(("s", "q")[: int(rng.integers(1, 3))], DOCS, strict=False)
        ]
        join = [(v, one_of(rng, PLAIN)) for v, _, _ in bindings] if len(bindings) == 2 else []
        conditions = []
        for v, _, _ in bindings:
            for _ in range(int(rng.integers(0, 3))):
                kind = int(rng.integers(0, 3))
                path = one_of(rng, PLAIN)
                if kind == 0:
                    conditions.append((v, path, "contains", one_of(rng, ("x", "1", ""))))
                elif kind == 1:
                    conditions.append((v, path, one_of(rng, ("=", "!=", "<", ">=")), one_of(rng, WORDS)))
                else:
                    conditions.append((v, path, one_of(rng, ("=", "!=", "<", ">=")), float(one_of(rng, NUMBERS))))
        returned = [(v, one_of(rng, PLAIN)) for v, _, _ in bindings for _ in range(int(rng.integers(1, 3)))]
        attributes = [one for one in returned if one[1] == "/@k"][:1]
        returned = attributes + [one for one in returned if one[1] != "/@k"]
        where = [f"${join[0][0]}{join[0][1]} = ${join[1][0]}{join[1][1]}"] if join else []
        for v, path, operator, literal in conditions:
            shown = f'"{literal}"' if isinstance(literal, str) else literal
            where.append(
                f"contains(${v}{path}, {shown})" if operator == "contains" else f"${v}{path} {operator} {shown}"
            )
        query = "".join(f'for ${v} in doc("{doc}"){path} ' for v, doc, path in bindings)
        query += f"where {' and '.join(where)} " if where else ""
        query += f"return <r>{{{', '.join(f'${v}{p}' for v, p in returned)}}}</r>"
        expected = fragment_results(bindings, conditions, join, returned, documents)
        found = answer(query, documents, rng, semantics="fragments")
        assert found == expected, (seed, number, query, documents)
        answered += bool(expected)
    assert answered > count / 6


@pytest.mark.parametrize("seed", range(2))
def test_oracle_fragments_are_all_combinations(seed):
    check_fragments(seed, 60)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200, 205))
def test_oracle_fragments_of_thousands_of_queries(seed):
    check_fragments(seed, 3000)
