"""The cost models beside measurements: predicted and measured service rates of every algorithm, simulated and real."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from headrace.bench import MeasuringOptions, RelationSpec, Zipf, make_relation, service_rate
from headrace.bench.measure import calibrate
from headrace.bench.overheads import options_of
from headrace.cost import HDD, Calibration, Facts, Machine, disk_of
from headrace.cost.models import predict
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS
from reproduction.checks import Tracks
from reproduction.figure import Cell, Computed, Figure, Paper

ROWS = 3_500_000
MEMORIES = (1.0, 2.0, 5.0, 10.0)  # % of R
REAL_MEMORIES = (2.0, 10.0)
REAL_RUNS = (
    3  # of which the one in the middle counts: a run takes a second or two, and the same join differs by a fifth
)
EXPONENTS = (0.0, 0.5, 1.0)
TITLES = {
    "inl": "Index nested loops",
    "meshjoin": "MESHJOIN",
    "ameshjoin": "AMESHJOIN",
    "rmeshjoin": "R-MESHJOIN",
    "hybridjoin": "HYBRIDJOIN",
    "xhybridjoin": "X-HYBRIDJOIN",
    "ssij": "SSIJ",
    "adaptive": "AdaptiveJoin",
}


DIFFERS = {
    "ssij": """With popular keys side by side (not shown: 100,000 and 175,000 tuples, 0.5 to 4 MiB, exponents 0.5 and 1)
        the model is within 8%. It was up to 45% too low there while it charged hits for leaving SB, in which they never
        were, and spread the pages of a phase evenly over R.""",
    "adaptive": """With popular keys side by side and exponent 1 (not shown) the model is up to 29% too high in 0.5 MiB,
        and within 9% from 2 MiB on.""",
}


REAL = {
    2.0: """Real times differ from minute to minute here, since the machine is shared, and a calibration is as good as its
        minutes. Of three calibrations on one day, each with all 32 predictions of this and the next figure, 30, 24 and 25
        predictions were within 25%. Shown is a fourth, for which the machine was busy with other work: 17 of 32, 7 of them in
        this figure. Runs of a minute were then up to half as fast as the calibration, those of R-MESHJOIN, HYBRIDJOIN and SSIJ
        most. An hour before, on a quieter machine, all but AMESHJOIN were within 28% in this figure; AMESHJOIN was calibrated at
        a twentieth of its rate then, which is mended. Before overheads were calibrated the models were two to six times too
        high.""",
    10.0: """See the figure before: 10 of 16 predictions are within 25%. MESHJOIN at exponent 1 has less than half the rate of
        exponent 0, where both read the same pages: that is the machine.""",
}


def _made(algorithm: str, rows: int, exponent: float) -> tuple[RelationSpec, Zipf]:
    stream = Zipf(rows, exponent, "permuted")
    return RelationSpec(rows, popularity=stream if algorithm == "xhybridjoin" else None), stream


def _memory(relation: Relation, percent: float) -> int:
    """A share of R. A dense index, of a key and its page for every row, comes on top: it is more than a tenth of R."""
    dense = relation.index_bytes if relation.order == "frequency" else 0
    return int(relation.num_pages * relation.page_size * percent / 100) + dense


def _measured(relation: Relation, algorithm: str, stream: Zipf, memory: int) -> dict[str, Any]:
    # Joins whose tuples wait a while: several times what can wait in all of the memory.
    many = max(20_000, memory // 12)
    scans, simulated = algorithm.endswith("meshjoin"), relation.disk.kind == "simulated"
    measuring = MeasuringOptions(loops=1 if simulated else 6) if scans else MeasuringOptions(warm=2 * many, tuples=many)
    if algorithm == "inl" and not simulated:  # nothing waits in it
        measuring = MeasuringOptions(warm=many // 8, tuples=many // 8)
    options = options_of(algorithm, stream.exponent)
    runs = [
        service_rate(algorithm, relation, stream, memory, measuring=measuring, **options).as_dict()
        for _ in range(1 if simulated else REAL_RUNS)
    ]
    return sorted(runs, key=lambda run: run["rate"])[len(runs) // 2]


def _predicted(
    relation: Relation, algorithm: str, stream: Zipf, memory: int, machine: Machine | None = None
) -> dict[str, Any]:
    facts = Facts.of(relation, skew=stream.exponent, stream_bytes=stream.tuple_bytes, machine=machine)
    found = predict(algorithm, facts, memory)
    return {"rate": found.rate, "parameters": dict(found.parameters), "why": found.why} if found.rate else {}


def _both(algorithm: str, exponent: float, percent: float, rows: int) -> list[Cell]:
    made, stream = _made(algorithm, rows, exponent)

    def on(of: Callable[..., dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
        def compute(directory: Path) -> dict[str, Any]:
            with make_relation(directory, made, disk=disk_of(HDD)) as relation:
                return of(relation, algorithm, stream, _memory(relation, percent))

        return compute

    return [
        Computed(f"measured, exponent {exponent:g}", percent, on(_measured)),
        Computed(f"predicted, exponent {exponent:g}", percent, on(_predicted)),
    ]


def _simulated(algorithm: str) -> Callable[[float], list[Cell]]:
    def cells(scale: float) -> list[Cell]:
        rows = round(ROWS * scale)
        return [cell for z in EXPONENTS for m in MEMORIES for cell in _both(algorithm, z, m, rows)]

    return cells


@cache
def _calibrated(directory: Path) -> Calibration:
    return calibrate(directory, seconds=20)


def _real(percent: float) -> Callable[[float], list[Cell]]:
    """Every algorithm on this machine's disk; x counts the algorithms."""

    def cells(scale: float) -> list[Cell]:
        rows = round(ROWS * scale)
        found: list[Cell] = []
        for x, algorithm in enumerate(TITLES, 1):
            for z in (0.0, 1.0):

                def measured(directory: Path, algorithm: str = algorithm, z: float = z) -> dict[str, Any]:
                    made, stream = _made(algorithm, rows, z)
                    disk = _calibrated(directory).as_disk()
                    with make_relation(directory, made, disk=disk) as relation:
                        return _measured(relation, algorithm, stream, _memory(relation, percent))

                def predicted(directory: Path, algorithm: str = algorithm, z: float = z) -> dict[str, Any]:
                    made, stream = _made(algorithm, rows, z)
                    machine = _calibrated(directory).as_machine()
                    with make_relation(directory, made, disk="direct") as relation:
                        return _predicted(relation, algorithm, stream, _memory(relation, percent), machine)

                found += [
                    Computed(f"measured, exponent {z:g}", x, measured),
                    Computed(f"predicted, exponent {z:g}", x, predicted),
                ]
        return found

    return cells


def _tracks(exponents: tuple[float, ...], within: float) -> tuple[Tracks, ...]:
    return tuple(Tracks(f"predicted, exponent {z:g}", f"measured, exponent {z:g}", within) for z in exponents)


assert set(TITLES) == set(ALGORITHMS)

PAPER = Paper(
    name="models",
    title="The cost models beside measurements",
    setting="""Not a paper's figures but our own question: how near are the models by which `headrace tune` and
        `algorithm="auto"` choose? R of 120 bytes a tuple, S of 20, popular keys anywhere. First on the simulated machine
        of [MESH], where a run is the same every time: within 10% is wanted. Then on the disk of the machine at hand, with
        direct reads and a calibration made just before: within 25% is wanted.""",
    figures=(
        *(
            Figure(
                algorithm,
                title,
                "memory (% of R)",
                _simulated(algorithm),
                reports="The models follow the measurements ([MESH] Fig. 10a, [DEF] Fig. 10, [XHJ] Fig. 6 and 8).",
                expected=_tracks(EXPONENTS, 0.10),
                differs=DIFFERS.get(algorithm, "Nothing to tell."),
                log="xy",
                scale=0.05,
            )
            for algorithm, title in TITLES.items()
        ),
        *(
            Figure(
                f"real-{percent:g}",
                f"Real disk, {percent:g}% of R",
                "algorithm",
                _real(percent),
                reports="[MESH] measures its factors by micro-benchmarks, and the model tracks.",
                expected=_tracks((0.0, 1.0), 0.25),
                differs=REAL[percent],
                log="y",
                scale=0.1,
                alone=True,
                note="Algorithms: " + ", ".join(f"{x} {name}" for x, name in enumerate(TITLES.values(), 1)) + ".",
            )
            for percent in REAL_MEMORIES
        ),
    ),
)
