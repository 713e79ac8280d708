"""The index join of a database, with everything in its favour: the comparison of [SSIJ] §VI.C and Fig. 9."""

from __future__ import annotations

import json
from typing import Any

from headrace.bench import RelationSpec, Stream
from reproduction.postgresql import PostgreSQL

_BLOCK = 10_000
_BY_INDEX = "SET enable_hashjoin = off; SET enable_mergejoin = off;"
_JOIN = "SELECT s.k, s.payload, r.payload FROM s JOIN r USING (k)"


def index_join(made: RelationSpec, stream: Stream, tuples: int, buffers: int) -> dict[str, Any]:
    """Stream tuples a second of an index nested loop join: `rate` when its rows leave, `rate_within` when none does.

    The relation lies in the order of its keys and has an index on them; the stream is a table in memory. The server has so many
    bytes of buffers, and the operating system's cache beside them; the second run counts.
    """
    settings = {
        "shared_buffers": f"{buffers >> 10}kB",
        "fsync": "off",
        "max_parallel_workers_per_gather": "0",
        "jit": "off",
    }
    with PostgreSQL(settings) as server:
        _load(server, made, stream, tuples)
        for _ in range(2):
            plan, within = _within(server)
        for _ in range(2):
            leaving = _leaving(server)
        inner = plan["Plans"][1]
        kinds = [plan["Node Type"], inner["Node Type"], inner.get("Plans", [{}])[0].get("Node Type")]
        assert kinds[0] == "Nested Loop" and "Index Scan" in kinds[1:], kinds
        return {
            "rate": tuples / leaving,
            "rate_within": tuples / within,
            "seconds": leaving,
            "results": plan["Actual Rows"],
            "plan": kinds,
            "version": server.version,
        }


def _load(server: PostgreSQL, made: RelationSpec, stream: Stream, tuples: int) -> None:
    width = made.tuple_bytes - 8
    server.query("CREATE UNLOGGED TABLE r (k bigint, payload text)")
    server.query(
        f"INSERT INTO r SELECT g / {made.K}, rpad(g::text, {width}, 'x') FROM generate_series(0, {made.rows - 1}) g"
    )
    server.query("CREATE INDEX ON r (k)")
    server.query("CREATE UNLOGGED TABLE s (k bigint, payload text)")
    feed = stream.open()
    filler = "y" * (stream.tuple_bytes - 8)
    server.query(
        "COPY s FROM STDIN",
        (
            f"{key}\t{filler}\n"
            for start in range(0, tuples, _BLOCK)
            for key in feed.take(min(_BLOCK, tuples - start)).column("k").to_pylist()
        ),
    )
    server.query("VACUUM ANALYZE")


def _within(server: PostgreSQL) -> tuple[dict[str, Any], float]:
    """The plan of the join, run to its end within the server, and its seconds."""
    found = json.loads(server.query(f"{_BY_INDEX} EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {_JOIN}"))[0]
    return found["Plan"], found["Execution Time"] / 1e3


def _leaving(server: PostgreSQL) -> float:
    """Seconds of the join when its rows leave the server, in its own binary form, for nowhere."""
    now = "SELECT extract(epoch FROM clock_timestamp());"
    said = server.query(f"{_BY_INDEX} {now} COPY ({_JOIN}) TO '/dev/null' (FORMAT binary); {now}")
    begun, ended = (float(line) for line in said.split())
    return ended - begun
