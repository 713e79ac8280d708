"""Rows with keys and times for joins of windows, and a query whose last micro-batch runs twice."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from tests.support.spark_streams import finished, last_again

BEGIN = datetime(2026, 1, 1)


def rows(seed, n, keys=200, minutes=(0, 60)):
    """Rows with a key, some null, and times in no order."""
    rng = np.random.default_rng(seed)
    k = pa.array(rng.integers(0, keys, n), mask=rng.random(n) < 0.05)
    seconds = rng.integers(60 * minutes[0], 60 * minutes[1], n)
    t = pa.array([BEGIN + timedelta(seconds=int(s)) for s in seconds], pa.timestamp("us", "UTC"))
    return pa.table({"k": k, "n": np.arange(n) + 10_000 * seed, "t": t})


def again_and_on(sink, out, checkpoint, more):
    """Run what is there, then the last micro-batch again and one more. The two attempts, and the next micro-batch."""
    finished(sink.run(out, checkpoint))
    again = last_again(checkpoint)
    more()
    finished(sink.run(out, checkpoint))
    first, second = sink.sent[again]
    return first, second, sink.sent[again + 1][-1]
