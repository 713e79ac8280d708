"""Checks of what a caller gave for a Spark DataFrame or a relation, before anything asks it for what only those have."""

from __future__ import annotations

from typing import Any

from headrace.errors import BadInput, kind
from headrace.relation import Relation
from headrace.relation.spark_python import check_worker_python


def check_dataframe(df: Any, name: str = "df", *, otherwise: str = "") -> None:
    """Refuse what is no Spark DataFrame, and say how a frame of another library becomes one, or what does `otherwise`.

    One whose session has workers without Headrace is refused, too.
    """
    if hasattr(df, "sparkSession") and hasattr(df, "isStreaming"):
        check_worker_python(df.sparkSession)
        return
    package = type(df).__module__.split(".")[0]
    if package in ("pandas", "pyarrow"):
        way = f"spark.createDataFrame({name}) makes one{otherwise}"
    elif package == "polars":
        way = f"spark.createDataFrame({name}.to_arrow()) makes one{otherwise}"
    elif package == "pyspark" and hasattr(df, "to_spark"):
        way = f"{name}.to_spark() makes one"
    elif isinstance(df, Relation):
        way = "the stream comes first, and the relation after it"
    else:
        way = "spark.readStream and spark.read make one"
    raise BadInput(f"{name} is a {kind(df)}, not a Spark DataFrame; {way}")


def check_relation(rel: Any, name: str = "rel") -> None:
    """Refuse what is no open relation, and say how to come by one."""
    if isinstance(rel, Relation):
        return
    if isinstance(rel, str) or hasattr(rel, "__fspath__"):
        raise BadInput(f"{name}={str(rel)!r} is a path, not a relation; open it with hr.Relation.open({str(rel)!r})")
    raise BadInput(
        f"{name} is a {kind(rel)}, not a relation; make one of it with hr.Relation.create(path, {name}, key=...), or open one"
        " with hr.Relation.open(path)"
    )
