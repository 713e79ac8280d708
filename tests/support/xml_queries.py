"""Queries of for, where and return drawn at random, and what Saxon and a plain enumeration answer to them."""

import itertools
from collections import Counter
from copy import deepcopy

import numpy as np
from lxml import etree

from headrace.xml.path import parse
from tests.support.xml_documents import enumerated, string_value

TAGS = ("a", "b", "c")
WORDS = ("", "x", "y", "xy", "é")
NUMBERS = (
    "1",
    "2",
    "10",
    "1.5",
)  # values of attributes: XQuery raises an error where a number is compared with another text
BINDINGS = ("//a", "//b", "//*", "/*//a", "//a/b", "/*/*", "//a//b", "//a[b]", "//*[.//c][@k]", "//a[b]/c", "//a[c]//b")
PATHS = ("/b", "//c", "/a/b", "//a//b", "/*", "/@k", "//@k", "/b[c]/a", "/*[@k = 1]", "/*[.//c]//b", '/b[a != "x"]', "")
RETURNED = ("/b", "//c", "//a//b", "/*[@k > 1]", "/b[a]", "")
PLAIN = ("/b", "//c", "/a/b", "//a//b", "/@k", "/k", "")  # without predicates


def data_document(rng: np.random.Generator, nodes: int) -> bytes:
    """A document whose attributes are numbers, with mixed content, comments and CDATA."""
    left = [nodes]

    def text() -> str:
        kind, word = rng.integers(0, 8), WORDS[rng.integers(0, len(WORDS))]
        return {0: f"<!--{word}-->", 1: f"<![CDATA[{word}]]>", 2: f"<?p {word}?>", 3: ""}.get(int(kind), word)

    def element(level: int) -> str:
        left[0] -= 1
        tag = TAGS[rng.integers(0, 3)]
        k = f' k="{NUMBERS[rng.integers(0, 4)]}"' if rng.random() < 0.4 else ""
        inside = text()
        while left[0] > 0 and level < 5 and (level == 1 or rng.random() < 0.7):
            inside += element(level + 1) + text()
        return f"<{tag}{k}>{inside}</{tag}>"

    return element(1).encode()


def one_of(rng, choices):
    return choices[int(rng.integers(0, len(choices)))]


def random_query(rng: np.random.Generator, variables: int, paths=PATHS, returned=RETURNED) -> str:
    """A query over left.xml, right.xml and more of the same, which Saxon answers without an error."""
    names = ["s", "q", "t"][:variables]
    docs = ["left.xml", "right.xml" if rng.random() < 0.8 else "left.xml", "third.xml"]
    bindings = [f'${name} in doc("{doc}"){one_of(rng, BINDINGS)}' for name, doc in zip(names, docs, strict=False)]
    text = "for " + (", " if rng.random() < 0.5 else "\nfor ").join(bindings) + "\n"
    conditions = [f"${names[0]}{one_of(rng, paths)} = ${name}{one_of(rng, paths)}" for name in names[1:2]]
    for name in names:
        while rng.random() < 0.3:
            kind, path = int(rng.integers(0, 6)), one_of(rng, paths)
            word = one_of(rng, WORDS)
            if kind < 2:
                conditions.append(f'${name}{path} {one_of(rng, ("=", "!=", "<", ">=", ">", "<="))} "{word}"')
            elif kind == 2:
                conditions.append(f"${name}/@k {one_of(rng, ('=', '!=', '<', '>='))} {one_of(rng, NUMBERS)}")
            elif kind == 3:
                conditions.append(f'contains(${name}{one_of(rng, ("", "/@k"))}, "{one_of(rng, ("x", "1", ""))}")')
            else:
                operator = one_of(rng, ("=", "!=", "<", "<=", ">", ">="))
                conditions.append(f"${name}{path} {operator} ${name}{one_of(rng, paths)}")
    rng.shuffle(conditions)
    if conditions:
        text += "where " + " and ".join(conditions) + "\n"
    items = [f"${name}{one_of(rng, returned)}" for name in names for _ in range(int(rng.integers(0, 3)))]
    attribute = f"${names[-1]}/@k, " if rng.random() < 0.5 else ""
    inside = ", ".join(items) or f"${names[0]}/b"
    return text + f"return <r>{{ {attribute}{inside} }}and <i>{{(${names[-1]}{one_of(rng, returned)})}}</i> </r>"


def canonical(results) -> Counter:
    """Results as canonical XML: how often each occurs."""
    return Counter(etree.tostring(etree.fromstring(text), method="c14n") for text in results)


class Saxon:
    """Answers queries with SaxonC, over files of a directory."""

    def __init__(self, directory) -> None:
        from saxonche import PySaxonProcessor

        self._processor = PySaxonProcessor(license=False)
        self._directory = directory
        self._count = 0

    def results(self, query: str, documents: dict[str, bytes]) -> Counter:
        """The results as canonical XML: how often each occurs."""
        for name, text in documents.items():
            self._count += 1  # Saxon may remember a document by its name
            path = self._directory / f"{self._count}.xml"
            path.write_bytes(text)
            query = query.replace(f'doc("{name}")', f'doc("{path.as_uri()}")')
        processor = self._processor.new_xquery_processor()
        processor.set_query_content(f"<all>{{ {query} }}</all>")
        root = etree.fromstring(processor.run_query_to_string().encode())
        return Counter(etree.tostring(result, method="c14n", with_tail=False) for result in root)


def fragment_results(bindings, conditions, join, returned, documents) -> Counter:
    """Every combination of nodes, as fragments have it, by trying all.

    `bindings` are (variable, document, path), `conditions` (variable, path, operator, literal), `join` a (variable, path) of each
    variable, and `returned` the (variable, path) of the result in order, all of plain paths.
    """
    rows = []
    for variable, document, path in bindings:
        root = etree.fromstring(documents[document])
        where = [p for v, p, _, _ in conditions if v == variable] + [p for v, p in join if v == variable]
        wanted = list(dict.fromkeys(where + [p for v, p in returned if v == variable]))
        text, at, optional = path, {"": len(parse(path)) - 1}, set()
        for p in wanted:
            if p:
                before = len(parse(text))
                text += f"[{p if p.startswith('//') else p[1:]}]"
                at[p] = len(parse(text)) - 1
                if p not in where:
                    optional.add(before)
        found = [{p: one[at[p]] for p in wanted} for one in enumerated(root, parse(text), optional=optional)]
        rows.append([
            one for one in found if all(_passes(one[p], o, literal) for v, p, o, literal in conditions if v == variable)
        ])  # fmt: skip
    names = [variable for variable, _, _ in bindings]
    results = Counter()
    for combination in itertools.product(*rows):
        by_name = dict(zip(names, combination, strict=True))
        if len({string_value(by_name[v][p]) for v, p in join}) > 1:
            continue
        made = etree.Element("r")
        for v, p in returned:
            _append(made, by_name[v][p], p)
        results[etree.tostring(made, method="c14n")] += 1
    return results


def _passes(bound, operator, literal) -> bool:
    text = string_value(bound)
    if operator == "contains":
        return literal in text
    if isinstance(literal, str):
        a, b = text, literal
    else:
        a, b = etree.XPath("number($t)")(etree.Element("x"), t=text), literal
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


def _append(made, bound, path) -> None:
    """Put a node into a result: an attribute as one if the path says so, and as text if it stands for a child."""
    if bound is None:
        return
    element, attribute = bound
    if attribute and "@" in path:
        made.set(attribute, element.get(attribute))
    elif attribute:
        if len(made):
            made[-1].tail = (made[-1].tail or "") + element.get(attribute)
        else:
            made.text = (made.text or "") + element.get(attribute)
    else:
        copy = deepcopy(element)
        copy.tail = None
        made.append(copy)
