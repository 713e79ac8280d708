"""Reader: goes through the text of a query word by word, and says where and why it stops."""

from __future__ import annotations

import re

from headrace.errors import BadInput

NAME = re.compile(r"[^\W\d][\w.·-]*(?::[^\W\d][\w.·-]*)?")
_WORD = re.compile(r"\$?[\w.·:-]+|\S")
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"(?:[^"]|"")*"' + r"|'(?:[^']|'')*'")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)")
REFERENCE = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d+)|#x([0-9a-fA-F]+));")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_HIGHEST = 0x10FFFF  # code points end there
#: Words of XQuery that the grammar leaves out, and what to do without them.
LEFT_OUT = {
    "let": "let is not supported; write the path where it is used",
    "order": "order by is not supported; results come in the order in which they are found",
    "stable": "order by is not supported; results come in the order in which they are found",
    "group": "group by is not supported",
    "count": "count is not supported",
    "some": "some … satisfies is not supported; = holds if any of the values is equal",
    "every": "every … satisfies is not supported",
    "if": "if is not supported",
    "switch": "switch is not supported",
    "typeswitch": "typeswitch is not supported",
    "try": "try is not supported",
    "declare": "a prolog (declare) is not supported",
    "import": "a prolog (import) is not supported",
    "xquery": "a version declaration is not supported",
    "at": "a position variable (at) is not supported",
    "as": "types (as) are not supported",
    "allowing": "allowing empty is not supported",
    "tumbling": "windows are not supported",
    "sliding": "windows are not supported",
    "or": "or is not supported; run two queries",
    "eq": "eq is not supported; write =",
    "ne": "ne is not supported; write !=",
    "lt": "lt is not supported; write <",
    "le": "le is not supported; write <=",
    "gt": "gt is not supported; write >",
    "ge": "ge is not supported; write >=",
    "is": "is, which compares nodes, is not supported",
    "to": "ranges (to) are not supported",
    "div": "arithmetic is not supported",
    "mod": "arithmetic is not supported",
    "idiv": "arithmetic is not supported",
    "+": "arithmetic is not supported",
    "-": "arithmetic is not supported",
    "*": "arithmetic is not supported",
    "|": "union (|) is not supported",
    "union": "union is not supported",
    "intersect": "intersect is not supported",
    "except": "except is not supported",
    "element": "computed constructors are not supported; write <name>…</name>",
    "attribute": "computed constructors are not supported; write <name>…</name>",
    "text": "computed constructors are not supported; write <name>…</name>",
}


class Reader:
    """A text and a place in it. What is read moves the place on; white space before it is passed over."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, expected: str, at: int | None = None) -> BadInput:
        """Say what was expected at a place, and what stands there; words that the grammar leaves out are named."""
        at = self.at if at is None else at
        at = _SPACE.match(self.text, at).end()  # type: ignore[union-attr]  # it matches everywhere
        found = _WORD.match(self.text, at)
        word = found[0] if found else ""
        near = f"found {word!r}" if found else "the query ends there"
        note = LEFT_OUT.get(word, "")
        name = NAME.match(self.text, at)
        if name and self.text[name.end() :].lstrip().startswith("("):
            note = f"the function {name[0]}() is not supported; contains(path, text) is the only one"
        return self.refusal(f"expected {expected}, {near}{'; ' + note if note else ''}", at)

    def refusal(self, reason: str, at: int) -> BadInput:
        """Refuse the query at a place."""
        return refusal(self.text, at, reason)

    def skip(self) -> None:
        """Pass over white space."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches everywhere
        if self.text.startswith("(:", self.at):
            raise self.refusal("comments, (: … :), are not supported", self.at)

    def sees(self, sign: str) -> bool:
        """Whether a sign comes next."""
        self.skip()
        return self.text.startswith(sign, self.at)

    def accept(self, sign: str) -> bool:
        """Read a sign if it comes next."""
        if not self.sees(sign):
            return False
        self.at += len(sign)
        return True

    def expect(self, sign: str, why: str = "") -> None:
        """Read a sign."""
        if not self.accept(sign):
            raise self.error(f"{sign!r}{why}")

    def keyword(self, word: str) -> bool:
        """Read a keyword if it comes next."""
        self.skip()
        found = NAME.match(self.text, self.at)
        if not found or found[0] != word:
            return False
        self.at = found.end()
        return True

    def name(self, what: str) -> str:
        """Read a name that follows at once."""
        found = NAME.match(self.text, self.at)
        if not found:
            raise self.error(what)
        self.at = found.end()
        return found[0]

    def string(self) -> str:
        """Read a text in quotes."""
        self.skip()
        found = _STRING.match(self.text, self.at)
        if not found:
            raise self.error("a text in quotes")
        quote, inside, begin = found[0][0], found[0][1:-1], self.at + 1
        self.at = found.end()
        parts, last = [], 0
        for place in re.finditer("&", inside):
            parts.append(inside[last : place.start()].replace(quote * 2, quote))
            character, last_in_text = self.reference(begin + place.start())
            parts.append(character)
            last = last_in_text - begin
        value = "".join(parts) + inside[last:].replace(quote * 2, quote)
        if '"' in value and "'" in value:
            raise self.refusal("a text that has both \" and ' in it is not supported", begin - 1)
        return value

    def number(self) -> float | None:
        """Read a number if one comes next."""
        self.skip()
        found = _NUMBER.match(self.text, self.at)
        if not found:
            return None
        self.at = found.end()
        if NAME.match(self.text, self.at):
            raise self.refusal("a number with an exponent or a unit is not supported; write its digits", found.start())
        return float(found[0])

    def reference(self, at: int) -> tuple[str, int]:
        """The character of a reference such as &amp;, and where it ends."""
        found = REFERENCE.match(self.text, at)
        code = int(found[2]) if found and found[2] else int(found[3], 16) if found and found[3] else 0
        allowed = found and (found[1] or code in (9, 10, 13) or 32 <= code < 0xD800 or 0xE000 <= code <= _HIGHEST)
        if not found or not allowed or code in (0xFFFE, 0xFFFF):
            raise self.refusal(
                "'&' does not begin a reference such as &amp; or &#65;; write &amp; for the character", at
            )
        return (_ENTITIES[found[1]] if found[1] else chr(code)), found.end()


def refusal(text: str, at: int, reason: str) -> BadInput:
    """Refuse a query at a place of its text."""
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return BadInput(f"the query, line {line}, column {column}: {reason}")
