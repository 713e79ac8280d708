"""Documents and twigs drawn at random, documents that fail, and what expat and a plain enumeration say about them."""

from xml.parsers import expat

import numpy as np
from lxml import etree

TAGS = ("a", "b", "ab", "c")  # one is the beginning of another
TEXTS = ("", "x", "1", "1.0", " 2 ", "10", "x y", "&amp;", "é", "-1")


def document(rng: np.random.Generator, nodes: int = 12, depth: int = 5) -> bytes:
    """A small document: few names, so that twigs match; attributes with the names of elements, mixed content, comments, CDATA."""
    left = [nodes]

    def text() -> str:
        kind = rng.integers(0, 8)
        word = TEXTS[rng.integers(0, len(TEXTS))]
        if kind == 0:
            return f"<!-- {word} -->{word}"
        if kind == 1:
            return f"<![CDATA[{word}]]>"
        if kind == 2:
            return f"<?p {word}?>"
        return word if kind < 6 else ""

    def element(level: int) -> str:
        left[0] -= 1
        tag = TAGS[rng.integers(0, len(TAGS))]
        names = [name for name in TAGS if rng.random() < 0.2]
        attributes = "".join(f' {name}="{TEXTS[rng.integers(0, len(TEXTS))]}"' for name in names)
        inside = text()
        while left[0] > 0 and level < depth and rng.random() < 0.7:
            inside += element(level + 1) + text()
        if not inside and rng.random() < 0.5:
            return f"<{tag}{attributes}/>"
        return f"<{tag}{attributes}>{inside}</{tag}>"

    return element(1).encode()


def twig(rng: np.random.Generator, most: int = 5, tests: bool = True) -> str:
    """A twig of the grammar over the same names."""
    left = [int(rng.integers(1, most + 1))]

    def step(predicate: bool) -> str:
        left[0] -= 1
        kind = rng.integers(0, 10)
        name = TAGS[rng.integers(0, len(TAGS))]
        if predicate and kind == 0:
            return f"@{name}"
        out = "*" if kind == 1 else name
        while left[0] > 0 and rng.random() < 0.4:
            out += f"[{inner()}]"
        if predicate and left[0] > 0 and rng.random() < 0.3:
            out += ("/", "//")[rng.integers(0, 2)] + step(True)
        return out

    def inner() -> str:
        path = ("", "/", "//", ".//")[rng.integers(0, 4)] + step(True)
        kind = rng.integers(0, 12) if tests else 11
        literal = TEXTS[rng.integers(0, len(TEXTS))].replace("&amp;", "&")
        if kind < 2:
            return f'{path} {("=", "!=")[kind]} "{literal}"'
        if kind < 8:
            return f"{path} {('=', '!=', '<', '<=', '>', '>=')[kind - 2]} {(0, 1, 1.5, 2, 10)[rng.integers(0, 5)]}"
        if kind == 8:
            return f'contains({path}, "{literal}")'
        return path

    out = ("/", "//", "//")[rng.integers(0, 3)] + step(False)
    while left[0] > 0:
        out += ("/", "//")[rng.integers(0, 2)] + step(False)
    return out


def expat_accepts(document: bytes) -> bool:
    """Whether expat, without namespaces, finds a document well-formed."""
    parser = expat.ParserCreate()
    try:
        parser.Parse(document, True)
    except expat.ExpatError:
        return False
    except (LookupError, ValueError):  # an encoding that expat does not know
        return False
    return True


def orders(root: etree._Element) -> dict[tuple[etree._Element, str], int]:
    """The number of each element, under the name "", and of each attribute, in document order."""
    out: dict[tuple[etree._Element, str], int] = {}
    for element in root.iter(etree.Element):
        out[element, ""] = len(out)
        for name in element.attrib:
            out[element, name] = len(out)
    return out


def enumerated(root: etree._Element, nodes, strict: bool = False, optional=frozenset()) -> list[tuple]:
    """Every binding of the query nodes, by trying all: tuples of (element, attribute's name or "") or None."""
    everything = list(root.iter(etree.Element))

    def elements_in(element, node):
        return [child for child in element if isinstance(child.tag, str) and node.name in ("*", child.tag)]

    def candidates(node, parent):
        if parent is None:
            if node.attribute:
                return [(e, node.name) for e in everything if node.name in e.attrib]
            return [(e, "") for e in ([root] if node.axis == "/" else everything) if node.name in ("*", e.tag)]
        falls_back = node.predicate and not strict and not node.children and node.name != "*"
        found = []
        context = parent[0]
        for holder in [context] if node.axis == "/" else context.iter(etree.Element):
            if node.attribute:
                found += [(holder, node.name)] if node.name in holder.attrib else []
                continue
            children = elements_in(holder, node)
            found += [(child, "") for child in children]
            if falls_back and not children and node.name in holder.attrib:
                found.append((holder, node.name))
        return found

    def passes(node, bound) -> bool:
        if node.test is None:
            return True
        text, literal, operator = string_value(bound), node.test.literal, node.test.operator
        if operator == "contains":
            return literal in text
        if isinstance(literal, str) and operator in ("=", "!="):
            return (text == literal) == (operator == "=")
        a = etree.XPath("number($t)")(root, t=text)
        b = etree.XPath("number($t)")(root, t=literal) if isinstance(literal, str) else float(literal)
        return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]

    def solutions(k: int, parent):
        """All bindings of the subtree of query node k, as dictionaries."""
        out = []
        for bound in candidates(nodes[k], parent):
            if not passes(nodes[k], bound):
                continue
            partial = [{k: bound}]
            for child in nodes[k].children:
                below = solutions(child, bound)
                if not below and child in optional:
                    below = [{}]
                partial = [{**one, **other} for one in partial for other in below]
            out += partial
        return out

    return [tuple(one.get(k) for k in range(len(nodes))) for one in solutions(0, None)]


def string_value(bound) -> str | None:
    """The string value of an element or attribute."""
    if bound is None:
        return None
    element, name = bound
    return element.get(name) if name else element.xpath("string()")
