"""Results as JSON: rows of a batch as the pages read them."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

MOST_TEXT = 2000  # characters of a value that a page shows: a description may be a whole article
_OWN = ("_number", "_produced", "_id", "_places")


def as_rows(results: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows of results: number, moment (milliseconds since 1970), identity, values of the selected columns, and places."""
    columns = [results.column(name).to_pylist() for name in results.schema.names if name not in _OWN]
    own = (results.column(name).to_pylist() for name in _OWN)
    return [
        {
            "n": number,
            "at": _milliseconds(produced),
            "id": identity.hex(),
            "values": [_plain(column[row]) for column in columns],
            "places": [_place(place) for place in places or () if _is_somewhere(place)],
        }
        for row, (number, produced, identity, places) in enumerate(zip(*own, strict=True))
    ]


def to_json(value: object) -> bytes:
    """JSON on one line, as an event needs it; U+2028 and the like are escaped."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT else f"{value[: MOST_TEXT - 1]}…"
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, bool | int) else str(value)


def _place(place: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(place[name]) for name in ("alias", "title", "lat", "long", "box")}


def _is_somewhere(place: dict[str, Any]) -> bool:
    return (place["lat"] is not None and place["long"] is not None) or place["box"] is not None


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
