"""One Spark session for the whole run, started by the first test that asks for it; and no traces in the home directory."""

import importlib
import os
import shutil
import sys
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from hypothesis import settings

# Before it is imported: a failed assertion there shows its values, as in a test.
pytest.register_assert_rewrite("tests.support")

import headrace as hr  # noqa: E402
from headrace import kernels  # noqa: E402
from tests.support.kafka_broker import Broker, broker_jars, connector_jars  # noqa: E402
from tests.support.postgresql_database import Database  # noqa: E402

CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"

#: The same examples in every run, so that a change is what makes a test fail. HEADRACE_EXAMPLES=random looks for new ones.
#: And no deadline: how long an example takes depends on what else runs.
settings.register_profile("headrace", deadline=None, derandomize=os.environ.get("HEADRACE_EXAMPLES") != "random")
settings.load_profile("headrace")


def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true", help="run tests marked soak too; without it they are skipped")


def pytest_collection_modifyitems(config, items):
    """Files with slow tests come first: at the end of a run a worker has a short file to wait for, and not a long one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if config.getoption("--soak"):
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="the long form of a test: make soak, or --soak"))


def pytest_sessionstart(session):
    """Kernels of a fresh clone are compiled once: every other worker begins with the last, and finds what its neighbour has done.

    Workers import every test, so that each would compile all kernels, in the same order and at the same time.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        names = sorted(path.stem for path in Path(kernels.__path__[0]).glob("[a-z]*.py"))
        for name in names if int(worker.removeprefix("gw")) % 2 else reversed(names):
            importlib.import_module(f"headrace.kernels.{name}")


QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory):
    """Logs of queries go here, and not to the home directory of whoever runs the tests."""
    os.environ["HEADRACE_STATE"] = str(tmp_path_factory.mktemp("state"))


RAM = Path("/dev/shm")
RAM_NEEDED = 1 << 30  # bytes free there: tests put some tens of megabytes into it


class RamPaths:
    """Directories in memory, made as pytest's own factory makes them on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mktemp(self, name: str) -> Path:
        return Path(mkdtemp(prefix=f"{name}-", dir=self.root))


@pytest.fixture(scope="session")
def ram_path_factory(tmp_path_factory):
    """Directories in memory, where a sync takes no time: for tests that make many small relations.

    Who is killed loses no more there than on disk: what was written is there either way. Where there is no such place, or no
    room in it, they are on disk.
    """
    if not (RAM.is_dir() and os.access(RAM, os.W_OK) and shutil.disk_usage(RAM).free > RAM_NEEDED):
        yield tmp_path_factory
        return
    with TemporaryDirectory(prefix="headrace-", dir=RAM, ignore_cleanup_errors=True) as directory:
        yield RamPaths(Path(directory))


@pytest.fixture
def ram_path(ram_path_factory):
    path = ram_path_factory.mktemp("test")
    yield path
    shutil.rmtree(path, ignore_errors=True)  # a process that was killed may still be on its way out


@pytest.fixture(scope="session", autouse=True)
def quick_java():
    """Java compiles once and quickly: what tests run is too short for more, which costs half of its time on two cores."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ[name] = QUICK_JAVA


@pytest.fixture(scope="session")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .appName("headrace tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.daemon.module", "headrace.spark.daemon")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    # As hr.tune_session does: Spark's default manager starts some thirty processes a micro-batch. New sessions are without it.
    session.conf.set(CHECKPOINTS, hr.tune_session().at_start[CHECKPOINTS])
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgresql_server():
    """A real PostgreSQL, started by the first test that asks for it."""
    from reproduction.postgresql import PostgreSQL, find_programs

    if find_programs() is None:
        pytest.skip("no PostgreSQL: scripts/postgresql could not install it here")
    with PostgreSQL({"fsync": "off"}) as server:
        yield server


@pytest.fixture
def database(postgresql_server):
    name = f"t{uuid.uuid4().hex[:12]}"
    postgresql_server.query(f"CREATE DATABASE {name}")
    yield Database(postgresql_server, name)
    postgresql_server.query(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def kafka():
    """A real Kafka broker, started by the first test that asks for it."""
    if not (broker_jars() and connector_jars()):
        pytest.skip("no Kafka: scripts/kafka could not fetch its jars here")
    with Broker() as broker:
        yield broker
