"""kill -9 of the driver while feeds are joined on Spark: every result is in the table, and once."""

import pytest

from tests.support.delta_tables import by_deltalake
from tests.support.feed_recordings import recording
from tests.support.killed_driver import PATIENCE, driver
from tests.support.programs import join_feeds
from tests.support.programs.killable_job import Job
from tests.support.recorded_queries import FEEDS, GROUPS, NEAR, embedded
from tests.support.spark_streams import counted

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    ("text", "batch"), [(NEAR, 1), pytest.param(GROUPS, 0, marks=pytest.mark.soak)], ids=["near", "groups"]
)
def test_differential_every_result_once_with_the_driver_killed_before_a_commit(ram_path, text, batch):
    job, log, program = Job(ram_path), ram_path / "log", join_feeds.__file__
    job.scratch.mkdir()
    (ram_path / "query.sql").write_text(text)
    recording(job.input, FEEDS)
    with driver(ram_path, log, program, batch) as running:  # the micro-batch is in the table, and Spark does not know
        running.wait_for("end of its way", lambda: False)
        running.look()
        running.kill()
    before = counted(by_deltalake(job.table))
    with driver(ram_path, log, program) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    wanted = embedded(text, ram_path / "state" / "feeds")
    assert before and before < wanted
    assert counted(by_deltalake(job.table)) == wanted
