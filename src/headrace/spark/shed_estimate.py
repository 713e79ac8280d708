"""`estimate_shed`: what shedding did to counts and sums of results, until a replay brings the rows back. [MESH] §4"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import BadInput
from headrace.sampling.estimates import asked_of
from headrace.spark.replay import ledgers_of
from headrace.spark.shed_sums import missing


def estimate_shed(state: str | Path, *, query: str | None = None, confidence: float = 0.95) -> pa.Table:
    """Estimate what rows that `enrich(shed=hr.Shedding(..., estimate=...))` put aside would add to its results.

    After hr.replay has loaded them, nothing is missing.

    Parameters
    ----------
    state
        The state= of the query.
    query
        The query's id, if the state has several and only one is meant.
    confidence
        The part of all intervals that is to cover the truth.

    Returns a table with a row for each operator and quantity: `operator`, `quantity`, `estimate`, `low`, `high`, the rows that
    were `shed` and those that were `kept` in the same tasks.
    """
    asked = asked_of(True, None, None, confidence)
    rows: list[tuple[Any, ...]] = []
    ledgers = ledgers_of(Path(state).absolute(), query)
    noted = {ledger.log.operator: ledger.estimates() for ledger in ledgers}
    if not any(noted.values()) and any(ledger.debt() for ledger in ledgers):
        raise BadInput(
            "rows were shed, and nothing was noted to estimate by; the query needs shed=hr.Shedding(..., estimate=True)"
        )
    for operator, found in noted.items():
        kept = sum(facts["drawn"] for facts in found)
        shed = round(sum(facts["population"] for facts in found)) - kept
        for quantity, one in missing(found, asked.confidence).items():
            rows.append((operator, quantity, one.estimate, one.low, one.high, shed, kept))
    types = {
        "operator": pa.string(),
        "quantity": pa.string(),
        **dict.fromkeys(("estimate", "low", "high"), pa.float64()),
    }
    types |= {"shed": pa.int64(), "kept": pa.int64()}
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    return pa.table([pa.array(list(c), t) for c, t in zip(columns, types.values(), strict=True)], names=list(types))
