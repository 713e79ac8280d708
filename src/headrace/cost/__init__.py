"""The cost of joins: models, calibration of this machine, tuning, and the choice of an algorithm."""

from headrace.cost.calibrate import Calibration, load_calibration
from headrace.cost.choose import AlgorithmChoice, Observed, choose
from headrace.cost.facts import Facts, Machine
from headrace.cost.machines import HDD, HDD_2011, MACHINES, SSD, disk_of
from headrace.cost.models import MODELS, least_memory, predict, sustains
from headrace.cost.popularity import Popularity
from headrace.cost.prediction import Prediction
from headrace.cost.tune import TuningResult, best_rates, least_memories

__all__ = [
    "TuningResult",
    "Calibration",
    "AlgorithmChoice",
    "Observed",
    "best_rates",
    "choose",
    "least_memories",
    "load_calibration",
    "Facts",
    "MODELS",
    "Machine",
    "Popularity",
    "Prediction",
    "least_memory",
    "predict",
    "sustains",
    "HDD",
    "HDD_2011",
    "MACHINES",
    "SSD",
    "disk_of",
]
