"""The demonstration's job: enrich sales with products, load them into a Delta table exactly once, and check the table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import headrace as hr
from headrace.clock import Clock
from headrace.demo import products
from headrace.demo.proof import Check, prove
from headrace.demo.sale_times import arrivals_of
from headrace.demo.start_signal import StartSignal
from headrace.demo.status import RunStatus, StatusMeter
from headrace.demo.totals import ATTRIBUTES
from headrace.demo.warehouse import Warehouse
from headrace.errors import NotARelation, UnfinishedRelation, innermost
from headrace.metrics import JoinStats
from headrace.signals import GracefulStop
from headrace.spark.session import SparkFailed, local_settings, own_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Watch = Callable[[RunStatus], None]

_POLL = 0.2  # seconds between looks at the query: often enough for a smooth display


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """What a run loaded, and whether the table is correct."""

    loaded: int
    """sales that this run loaded"""
    before: int
    """sales that earlier runs had loaded"""
    seconds: float
    """from the start of the schedule until all was loaded"""
    most_behind: float
    """the longest, in seconds, that a sale waited"""
    batches: int
    stats: JoinStats
    checks: list[Check]

    @property
    def holds(self) -> bool:
        """Whether every check of the table holds."""
        return all(check.holds for check in self.checks)

    @property
    def rate(self) -> float:
        """Sales loaded per second."""
        return self.loaded / self.seconds if self.seconds else 0.0


def run(
    warehouse: Warehouse, *, memory: str, cores: int, watch: Watch, clock: Clock, stopping: GracefulStop
) -> DemoResult:
    """Load the sales that are not loaded yet, and check the whole table.

    Args:
        warehouse: the directory to load into; it knows the scenario.
        memory: the budget of the join.
        cores: the number of cores that Spark uses.
        watch: called with the status several times a second.
        clock: paces the arrivals.
        stopping: checked wherever it is safe to stop; it raises `Interrupted`.
    """

    def tell(status: RunStatus) -> None:
        watch(status)
        stopping.check()

    scenario = warehouse.scenario
    before = _rows(warehouse)
    arrivals = arrivals_of(scenario)
    meter, seconds = StatusMeter(arrivals, before), 0.0
    if before < scenario.sales:
        since = int(arrivals.time_of(np.array([before]))[0]) if before else 0
        start_signal = StartSignal(warehouse.scratch / "start-signal", since)
        _make_products(warehouse, tell)
        tell(RunStatus("spark"))
        with own_session(warehouse.log, _settings(warehouse, cores)) as spark:
            stopping.listen()
            tell(RunStatus("spark"))
            query = _start(spark, warehouse, start_signal, memory, cores)
            try:
                _follow(query, warehouse, meter, start_signal, tell, clock)
                seconds = (start_signal.elapsed(clock) - since) / 1_000_000
            finally:
                query.stop()
    checks = prove(warehouse.table, scenario, lambda done, of: tell(RunStatus("proof", done, of)))
    if all(check.holds for check in checks):
        warehouse.mark(finished=True)
    return DemoResult(
        loaded=meter.loaded - before,
        before=before,
        seconds=seconds,
        most_behind=meter.most_behind,
        batches=meter.batches,
        stats=meter.stats,
        checks=checks,
    )


def _rows(warehouse: Warehouse) -> int:
    from deltalake import DeltaTable

    table = str(warehouse.table)
    return int(DeltaTable(table).count()) if DeltaTable.is_deltatable(table) else 0


def _make_products(warehouse: Warehouse, tell: Watch) -> None:
    with suppress(NotARelation, UnfinishedRelation):
        hr.Relation.open(warehouse.products).close()
        return
    count = warehouse.scenario.products
    tell(RunStatus("products", 0, count))
    hr.Relation.create(
        warehouse.products,
        products.reader(count),
        key=products.KEY,
        overwrite=True,
        progress=lambda done, of: tell(RunStatus("products", done, count)),
    ).close()


def _start(
    spark: SparkSession, warehouse: Warehouse, start_signal: StartSignal, memory: str, cores: int
) -> StreamingQuery:
    from pyspark.sql.functions import col

    from headrace.demo.source import NAME, SalesSource, options

    spark.dataSource.register(SalesSource)
    sales: DataFrame = spark.readStream.format(NAME).options(**options(warehouse.scenario, start_signal, cores)).load()
    relation = hr.Relation.open(warehouse.products)
    enriched = hr.enrich(sales, relation, on=list(products.KEY), how="left", memory=memory, columns=list(ATTRIBUTES))
    lines = enriched.withColumn("line_total", col("quantity") * col("unit_price"))
    return hr.load(
        lines, str(warehouse.table), checkpoint=str(warehouse.checkpoint), trigger={"processingTime": "1 second"}
    )


def _follow(
    query: StreamingQuery,
    warehouse: Warehouse,
    meter: StatusMeter,
    start_signal: StartSignal,
    tell: Watch,
    clock: Clock,
) -> None:
    """Report the status until every sale is loaded."""
    from headrace.demo.source import sales_in

    loaded = 0
    while True:
        failure = query.exception()
        if failure is not None or not query.isActive:
            raise SparkFailed(
                f"the load gave up: {innermost(str(failure), 'Spark stopped it')}; {warehouse.log} says more, and --resume tries"
                " again"
            )
        progress = query.lastProgress
        source = progress["sources"][0] if progress else None
        if source and source["endOffset"]:
            # While nothing arrives, Spark reports the number of the next micro-batch, which is not complete.
            idle = source["endOffset"] == source["startOffset"]
            meter.count(hr.progress(query), progress["batchId"] - idle)
            loaded = sales_in(source["endOffset"])
        tell(meter.status(loaded, start_signal.elapsed(clock)) if start_signal.sent else RunStatus("spark"))
        if meter.loaded >= warehouse.scenario.sales:
            return
        clock.sleep(_POLL)


def _settings(warehouse: Warehouse, cores: int) -> dict[str, str]:
    from headrace.demo.source import ARROW_BATCH

    own = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH)}
    return local_settings("headrace demo", cores, warehouse.scratch) | own
