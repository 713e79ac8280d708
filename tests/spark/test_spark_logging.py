"""What the driver logs of queries, and what workers write to their own stderr when they are asked to."""

import logging
import os
import re
import subprocess
import sys

import pyarrow as pa
import pytest

import headrace as hr
from tests.support.spark_streams import files, source

pytestmark = pytest.mark.spark


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "headrace")
    return lambda: [f"{record.name}: {record.getMessage()}" for record in caplog.records]


def test_the_choice_of_an_algorithm_and_its_memory(spark, said, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2]}), key="k")
    hr.enrich(spark.createDataFrame(pa.table({"k": [1]})), rel, on="k", memory="32m", algorithm="meshjoin")
    (line,) = [line for line in said() if "headrace.spark.enrich: " in line]
    assert f"enrich with {tmp_path}/r on k: meshjoin, 32MiB an executor for " in line


def test_commits_and_what_a_restart_found(spark, said, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": list(range(100))}), key="k")
    df = source(spark, files(tmp_path / "in", pa.table({"k": list(range(50))})))
    for _ in range(2):  # the second run begins again, and finds the first micro-batch in the table
        checkpoint = tmp_path / "checkpoint"
        query = hr.load(
            hr.enrich(df, rel, on="k"), tmp_path / "t", checkpoint=checkpoint, trigger={"availableNow": True}
        )
        query.awaitTermination()
        (checkpoint / "commits" / "0").unlink(missing_ok=True)
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    lines = [line for line in said() if "headrace.spark.delta.load: " in line]
    assert f"{tmp_path}/t: micro-batch 0 is version 1: 50 rows in " in lines[0]
    assert any("micro-batch 0 was committed before a restart; nothing is written again" in line for line in lines[1:])


PROGRAM = """
import sys, pyarrow as pa, headrace as hr
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
rel = hr.Relation.create(sys.argv[1], pa.table({"k": [1, 2, 3]}), key="k")
assert hr.enrich(spark.createDataFrame(pa.table({"k": [1, 9]})), rel, on="k").count() == 1
spark.stop()
"""


@pytest.mark.slow
def test_workers_log_to_their_stderr_when_the_environment_says_so(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "r")]
    given = {**os.environ, "HEADRACE_LOG": "DEBUG", "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=given)
    assert re.search(
        r"DEBUG headrace.spark.enrich_step: micro-batch .*, task \d+: 2 rows, 1 results, 1 hits", run.stderr
    )
    assert "INFO headrace.semistream.base: AdaptiveJoin(" in run.stderr
