"""TumblingWindow: rows leave with the end of their window, against a plain list; snapshots; rows that take others' place."""

import random

import pyarrow as pa
import pytest

from headrace.sampling.snapshot import SnapshotReader
from headrace.sampling.tumbling import TumblingWindow
from headrace.windows import TimeWindow

SCHEMA = pa.schema({"start": pa.timestamp("us", "UTC"), "v": pa.string()})


def held():
    return TumblingWindow(SCHEMA, window=TimeWindow(0.01, "start"))  # of 10,000 microseconds


def batch(rows):
    return pa.record_batch(
        [pa.array([s for s, _ in rows], pa.int64()).cast(SCHEMA.field(0).type), [v for _, v in rows]], SCHEMA
    )


def values(rows):
    return rows.column("v").to_pylist()


@pytest.mark.parametrize("seed", range(8))
def test_oracle_rows_leave_with_the_end_of_their_window_in_the_order_in_which_they_came(seed):
    chance, window, there, late, clock = random.Random(seed), held(), [], 0, None
    for step in range(120):
        rows = [
            (chance.choice([None, 10_000 * (step // 3 + chance.randrange(-3, 5))]), f"{step}/{i}")
            for i in range(chance.randrange(9))
        ]
        window.insert(batch(rows))
        good = [(s, v) for s, v in rows if s is not None and (clock is None or s + 10_000 > clock)]
        late += len(rows) - len(good)
        there += good
        if chance.random() < 0.4:
            now = 3333 * step + chance.randrange(-20_000, 20_000)
            clock = now if clock is None else max(clock, now)
            assert values(window.close(now)) == [v for s, v in there if s + 10_000 <= clock], step
            there = [(s, v) for s, v in there if s + 10_000 > clock]
        if chance.random() < 0.1:
            parts, window = list(window.snapshot()), held()
            window.restore(SnapshotReader(parts))
        if chance.random() < 0.1:
            there = there[::2]
            window.replace_rows(batch(there))
        assert values(window.sample()) == [v for _, v in there]
    assert window.late + window.untimed == late
    assert len(window) == len(there) and window.nbytes > 0
