"""The Spark section: joins of a stream with a static table on two cores, by Spark and by Headrace.

Nothing here imports pyspark but `session`, `systems` and `source`, which only a measured process imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.spark.systems import SparkSystem

JOIN = "spark"  # the section: the join into a sink that throws rows away
LOAD = "spark-load"  # the join with a load into a table
BEYOND = "beyond"  # the join, in less memory than R takes
SECTIONS = (JOIN, LOAD, BEYOND)

OURS = "headrace"
OUR_BROADCAST = "headrace-broadcast"  # what `auto` advises where R is small and micro-batches are large
PASS_NARROW = "pass-narrow"
PASS_WIDE = "pass-wide"
LIMITS = (PASS_NARROW, PASS_WIDE)
SHUFFLE = "spark-shuffle"
BROADCAST = "spark-broadcast"

SYSTEMS = {
    OURS: "Headrace",
    OUR_BROADCAST: "HeadraceBroadcast",
    "spark-plain": "Plain",
    BROADCAST: "Broadcast",
    "spark-cached": "Cached",
    SHUFFLE: "Shuffle",
    PASS_NARROW: "PassNarrow",
    PASS_WIDE: "PassWide",
}
#: What "the best of Spark's forms" ranges over.
FORMS = ("spark-plain", BROADCAST, "spark-cached", SHUFFLE)
#: Run unless others are asked for. Not the shuffled form: five times slower than the plain one, so it is never the best.
DEFAULT = tuple(name for name in SYSTEMS if name not in (SHUFFLE, OUR_BROADCAST))


def load(name: str) -> type[SparkSystem]:
    """The class of a system; importing it imports pyspark."""
    system: type[SparkSystem] = getattr(import_module("benchmarks.spark.systems"), SYSTEMS[name])
    return system
