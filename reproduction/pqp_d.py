"""[PQP] appendix D: samples of sliding windows, in the figures of its evaluation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from reproduction.checks import AtLeast, AtMost, Check, Faster, Trend
from reproduction.figure import Cell, Computed, Figure, Paper
from reproduction.plot import draw_courses
from reproduction.window_runs import SAMPLES, SOON, VALUES, WINDOWS, cells, means, sample_run

SEEDS = 3
CHAINS = 1  # runs of Chain, whose tuples cost a step for each tuple of the sample
UNAWARE = ("fifo", "res")
AWARE = ("expire", "winres")
METHODS = dict.fromkeys((*UNAWARE, *AWARE), SEEDS) | {"chain": CHAINS, "fair": SEEDS}


def _errors(window: float, ordered: bool, scale: float) -> list[Cell]:
    return cells(lambda sample, method, seed: sample_run(scale, window, sample, method, seed, ordered), METHODS)


def _after_changes(scale: float) -> list[Cell]:
    """How many times the error before a change the error after it is, of the smallest samples."""

    def compute(window: float, method: str, seeds: int, directory: Path) -> dict[str, float]:
        found = means([sample_run(scale, window, SAMPLES[0], method, seed) for seed in range(seeds)])
        return {"times": found["soon"] / found["late"], "soon": found["soon"], "late": found["late"]}

    return [
        Computed(name, window, partial(compute, window, name, seeds))
        for name, seeds in METHODS.items()
        for window in WINDOWS
    ]


def _above(factor: float, below: tuple[str, ...]) -> tuple[Check, ...]:
    return tuple(Faster(a, b, at_least=factor) for a in UNAWARE for b in below)


def _figure(number: int, window: float) -> Figure:
    return Figure(
        f"D.{number}",
        f"Error of samples, |W| = {window:g} |D| (a to e)",
        "|S| / |W|",
        partial(_errors, window, False),
        reports="""The error of Res is significantly larger than that of the others, and that of Fifo is high too; Expire and
            WinRes have small ones, and none at all if the sample is as large as the window. Errors have sharp spikes where
            the distribution changes.""",
        expected=(
            *_above(10.0, (*AWARE, "chain")),
            Faster("res", "fifo", at_least=1.0),
            *(Trend(name, 0.5, steps=0.3) for name in (*AWARE, "chain")),
            *(AtMost(0.0, name, 1.0) for name in (*AWARE, "fair")),
        ),
        differs=DIFFERS,
        y="MSE (a sum), mean over snapshots",
        metric="mse",
        decimals=6,
        draw=draw_courses,
    )


DIFFERS = """TO DO"""

PAPER = Paper(
    name="pqp",
    chapter="D",
    title="[PQP] Progressive query processing, appendix D: samples of sliding windows",
    setting=f"""One stream of 500,000 tuples, full size. After each tenth of them the Zipf exponent is another, drawn from 0 to
        2, and so is the range of values: {VALUES} values that no other tenth has (the text does not say how many, nor how far
        ranges are moved). Windows have 10,000 to 50,000 tuples.

        The error is the sum of eq. 8.1 (the text calls it the mean square error) between the distributions over values of the
        sample and of the window, at 100 snapshots, a number that the text does not give. Plots show one run, as in the text;
        tables and checks have the mean over snapshots of {SEEDS} runs, with other data and other samples (of Chain there is
        {CHAINS}, since each of its tuples costs a step for each tuple of the sample).

        Samplers are those of `headrace.sampling`; WinRes draws from 1 to |W|, as Alg. 13 does. The curve `fair` is ours
        (`FairWindow`, bottom-k over the window), and the text has none.""",
    figures=(
        *(_figure(number, window) for number, window in enumerate(WINDOWS, 1)),
        Figure(
            "D.1-5",
            f"Errors at {SOON} snapshots after a change, over those at the last {SOON} before the next; |S| = 0.2 |W|",
            "|W| / |D|",
            _after_changes,
            reports="Errors have sharp spikes where the distribution changes.",
            expected=tuple(AtLeast(name, None, 1.1) for name in (*UNAWARE, "winres")),
            differs="TO DO",
            y="times",
            metric="times",
            decimals=2,
        ),
        Figure(
            "D.6",
            "Error of samples, ordered data, |W| = 0.02 |D| (a to e)",
            "|S| / |W|",
            partial(_errors, 0.02, True),
            reports="""With small samples (a, b) all methods have large errors; with larger ones all but Res do well. Fifo has
                spikes (b to e).""",
            expected=(),
            differs="TO DO",
            y="MSE (a sum), mean over snapshots",
            metric="mse",
            decimals=6,
            draw=draw_courses,
        ),
    ),
)
