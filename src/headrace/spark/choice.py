"""The algorithm of a join, chosen once for a query: by the driver, or by the first task that has rows, for all tasks.

Where the driver's machine has a calibration (`headrace calibrate`), the cost models choose by the first rows of the stream,
which only tasks see. The first of them notes its choice in the relation's directory (`state/choices.py`), and all others follow
it: the tasks of a micro-batch, on whatever executor and however often tried, join with one algorithm.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.cost import Observed, choose, load_calibration
from headrace.cost.broadcast import BroadcastAdvice
from headrace.cost.calibrate import BadCalibration
from headrace.cost.facts import Machine
from headrace.relation import Relation
from headrace.spark.relation_join import ADAPTIVE, RelationJoin, gathered
from headrace.spark.state.choices import Chosen, noted_choice
from headrace.spark.steps import Batches, SparkTask

_log = logging.getLogger(__name__)

_SAMPLE = 1 << 17  # rows that an algorithm is chosen by: enough for the skew of a stream to show
_SAMPLE_SHARE = 12  # of a worker's memory, one part in so many, is for the sample while it is looked at
_REMEMBERED = 64  # choices that a worker remembers; it reads the note of another again

_BESIDE_CONDITION = Chosen(ADAPTIVE, "beside a condition it is the one that looks keys up in the index")


class Chooser(Protocol):
    """Chooses an algorithm by a sample of the stream."""

    def choose(self, sample: pa.RecordBatch, join: RelationJoin, relation: Relation) -> Chosen:
        """The algorithm for a stream that goes on like the sample."""
        ...


@dataclass(frozen=True)
class CostModels:
    """Chooses the algorithm that the cost models expect to be the fastest on a machine."""

    machine: Machine

    def choose(self, sample: pa.RecordBatch, join: RelationJoin, relation: Relation) -> Chosen:
        """The algorithm with the best expected rate within the memory of a worker."""
        assert join.on is not None
        observed = Observed.of([sample], relation, join.on)
        facts = observed.facts(relation, machine=self.machine, columns=join.columns, order=join.order)
        best = choose(facts, join.worker_memory)
        return Chosen(best.algorithm, best.why)


@dataclass(frozen=True)
class Algorithm:
    """The algorithm of a step: what the driver knows of it.

    Parameters
    ----------
    default
        What joins, unless there is a chooser.
    chooser
        Chooses when the first rows are there; None where the choice is made already.
    advice
        What may be said of Spark's own join; None where it could not take the place of this one.
    """

    default: Chosen
    chooser: Chooser | None = None
    advice: BroadcastAdvice | None = None

    def why(self, chosen: Chosen | None, batch_rows: int) -> str:
        """Why an algorithm was chosen, and the advice for micro-batches of so many rows."""
        advice = "" if self.advice is None else self.advice.words(batch_rows)
        return "; ".join(filter(None, ["" if chosen is None else chosen.why, advice]))

    @classmethod
    def of(cls, join: RelationJoin) -> Algorithm:
        """The algorithm that the user named or, with "auto", AdaptiveJoin unless a calibration can tell which is faster."""
        if join.algorithm != "auto":
            return cls(Chosen(join.algorithm, ""))
        if join.conditional:
            return cls(_BESIDE_CONDITION)
        try:
            calibration = load_calibration()
        except BadCalibration as error:
            return cls(Chosen(ADAPTIVE, f"adaptive needs no costs to choose by, and there are none: {error}"))
        return cls(Chosen(ADAPTIVE, ""), CostModels(calibration.as_machine()))


_choices: dict[tuple[str | None, str], Chosen] = {}  # of this worker, by query and step


def choose_once(
    algorithm: Algorithm, step: str, join: RelationJoin, relation: Relation, batches: Batches, task: SparkTask
) -> tuple[Chosen | None, Batches]:
    """The choice for all tasks of the query, and the rows again; no choice if nothing is chosen yet and there are no rows."""
    if algorithm.chooser is None:
        return algorithm.default, batches
    key = task.query, step
    choice = _choices.get(key)
    if choice is None:
        note = noted_choice(relation, task.query, step)
        choice = note.read()
        if choice is None:
            rows = gathered((b for b in batches if b.num_rows), lambda: (_SAMPLE, join.worker_memory // _SAMPLE_SHARE))
            sample = next(rows, None)
            if sample is None:
                return None, iter(())
            batches = itertools.chain([sample], rows)
            choice = note.write(algorithm.chooser.choose(sample, join, relation), task.run)
            if choice is not None:
                _log.info("chose %s for %s: %s", choice.algorithm, join.path, choice.why)
            if choice is None:
                why = f"adaptive: another choice could not be noted for the other workers in {note.path.parent}"
                return Chosen(ADAPTIVE, why), batches
        _choices[key] = choice
        while len(_choices) > _REMEMBERED:
            del _choices[next(iter(_choices))]
    return choice, batches
