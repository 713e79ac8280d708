"""The index join of a database, with everything in its favour: the comparison of [SSIJ] §VI.C and Fig. 9."""

from __future__ import annotations

import json
from typing import Any

from headrace.cost import MadeRelation, Stream
from reproduction.postgresql import PostgreSQL

_BLOCK = 10_000


def index_join(made: MadeRelation, stream: Stream, tuples: int, buffers: int) -> dict[str, Any]:
    """Stream tuples a second of an index nested loop join, the second time it runs.

    The relation lies in the order of its keys and has an index on them; the stream is a table in memory. The server has so many
    bytes of buffers, and the operating system's cache beside them.
    """
    settings = {
        "shared_buffers": f"{buffers >> 10}kB",
        "fsync": "off",
        "max_parallel_workers_per_gather": "0",
        "jit": "off",
    }
    with PostgreSQL(settings) as server:
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
        for _ in range(2):
            plan = _joined(server)
        inner = plan["Plan"]["Plans"][1]
        kinds = [plan["Plan"]["Node Type"], inner["Node Type"], inner.get("Plans", [{}])[0].get("Node Type")]
        assert kinds[0] == "Nested Loop" and "Index Scan" in kinds[1:], kinds
        seconds = plan["Execution Time"] / 1e3
        return {
            "rate": tuples / seconds, "seconds": seconds, "results": plan["Plan"]["Actual Rows"], "plan": kinds,
            "version": server.version,
        }  # fmt: skip


def _joined(server: PostgreSQL) -> dict[str, Any]:
    """The join, run to its end within the server: no row is sent."""
    said = server.query(
        "SET enable_hashjoin = off; SET enable_mergejoin = off;"
        " EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT s.k, s.payload, r.payload FROM s JOIN r USING (k)"
    )
    found: dict[str, Any] = json.loads(said)[0]
    return found
