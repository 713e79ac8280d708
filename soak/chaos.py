"""Kill -9 at random, over and over, while relations change, disks fill up and clocks jump; in the end every row is there once.

    chaos without Spark   a process that forks small ones: writers, compactors and overwriters of relations, and queries over the
                          run log; the bulk of the kills. See plain_chaos.py
    chaos with Spark      a cluster, and a driver with the queries of job.py. Killed are Python workers, executors, the driver
                          (its Python, its JVM, or in the midst of a commit), PostgreSQL and the Kafka broker. Stopped for a
                          minute are drivers and workers; and a second driver comes to the checkpoints of the first

Both share one relation and one small disk: what is done to those, is done to both.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.cli.pace import Pace
from soak.cluster import Cluster, end
from soak.job import KAFKA, POSTGRESQL, QUERIES
from soak.jumping_clock import VARIABLE
from soak.logged_queries import Verdict
from soak.oracle import judge_orders, judge_pairs, judge_sales, judge_samples
from soak.places import KEYS, TOPIC, Places, products, sales, side
from soak.plain_process import PlainProcess, plain_settings
from soak.servers import Broker, KillablePostgreSQL, missing_servers
from soak.small_disk import small_disk
from soak.summary import Summary
from soak.versions import Contents
from soak.watched import HarnessFault, Watched

SPARK_SHARE = 0.12  # of all kills; a kill of Spark's costs some ten seconds, and one without Spark half a second
#: Who is killed of Spark's, and how often.
KINDS = {
    "worker": 0.56,
    "executor": 0.12,
    "commit": 0.08,
    "driver": 0.06,
    "driver jvm": 0.06,
    "postgresql": 0.06,
    "kafka": 0.06,
}
#: What else is done with Spark, each so many times in a run that does everything.
LONG = ("two drivers on one checkpoint", "SIGSTOP of a driver for {stop:.0f} s", "SIGSTOP of workers for {stop:.0f} s")
FILE_ROWS = 200  # of an input file, and of a micro-batch of messages
_PATIENCE = 480.0  # seconds for a micro-batch, or for a driver that is let live to end
_STOP = 60.0  # seconds
_SECONDS_EACH = 6.0  # of a kill, at most, in the limit of a run
_FAILED_LIVES = (
    4  # drivers in a row that end by an error before they commit anything: nothing is done to them for so long
)
_SIZE = "512m"  # of the small disk


class ChaosRun:
    """A run.

    Parameters
    ----------
    root
        An empty directory.
    kills
        Processes to kill in all.
    seed
        Of what is killed when, and of all data.
    say
        Takes lines that tell how it goes.
    queries
        Which queries of `soak.job` run on Spark.
    files
        Files, or micro-batches of messages, that come to each query before each life of a driver.
    long
        Times that each of the long events happens with Spark; twice as often without.
    limit
        Seconds after which the run is taken to hang.
    spark_share
        Kills of Spark's processes and of servers, as a share of all.
    """

    def __init__(
        self,
        root: Path,
        kills: int,
        seed: int,
        say: Callable[[str], None],
        *,
        queries: tuple[str, ...] = QUERIES,
        files: int = 4,
        long: int = 3,
        limit: float | None = None,
        spark_share: float = SPARK_SHARE,
    ) -> None:
        self.places, self.kills, self.seed, self.say, self.files = Places(root), kills, seed, say, files
        self.rng = np.random.default_rng(seed)
        self.summary = Summary(seed)
        missing = missing_servers() if "orders" in queries else {}
        self.queries = tuple(name for name in queries if name != "orders" or not missing)
        for name, reason in missing.items():
            self.summary.skipped[f"kill -9: {name}"] = reason
        self.kinds = dict(KINDS)
        if "orders" not in self.queries:
            self.kinds = {kind: share for kind, share in KINDS.items() if kind not in ("postgresql", "kafka")}
        self.long = long
        self.watched = Watched(limit or 1200 + _SECONDS_EACH * kills)
        self.spark_kills = max(1, round(spark_share * kills))
        self.rows = dict.fromkeys(QUERIES, 0)
        self.lives = 0
        self._failed = self._committed = 0  # drivers that failed in a row, and the micro-batches before them
        self.pace = Pace(kills, "kills")
        self._told = 0.0

    # -- the run -----------------------------------------------------------------------------------------------------------

    def run(self) -> Summary:
        """Kill until it is enough; then one more driver may live, and what it leaves is compared."""
        begun = time.monotonic()
        faulthandler.dump_traceback_later(self.watched.limit + 600, exit=True)  # should the watch itself hang
        places = self.places
        for name in ("sales", "left", "right", "samples"):
            (places.input / name).mkdir(parents=True)
        try:
            with ExitStack() as stack:
                self._set_up(stack)
                self._disturb()
                plain = self.plain.finish()
                self.summary.add(plain)
                self._last_life()
                self._judge()
        except HarnessFault as fault:
            if self.plain_summary is not None and not self.plain_summary.whole:
                self.summary.add(self.plain_summary)
            self.summary.faults.append(str(fault))
        finally:
            faulthandler.cancel_dump_traceback_later()
            self.summary.seconds = time.monotonic() - begun
        return self.summary

    @property
    def plain_summary(self) -> Summary | None:
        """What the chaos without Spark has found, once it ended."""
        return self.plain.summary if hasattr(self, "plain") else None

    def _set_up(self, stack: ExitStack) -> None:
        places = self.places
        disk = stack.enter_context(small_disk(places.small, _SIZE))
        empty = pa.schema({"source": pa.string(), "product": pa.int64(), "skey": pa.int64(), "inferred": pa.bool_()})
        hr.Relation.create(places.lookup, empty.empty_table(), key=["source", "product"]).close()
        settings = plain_settings(
            places.root,
            disk,
            self.kills - self.spark_kills,
            self.seed,
            keys=KEYS,
            stop=_STOP,
            extraordinary=2 * self.long,
        )
        self.plain = PlainProcess(settings, self.watched, lambda facts: None)
        stack.callback(self.plain.close)
        (places.root / "cluster").mkdir()
        self.cluster = Cluster(places.root / "cluster")
        path = os.pathsep.join([str(Path(__file__).parent / "site"), self.cluster.environment["PYTHONPATH"]])
        self.cluster.environment |= {VARIABLE: str(places.clock), "PYTHONPATH": path}
        stack.callback(self.cluster.close)
        self.cluster.start()
        if "orders" in self.queries:
            self.postgresql = stack.enter_context(KillablePostgreSQL({"fsync": "off"}))
            self.postgresql.query("CREATE TABLE orders (id bigint, product bigint, price bigint, version bigint)")
            self.kafka = stack.enter_context(Broker())
            self.cluster.environment |= {KAFKA: self.kafka.servers, POSTGRESQL: self.postgresql.url()}
        while not self.plain.ready.wait(0.2):
            self.plain.check()

    def _disturb(self) -> None:
        """Lives of drivers, until enough was killed."""
        long = [event.format(stop=_STOP) for event in LONG for _ in range(self.long)]
        self.rng.shuffle(long)
        every = max(1, self.spark_kills // (len(long) + 1))
        due = every
        while self._spark_killed < self.spark_kills or self._killed < self.kills:
            self._more_input()
            if long and self._spark_killed >= due:
                due += every
                self._long(long.pop())
            else:
                with self._driver() as driver:
                    self._life(driver)
            self._tell()
        for event in long:
            self._more_input()
            self._long(event)
            self._tell()

    @property
    def _spark_killed(self) -> int:
        return self.summary.kills.total()

    @property
    def _killed(self) -> int:
        return self._spark_killed + self.plain.kills.total()

    def _tell(self, every: float = 10.0) -> None:
        self.plain.check()
        if time.monotonic() - self._told >= every:
            self._told = time.monotonic()
            self.pace.count = min(self.kills, self._killed)
            self.say(
                f"{self.pace.words()}: {self._spark_killed} with Spark in {self.lives} lives of a driver,"
                f" {self.plain.kills.total()} without; {sum(self.rows.values()):,} rows came"
            )

    def _more_input(self) -> None:
        """Files and messages for every query."""
        for _ in range(self.files):
            if "sales" in self.queries:
                for _ in range(4):
                    self._file("sales", sales(self.rows["sales"], FILE_ROWS, self.seed))
                    self.rows["sales"] += FILE_ROWS
            if "pairs" in self.queries:
                for number, name in enumerate(("left", "right")):
                    self._file(name, side(self.rows["pairs"], FILE_ROWS, self.seed, number), self.rows["pairs"])
                self.rows["pairs"] += FILE_ROWS
            if "samples" in self.queries:
                first = self.rows["samples"]
                self._file("samples", pa.table({"id": np.arange(first, first + FILE_ROWS)}))
                self.rows["samples"] += FILE_ROWS
        if "orders" in self.queries:
            lines = []
            for first in range(self.rows["orders"], self.rows["orders"] + self.files * FILE_ROWS, FILE_ROWS):
                some = enumerate(products(first, FILE_ROWS, self.seed), first)
                lines += [json.dumps({"id": n, "product": int(product)}) for n, product in some]
            self.kafka.send(TOPIC, lines)
            self.rows["orders"] += len(lines)

    def _file(self, name: str, rows: pa.Table, first: int | None = None) -> None:
        directory = self.places.input / name
        number = rows["id"][0].as_py() if first is None else first
        draft = directory / f".{number:09d}"
        pq.write_table(rows, draft)
        draft.rename(directory / f"{number:09d}.parquet")

    # -- a driver ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _driver(self, master: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A driver, which is ended in the end; `master` is another than the cluster's."""
        self.lives += 1
        self.summary.restarts += self.lives > 1
        with (self.places.root / "driver.log").open("ab") as log:
            log.write(f"=== life {self.lives}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "soak.job", str(self.places.root), master or self.cluster.master, *self.queries],
                stdout=log,
                stderr=log,
                env=self.cluster.environment,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            end(process)

    def _last_life(self) -> None:
        """A driver that nobody disturbs must come to its end."""
        with self._driver() as driver:
            code = self._wait(driver)
        if code:
            raise HarnessFault(f"the last driver ended with {code}: {self._tail()}")

    def _wait(self, driver: subprocess.Popen[bytes]) -> int:
        """Wait until a driver ends by itself; one that makes no micro-batch for long hangs."""
        seen, last = self._commits(), time.monotonic()
        while driver.poll() is None:
            self.watched.sleep(0.2)
            if (now := self._commits()) != seen:
                seen, last = now, time.monotonic()
            if time.monotonic() - last > _PATIENCE:
                self._hangs(driver)
        return int(driver.returncode)

    def _hangs(self, driver: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.kill(driver.pid, signal.SIGUSR1)
            time.sleep(1.0)
        raise HarnessFault(f"a driver has committed no micro-batch for {_PATIENCE:.0f} s: {self._tail()}")

    def _tail(self) -> str:
        return (self.places.root / "driver.log").read_text(errors="replace")[-6000:]

    def _at_work(self, driver: subprocess.Popen[bytes]) -> bool:
        """Wait until a micro-batch was committed in this life; False if the driver ended first."""
        before, begun = self._commits(), time.monotonic()
        while self._commits() == before:
            if driver.poll() is not None:
                return False
            self.watched.sleep(0.05)
            if time.monotonic() - begun > _PATIENCE:
                self._hangs(driver)
        return True

    def _commits(self) -> int:
        """A number that grows with each micro-batch of any query."""
        found = 0
        for name in self.queries:
            numbers = (path.name for path in self.places.checkpoint(name).glob("commits/[0-9]*"))
            found += max((int(n) + 1 for n in numbers if n.isdigit()), default=0)
        return found

    # -- who is killed -----------------------------------------------------------------------------------------------------

    def _life(self, driver: subprocess.Popen[bytes]) -> None:
        """Kill, until a driver is among the victims, or it ends by itself."""
        if self.rng.random() < 0.08:  # at any moment of its start
            self.watched.sleep(self.rng.uniform(1, 6))
            self._kill_driver(driver, "driver")
            return
        if not self._at_work(driver):
            self._ended(driver)
            return
        shares = np.array(list(self.kinds.values()))
        while driver.poll() is None and self._spark_killed < self.spark_kills:
            kind = str(self.rng.choice(list(self.kinds), p=shares / shares.sum()))
            self.watched.sleep(self.rng.uniform(0, 2.0))
            self._tell(30.0)
            if kind == "commit":
                self._kill_in_commit(driver)
                return
            if kind.startswith("driver"):
                self._kill_driver_or_jvm(driver, kind)
                return
            if kind in ("postgresql", "kafka"):
                self._kill_server(kind)
                continue
            victims = _executors() if kind == "executor" else _workers()
            if victims:
                self._kill(victims[self.rng.integers(len(victims))], kind)
        self._ended(driver)

    def _ended(self, driver: subprocess.Popen[bytes]) -> None:
        """Count a driver that ended by itself: at the end of its input, or by an error, from which the next one goes on."""
        if driver.poll() is None or not driver.returncode:
            self._failed = 0
            return
        self.summary.refused["a driver ended by an error"] += 1
        if self._commits() != self._committed:
            self._failed, self._committed = 0, self._commits()
        self._failed += 1
        if self._failed >= _FAILED_LIVES:
            raise HarnessFault(
                f"{self._failed} drivers in a row ended by an error and committed nothing: {self._tail()}"
            )

    def _kill_in_commit(self, driver: subprocess.Popen[bytes]) -> None:
        """Kill the driver when files of a micro-batch are there and the table may not know them yet."""
        before, until = _files(self.places), time.monotonic() + 10
        while not _files(self.places) - before and driver.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        self._kill_driver(driver, "driver, in a commit")

    def _kill_driver_or_jvm(self, driver: subprocess.Popen[bytes], kind: str) -> None:
        victims = [p for p in _children(driver) if _name(p) == "java"] if kind == "driver jvm" else []
        if victims:
            self._kill(victims[0], "driver, its JVM")
            with suppress(subprocess.TimeoutExpired):
                driver.wait(20)
        self._kill_driver(driver, None if victims else "driver")

    def _kill_driver(self, driver: subprocess.Popen[bytes], kind: str | None) -> None:
        """With its whole group: the JVM that it started is in it."""
        if driver.poll() is None and kind:
            self.summary.kills[kind] += 1
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    def _kill(self, process: psutil.Process, kind: str) -> None:
        with suppress(psutil.NoSuchProcess):
            process.kill()
            self.summary.kills[{"worker": "Python worker of Spark"}.get(kind, kind)] += 1

    def _kill_server(self, kind: str) -> None:
        """Kill PostgreSQL or the broker with all its processes; it is back after a moment."""
        server, name = (self.postgresql, "PostgreSQL") if kind == "postgresql" else (self.kafka, "Kafka broker")
        server.kill()
        self.summary.kills[name] += 1
        self.watched.sleep(self.rng.uniform(0, 3))
        server.start()

    # -- long events -------------------------------------------------------------------------------------------------------

    def _long(self, event: str) -> None:
        self.say(event)
        if event.startswith("two drivers"):
            self._two_drivers()
        else:
            with self._driver() as driver:
                if self._at_work(driver):
                    self._stop(driver, "workers" in event)
                    self._wait(driver)
                self._ended(driver)
        self.summary.events[event] += 1

    def _two_drivers(self) -> None:
        """A second driver comes to the checkpoints of one at work: one of them ends, or both do; the next goes on."""
        with self._driver() as first:
            if not self._at_work(first):
                self._ended(first)
                return
            with self._driver("local[2]") as second:
                until = time.monotonic() + 60
                while first.poll() is None and second.poll() is None and time.monotonic() < until:
                    self.watched.sleep(0.2)
                for driver in (first, second):
                    if driver.poll() is not None and driver.returncode:
                        self.summary.refused["one of two drivers ended by an error"] += 1
                self.watched.sleep(self.rng.uniform(0, 5))  # the other goes on
                for driver in (second, first):
                    self._kill_driver(driver, "driver, one of two")

    def _stop(self, driver: subprocess.Popen[bytes], workers: bool) -> None:
        """Stop a driver, or all Python workers, for a minute."""
        victims = _workers() if workers else [psutil.Process(driver.pid), *_children(driver)]
        for process in victims:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            self.watched.sleep(_STOP)
        finally:
            for process in victims:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    # -- the end -----------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        places, seed, rows = self.places, self.seed, self.rows
        contents = Contents(seed, KEYS)
        judges: dict[str, Callable[[], Verdict]] = {
            "sales": lambda: judge_sales(places, contents, rows["sales"], seed, FILE_ROWS),
            "orders": lambda: judge_orders(places, contents, self._loaded(), rows["orders"], seed, FILE_ROWS),
            "pairs": lambda: judge_pairs(places, rows["pairs"], seed, FILE_ROWS),
            "samples": lambda: judge_samples(places, rows["samples"]),
        }
        for name in self.queries:
            verdict = judges[name]()
            self.summary.rows += verdict.rows
            self.summary.lost += verdict.lost
            self.summary.doubled += verdict.doubled
            self.summary.faults += verdict.wrong
            if verdict.lost or verdict.doubled:
                self.summary.faults.append(f"{name}: {verdict.lost} lost, {verdict.doubled} doubled")
            self.say(f"{name}: {verdict.rows:,} rows, {verdict.lost} lost, {verdict.doubled} doubled")

    def _loaded(self) -> list[list[int]]:
        lines = self.postgresql.query("SELECT id, product, price, version FROM orders").splitlines()
        return [[int(value) for value in line.split("|")] for line in lines]


def chaos(
    root: Path, kills: int, seed: int, say: Callable[[str], None] = lambda line: None, **options: object
) -> Summary:
    """Run it in an empty directory until so many were killed; say how it goes. See ChaosRun for the options."""
    return ChaosRun(root, kills, seed, say, **options).run()  # type: ignore[arg-type]


# -- processes of Spark ----------------------------------------------------------------------------------------------------


def _files(places: Places) -> set[str]:
    return {path.name for path in places.table.parent.glob("*/*.parquet")}


def _children(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(driver.pid).children(recursive=True)
    return []


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return str(process.name())
    return ""


def _mine(words: str) -> list[psutil.Process]:
    """Processes below this one whose command has these words."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if words in " ".join(process.cmdline()):
                found.append(process)
    return found


def _executors() -> list[psutil.Process]:
    return _mine("CoarseGrainedExecutorBackend")


def _workers() -> list[psutil.Process]:
    """Python workers; not the daemons that they are forked from."""
    python = _mine("headrace.spark.daemon")
    ids = {process.pid for process in python}
    found = []
    for process in python:
        with suppress(psutil.Error):
            if process.ppid() in ids:
                found.append(process)
    return found
