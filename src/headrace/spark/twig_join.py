"""`twig_join`: fragments of XML documents joined on a text, exactly once, in a memory budget. [PQP] ch. 7

The fragments of each side are those of `xml_fragments`; they are joined as `progressive_join` and `multiway_join` join rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, shown
from headrace.progressive.policies import FlushPolicy
from headrace.spark.document_join import Documents, KeyedJoin, Reading
from headrace.spark.logged_plan import PARTITIONS
from headrace.spark.schemas import numbered
from headrace.xml import Limits, Twig
from headrace.xml.documents import Partial
from headrace.xml.machine import MEMORY
from headrace.xml.twig_join import key_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Side = tuple[Documents, Twig | str] | tuple[Documents, Twig | str, Mapping[str, Any]]

_OWN = ("column", "keep", "document", "streaming", "options")  # parameters of xml_fragments that a side may have
_KEY = "key"  # a column of a side beside others, which all have a point in their names


def twig_join(
    sides: Mapping[str, Side],
    on: Mapping[str, str],
    *,
    memory: int | str = "64MiB",
    flush: str | FlushPolicy = "rrpj",
    streaming: bool = False,
    dead_letters: str | Path | None = None,
    partial: Partial = "drop",
    scan_memory: int | str = MEMORY,
    limits: Limits | None = None,
    spark: SparkSession | None = None,
    state: str | Path | None = None,
    shards: int | None = None,
    partitions: int = PARTITIONS,
    idle: str | float = "1s",
    workers: int | None = None,
) -> DataFrame:
    """Join the fragments of XML documents whose keys are the same text: TwigJoin on Spark. Lazy; append mode.

    A result has a fragment of each side, with the side's name and a point before the names of its columns: ``a.id``. (In Spark's
    expressions such a name needs backticks.) Fragments of all documents of a side are joined with those of all documents of the
    other sides. A key is compared as it stands; a fragment without one, which an optional branch allows, joins nothing.

    Parameters
    ----------
    sides
        Two or more, by name: (documents, twig), where documents are a directory or a DataFrame as in `xml_fragments`; and, where
        it needs them, parameters of `xml_fragments` for this side alone, as in (df, twig, {"column": "body", "keep": "feed"}):
        column, keep, document (None by default), streaming, options.
    on
        The column of each twig that is the key, by the side's name; it must show text.
    memory, flush
        Of the join; see `progressive_join`.
    streaming
        Of directories: whether documents are read as they appear.
    dead_letters, partial, scan_memory, limits, spark
        As in `xml_fragments`; scan_memory is its memory, of a task that reads documents.
    state, shards, partitions, idle, workers
        See `progressive_join`. If all sides are batches, so is the result, which has everything and needs no state.
    """
    parts = _sides(sides)
    twigs = {name: _twig(name, side[1]) for name, side in parts.items()}
    keys = key_columns(twigs, on)
    reading = Reading(
        spark=spark, streaming=streaming, dead_letters=dead_letters, partial=partial, memory=scan_memory, limits=limits
    )
    dfs: list[DataFrame] = []
    for name, (documents, _, own) in parts.items():
        found = reading.rows(f"sides[{name!r}]", documents, twigs[name], own, _OWN)
        key = twigs[name].schema.names.index(keys[name])
        dfs.append(_named(found, name, key if dfs else None))
    first = next(iter(parts))
    join = KeyedJoin(
        memory=memory, flush=flush, state=state, shards=shards, partitions=partitions, idle=idle, workers=workers
    )
    return join.of(dfs, [f"{first}.{keys[first]}", *(_KEY for _ in dfs[1:])])


def _named(df: DataFrame, side: str, key: int | None) -> DataFrame:
    """Fragments with the side's name before their columns, and the key once more: a join leaves out all keys but the first."""
    names = [f"{side}.{column}" for column in df.columns]
    if key is None:
        return df.toDF(*names)
    plain = df.toDF(*numbered(df.schema).names)
    return plain.select(*plain.columns, plain[plain.columns[key]].alias(_KEY)).toDF(*names, _KEY)


def _sides(sides: Mapping[str, Side]) -> dict[str, tuple[Documents, Twig | str, Mapping[str, Any]]]:
    if not isinstance(sides, Mapping) or len(sides) < 2:
        raise BadInput(f"sides={shown(sides)} must have two or more sides, as {{'a': (documents, twig), ...}}")
    parts = {}
    for name, side in sides.items():
        own: object = side[2] if isinstance(side, tuple) and len(side) == 3 else {}
        if not isinstance(side, tuple) or len(side) not in (2, 3) or not isinstance(own, Mapping):
            raise BadInput(
                f"sides[{name!r}]={shown(side)} is not a side; give (documents, twig), or (documents, twig, {{'column': ...}})"
            )
        parts[name] = (side[0], side[1], own)
    return parts


def _twig(name: str, twig: Twig | str) -> Twig:
    if not isinstance(twig, Twig | str):
        raise BadInput(f"the twig of sides[{name!r}] is {shown(twig)}; give a path, or a headrace.xml.Twig")
    return Twig(twig) if isinstance(twig, str) else twig
