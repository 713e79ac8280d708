"""A real PostgreSQL: it starts, joins by its index, says what it refuses, and leaves nothing behind."""

from pathlib import Path

import psutil
import pytest

from headrace.bench import RelationSpec, Zipf
from headrace.errors import BadInput
from reproduction import postgresql
from reproduction.dbms import index_join
from reproduction.postgresql import PostgreSQL, find_programs

needs_postgresql = pytest.mark.skipif(
    find_programs() is None, reason="no PostgreSQL: scripts/postgresql could not install it here"
)


@needs_postgresql
def test_a_server_answers_refuses_and_is_gone_afterwards():
    with PostgreSQL({"shared_buffers": "4MB"}) as server:
        assert server.query("SELECT 6 * 7") == "42"
        assert server.query("SHOW shared_buffers") == "4MB"
        assert server.query("SHOW listen_addresses") == ""
        server.query("CREATE TABLE t (a int)")
        server.query("COPY t FROM STDIN", (f"{i}\n" for i in range(5)))
        assert server.query("SELECT sum(a) FROM t") == "10"
        with pytest.raises(BadInput, match=r"refuses 'SELECT nothing'.*nothing"):
            server.query("SELECT nothing")
        data = Path(server.query("SHOW data_directory"))
        root, pid = data.parent, int((data / "postmaster.pid").read_text().splitlines()[0])
    assert not root.exists()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # nobody reaped it yet


@needs_postgresql
def test_the_index_join_of_a_database_is_one_and_gives_every_result():
    made = RelationSpec(6_000, tuple_bytes=64, K=3)
    found = index_join(made, Zipf(2_000, 0.0, tuple_bytes=20), tuples=5_000, buffers=4 << 20)
    assert found["results"] == 15_000 and found["rate"] == pytest.approx(5_000 / found["seconds"])
    assert found["rate_within"] > 0
    assert found["plan"][0] == "Nested Loop" and "Index Scan" in found["plan"]


def test_without_one_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setattr(postgresql, "find_programs", lambda: None)
    with pytest.raises(BadInput, match="scripts/postgresql"):
        PostgreSQL()
