"""`hr.tune_session`: what pays is set, what the user has set is kept, and every setting is explained."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import headrace as hr

pytestmark = pytest.mark.spark

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
DAEMON = "spark.python.daemon.module"


@pytest.fixture
def session(spark):
    """A session with settings of its own, beside the one that the tests share."""
    return spark.newSession()


def states(tuning) -> dict[str, str]:
    return {setting.name: setting.state for setting in tuning.settings}


def manager(session) -> str:
    """The class that a query of this session writes its checkpoint with."""
    jvm = session.sparkContext._jvm
    package = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    made = package.CheckpointFileManager.create(
        jvm.org.apache.hadoop.fs.Path("file:/tmp"), session._jsparkSession.sessionState().newHadoopConf()
    )
    return str(made.getClass().getSimpleName())


def test_what_nobody_has_set_is_set_once(session):
    assert manager(session) == "FileContextBasedCheckpointFileManager"
    tuning = hr.tune_session(session)
    assert states(tuning) == {MANAGER: "set", RECORDS: "set", DAEMON: "kept"}  # the tests have a daemon of ours
    assert manager(session) == "FileSystemBasedCheckpointFileManager"
    assert session.conf.get(RECORDS) == "100000"
    assert set(states(hr.tune_session(session)).values()) == {"kept"}


def test_what_the_user_has_set_is_kept(session):
    session.conf.set(RECORDS, "777")
    kept = {setting.name: setting for setting in hr.tune_session(session).settings}[RECORDS]
    assert (kept.state, kept.before, kept.after, session.conf.get(RECORDS)) == ("kept", "777", "777", "777")


def test_files_that_are_elsewhere_keep_sparks_own_manager(session):
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://warehouse:8020")
    try:
        tuning = hr.tune_session(session)
    finally:
        hadoop.set("fs.defaultFS", before)
    assert states(tuning)[MANAGER] == "left"
    assert "hdfs://warehouse:8020" in str(tuning)
    assert MANAGER not in session.conf.getAll


def test_a_session_that_is_still_to_be_made():
    tuning = hr.tune_session()
    assert set(tuning.at_start) == {MANAGER, RECORDS, DAEMON}
    console = Console(width=200, record=True, file=None)
    with console.capture() as shown:
        console.print(tuning)
    for text in (str(tuning), shown.get()):
        assert all(name in text for name in tuning.at_start)


def test_a_query_goes_on_with_the_other_manager_where_it_stopped(spark, session, tmp_path):
    """Checkpoints of the two managers are the same files."""
    (tmp_path / "in").mkdir()

    def run(session, n: int) -> None:
        pq.write_table(pa.table({"v": [n]}), tmp_path / "in" / f"{n}.parquet")
        stream = session.readStream.schema("v long").parquet(str(tmp_path / "in"))
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(120)

    plain = spark.newSession()
    hr.tune_session(session)
    assert manager(plain) != manager(session)
    for n, by in enumerate((plain, session, plain, session)):
        run(by, n)
    assert sorted(row.v for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [0, 1, 2, 3]
