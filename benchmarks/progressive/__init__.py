"""The progressive section: joins of two streams, beside a blocking join of the same data."""

from __future__ import annotations

SECTION = "progressive"
ON_SPARK = "keys on Spark"
OURS = "headrace"
FIRST = 1_000  # results, the time until which is measured
