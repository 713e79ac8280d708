"""[DEF]: Fig. 5-10. What a fixed disk buffer costs MESHJOIN against the optimum."""

from __future__ import annotations

from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench import RelationSpec, Zipf, make_relation, service_rate
from headrace.cost import HDD, disk_of
from headrace.errors import BadInput
from headrace.metrics import JoinStats
from headrace.relation.reader import PageReader
from reproduction.checks import About, Faster, Knee, Level, Peak, Tracks, Trend
from reproduction.figure import ONE_LOOP, Cell, Computed, Figure, Paper, Predicted

ROWS = 3_500_000
PAGE = 8192
_PAGE_IN_BUFFER = 12_352  # bytes, with what is noted of its 65 tuples
BUDGETS = (20, 40, 80, 160, 320)  # MB
BUFFERS = (4, 8, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512)  # pages, about half a doubling apart
LOSSES = {40: 0.4, 80: 1.17, 160: 1.78}  # percent by which the optimum is better, by budget, as the text has them
SKEW = 0.5
FIXED = 'MeshJoin(tuning="default")'


def _made(scale: float) -> RelationSpec:
    return RelationSpec(round(ROWS * scale))


def _bytes(budget: float, scale: float) -> int:
    return int(budget * 1e6 * scale)


@cache
def _rate(directory: Path, scale: float, budget: float, b: int | None) -> float:
    """Measured once, however many figures show it. Without b the operator takes its own default."""
    made = _made(scale)
    with make_relation(directory, made, disk=disk_of(HDD)) as relation:
        memory = _bytes(budget, scale)
        by: dict[str, Any] = {"b": b} if b else {"tuning": "default"}
        return service_rate("meshjoin", relation, Zipf(made.rows, SKEW), memory, measuring=ONE_LOOP, **by).rate


def _optimum(directory: Path, scale: float, budget: float) -> tuple[float, float]:
    """The best disk buffer in pages, and its rate: a parabola through the best measured point and its neighbours."""
    buffers = _fitting(scale, budget)
    if len(buffers) < 3:
        raise BadInput(f"SCALE={scale:g} is too small: {budget:g} MB at that scale hold fewer than three disk buffers")
    rates = [_rate(directory, scale, budget, b) for b in buffers]
    i = min(max(1, int(np.argmax(rates))), len(buffers) - 2)
    x = [log(b) for b in buffers[i - 1 : i + 2]]
    a, b, c = np.polyfit(x, rates[i - 1 : i + 2], 2)
    top = min(max(-b / (2 * a), x[0]), x[-1]) if a < 0 else x[int(np.argmax(rates[i - 1 : i + 2]))]
    return exp(top), float(a * top**2 + b * top + c)


def _default(directory: Path, scale: float) -> int:
    """The optimum for the smallest budget, as the text chooses it."""
    return round(_optimum(directory, scale, BUDGETS[0])[0])


def _fitting(scale: float, budget: float) -> list[int]:
    """Disk buffers that leave some of the memory to the window."""
    return [b for b in BUFFERS if b * _PAGE_IN_BUFFER < 0.8 * _bytes(budget, scale)]


def _megabytes(pages: float) -> float:
    return pages * PAGE / 1e6


def _sweep(series: str, scale: float, budget: float) -> list[Cell]:
    return [
        Computed(series, _megabytes(b), lambda d, b=b: {"rate": _rate(d, scale, budget, b)})  # type: ignore[misc]
        for b in _fitting(scale, budget)
    ]


def _figure_5(scale: float) -> list[Cell]:
    return _sweep("80 MB", scale, 80)


def _figure_6(scale: float) -> list[Cell]:
    def at(budget: int) -> Any:
        return lambda d: {"buffer": _megabytes(_optimum(d, scale, budget)[0])}

    def paper(value: float) -> Any:
        return lambda _: {"buffer": value}

    ours: list[Cell] = [Computed("optimum", budget, at(budget)) for budget in BUDGETS]
    theirs = zip(BUDGETS, (0.93, 1.35, 1.91, 2.63), strict=False)
    return ours + [Computed("the paper's", budget, paper(value)) for budget, value in theirs]


def _figure_7(scale: float) -> list[Cell]:
    return [cell for budget in BUDGETS[:-1] for cell in _sweep(f"{budget} MB", scale, budget)]


def _figure_8(scale: float) -> list[Cell]:
    made = _made(scale)

    def at(b: int) -> Any:
        def compute(directory: Path) -> dict[str, float]:
            disk = disk_of(HDD)
            with make_relation(directory, made, disk=disk) as relation:
                version, places = relation.opened, relation.opened.places(0)
                reader, stats = PageReader(version, b * PAGE, whole=True), JoinStats()
                begun = disk.clock.now()
                for start in range(0, places.size, b):
                    for _ in reader.read(places[start : start + b], stats, bridge=False):
                        pass
                return {"milliseconds": 1e3 * (disk.clock.now() - begun) / places.size}

        return compute

    return [Computed("I/O", _megabytes(b), at(b)) for b in BUFFERS]


def _figure_9(scale: float) -> list[Cell]:
    def best(budget: int) -> Any:
        return lambda d: {
            "rate": max(_optimum(d, scale, budget)[1], *(_rate(d, scale, budget, b) for b in _fitting(scale, budget)))
        }

    def fixed(budget: int) -> Any:
        def compute(directory: Path) -> dict[str, float]:
            rate = _rate(directory, scale, budget, _default(directory, scale))
            return {"rate": rate, "loss": 100 * (best(budget)(directory)["rate"] / rate - 1)}

        return compute

    return [
        *(Computed("optimum", budget, best(budget)) for budget in BUDGETS),
        *(Computed("default", budget, fixed(budget)) for budget in BUDGETS),
        *(Computed(FIXED, budget, lambda d, m=budget: {"rate": _rate(d, scale, m, None)}) for budget in BUDGETS),  # type: ignore[misc]
    ]


def _figure_10a(scale: float) -> list[Cell]:
    made, memory = _made(scale), _bytes(BUDGETS[0], scale)
    predicted = [
        Predicted("predicted", _megabytes(b), made, memory, skew=SKEW, b=b) for b in _fitting(scale, BUDGETS[0])
    ]
    return [*predicted, *_sweep("measured", scale, BUDGETS[0])]


def _figure_10b(scale: float) -> list[Cell]:
    def best(budget: int) -> Any:
        return lambda d: {"rate": _optimum(d, scale, budget)[1]}

    made = _made(scale)
    return [
        *(Predicted("predicted", budget, made, _bytes(budget, scale), skew=SKEW) for budget in BUDGETS),
        *(Computed("measured", budget, best(budget)) for budget in BUDGETS),
    ]


PAPER = Paper(
    name="def",
    title="[DEF] Comparing global optimization and default settings of stream-based joins",
    setting="""What a fixed disk buffer costs MESHJOIN, instead of one tuned for each memory budget. R has 3.5 M tuples
        of 120 bytes, S 20 bytes; both R and the budgets are scaled, which scales the optimal buffer by the
        root. Measured on the simulated machine of the [MESH] page (`headrace.cost.HDD`). Budgets are named as
        in the paper, before scaling. The default is the optimum for the smallest budget, as in the text.""",
    figures=(
        Figure(
            "5",
            "Rate against the disk buffer, 80 MB",
            "disk buffer (MB)",
            _figure_5,
            reports="The rate grows drastically up to a knee and is saturated after it.",
            expected=(Knee("80 MB", 0.4, 0.9), Level("80 MB", 0.03, after=0.3, before=2.1)),
            differs="""The text gives no numbers. Beyond 2 MB, a tenth of the scaled budget, the buffer takes too much of the
                memory and the rate falls.""",
            scale=0.25,
        ),
        Figure(
            "6",
            "Optimal disk buffer against the budget",
            "memory (MB, before scaling)",
            _figure_6,
            reports="""The optimum grows with the budget: 0.93, 1.35, 1.91 and 2.63 MB for 20, 40, 80 and 160 MB.""",
            expected=(Trend("optimum", 2.0, steps=0.15), Faster("optimum", "the paper's", at_least=0.2, at_most=1.0)),
            differs="""Our optima are smaller: budgets are scaled, which takes the root of the scale off them, and a page in
                the buffer counts what is noted of its tuples while they are probed. Both grow by the root of the
                budget.""",
            y="optimal disk buffer (MB)",
            metric="buffer",
            log="xy",
            scale=0.25,
            decimals=2,
        ),
        Figure(
            "7",
            "Rate against the disk buffer, for four budgets",
            "disk buffer (MB)",
            _figure_7,
            reports="""For every budget the rate saturates, and the default of 0.93 MB is near the optimum: the optimum is 0.4%
                better for 40 MB, 1.17% for 80 MB and 1.78% for 160 MB.""",
            expected=tuple(Peak(f"{budget} MB", (0.1, 3.0), left=0.05) for budget in BUDGETS[:-1]),
            differs="The size of the loss is in Fig. 9.",
            log="x",
            scale=0.25,
        ),
        Figure(
            "8",
            "Cost of reading a page against the disk buffer",
            "disk buffer (MB)",
            _figure_8,
            reports="""The cost of a page is high for small buffers, falls as the buffer grows, and after a while hardly any
                more.""",
            expected=(Trend("I/O", 0.6, steps=0.0), Level("I/O", 0.06, after=0.4)),
            differs="""The simulated disk has this shape by its making: a request costs 0.5 ms and a page 0.097 ms.""",
            y="milliseconds a page",
            metric="milliseconds",
            scale=0.25,
            decimals=4,
        ),
        Figure(
            "9",
            "Rate with the default and with the optimal buffer",
            "memory (MB, before scaling)",
            _figure_9,
            reports="""With small budgets there is no difference, and even with 320 MB no remarkable one: less than 3%
                everywhere.""",
            expected=(
                Faster("default", "optimum", at_least=0.97, at_most=1.001),
                Faster(FIXED, "optimum", at_least=0.97, at_most=1.001),
                Trend("default", 2.0),
            ),
            also={"loss": tuple(About("default", budget, percent, 0.5) for budget, percent in LOSSES.items())},
            differs="""Three checks do not hold. The losses at 80 and 160 MB are 0.50% and 0.45%, a half and a quarter of
                the text's, and do not grow with the budget: on our machine the upkeep of H and Q outweighs reading when
                memory is large. For the same reason sixteen times the memory give 1.93 times the rate and not twice: at
                20 MB reading is half of what a tuple costs, and upkeep stays. The text gives no number for that rise;
                twice is what we expected before the first run. The check was lowered to once after a run and is
                restored. The third series is what the operator does by itself: 0.93 MB, or an eighth of the memory if
                that is less, as it is in the two smallest of our scaled budgets, 5 and 10 MB.""",
            scale=0.25,
        ),
        Figure(
            "10a",
            "Predicted and measured rate against the disk buffer, 20 MB",
            "disk buffer (MB)",
            _figure_10a,
            reports="""Measured and predicted are close. The rate stays high for small buffers and falls for large ones.""",
            expected=(Tracks("predicted", "measured", 0.05), Peak("measured", (0.1, 1.0), right=0.3)),
            differs="""The model has the simulated disk's own costs, so that only rounding and the chance of the stream are
                left.""",
            scale=0.25,
        ),
        Figure(
            "10b",
            "Predicted and measured rate at the optimum",
            "memory (MB, before scaling)",
            _figure_10b,
            reports="With the optimal buffer for each budget measured and predicted are close.",
            expected=(Tracks("predicted", "measured", 0.05),),
            differs="As in 10a.",
            scale=0.25,
        ),
    ),
)
