"""XQuery: a query over documents that arrive, with results while they do. [PQP] ch. 7, Fig. 7.1"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from headrace.errors import BadInput, choice, shown
from headrace.memory import MemoryBudget
from headrace.progressive import FlushPolicy, ProgressiveStats
from headrace.xml.arriving_documents import Documents
from headrace.xml.fwr.construction import Construction
from headrace.xml.fwr.plan import Semantics, plan_query
from headrace.xml.key_join import PARTITIONS, KeyJoin
from headrace.xml.limits import Limits
from headrace.xml.twig import Chunks


class XQuery:
    """Answers a query of for, where and return over documents that arrive chunk by chunk.

        document --> scanner --> twigs --> keep --+
                                                  +--> join on one value --> construct --> results
        document --> scanner --> twigs --> keep --+

    `feed`, `end` and `finish` are iterators of record batches with a column "result", each an element as text, and must be read
    to their ends. A result comes when the elements that it is made of have ended, in any order. An ill-formed document raises
    IllFormed after the results of what came before it, and counts as ended: the others may go on.

    Parameters
    ----------
    text
        The query; headrace.xml.fwr.parser has the grammar.
    memory
        The budget of scanners, twigs and the join together.
    semantics
        "xquery": a variable is bound to each element once, and = holds if any value is equal to any other. "fragments": a result
        for every combination of nodes that match, as in [PQP].
    flush
        The flush policy of the join, as of TwigJoin.
    limits
        What a document may have at most.
    spill
        The directory of the join's files; the system's for temporary files if None.

    Example
    -------
    >>> from headrace.xml import XQuery
    >>> op = XQuery('for $a in doc("a.xml")//x, $b in doc("b.xml")//y where $a/k = $b/@k return <r>{$b/@k, $a/n}</r>')
    >>> list(op.feed("a.xml", b"<r><x><k>1</k><n>one</n></x><x><k>2</k></x>"))
    []
    >>> [row["result"] for out in op.feed("b.xml", b"<r><y k='1'/>") for row in out.to_pylist()]
    ['<r k="1"><n>one</n></r>']

    Reference: [PQP] ch. 7.

    Deviations: [PQP] gives a result for every pair of fragments, which is semantics="fragments" here. Its example returns
    $s/blurb where blurb lies deeper: that gives nothing, and $s//techNews/blurb is meant.
    """

    def __init__(
        self,
        text: str,
        *,
        memory: int | str = "64MiB",
        semantics: Semantics = "xquery",
        flush: str | FlushPolicy = "rrpj",
        limits: Limits | None = None,
        spill: Path | None = None,
    ) -> None:
        self.text, self.memory, self.semantics, self.flush = text, memory, semantics, flush
        self._plan = plan = plan_query(text, semantics)
        self._construction = Construction(plan)
        self.documents = tuple(plan.documents)
        self.results = 0
        self.budget = MemoryBudget(memory)
        #: For each twig of a document: the variable that it belongs to, and its number among those of the variable.
        self._owners: dict[str, list[tuple[int, int]]] = {name: [] for name in self.documents}
        for number, variable in enumerate(plan.variables):
            self._owners[variable.binding.document] += [(number, k) for k in range(len(variable.twigs))]
        self._documents = Documents(
            {name: [plan.variables[n].twigs[k] for n, k in owners] for name, owners in self._owners.items()},
            kind="document",
            budget=self.budget,
            limits=limits,
            made=lambda: f"{self.results} results",
        )
        for variable in plan.variables:
            variable.reserve(self.budget)
        self._join: KeyJoin | None = None
        if plan.joins:
            keys = [variable.key_column for variable in plan.variables]
            self._join = KeyJoin([variable.schema for variable in plan.variables], keys, self.budget, flush, spill)

    @property
    def stats(self) -> ProgressiveStats | None:
        """The counters of the join; None of a query with one variable."""
        return self._join.stats if self._join else None

    def explain(self) -> str:
        """Return the plan as text, from the result down to the documents."""
        kind = "ProgressiveJoin" if len(self._plan.variables) == 2 else "MultiWayJoin"
        return self._plan.drawn(f"{kind}, flush={self.flush!r}, {PARTITIONS} partitions")

    def feed(self, document: str, chunk: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Take a chunk of a document, and yield the results that can be made now."""
        return self._run(document, self._documents.feed(document, chunk))

    def end(self, document: str) -> Iterator[pa.RecordBatch]:
        """Say that a document has ended. Raises IllFormed if it may not end there."""
        return self._run(document, self._documents.end(document))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the results that are left, after all documents have ended."""
        self._documents.all_ended()
        if self._join:
            yield from self._constructed(self._join.finish())

    def _run(self, document: str, rows: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for number, batch in rows:
            which, twig = self._owners[document][number]
            for taken in self._plan.variables[which].take(twig, batch):
                yield from self._constructed(self._join.insert(which, taken) if self._join else iter([taken]))

    def _constructed(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make results of joined rows."""
        for joined in rows:
            made = self._construction.make(joined)
            self.results += made.num_rows
            if made.num_rows:
                yield made


class Results:
    """The results of a query, while its documents are read: an iterator of record batches with a column "result".

    One chunk of each document after the other is read, so that all arrive at the same time. `explain` shows the plan.
    """

    def __init__(self, query: XQuery, docs: Mapping[str, Chunks]) -> None:
        self.query = query
        chunks: dict[str, Iterator[bytes | bytearray | memoryview]] = {}
        for name in query.documents:
            choice("document", name, docs)
            document: object = docs[name]
            if isinstance(document, bytes | bytearray | memoryview):
                document = [document]
            if isinstance(document, str) or not isinstance(document, Iterable):
                raise BadInput(
                    f"docs[{name!r}]={shown(document)} is not a document; give its bytes, or chunks of bytes as they arrive"
                )
            chunks[name] = iter(document)
        self._batches = self._run(chunks)

    def explain(self) -> str:
        """Return the plan as text, from the result down to the documents."""
        return self.query.explain()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def _run(self, chunks: dict[str, Iterator[bytes | bytearray | memoryview]]) -> Iterator[pa.RecordBatch]:
        while chunks:
            for name in list(chunks):
                chunk = next(chunks[name], None)
                if chunk is None:
                    del chunks[name]
                    yield from self.query.end(name)
                else:
                    yield from self.query.feed(name, chunk)
        yield from self.query.finish()


def xquery(
    text: str,
    docs: Mapping[str, Chunks],
    memory: int | str = "64MiB",
    semantics: Semantics = "xquery",
    *,
    flush: str | FlushPolicy = "rrpj",
    limits: Limits | None = None,
    spill: Path | None = None,
) -> Results:
    """Answer a query over documents, each of which is bytes, or chunks of bytes as they arrive.

    Returns an iterator of record batches with a column "result"; its method `explain` shows the plan. `XQuery` is the form that
    is fed chunk by chunk, and has the parameters.

    Example:
        >>> from headrace.xml import xquery
        >>> query = 'for $s in doc("a.xml")//b where $s/c > 1 return <r>{$s/c}</r>'
        >>> found = xquery(query, docs={"a.xml": [b"<a><b><c>1</c></b>", b"<b><c>2</c></b></a>"]})
        >>> [row["result"] for batch in found for row in batch.to_pylist()]
        ['<r><c>2</c></r>']
    """
    if not isinstance(docs, Mapping):
        raise BadInput(f"docs={shown(docs)} must have the documents by their names, as {{'news.xml': chunks}}")
    query = XQuery(text, memory=memory, semantics=semantics, flush=flush, limits=limits, spill=spill)
    return Results(query, docs)
