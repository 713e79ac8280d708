"""The display and the meter behind it."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from headrace.arrivals import Arrivals
from headrace.clock import ManualClock
from headrace.demo.display import LiveDisplay, NoDisplay, PlainDisplay, display, line, panel, sparkline
from headrace.demo.status import RunStatus, StatusMeter
from headrace.metrics import JoinStats


def stats(rows: int) -> JoinStats:
    return JoinStats(
        tuples_in=rows,
        hits=rows // 2,
        absent=rows // 10,
        pages_read=7,
        reads=3,
        bytes_read=8192 * 7,
        memory={"hot set": 3 << 20, "index": 1 << 20},
        memory_limit=8 << 20,
        memory_peak=5 << 20,
    )


def batch(number: int, rows: int) -> SimpleNamespace:
    return SimpleNamespace(batch=number, rows=rows, seconds=0.5, stats=stats(rows))


@pytest.fixture
def status() -> RunStatus:
    meter = StatusMeter(Arrivals(10_000, 10, seed=1), 0)
    meter.status(0, 1_000_000)
    meter.count([batch(0, 100), batch(1, 7)], complete=0)  # half of micro-batch 1 has reported
    meter.count([batch(1, 200), batch(2, 300)], complete=2)
    return meter.status(600, 5_000_000)


def test_the_meter_counts_every_micro_batch_once(status):
    assert (status.batches, status.batch, status.batch_rows) == (3, 2, 300)
    assert status.stats.tuples_in == 600
    assert status.stats.memory == {"hot set": 3 << 20, "index": 1 << 20}
    assert (status.stats.memory_limit, status.stats.memory_peak) == (8 << 20, 5 << 20)


def test_the_meter_measures_rates_and_lag(status):
    arrivals = Arrivals(10_000, 10, seed=1)
    assert status.arrived == arrivals.by(5_000_000)
    assert status.arriving == arrivals.by(5_000_000) - arrivals.by(4_000_000) == status.bursts[-1]
    assert sum(status.bursts) == status.arrived
    assert status.loading == 600 / 4
    assert status.waiting == status.arrived - 600
    assert 0 < status.behind < 5


def test_what_is_loaded_never_goes_back_and_is_never_more_than_arrived():
    meter = StatusMeter(Arrivals(1000, 10, seed=1), loaded=400)
    assert meter.status(0, 0).done == 400
    status = meter.status(700, 1)
    assert (status.done, status.arrived, status.waiting, status.behind) == (700, 700, 0, 0.0)


def shown(thing: object) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(thing)
    return console.file.getvalue()


def test_the_panel_says_all_of_it(status):
    text = shown(panel(status))
    for part in (
        "600 of 10,000 sales",
        "50.0%",
        "10.0%",
        "21 ",
        "9 reads",
        "4MiB",
        "of 8MiB",
        "hot set 3MiB, index 1MiB",
        "micro-batch 2: 300 sales in 500ms",
        "behind",
        "150/s",
    ):
        assert part in text, part


@pytest.mark.parametrize("stage", ["products", "spark", "sales", "proof"])
def test_every_stage_can_be_shown(stage):
    assert shown(panel(RunStatus(stage)))
    assert shown(panel(RunStatus(stage, 1, 2)))
    assert ": 1 of 2" in line(RunStatus(stage, 1, 2))


def test_plain_lines_come_now_and_then_and_at_every_stage(status):
    clock, out = ManualClock(), io.StringIO()
    plain = PlainDisplay(Console(file=out, width=80), clock)
    with plain:
        plain.show(RunStatus("products", 1, 9))
        plain.show(RunStatus("products", 2, 9))
        clock.advance(6)
        plain.show(RunStatus("products", 3, 9))
        plain.show(status)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["making the products: 1 of 9", "making the products: 3 of 9"]
    assert lines[2].startswith("loading sales: 600 of 10,000 · arriving ")
    assert len(lines) == 3


def test_the_display_suits_the_place():
    terminal, file = Console(file=io.StringIO(), force_terminal=True), Console(file=io.StringIO())
    assert isinstance(display(terminal, ManualClock(), quiet=False), LiveDisplay)
    assert type(display(file, ManualClock(), quiet=False)) is PlainDisplay
    silent = display(terminal, ManualClock(), quiet=True)
    assert isinstance(silent, NoDisplay)
    silent.show(RunStatus("spark"))
    assert terminal.file.getvalue() == ""


def test_the_live_display_shows_and_cleans_up(status):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with LiveDisplay(console) as live:
        live.show(status)
    assert "600 of 10,000" in console.file.getvalue()


def test_sparkline():
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([5, 10]) == "▄█"
