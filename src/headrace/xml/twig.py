"""Twig and Twigs: patterns of XML documents, and the fragments that match them. [PQP] ch. 7"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, Protocol

import pyarrow as pa

from headrace.errors import BadInput, IllFormed, choice, shown
from headrace.memory import MemoryBudget
from headrace.xml.limits import Limits
from headrace.xml.machine import MEMORY, TwigMachine
from headrace.xml.path import divide, parse
from headrace.xml.program import KINDS, Program, TwigPlan, compile_twigs

Content = Literal["order", "text", "xml"]
Chunks = Iterable[bytes | bytearray | memoryview]


class Twig:
    """A twig pattern: a path with branches, each match of which is a fragment, a row with a column for each query node.

    A fragment comes when the element that the twig's root is bound to has ended, in the middle of the document. One
    fragment for each combination: ``//inproceedings[author][title]`` has one for every author. Columns have the path of
    their query node from the root on, as in ``itemref/id`` or ``//author``; the root has its name; a path that occurs again
    has ``#2`` behind it.

    Parameters
    ----------
    path
        The twig, in the grammar of headrace.xml.path: ``//item[id][name]``, ``//item[price > 40]//name``, ``//a[contains(b,
        "x")]``.
    content
        What a column shows, by its name: "order" (the number of the node among elements and attributes in document order,
        from 0), "text" (its string value), "xml" (its bytes in the document, as UTF-8), or several of these: all but the
        first have columns as ``id (order)``. By default nodes without branches show their text, the others their order.
    optional
        Columns of branches that need not be there; they are null then.
    strict
        A name in a predicate also stands for the attribute of this name of an element that has no child element so called, as in
        ``//item[id]``. Not if strict.
    start
        The step, from 0, at which fragments begin. Steps before it have no predicates: they say where the fragment lies, have no
        columns, and do not multiply fragments. ``Twig("/site//item[id]", start=1)`` has the fragments of an item when the item
        ends, and not when the site does.

    Example
    -------
    >>> from headrace.xml import Twig
    >>> document = b"<site><item id='i1'><name>Mill</name></item><item id='i2'><name>Race</name></item></site>"
    >>> for batch in Twig("//item[id][name]").fragments([document[:30], document[30:]]):
    ...     batch.to_pylist()
    [{'item': 1, 'id': 'i1', 'name': 'Mill'}, {'item': 4, 'id': 'i2', 'name': 'Race'}]

    Reference: [PQP] ch. 7, §7.1.2; Chen, Davidson, Zheng, TwigM, ICDE 2006.

    Deviations: an entry leaves its stack at its end tag whether or not it became a solution (the text keeps it, and it
    would adopt children of later siblings); a fragment comes when its own root ends, not that of the outermost match;
    partial solutions are held once, in lists that inner and outer elements share.
    """

    def __init__(
        self,
        path: str,
        *,
        content: Mapping[str, Content | Sequence[Content]] | None = None,
        optional: Collection[str] = (),
        strict: bool = False,
        start: int = 0,
    ) -> None:
        self.path = path
        self.strict = strict
        self.start = start
        nodes = parse(path)
        if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start < len(nodes):
            raise BadInput(f"start={shown(start)} is not a step of {path}; give its number, from 0 on")
        above, nodes = divide(nodes, start)
        self.columns = [node.column for node in nodes]
        for name in (*(content or {}), *optional):
            choice("column", name, self.columns)
        if self.columns[0] in optional:
            raise BadInput(f"optional={shown(self.columns[0])} is the root of {path}; only a branch can be optional")
        shown_columns: list[tuple[int, str]] = []
        fields = []
        for k, node in enumerate(nodes):
            wanted = (content or {}).get(node.column, "order" if node.children else "text")
            for n, kind in enumerate([wanted] if isinstance(wanted, str) else wanted):
                choice(f"content of {node.column}", kind, KINDS)
                shown_columns.append((k, kind))
                type_ = pa.int64() if kind == "order" else pa.string()
                fields.append(pa.field(f"{node.column} ({kind})" if n else node.column, type_))
        if not fields:
            raise BadInput(f"content={shown(content)} leaves no column of {path}")
        self.schema = pa.schema(fields)
        self.kinds = [kind for _, kind in shown_columns]
        absent = frozenset(self.columns.index(name) for name in optional)
        self.plan = TwigPlan(nodes, shown_columns, absent, strict, above)

    def fragments(
        self, chunks: Chunks, *, memory: int | str = MEMORY, limits: Limits | None = None, file: str = "document"
    ) -> Iterator[pa.RecordBatch]:
        """Yield the fragments of a document that comes in chunks of bytes; after each chunk those that ended in it."""
        matcher = self.matcher(memory=memory, limits=limits, file=file)
        for chunk in _chunks(chunks):
            yield from matcher.feed(chunk)
        yield from matcher.end()

    def matcher(
        self, *, memory: int | str = MEMORY, limits: Limits | None = None, file: str = "document", text: bool = False
    ) -> Matcher:
        """Return a matcher for one document, which is fed chunk by chunk; with `text`, as UTF-8 whatever it declares."""
        return Matcher(TwigMachine([self], self._program, memory=memory, limits=limits, file=file, text=text))

    @cached_property
    def _program(self) -> Program:
        """Compiled once for all documents."""
        return compile_twigs([self.plan])

    def __repr__(self) -> str:
        return f"Twig({self.path!r})"


class PatternMatcher(Protocol):
    """Matches documents, one at a time."""

    def reset(self, file: str, *, text: bool) -> bool:
        """Begin another document, wherever the last one was left; False if a new matcher must be made."""
        ...

    def refuse(self, reason: str) -> IllFormed:
        """Return the error for a document whose next bytes cannot be had, at the place that was reached."""
        ...

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Take a chunk of the document, and yield the rows that can be made now."""
        ...

    def end(self) -> Iterator[pa.RecordBatch]:
        """Say that the document has ended. Raises IllFormed if it may not end there."""
        ...


class Pattern(Protocol):
    """What documents are matched with: a Twig, or one variable of a query."""

    @property
    def path(self) -> str:
        """What messages call it."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        ...

    def matcher(
        self, *, memory: int | str = MEMORY, limits: Limits | None = None, file: str = "document", text: bool = False
    ) -> PatternMatcher:
        """Return a matcher for documents; with `text`, as UTF-8 whatever they declare."""
        ...


class Matcher:
    """Matches one twig with one document: `feed` and `end` are iterators of record batches that must be read to their ends.

    Example
    -------
    >>> from headrace.xml import Twig
    >>> matcher = Twig("//b").matcher()
    >>> [batch.to_pylist() for batch in matcher.feed(b"<a><b>x</b><b>")]
    [[{'b': 'x'}]]
    >>> [batch.to_pylist() for batch in matcher.feed(b"y</b></a>")], list(matcher.end())
    ([[{'b': 'y'}]], [])
    """

    def __init__(self, machine: TwigMachine) -> None:
        self.machine = machine

    def reset(self, file: str = "document", *, text: bool = False) -> bool:
        """Begin another document, wherever the last one was left; False if a new matcher must be made."""
        return self.machine.reset(file, text=text)

    def refuse(self, reason: str) -> IllFormed:
        """Return the error for a document whose next bytes cannot be had, at the place that was reached."""
        return self.machine.refuse(reason)

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Take a chunk of the document, and yield the fragments that end in it."""
        for _, batch in self.machine.feed(chunk):
            yield batch

    def end(self) -> Iterator[pa.RecordBatch]:
        """Say that the document has ended. Raises IllFormed if it may not end there."""
        for _, batch in self.machine.end():
            yield batch


class Twigs:
    """Standing twigs over one stream of documents: each document is scanned once for all of them.

    Example
    -------
    >>> from headrace.xml import Twig, Twigs
    >>> both = Twigs([Twig("//a[b]"), Twig("//c")])
    >>> [(n, batch.to_pylist()) for n, batch in both.fragments([b"<r><a><b>x</b></a><c>y</c></r>"])]
    [(0, [{'a': 1, 'b': 'x'}]), (1, [{'c': 'y'}])]
    """

    def __init__(self, twigs: Iterable[Twig | str]) -> None:
        self.twigs = tuple(Twig(twig) if isinstance(twig, str) else twig for twig in twigs)
        if not self.twigs:
            raise BadInput("Twigs needs at least one twig")

    def fragments(
        self, chunks: Chunks, *, memory: int | str = MEMORY, limits: Limits | None = None, file: str = "document"
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the number of a twig and fragments of it, as record batches; after each chunk those that ended in it."""
        machine = self.machine(memory=memory, limits=limits, file=file)
        for chunk in _chunks(chunks):
            yield from machine.feed(chunk)
        yield from machine.end()

    def machine(
        self,
        *,
        memory: int | str | MemoryBudget = MEMORY,
        limits: Limits | None = None,
        file: str = "document",
        text: bool = False,
    ) -> TwigMachine:
        """Return a machine for one document, which is fed chunk by chunk; with `text`, as UTF-8 whatever it declares."""
        return TwigMachine(self.twigs, self._program, memory=memory, limits=limits, file=file, text=text)

    @cached_property
    def _program(self) -> Program:
        """Compiled once for all documents."""
        return compile_twigs([twig.plan for twig in self.twigs])


def _chunks(chunks: Chunks) -> Chunks:
    """A document that comes whole is one chunk."""
    return [chunks] if isinstance(chunks, bytes | bytearray | memoryview) else chunks
