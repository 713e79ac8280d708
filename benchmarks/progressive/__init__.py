"""The progressive section of the benchmarks: joins of two streams, compared with blocking joins of the same data."""

from __future__ import annotations

SECTION = "progressive"
ON_SPARK = "keys on Spark"
OURS = "headrace"
FIRST = 1_000  # results: the time until this many were sent is measured
