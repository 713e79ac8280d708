"""TwigJoin: fragments of two or more XML streams, joined on one text while the documents arrive. [PQP] ch. 7, Alg. 2 to 5"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from headrace.errors import BadInput, choice, shown
from headrace.memory import MemoryBudget
from headrace.progressive import FlushPolicy, ProgressiveStats
from headrace.xml.arriving_documents import Documents
from headrace.xml.key_join import KeyJoin
from headrace.xml.limits import Limits
from headrace.xml.twig import Twig


class TwigJoin:
    """Joins fragments of several documents whose keys are the same text: Twig'n Join.

        chunk of a --> scanner --> twig machine of a --> fragments --> probe b --> results
                                                           +-> memory of a -- full --> flush policy --> disk
        chunk of b --> scanner --> twig machine of b --> fragments --> probe a --> results    finish: disk with disk --> results

    Choose it when documents come at the same time, or are too large to be held, and results are wanted before they end. Results
    are all pairs (n-tuples, of n streams) of fragments with equal keys, each once. A key is compared as it stands, byte for
    byte; a fragment without one, which an optional branch allows, joins nothing. `feed`, `end`, `idle` and `finish` are iterators
    of record batches, and must be read to their ends (that of `idle` need not be). A result has the columns of all fragments,
    each with its stream's name and a point before it: ``a.id``.

    A document that is ill-formed raises IllFormed after the results of what came before, and counts as ended: the other streams
    may go on.

    Parameters
    ----------
    twigs
        The twig of each stream, by the stream's name.
    on
        The column of each twig that is the key, by the stream's name; it must show text.
    memory
        The budget of all machines and the join together. Scanners take one and a half megabytes a stream; the join has
        three quarters of the rest, and the elements that are open have what remains.
    flush
        The flush policy of the join: "rrpj" is Twig'n Join, "rpj" is Twig-RPJ, "random" is Random; others by name or as an
        object.
    limits
        What a document may have at most.
    spill
        The directory of the files that fragments are flushed to; the system's for temporary files if None.

    Example
    -------
    >>> from headrace.xml import TwigJoin
    >>> op = TwigJoin({"a": "//item[id]", "b": "//sale[item][price]"}, on={"a": "id", "b": "item"}, memory="8MiB")
    >>> list(op.feed("a", b"<items><item id='i1'/><item id='i2'/>"))
    []
    >>> [out.to_pylist() for out in op.feed("b", b"<sales><sale item='i2'><price>7</price></sale>")]
    [[{'a.item': 3, 'a.id': 'i2', 'b.sale': 1, 'b.item': 'i2', 'b.price': '7'}]]
    >>> list(op.feed("a", b"</items>")), list(op.end("a")), list(op.feed("b", b"</sales>")), list(op.end("b"))
    ([], [], [], [])
    >>> list(op.finish())
    []

    Reference: [PQP] ch. 7, Alg. 2 to 5.

    Deviations: results are complete, where the text measures what memory gives; the order of streams is that in which they are
    fed. More than two streams are joined as MultiWayJoin does.
    """

    def __init__(
        self,
        twigs: Mapping[str, Twig | str],
        on: Mapping[str, str],
        memory: int | str = "64MiB",
        flush: str | FlushPolicy = "rrpj",
        *,
        limits: Limits | None = None,
        spill: Path | None = None,
    ) -> None:
        if not isinstance(twigs, Mapping) or len(twigs) < 2:
            raise BadInput(f"twigs={shown(twigs)} must have two or more streams, each with its twig")
        self.twigs = {name: Twig(twig) if isinstance(twig, str) else twig for name, twig in twigs.items()}
        self.on = key_columns(self.twigs, on)
        self.memory, self.flush = memory, flush
        self.budget = MemoryBudget(memory)
        self._numbers = {name: number for number, name in enumerate(self.twigs)}
        self._schemas = [
            pa.schema([field.with_name(f"{name}.{field.name}") for field in twig.schema])
            for name, twig in self.twigs.items()
        ]
        self._documents = Documents(
            {name: [twig] for name, twig in self.twigs.items()}, kind="stream", budget=self.budget, limits=limits
        )
        keys = [f"{name}.{column}" for name, column in self.on.items()]
        self._join = KeyJoin(self._schemas, keys, self.budget, flush, spill)
        self.schema = self._join.schema

    @property
    def stats(self) -> ProgressiveStats:
        """The counters of the join."""
        return self._join.stats

    @property
    def fragments_made(self) -> dict[str, int]:
        """Fragments that were made so far, by stream."""
        return {name: machine.stats.fragments for name, machine in self._documents.machines.items()}

    def feed(self, stream: str, chunk: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Take a chunk of a stream's document, and yield the results of the fragments that end in it."""
        return self._joined(stream, self._documents.feed(stream, chunk))

    def end(self, stream: str) -> Iterator[pa.RecordBatch]:
        """Say that a stream's document has ended. Raises IllFormed if it may not end there."""
        return self._joined(stream, self._documents.end(stream))

    def idle(self, budget: float | None = None) -> Iterator[pa.RecordBatch]:
        """Use the time while no stream brings data, `budget` seconds at most: yield results with fragments on disk."""
        return self._join.idle(budget)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the results that are left, after all streams have ended."""
        self._documents.all_ended()
        yield from self._join.finish()

    def _joined(self, stream: str, fragments: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        number = self._numbers[stream]
        for _, batch in fragments:
            yield from self._join.insert(
                number, pa.RecordBatch.from_arrays(batch.columns, schema=self._schemas[number])
            )


def key_columns(twigs: Mapping[str, Twig], on: Mapping[str, str]) -> dict[str, str]:
    """The key column of each stream; refuses streams without one, and columns that do not show text."""
    if not isinstance(on, Mapping):
        raise BadInput(f"on={shown(on)} must say the key of each stream, as {{'a': 'id', 'b': 'itemref/id'}}")
    for name in on:
        choice("on", name, twigs)
    for name, twig in twigs.items():
        if name not in on:
            raise BadInput(
                f"on={shown(on)} has no key of stream {name!r}; choose one of {', '.join(twig.schema.names)}"
            )
        column = choice(f"on[{name!r}]", on[name], twig.schema.names)
        if twig.kinds[twig.schema.names.index(column)] != "text":
            raise BadInput(
                f"on[{name!r}]={column!r} does not show text; make it with Twig({twig.path!r}, content={{{column!r}: 'text'}})"
            )
    return {name: on[name] for name in twigs}
