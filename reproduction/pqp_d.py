"""[PQP] appendix D: samples of sliding windows, in the figures of its evaluation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from reproduction.checks import AtLeast, AtMost, Check, Faster, Trend
from reproduction.figure import Cell, Computed, Figure, Paper
from reproduction.plot import draw_courses
from reproduction.window_runs import SAMPLES, SOON, VALUES, WINDOWS, WindowRun, cells, means, sample_run

SEEDS = 3
UNAWARE = ("fifo", "res")
AWARE = ("expire", "winres")
LARGE = 0.01  # an error that is large: 30 times that of Expire on unordered data with the smallest sample
METHODS = dict.fromkeys((*UNAWARE, *AWARE, "chain", "fair"), SEEDS)


def _errors(window: float, ordered: bool, scale: float) -> list[Cell]:
    def run(sample: float, method: str, seed: int) -> WindowRun:
        return sample_run(scale, window, sample, method, seed, ordered)

    return list(cells(run, METHODS))


def _after_changes(scale: float) -> list[Cell]:
    """How many times the error before a change the error after it is, of the smallest samples."""

    def compute(window: float, method: str, seeds: int, directory: Path) -> dict[str, float]:
        found = means([sample_run(scale, window, SAMPLES[0], method, seed) for seed in range(seeds)])
        return {"times": found["soon"] / found["late"], "soon": found["soon"], "late": found["late"]}

    return [
        Computed(name, window, partial(compute, window, name, seeds))
        for name, seeds in METHODS.items()
        if name != "chain"
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


DIFFERS = """Fifo is as bad as Res here, where the text has Res far above all. No range of values comes back in our data, so a
    tuple of an earlier tenth is wrong whichever tenth it is from, and such tuples are 85% of Fifo and 87% of Res (|W| = 0.02
    |D|, |S| = 0.2 |W|); how far the text moves its ranges is not said. A larger sample does not help either of them. Chain
    has an error even if it is as large as the window, since it draws with replacement. For the spikes see D.1-5."""

PAPER = Paper(
    name="pqp",
    chapter="D",
    title="[PQP] Progressive query processing, appendix D: samples of sliding windows",
    setting=f"""One stream of 500,000 tuples, full size. After each tenth of them the Zipf exponent is another, drawn from 0 to
        2, and so is the range of values: {VALUES} values that no other tenth has (the text does not say how many, nor how far
        ranges are moved). Windows have 10,000 to 50,000 tuples.

        The error is the sum of eq. 8.1 (the text calls it the mean square error) between the distributions over values of the
        sample and of the window, at 100 snapshots, a number that the text does not give. Plots show one run, as in the text;
        tables and checks have the mean over snapshots of {SEEDS} runs, with other data and other samples.

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
            differs="""Ours: a figure of what is seen in the text's. WinRes has spikes at every change, up to windows of 0.08 |D|
                the larger the higher: while the window has tuples of both ranges, it leans to the new one. Fifo and Res have
                steps: an error falls while the window still has old tuples, jumps when it has only new ones, and goes down
                slowly from then on. So in windows of 0.04 |D| and more their errors after a change are below those before the
                next. Expire and our own hardly notice a change; Chain is left out.""",
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
            expected=(
                *(AtLeast(name, 0.2, LARGE) for name in (*UNAWARE, *AWARE, "chain")),
                *(
                    Faster("res", name, at_least=10.0, at=at)
                    for name in ("fifo", *AWARE, "chain")
                    for at in (0.6, 0.8, 1.0)
                ),
            ),
            also={"spread": tuple(AtLeast("fifo", at, LARGE) for at in (0.4, 0.6, 0.8, 1.0))},
            differs=f"""What is large is our choice: {LARGE:g}. Res and Fifo have large errors with every sample, so that Fifo
                does not do well with large ones; its spikes are there, and so are those of Res. Expire, Chain and our own
                have small errors with the smallest samples too: in ascending order a window has few values, often one, of
                which a fair sample of 2,000 tuples knows the frequencies well. WinRes has twelve times the error that it has on
                unordered data: the young tuples to which it leans have other values than the old ones. The text has the
                values of all tenths in one order; so have we, but our ranges do not overlap, so that each tenth is sorted by
                itself.""",
            y="MSE (a sum), mean over snapshots",
            metric="mse",
            decimals=6,
            draw=draw_courses,
        ),
    ),
)
