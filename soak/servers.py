"""PostgreSQL and Kafka as victims: killed with all their processes, and started again with what they had on disk."""

from __future__ import annotations

from contextlib import suppress

import psutil

from reproduction.postgresql import PostgreSQL, find_programs
from tests.support.kafka_broker import Broker, broker_jars, connector_jars

__all__ = ["KillablePostgreSQL", "Broker", "connector_jars", "missing_servers"]


class KillablePostgreSQL(PostgreSQL):
    """A server whose postmaster and backends can be killed at once."""

    def kill(self) -> None:
        """Kill the postmaster, then its children: without it none of them starts another."""
        first = (self._root / "data" / "postmaster.pid").read_text().split()[0]
        postmaster = psutil.Process(int(first))
        children = postmaster.children(recursive=True)
        for process in (postmaster, *children):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs([postmaster, *children], timeout=10)

    def start(self) -> None:
        """Start it again; it recovers what was committed."""
        self._start()


def missing_servers() -> dict[str, str]:
    """The servers that are not to be had here, and why."""
    missing = {}
    if find_programs() is None:
        missing["PostgreSQL"] = "scripts/postgresql could not install it here"
    if not (broker_jars() and connector_jars()):
        missing["Kafka"] = "scripts/kafka could not fetch its jars here"
    return missing
