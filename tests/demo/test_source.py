"""The source, called as Spark calls it, with a clock that moves when told."""

import json

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.clock import ManualClock
from headrace.demo.sales import SCHEMA, Sales
from headrace.demo.scenario import Scenario
from headrace.demo.source import BATCH, SalesReader, SalesSource, options, sales_in
from headrace.demo.start_signal import StartSignal

SCENARIO = Scenario(rate=1000, seconds=4, products=100)


@pytest.fixture
def clock():
    return ManualClock(50.0)


@pytest.fixture
def reader(clock, tmp_path):
    return SalesReader(Sales(SCENARIO), StartSignal(tmp_path / "start-signal"), 3, clock)


def send_start_signal(reader, first):
    start = reader.latestOffset({"sale": first}, ReadAllAvailable())
    assert start == {"sale": first + reader.tasks}
    reader.latestOffset(start, ReadAllAvailable())


def test_sales_arrive_by_the_clock_once_the_first_went_through(reader, clock):
    assert reader.initialOffset() == {"sale": 0}
    clock.advance(100)  # Spark takes its time to start
    start = reader.latestOffset({"sale": 0}, ReadAllAvailable())
    assert start == {"sale": 3}  # one for each task, to see that all works
    clock.advance(20)  # and for its first micro-batch
    assert not reader.start_signal.sent
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.start_signal.sent
    clock.advance(2)
    half = reader.latestOffset(start, ReadAllAvailable())
    assert half == {"sale": Sales(SCENARIO).arrivals.by(2_000_000)}
    assert half == reader.reportLatestOffset()
    clock.advance(1000)
    assert reader.latestOffset(half, ReadAllAvailable()) == {"sale": 4000}


def test_a_micro_batch_is_limited_and_never_goes_back(reader, clock):
    send_start_signal(reader, 0)
    assert reader.getDefaultReadLimit() == ReadMaxRows(BATCH)
    clock.advance(1000)
    assert reader.latestOffset({"sale": 10}, ReadMaxRows(25)) == {"sale": 35}
    assert reader.latestOffset({"sale": 3990}, ReadMaxRows(25)) == {"sale": 4000}
    early = SalesReader(reader.sales, StartSignal(reader.start_signal.path.with_name("later")), 3, clock)
    send_start_signal(early, 497)
    assert early.latestOffset({"sale": 500}, ReadMaxRows(25)) == {"sale": 500}
    last = SalesReader(reader.sales, StartSignal(reader.start_signal.path.with_name("last")), 3, clock)
    assert last.latestOffset({"sale": 3999}, ReadMaxRows(25)) == {"sale": 4000}


def test_a_resumed_run_goes_on_from_the_first_sale_not_loaded(clock, tmp_path):
    sales = Sales(SCENARIO)
    since = int(sales.arrivals.time_of(sales.arrivals.counts[:1] * 0 + 1500)[0])
    reader = SalesReader(sales, StartSignal(tmp_path / "start-signal", since), 2, clock)
    send_start_signal(reader, 1500)
    clock.advance(0.5)
    assert reader.latestOffset({"sale": 1500}, ReadAllAvailable()) == {"sale": sales.arrivals.by(since + 500_000)}


@pytest.mark.parametrize(("start", "end"), [(0, 4000), (17, 19), (5, 5), (1, 1002)])
def test_parts_make_the_range_once(reader, start, end):
    parts = reader.partitions({"sale": start}, {"sale": end})
    assert len(parts) <= 3
    batches = [batch for part in parts for batch in reader.read(part)]
    made = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    assert made.equals(pa.Table.from_batches([Sales(SCENARIO).batch(start, end)]).combine_chunks())


def test_options_carry_the_scenario(tmp_path):
    source = SalesSource(options(SCENARIO, StartSignal(tmp_path / "start-signal", 7), 2))
    reader = source.streamReader(None)
    assert (reader.sales.scenario, reader.tasks, reader.start_signal.since) == (SCENARIO, 2, 7)
    assert reader.start_signal.path == tmp_path / "start-signal"


def test_what_spark_carries_to_tasks_is_small(reader):
    from pyspark.cloudpickle import dumps

    list(reader.read(reader.partitions({"sale": 0}, {"sale": 10})[0]))
    assert len(dumps(reader)) < 2000


def test_spark_sees_the_schema_that_is_made():
    from pyspark.sql.pandas.types import to_arrow_schema

    assert to_arrow_schema(SalesSource({}).schema(), timezone="UTC") == SCHEMA


def test_offsets_in_reports():
    assert sales_in(json.dumps({"sale": 12})) == 12


def test_a_start_signal_that_was_sent_stays_as_it_is(clock, tmp_path):
    start_signal = StartSignal(tmp_path / "start-signal")
    start_signal.send(clock)
    clock.advance(3)
    StartSignal(tmp_path / "start-signal").send(clock)
    assert StartSignal(tmp_path / "start-signal").elapsed(clock) == 3_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["start-signal"]
