"""Workloads and measuring that the command line, the reproduction and the benchmarks share."""

from headrace.bench.measure import calibrate
from headrace.bench.relations import RelationSpec, make_relation, tpch
from headrace.bench.service import MeasuringOptions, ServiceRate, service_rate
from headrace.bench.streams import Bursty, Drifting, FileStream, Steady, Stream, Zipf, low_cardinality

__all__ = [
    "Bursty",
    "Drifting",
    "FileStream",
    "RelationSpec",
    "MeasuringOptions",
    "ServiceRate",
    "Steady",
    "Stream",
    "Zipf",
    "calibrate",
    "low_cardinality",
    "make_relation",
    "service_rate",
    "tpch",
]
