"""Distances and boxes. A box has x for the longitude and y for the latitude, in degrees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.feeds.items import BOX

EARTH_KM = 6371.0088  # the mean radius (IUGG): a great circle has the same length as on the ellipsoid to within 0.5%
SIDES = ("xmin", "ymin", "xmax", "ymax")


def distance(x1: Any, y1: Any, x2: Any, y2: Any) -> Any:
    """The Euclidean distance of two points, in the unit of their coordinates: degrees, if they are latitudes and longitudes."""
    dx, dy = pc.subtract(x1, x2), pc.subtract(y1, y2)
    return pc.sqrt(pc.add(pc.multiply(dx, dx), pc.multiply(dy, dy)))


def kilometres(lat1: Any, long1: Any, lat2: Any, long2: Any) -> Any:
    """The length of the great circle between two places, by the haversine formula."""
    lat1, long1, lat2, long2 = (pc.multiply(one, math.pi / 180) for one in (lat1, long1, lat2, long2))
    north = pc.sin(pc.divide(pc.subtract(lat1, lat2), 2.0))
    east = pc.sin(pc.divide(pc.subtract(long1, long2), 2.0))
    across = pc.multiply(pc.multiply(pc.cos(lat1), pc.cos(lat2)), pc.multiply(east, east))
    part = pc.add(pc.multiply(north, north), across)
    return pc.multiply(pc.asin(pc.sqrt(pc.min_element_wise(part, 1.0, skip_nulls=False))), 2 * EARTH_KM)


def on_sphere(lat: Any, long: Any, axis: int) -> Any:
    """A coordinate of a place on a sphere of radius 1."""
    lat, long = (pc.multiply(one, math.pi / 180) for one in (lat, long))
    if axis == 2:
        return finite(pc.add(pc.sin(lat), pc.multiply(long, 0.0)))
    return finite(pc.multiply(pc.cos(lat), (pc.cos, pc.sin)[axis](long)))


def chord(km: float) -> float:
    """The straight distance on a sphere of radius 1 of places that are so many kilometres apart, or a little more."""
    return 2 * math.sin(min(km / EARTH_KM, math.pi) / 2) * (1 + 1e-9) + 1e-12


def intersects(a: Any, b: Any) -> Any:
    """Whether two boxes have a point in common. A box that is the wrong way round has no point."""
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = ([pc.struct_field(one, side) for side in SIDES] for one in (a, b))
    tests = [
        pc.less_equal(low, high)
        for low, high in (
            (ax0, bx1),
            (bx0, ax1),
            (ay0, by1),
            (by0, ay1),
            (ax0, ax1),
            (ay0, ay1),
            (bx0, bx1),
            (by0, by1),
        )
    ]
    both = tests[0]
    for one in tests[1:]:
        both = pc.and_(both, one)
    return both


def box(*sides: Any) -> Any:
    """A box of its four sides."""
    made = pc.make_struct(*sides, field_names=SIDES)
    return made.cast(BOX)


def side(x: Any, name: str) -> Any:
    """A side of a box."""
    return pc.struct_field(x, name)


def box_side(x: Any, name: str) -> Any:
    """A side of a box that can be joined on: null where the box is the wrong way round, or has no end."""
    found = pc.struct_field(x, name)
    return pc.if_else(pc.fill_null(intersects(x, x), False), finite(found), pa.scalar(None, pa.float64()))


def finite(x: Any) -> Any:
    """X, or null where it is infinite or not a number."""
    return pc.if_else(pc.is_finite(x), x, pa.scalar(None, x.type))


def bits(x: Any) -> Any:
    """A double as an integer that is equal where the double is: for keys. Not a number is null, since it equals nothing."""
    x = pc.add(pc.if_else(pc.is_nan(x), pa.scalar(None, x.type), x), 0.0)  # -0.0 + 0.0 is 0.0
    return x.view(pa.int64())


KERNELS: dict[str, Callable[..., Any]] = {
    "dist": distance,
    "geo_km": kilometres,
    "on_sphere": on_sphere,
    "intersects": intersects,
    "box": box,
    "side": side,
    "box_side": box_side,
    "finite": finite,
    "bits": bits,
    "as integer": lambda x: x.cast(pa.int64()),
}
