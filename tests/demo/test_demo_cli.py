"""``headrace demo`` as a user runs it: to the end, killed and resumed, stopped by Ctrl-C and resumed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.demo.scenario import Scenario
from headrace.demo.totals import expected

SCENARIO = Scenario(rate=5000, seconds=8, products=20_000, seed=4)
OPTIONS = ["--rate", "5000", "--seconds", "8", "--products", "20000", "--seed", "4", "--memory", "8MiB", "--cores", "2"]
PATIENCE = 300  # seconds: the machine may be busy


def start(warehouse: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from headrace.cli import app; app()", "demo", "--warehouse", str(warehouse)]
    # a session of its own: its processes can be killed as a group, and a Ctrl-C reaches them as from a terminal
    return subprocess.Popen(
        [*command, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=warehouse.parent,
        env=os.environ | {"HEADRACE_STATE": str(warehouse.parent / "state"), "COLUMNS": "100"},
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def loaded(warehouse: Path) -> int:
    """Micro-batches that Spark has noted as done."""
    commits = warehouse / "checkpoint" / "commits"
    return len([p for p in commits.glob("*") if p.name.isdigit()]) if commits.exists() else 0


def wait_for_some(process: subprocess.Popen[str], warehouse: Path) -> None:
    limit = time.monotonic() + PATIENCE
    while loaded(warehouse) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit, "no micro-batch was loaded"
        time.sleep(0.05)


def check_proof(code: int, out: str, err: str) -> dict:
    assert code == 0, err
    facts = json.loads(out)
    assert facts["finished"]
    assert all(check["holds"] for check in facts["proof"])
    proof = {check["name"]: check["found"] for check in facts["proof"]}
    wanted = expected(SCENARIO)
    assert {name: proof[name] for name in vars(wanted)} == vars(wanted)
    assert (proof["distinct"], proof["repeated"], proof["foreign"]) == (SCENARIO.sales, 0, 0)
    assert facts["loaded_before"] + facts["loaded"] == SCENARIO.sales
    return facts


def check_summary(code: int, out: str, err: str) -> None:
    """What a person is shown in the end."""
    assert code == 0, err
    assert f"{SCENARIO.sales:,}" in out
    assert "✗" not in out
    assert out.count("✓") == 9
    assert "Traceback" not in err


def nothing_left_of(warehouse: Path) -> None:
    """Every process that knows the warehouse is gone, after a moment."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if str(warehouse) in str(p.info["cmdline"])]
        if not left:
            return
        time.sleep(0.2)
    raise AssertionError(f"still running: {left}")


@pytest.mark.spark
@pytest.mark.slow
def test_to_the_end(ram_path):
    warehouse = ram_path / "w"
    facts = check_proof(*end(start(warehouse, *OPTIONS, "--json")))
    stats = facts["stats"]
    assert stats["tuples_in"] == SCENARIO.sales
    assert stats["unmatched"] == expected(SCENARIO).unmatched
    assert 0 < stats["memory_peak"] <= stats["memory_limit"] == 8 << 20
    assert facts["seconds"] >= 7
    # the command that the summary prints works, wherever it is typed
    shown = subprocess.run(shlex.split(facts["query"]), capture_output=True, text=True, check=True, cwd="/")
    assert "Groceries" in shown.stdout
    assert not (warehouse / "scratch").exists()
    nothing_left_of(warehouse)
    # finished: a resumption only proves it again, without Spark
    again = check_proof(*end(start(warehouse, "--resume", "--json")))
    assert (again["loaded"], again["loaded_before"]) == (0, SCENARIO.sales)
    check_summary(*end(start(warehouse, "--resume")))


@pytest.mark.spark
@pytest.mark.slow
def test_killed_and_resumed_ends_with_the_same_proof(ram_path):
    warehouse = ram_path / "w"
    process = start(warehouse, *OPTIONS, "--json")
    wait_for_some(process, warehouse)
    os.killpg(process.pid, signal.SIGKILL)
    code, out, _ = end(process)
    assert (code, out) == (-signal.SIGKILL, "")
    nothing_left_of(warehouse)
    refused = end(start(warehouse, *OPTIONS, "--json"))
    assert refused[0] == 2
    assert "--resume" in refused[2]
    facts = check_proof(*end(start(warehouse, "--resume", "--json")))
    assert 0 < facts["loaded_before"] < SCENARIO.sales


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_ctrl_c_stops_with_advice_and_resume_goes_on(ram_path, resumed):
    warehouse = ram_path / "w"
    process = start(warehouse, *OPTIONS)
    wait_for_some(process, warehouse)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    code, out, err = end(process)
    assert (code, out) == (130, ""), err
    assert "loading sales: " in err
    assert err.splitlines()[-1].strip() == f"headrace demo --resume --warehouse {warehouse}"
    assert "Traceback" not in err
    nothing_left_of(warehouse)
    if resumed:
        check_summary(*end(start(warehouse, "--resume")))


def run(*args: object):
    return CliRunner().invoke(app, ["demo", *map(str, args)], env={"COLUMNS": "120", "NO_COLOR": "1"})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--rate", 0], "--rate 0 is out of range; give 1 to 10000000 sales a second (60000 if left out)"),
        (["--memory", "lots"], "--memory 'lots' is not a size; give '64MiB'"),
        (["--cores", 0], "--cores 0 is too few; give 1 or more"),
        (["--resume", "--overwrite"], "give one of them"),
        (["--resume"], "holds no demo to resume"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_made(ram_path, args, message):
    result = run("--warehouse", ram_path / "w", *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (ram_path / "w").exists()


def test_help_names_the_options():
    result = run("--help")
    for option in (
        "rate",
        "seconds",
        "products",
        "memory",
        "skew",
        "cores",
        "warehouse",
        "resume",
        "overwrite",
        "json",
    ):
        assert f"--{option}" in result.stdout
