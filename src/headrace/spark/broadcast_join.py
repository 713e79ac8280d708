"""algorithm="broadcast" of `enrich`: Spark's own broadcast hash join with the rows of a relation, all in the JVM.

Spark sends the relation's rows to every executor and builds a hash table of them, again in each micro-batch. Where the relation
is small that takes less time than to hand the stream's rows to Python and back. headrace/cost/broadcast.py says when it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql.functions import broadcast

from headrace.conditions import parse_on
from headrace.cost.broadcast import BROADCAST, BroadcastAdvice
from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.spark.plan import derived
from headrace.spark.relation_join import RelationJoin
from headrace.spark.relation_source import relation_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_HOW = {"inner": "inner", "left": "left_outer", "semi": "left_semi", "anti": "left_anti"}

#: Relations of batch DataFrames, whose version must stay as long as the DataFrame may be run.
_open: WeakKeyDictionary[DataFrame, Relation] = WeakKeyDictionary()


def check_broadcast(**asked: object) -> None:
    """Refuse what Spark's join does not have, by name. An argument that was not given is None."""
    for name, value in asked.items():
        if value is not None:
            raise BadInput(
                f"algorithm={BROADCAST!r} is Spark's own join, which does not take {name}={value!r}; leave it out, or choose"
                " algorithm='adaptive'"
            )


def broadcast_join(df: DataFrame, rel: Relation, join: RelationJoin, schema: StructType) -> DataFrame:
    """Spark's broadcast join of a DataFrame with a relation, with the columns that `enrich` gives.

    A streaming DataFrame sees the relation's latest version in each micro-batch; a batch one the version that `rel` has open.

    Parameters
    ----------
    df, rel
        The stream and the relation.
    join
        What to join on, and how.
    schema
        Of the result.
    """
    assert join.on is not None
    shown = [column.name for column in rel.payload(join.shown)]
    stream = df.toDF(*(f"s{i}" for i in range(len(df.columns))))
    rows = relation_frame(df.sparkSession, rel, shown, follow=df.isStreaming)
    on = parse_on(join.on)
    place = {name: i for i, name in enumerate(rel.key)}
    equal = None
    for left, right in zip(on.left, on.right, strict=True):
        pair = stream[f"s{df.columns.index(left)}"] == rows[f"c{place[right]}"]
        equal = pair if equal is None else equal & pair
    out = stream.join(broadcast(rows), equal, _HOW[join.how])
    wanted = [stream[f"s{i}"] for i in range(len(df.columns))]
    if join.how in ("inner", "left"):
        wanted += [rows[f"c{len(rel.key) + i}"] for i in range(len(shown))]
    out = derived(out.select(*wanted).toDF(*schema.names), df)
    if not df.isStreaming:
        _open[out] = rel
    return out


def advice_for(join: RelationJoin, rel: Relation) -> BroadcastAdvice | None:
    """What `auto` may say of Spark's own join, where that could take the place of this one."""
    looked_up = join.on is not None and sorted(parse_on(join.on).right) == sorted(rel.key)
    return BroadcastAdvice.of(rel, join.shown) if looked_up and not join.conditional and join.order == "any" else None
