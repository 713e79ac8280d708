"""The day: when and where earthquakes and weather alerts were, drawn from a seed. None of it happened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from headrace.console.demo.places import PLACES, Place

BEGIN = datetime(2026, 3, 20, tzinfo=UTC)
HOURS = 24
BEFORE = 3 * 3600.0  # seconds before the day whose events the first pull finds
QUAKES = 420  # a day: what public feeds list above magnitude 2 on an ordinary one
ALERTS = 260
REVISED = 0.15  # of all earthquakes get another magnitude later, as a changed item
_SEED = 20260320
_LEAST, _MOST = 2.5, 7.6  # magnitudes
_SCATTER = 0.7  # degrees around a fault

#: Where plates meet, roughly: latitudes and longitudes along a line, and how often the earth shakes there.
_FAULTS: tuple[tuple[float, tuple[tuple[float, float], ...]], ...] = (
    (9, ((52.9, 160.0), (44.0, 149.0), (38.2, 143.0), (35.0, 141.2), (27.0, 142.5))),
    (5, ((33.2, 136.5), (29.5, 131.0), (24.2, 122.2), (23.0, 121.0))),
    (9, ((51.5, 179.0), (52.3, -170.0), (54.5, -160.0), (58.5, -153.0), (61.4, -150.2), (63.2, -149.0))),
    (7, ((40.6, -124.6), (38.8, -122.8), (36.6, -121.2), (35.7, -117.6), (33.4, -116.4), (32.2, -115.3))),
    (3, ((38.9, -119.0), (37.4, -117.2), (40.7, -111.9), (44.4, -110.7))),
    (3, ((36.3, -97.4), (35.6, -97.2), (31.6, -104.2), (36.5, -89.5))),
    (2, ((19.4, -155.3), (19.2, -155.5))),
    (2, ((18.1, -66.9), (18.9, -64.6), (18.4, -72.8))),
    (6, ((16.4, -98.4), (15.2, -94.0), (13.6, -91.0), (12.2, -87.6), (9.2, -84.2))),
    (8, ((-1.0, -80.3), (-11.6, -78.0), (-17.0, -72.0), (-21.4, -69.0), (-30.2, -71.6), (-36.4, -73.2))),
    (9, ((-15.4, -173.4), (-19.0, -177.0), (-24.0, -178.6), (-31.0, -178.4), (-38.4, 178.2), (-41.6, 174.2))),
    (6, ((-10.4, 161.4), (-6.6, 154.8), (-5.4, 151.4), (-6.2, 146.8))),
    (4, ((-19.8, 168.6), (-16.0, 167.4), (-12.0, 166.4))),
    (8, ((4.8, 95.4), (-1.2, 99.6), (-6.8, 105.2), (-9.2, 113.8), (-9.6, 119.4))),
    (6, ((-6.8, 129.6), (-2.0, 126.6), (1.2, 126.2), (6.6, 126.6), (13.0, 121.0))),
    (5, ((38.8, 70.6), (36.4, 70.8), (34.2, 73.6), (28.0, 85.6), (30.8, 102.6))),
    (4, ((36.0, 51.6), (33.0, 48.4), (28.0, 55.0), (30.6, 57.2))),
    (5, ((38.2, 38.4), (39.0, 28.2), (37.2, 26.8), (35.4, 24.4), (38.2, 21.6))),
    (2, ((42.6, 13.2), (37.7, 15.0), (40.8, 14.2))),
    (3, ((63.9, -22.3), (64.6, -17.4), (57.0, -33.4), (37.6, -25.8))),
)
_COMPASS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
_KINDS = (
    ("Winter Storm Warning", "Severe", "Heavy snow is expected; travel could be very difficult."),
    ("Flood Warning", "Severe", "Rivers and creeks are out of their banks, or will be soon."),
    ("Flood Watch", "Moderate", "Excessive runoff may result in flooding of low places."),
    ("High Wind Warning", "Severe", "Damaging winds will blow down trees and power lines."),
    ("Wind Advisory", "Moderate", "Gusty winds will blow around unsecured objects."),
    ("Severe Thunderstorm Warning", "Severe", "Large hail and gusts of wind are expected."),
    ("Tornado Watch", "Extreme", "Conditions are favourable for tornadoes."),
    ("Red Flag Warning", "Severe", "Fires that start will spread quickly in the dry wind."),
    ("Dense Fog Advisory", "Minor", "Visibility is a quarter mile or less."),
    ("Freeze Warning", "Moderate", "Temperatures below freezing will kill tender plants."),
)


@dataclass(frozen=True)
class Quake:
    """An earthquake: when it was (seconds since 1970), when it was told of, and when its magnitude was revised, if it was."""

    number: int
    at: float
    told: float
    revised: float | None
    latitude: float
    longitude: float
    depth: float
    magnitude: float
    revision: float

    def title(self, now: float) -> str:
        """As the public feed writes it: the magnitude as it is known, and the nearest place."""
        place, distance, bearing = _nearest(self.latitude, self.longitude)
        direction = _COMPASS[round(bearing / 22.5) % 16]
        return f"M {self.known(now):.1f} - {distance:.0f} km {direction} of {place.name}, {place.country}"

    def known(self, now: float) -> float:
        """The magnitude as it is known at a moment."""
        return self.revision if self.revised is not None and now >= self.revised else self.magnitude

    def updated(self, now: float) -> float:
        """When it was last told of."""
        return self.revised if self.revised is not None and now >= self.revised else self.told


@dataclass(frozen=True)
class Alert:
    """A weather alert: a kind, from when to when it holds, and the corners of its area (latitude, longitude)."""

    number: int
    kind: str
    severity: str
    text: str
    place: Place
    at: float
    expires: float
    corners: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Day:
    """All that happened, by the time it was told."""

    begin: float
    quakes: tuple[Quake, ...]
    alerts: tuple[Alert, ...]

    @property
    def end(self) -> float:
        """The last moment, in seconds since 1970."""
        return self.begin + HOURS * 3600.0


def make_day(seed: int = _SEED) -> Day:
    """Draw a day; the same seed gives the same one."""
    random = np.random.default_rng(seed)
    begin = BEGIN.timestamp()
    return Day(begin, _quakes(random, begin), _alerts(random, begin))


def _moments(random: np.random.Generator, begin: float, count: int) -> list[float]:
    """Moments of the day and of the hours before it, evenly drawn, in order."""
    total = count * (HOURS * 3600.0 + BEFORE) / (HOURS * 3600.0)
    return [float(at) for at in np.sort(random.uniform(begin - BEFORE, begin + HOURS * 3600.0, round(total)))]


def _quakes(random: np.random.Generator, begin: float) -> tuple[Quake, ...]:
    weights = np.array([weight for weight, _ in _FAULTS], np.float64)
    faults = random.choice(len(_FAULTS), p=weights / weights.sum(), size=2 * QUAKES)
    made = []
    for number, at in enumerate(_moments(random, begin, QUAKES)):
        latitude, longitude = _along(random, _FAULTS[faults[number]][1])
        magnitude = min(_MOST, _LEAST + float(random.exponential(1 / math.log(10))) * 1.4)
        told = at + float(random.uniform(90, 420))
        revised = told + float(random.uniform(1200, 9000)) if random.random() < REVISED else None
        revision = max(_LEAST, magnitude + float(random.choice([-0.3, -0.2, 0.2, 0.3])))
        depth = float(random.gamma(1.6, 18.0)) + 2
        made.append(Quake(number, at, told, revised, latitude, longitude, depth, magnitude, revision))
    return tuple(made)


def _along(random: np.random.Generator, line: tuple[tuple[float, float], ...]) -> tuple[float, float]:
    """A point near a line of points, the shorter way where it crosses the 180th meridian."""
    where = float(random.uniform(0, len(line) - 1))
    (from_lat, from_long), (to_lat, to_long) = line[int(where)], line[int(where) + 1]
    part, turn = where - int(where), (to_long - from_long + 180) % 360 - 180
    latitude = from_lat + part * (to_lat - from_lat) + float(random.normal(0, _SCATTER))
    longitude = from_long + part * turn + float(random.normal(0, _SCATTER))
    return round(latitude, 4), round((longitude + 180) % 360 - 180, 4)


def _alerts(random: np.random.Generator, begin: float) -> tuple[Alert, ...]:
    warned = [place for place in PLACES if place.warned]
    made = []
    for number, at in enumerate(_moments(random, begin, ALERTS)):
        kind, severity, text = _KINDS[int(random.integers(len(_KINDS)))]
        place = warned[int(random.integers(len(warned)))]
        centre = place.latitude + float(random.normal(0, 0.9)), place.longitude + float(random.normal(0, 1.1))
        size = float(random.uniform(0.5, 2.4))
        turns = np.sort(random.uniform(0, 2 * math.pi, int(random.integers(5, 9)))).tolist()
        reach = random.uniform(0.6, 1.0, len(turns)).tolist()
        corners = [
            (round(centre[0] + size * far * math.sin(turn), 2), round(centre[1] + 1.3 * size * far * math.cos(turn), 2))
            for turn, far in zip(turns, reach, strict=True)
        ]
        expires = at + float(random.uniform(2, 12)) * 3600
        made.append(Alert(number, kind, severity, text, place, at, expires, (*corners, corners[0])))
    return tuple(made)


def _nearest(latitude: float, longitude: float) -> tuple[Place, float, float]:
    """The nearest place, its distance in kilometres, and the direction from it in degrees from north."""

    def offsets(place: Place) -> tuple[float, float]:
        east = ((longitude - place.longitude + 180) % 360 - 180) * math.cos(math.radians(latitude))
        return (latitude - place.latitude) * 111.2, east * 111.2

    place = min(PLACES, key=lambda one: math.hypot(*offsets(one)))
    north, east = offsets(place)
    return place, math.hypot(north, east), math.degrees(math.atan2(east, north)) % 360
