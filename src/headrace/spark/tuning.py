"""`tune_session`: Spark settings that make micro-batches quicker, each with the measurement that it rests on.

What was measured is in docs/design.md; settings that did not pay are named there, and are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.errors import BadInput, kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

State = Literal["set", "kept", "at start", "left"]
"""set now; the user's own value kept; only a new session can have it; left, since it would not fit this session"""

_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of Spark's, and what became of it."""

    name: str
    before: str | None
    """its value before; None where nobody has set it"""
    after: str | None
    """its value now"""
    advised: str
    """the value that pays"""
    state: State
    why: str
    gain: str


@dataclass(frozen=True)
class Tuning:
    """What `tune_session` did, a setting at a time. Print it, or show it with rich."""

    settings: tuple[Setting, ...]

    @property
    def at_start(self) -> dict[str, str]:
        """Settings for ``SparkSession.builder.config(map=...)``: those that only a new session can have."""
        return {s.name: s.advised for s in self.settings if s.state == "at start"}

    def __str__(self) -> str:
        return "\n".join(f"{s.name}\n  {_outcome(s)}\n  {s.why}; {s.gain}" for s in self.settings)

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table("setting", "what became of it", "why", "measured", title="Spark settings for quick micro-batches")
        for setting in self.settings:
            table.add_row(setting.name, _outcome(setting), setting.why, setting.gain)
        return table


@dataclass(frozen=True)
class _Advice:
    name: str
    value: str
    why: str
    gain: str
    static: bool = False
    """whether only a new session can have it"""
    misfit: Callable[[SparkSession], str | None] | None = None
    """says why it would not fit a session; None where it does"""


def _no_local_checkpoints(session: SparkSession) -> str | None:
    from py4j.protocol import Py4JError

    jvm = session.sparkContext._jvm
    default = str(session.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS"))
    if not default.startswith("file:"):
        return f"files are in {default}, whose renames need Spark's own manager"
    try:
        jvm.org.apache.spark.util.Utils.classForName(_MANAGER, False, False)
    except Py4JError:
        return f"Spark {session.version} has it under another name"
    return None


_ADVICE = (
    _Advice(
        "spark.sql.streaming.checkpointFileManagerClass",
        _MANAGER,
        "for a checkpoint on a local disk Spark's default manager runs the commands `readlink` and `chmod` some 30 times a"
        " micro-batch; this one, also of Spark's, runs fewer by far, and writes, checks and renames the same files",
        "about 100 ms of every micro-batch",
        misfit=_no_local_checkpoints,
    ),
    _Advice(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "100000",
        "rows go to Python in fewer, larger batches; a batch of 100,000 rows of 100 bytes takes 10 MB",
        "for micro-batches above 10,000 rows a task",
    ),
    _Advice(
        "spark.python.daemon.module",
        "headrace.spark.daemon",
        "Python workers are forked from a daemon that has imported what they need, and share its memory",
        "1 to 2 s when a worker starts, some 100 MiB for each but the first",
        static=True,
    ),
)


def tune_session(spark: SparkSession | None = None) -> Tuning:
    """Set what makes micro-batches quicker and was not set by anybody; say what it was, what it is now, and why.

    Queries that are started afterwards have the settings; values that the user has set are never changed.

    Parameters
    ----------
    spark
        The session; None for one that is still to be made: then nothing is set, and `at_start` has all that a session on one
        machine should be made with.

    Example
    -------
    >>> from headrace import tune_session
    >>> tune_session().at_start["spark.python.daemon.module"]
    'headrace.spark.daemon'
    """
    if spark is None:
        return Tuning(tuple(_entry(advice, None, None, "at start") for advice in _ADVICE))
    if not hasattr(spark, "sparkContext"):
        raise BadInput(
            f"spark is a {kind(spark)}, not a SparkSession; give one, or None for the settings of a new session"
        )
    explicit: Mapping[str, str] = {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}
    return Tuning(tuple(_tuned(spark, advice, explicit.get(advice.name)) for advice in _ADVICE))


def _tuned(spark: SparkSession, advice: _Advice, before: str | None) -> Setting:
    if before is not None:
        return _entry(advice, before, before, "kept")
    if advice.static:
        return _entry(advice, None, None, "at start")
    misfit = None if advice.misfit is None else advice.misfit(spark)
    if misfit is not None:
        return _entry(advice, None, None, "left", misfit)
    spark.conf.set(advice.name, advice.value)
    return _entry(advice, None, advice.value, "set")


def _entry(advice: _Advice, before: str | None, after: str | None, state: State, why: str | None = None) -> Setting:
    return Setting(
        name=advice.name,
        before=before,
        after=after,
        advised=advice.value,
        state=state,
        why=why or advice.why,
        gain=advice.gain,
    )


def _outcome(setting: Setting) -> str:
    if setting.state == "set":
        return f"set to {setting.after}"
    if setting.state == "kept":
        return f"kept as it was set: {setting.before}"
    if setting.state == "left":
        return "left as Spark has it"
    return f"give it when the session is made: {setting.advised}"
