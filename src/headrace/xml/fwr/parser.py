"""The text of a query, parsed: the for, where, return of XQuery over documents, and nothing else. [PQP] ch. 7

    query   = [ "(" ] for { for } [ where ] return [ ")" ] ;
    for     = "for" VAR "in" "doc" "(" string ")" path { "," VAR "in" "doc" "(" string ")" path } ;
    path    = twig without comparisons ;
    where   = "where" cond { "and" cond } ;
    cond    = varpath compare varpath | varpath compare literal | "contains" "(" varpath "," string ")" ;
    varpath = VAR [ ( "/" | "//" ) step { ( "/" | "//" ) step } ] ;
    return  = "return" element ;
    element = "<" NAME ">" { text | "{" item { "," item } "}" | element } "</" NAME ">" ;
    item    = varpath | "(" varpath ")" ;
    VAR     = "$" NAME ;

Twigs, steps, comparisons and literals are those of headrace.xml.path.
"""

from __future__ import annotations

import re

from headrace.errors import BadInput, shown
from headrace.xml.fwr.paths import PathReader
from headrace.xml.fwr.reader import Reader
from headrace.xml.fwr.syntax import Binding, Comparison, Element, Query, VarPath

_COMPARE = re.compile(r"!=|<=|>=|=|<|>")
_TEXT = re.compile(r"[^<{}&]+")


def parse_query(text: str) -> Query:
    """Parse a query.

    Example:
        >>> query = parse_query('for $s in doc("a.xml")//b where $s/c = 1 return <r>{$s/d}</r>')
        >>> [(b.variable, b.document, b.text) for b in query.bindings], [c.text for c in query.conditions]
        ([('s', 'a.xml', '//b')], ['$s/c = 1'])
        >>> parse_query('for $s in doc("a.xml")//b let $t := $s/c return <r>{$t}</r>')
        Traceback (most recent call last):
        ...
        headrace.errors.BadInput: the query, line 1, column 27: expected 'for', 'where' or 'return', found 'let';
            let is not supported; write the path where it is used
    """
    if not isinstance(text, str):
        raise BadInput(f"a query is a text, not {shown(text)}")
    return _Parser(text).query()


class _Parser:
    def __init__(self, text: str) -> None:
        self._r = Reader(text)
        self._paths = PathReader(self._r)

    def query(self) -> Query:
        r = self._r
        opened = r.accept("(")
        if not r.keyword("for"):
            raise r.error("'for'")
        self._for()
        while r.keyword("for"):
            self._for()
        conditions = []
        if r.keyword("where"):
            conditions.append(self._condition())
            while r.keyword("and"):
                conditions.append(self._condition())
        if not r.keyword("return"):
            raise r.error("'and' or 'return'" if conditions else "'for', 'where' or 'return'")
        if not r.sees("<"):
            raise r.error("an element, as <result>{…}</result>")
        element = self._element()
        if opened:
            r.expect(")", " that ends the query")
        r.skip()
        if r.at < len(r.text):
            raise r.error("the end of the query")
        return Query(
            r.text, tuple(self._paths.bindings.values()), tuple(conditions), element, tuple(self._paths.rooted)
        )

    # -- for ---------------------------------------------------------------------------------------------------------------

    def _for(self) -> None:
        r = self._r
        while True:
            r.expect("$", " and the name of a variable")
            at = r.at - 1
            variable = r.name("the name of a variable")
            if variable in self._paths.bindings:
                raise r.refusal(f"${variable} is bound twice; take another name", at)
            if not r.keyword("in"):
                raise r.error("'in'")
            if r.sees("$"):
                raise r.refusal(
                    'a variable is bound to a path of a document, doc("…")//…; a path of another variable is not supported',
                    r.at,
                )
            if not r.keyword("doc"):
                raise r.error('doc("…")')
            r.expect("(")
            document = r.string()
            r.expect(")")
            r.skip()
            begin = r.at
            steps = self._paths.steps()
            if not steps:
                raise r.error("'/' or '//' and a step")
            nodes = self._paths.check(begin, "")
            if any(node.test is not None for node in nodes):
                raise r.refusal("a comparison in the path of a variable is not supported; write it after where", begin)
            self._paths.bindings[variable] = Binding(variable, document, steps, at)
            if not r.accept(","):
                return

    # -- where -------------------------------------------------------------------------------------------------------------

    def _condition(self) -> Comparison:
        r = self._r
        r.skip()
        at = r.at
        if r.keyword("contains"):
            r.expect("(")
            left = self._paths.varpath()
            r.expect(",")
            right: VarPath | str | float | None = r.string()
            r.expect(")")
            return Comparison(left, "contains", right or "", at)
        left = self._paths.varpath()
        r.skip()
        found = _COMPARE.match(r.text, r.at)
        if not found:
            raise r.error("a comparison: =, !=, <, <=, > or >=")
        r.at = found.end()
        if r.sees("$"):
            right = self._paths.varpath()
        else:
            right = r.number()
            if right is None:
                if not (r.sees('"') or r.sees("'")):
                    raise r.error("a path of a variable, a text in quotes or a number")
                right = r.string()
        return Comparison(left, found[0], right, at)

    # -- return ------------------------------------------------------------------------------------------------------------

    def _element(self) -> Element:
        r = self._r
        begin = r.at
        r.expect("<")
        name = r.name("the name of an element")
        if r.sees("/"):
            raise r.refusal(f"an empty-element constructor is not supported; write <{name}></{name}>", begin)
        if not r.accept(">"):
            raise r.error(f"'>': attributes in <{name}> are not supported, and {{$s/@id}} makes one")
        attributes: list[VarPath] = []
        content: list[str | VarPath | Element] = []
        while not r.text.startswith("</", r.at):
            if r.at >= len(r.text):
                raise r.refusal(f"<{name}> is not closed by </{name}>", begin)
            text = self._text()
            if text:
                content.append(text)
            elif r.text.startswith("{", r.at):
                for item in self._items():
                    if item.attribute is None:
                        content.append(item)
                        continue
                    if content:
                        raise r.refusal(f"an attribute comes before all other content of <{name}>", item.at)
                    if item.attribute in [one.attribute for one in attributes]:
                        raise r.refusal(f"<{name}> would have the attribute {item.attribute!r} twice", item.at)
                    attributes.append(item)
            elif re.compile("<[!?]").match(r.text, r.at):
                raise r.refusal("comments, CDATA and processing instructions are not supported in an element", r.at)
            elif r.text.startswith("<", r.at) and not r.text.startswith("</", r.at):
                content.append(self._element())
        r.at += 2
        place = r.at
        if r.name("the name of an element") != name:
            raise r.refusal(f"expected </{name}>, which is open", place - 2)
        r.expect(">")
        return Element(name, tuple(attributes), tuple(content))

    def _text(self) -> str:
        """Read text up to a tag or a brace; white space alone is no content, unless a reference stands for some of it."""
        r = self._r
        parts, written = [], True
        while True:
            found = _TEXT.match(r.text, r.at)
            if found:
                parts.append(found[0])
                r.at = found.end()
            elif r.text.startswith(("{{", "}}"), r.at):
                parts.append(r.text[r.at])
                r.at += 2
            elif r.text.startswith("&", r.at):
                character, r.at = r.reference(r.at)
                parts.append(character)
                written = False
            elif r.text.startswith("}", r.at):
                raise r.refusal("'}' closes nothing; write }} for the character", r.at)
            else:
                text = "".join(parts)
                return "" if written and not text.strip(" \t\r\n") else text

    def _items(self) -> list[VarPath]:
        r = self._r
        r.expect("{")
        items = []
        while True:
            bracket = r.accept("(")
            items.append(self._paths.varpath())
            if bracket:
                r.expect(")")
            if r.accept("}"):
                return items
            r.expect(",", " or '}'")
