"""BadQuery: what is wrong with a query, and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headrace.errors import SUGGEST_ABOVE, BadInput


class BadQuery(BadInput):
    """A query cannot be run. The message has the line and the column, the line itself with a caret, and what is wrong.

    Args:
        reason: what is wrong, in one sentence.
        text: the query.
        at: the position in the text (characters, from 0 on), or None where it is not known.
        length: how many characters the mistake has.
    """

    def __init__(self, reason: str, text: str, at: int | None = None, length: int = 1) -> None:
        self.reason, self.text, self.at, self.length = reason, text, at, length
        if at is None:
            self.line: int | None = None
            self.column: int | None = None
            super().__init__(reason)
            return
        at = min(max(at, 0), len(text))
        begin = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        line = text[begin : len(text) if end < 0 else end]
        self.line, self.column = text.count("\n", 0, at) + 1, at - begin + 1
        carets = "^" * max(1, min(length, len(line) - (at - begin)))
        indent = "".join("\t" if c == "\t" else " " for c in line[: at - begin])
        super().__init__(f"line {self.line}, column {self.column}: {reason}\n  {line}\n  {indent}{carets}")

    def __reduce__(self) -> tuple[object, ...]:
        return BadQuery, (self.reason, self.text, self.at, self.length)


def near(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, as the end of a message; empty if none is near.

    Example:
        >>> near("tilte", ["title", "link"])
        "; did you mean 'title'?"
    """
    words = list(known)
    lower = {one.lower(): one for one in words}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=SUGGEST_ABOVE)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""
