"""A sink that keeps the rows of each micro-batch, for tests that ask what Spark sent and how often."""

from __future__ import annotations

from collections import Counter

import headrace as hr
from tests.support.spark_streams import counted


class Sink:
    """Any sink, seen from foreachBatch: the rows of each micro-batch, as often as Spark sent it."""

    def __init__(self):
        self.sent = {}

    def take(self, df, batch):
        given = counted(df.toArrow())
        self.sent.setdefault(batch, []).append(given)

    @property
    def rows(self):
        return sum((attempts[-1] for attempts in list(self.sent.values())), Counter())

    def run(self, out, checkpoint, **trigger):
        writer = out.writeStream.foreachBatch(self.take).option("checkpointLocation", str(checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()


def collected(out, query):
    got = []
    hr.finish(out, query, write=lambda df, number: got.append(counted(df.toArrow())))
    return sum(got, Counter())
