"""Progress of long work: there on a terminal, not there elsewhere."""

import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.bench import RelationSpec, make_relation
from headrace.cli.pace import Pace
from headrace.clock import ManualClock
from soak.chaos import ChaosRun
from tests.support.terminal import at_terminal

HEADRACE = [sys.executable, "-c", "from headrace.cli import app; app(prog_name='headrace')"]
ROWS = 100_000


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("progress")
    keys = np.arange(ROWS)
    pq.write_table(pa.table({"id": keys, "name": keys.astype(str)}), place / "in.parquet")
    hr.Relation.create(place / "r.rel", str(place / "in.parquet"), key="id").close()
    return place


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("relation", "create", "in.parquet", "new.rel", "--key", "id", "--overwrite"), f"of {ROWS:,} rows"),
        (("relation", "compact", "r.rel"), f"of {ROWS:,} rows"),
        (("relation", "verify", "r.rel"), "pages"),
        (("calibrate", "--seconds", "0.1"), "figures"),
        (("bench", "service-rate", "--rows", "2000", "--algorithms", "inl", "--memory", "200k"), "of 1 cells"),
    ],
    ids=["create", "compact", "verify", "calibrate", "service-rate"],
)
def test_progress_is_on_a_terminal_and_nowhere_else(place, command, said, monkeypatch):
    monkeypatch.setenv("HEADRACE_STATE", str(place / "state"))
    code, seen = at_terminal([*HEADRACE, *command], cwd=place, error_only=True)
    assert code == 0, seen
    assert said in seen
    piped = subprocess.run([*HEADRACE, *command], cwd=place, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert said not in piped.stdout or "verify" in command  # which says how many pages there are


def test_json_on_a_terminal_has_no_progress_beside_it(place):
    code, seen = at_terminal([*HEADRACE, "relation", "compact", "r.rel", "--json"], cwd=place, error_only=True)
    assert (code, seen) == (0, "")


@pytest.mark.parametrize("order", ["key", "frequency"])
def test_compact_tells_all_rows(ram_path, order):
    rel = hr.Relation.create(ram_path / "r", pa.table({"k": range(5_000)}), key="k")
    popular = None if order == "key" else pa.table({"k": [7], "frequency": [3]})
    told = []
    rel.compact(order=order, popularity=popular, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (5_000, 5_000)
    assert told == sorted(told)


def test_a_relation_that_is_made_to_be_measured_tells_its_rows(ram_path):
    told = []
    make_relation(ram_path, RelationSpec(3_000), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3_000, 3_000)


def test_pace_tells_how_many_how_long_and_how_long_still():
    clock = ManualClock()
    pace = Pace(3, "kills", clock=clock)
    assert pace.words() == "0 of 3 kills · 0s so far"
    clock.advance(100)
    pace.done()
    assert pace.words() == "1 of 3 kills · 1m40s so far, about 3m20s left"
    clock.advance(50)
    pace.done()
    pace.done()
    assert pace.words() == "3 of 3 kills · 2m30s so far"


_SERVICE = """
import sys
from collections import Counter
from types import SimpleNamespace
from pathlib import Path
from rich.console import Console
from benchmarks import cli, runner
from benchmarks.service.plan import ServicePlan

tiny = ServicePlan(rows=2_000, budgets=(0.2,), exponents=(0.0,), machines=("ssd",))
sys.argv[1:] = ["service", "--quick", "--data", sys.argv[1]]
cli.ServicePlan = lambda **given: tiny
cli.results.save = lambda raw, name: Path("none")  # nothing is kept of such a run
cli.report = lambda file, console: None
sys.exit(cli.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("-c", _SERVICE, "{}/data"), "1 of 1 cells · "),
        (
            ("-m", "reproduction", "mesh", "--figure", "5a", "--scale", "0.01", "--docs", "{}", "--relations", "{}/r"),
            "1 of 1 figures · ",
        ),
    ],
    ids=["benchmarks", "reproduction"],
)
def test_programs_of_measurements_tell_each_step(command, said, tmp_path):
    program = [sys.executable, *(part.replace("{}", str(tmp_path)) for part in command)]
    _, seen = at_terminal(program, error_only=True)
    assert said in seen
    assert "so far" in seen
    piped = subprocess.run(program, capture_output=True, text=True, check=False)
    assert "so far" not in piped.stdout + piped.stderr


def test_the_soak_tells_how_many_kills_there_were(tmp_path):
    told = []
    run = ChaosRun(tmp_path, 3, 1, told.append)
    run.plain = SimpleNamespace(check=lambda: None, kills=Counter(writer=2))
    run._tell(0.0)  # what a run does between two kills; a whole one takes minutes
    assert told[0].startswith("2 of 3 kills · ")
    assert "2 without" in told[0]
