"""A calibration is measured, kept, and not believed when it is old, foreign or damaged."""

import json
import re
import statistics
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from headrace.bench.measure import calibrate, fitted
from headrace.bench.overheads import measure_overheads
from headrace.clock import ManualClock
from headrace.cost.calibrate import (
    BadCalibration,
    Calibration,
    calibration_file,
    load_calibration,
    machine_facts,
    read_calibration,
)
from headrace.cost.facts import Facts, Machine
from headrace.cost.models import MODELS, predict
from headrace.errors import BadInput, OutsideFailure
from headrace.metrics import Factors, Overhead
from headrace.relation.disk import Disk
from headrace.semistream import ALGORITHMS

NOW = datetime(2030, 5, 1, tzinfo=UTC)


@pytest.fixture
def made(tmp_path):
    return Calibration(
        seek=5e-5,
        transfer=2e-6,
        follow=4e-5,
        seek_in_flight=9e-6,
        transfer_in_flight=2e-6,
        reads={1: 5.2e-5, 64: 2e-4},
        disk="direct",
        factors=Factors(),
        overheads={"ssij": Overhead(1.5, 1e-3, 2e-4)},
        machine=machine_facts(tmp_path),
        date=(NOW - timedelta(days=3)).isoformat(),
    )


def test_a_calibration_comes_back_as_it_was_kept(made, tmp_path):
    path = made.save(tmp_path / "deep" / "c.json")
    assert load_calibration(path, directory=tmp_path, now=NOW) == made
    assert [p.name for p in path.parent.iterdir()] == ["c.json"]
    machine = made.as_machine()
    assert (machine.seek, machine.transfer, machine.follow) == (5e-5, 2e-6, 4e-5)
    assert machine.many == (9e-6, 2e-6)
    assert machine.overhead("ssij") == Overhead(1.5, 1e-3, 2e-4)
    assert machine.overhead("inl") == Overhead()


def test_a_disk_of_a_calibration_has_its_costs(made):
    disk = made.as_disk("buffered")
    assert disk.costs(16384) == (9e-6, 4e-6)
    assert disk.costs(8192, alone=True) == (5e-5, 2e-6)
    assert disk.scan_costs(8192) == (4e-5, 2e-6)
    assert disk.overhead("ssij").steps == 1.5
    assert disk.overhead("meshjoin").iteration > 0  # that of a machine that nobody has measured


def test_it_is_kept_in_the_state_directory(made, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "s"))
    assert made.save() == tmp_path / "s" / "calibration.json" == calibration_file()


def test_a_stale_one_is_noticed(made, tmp_path):
    path = replace(made, date=(NOW - timedelta(days=31)).isoformat()).save(tmp_path / "c.json")
    with pytest.raises(
        BadCalibration, match=r"c\.json is stale: it is 31 days old, 30 are allowed; run `headrace calib"
    ):
        load_calibration(path, now=NOW)
    load_calibration(path, now=NOW, old=timedelta(days=40))


@pytest.mark.parametrize(("name", "value"), [("processor", "Z80"), ("cores", 999), ("device", "/dev/floppy (fat)")])
def test_a_foreign_one_is_noticed(made, tmp_path, name, value):
    path = replace(made, machine=made.machine | {name: value}).save(tmp_path / "c.json")
    with pytest.raises(BadCalibration, match=re.escape(f"c.json is foreign: its {name} is {value!r}, here it is")):
        load_calibration(path, directory=tmp_path, now=NOW)


def test_another_kernel_is_no_other_machine(made, tmp_path):
    path = replace(made, machine=made.machine | {"system": "Linux 9"}).save(tmp_path / "c.json")
    load_calibration(path, directory=tmp_path, now=NOW)


def test_a_missing_one_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(BadCalibration, match=r"no calibration at .*c\.json; run `headrace calibrate`"):
        load_calibration(tmp_path / "c.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[: len(body) // 2],
        lambda body: "[]",
        lambda body: json.dumps(json.loads(body) | {"seek": "fast"}),
        lambda body: json.dumps(json.loads(body) | {"seek": -1.0}),
        lambda body: json.dumps(json.loads(body) | {"format": 99}),
        lambda body: json.dumps(json.loads(body) | {"date": "yesterday"}),
        lambda body: json.dumps(json.loads(body) | {"factors": {"c_Z": 1}}),
        lambda body: json.dumps({k: v for k, v in json.loads(body).items() if k != "reads"}),
    ],
)
def test_a_damaged_one_is_refused_by_name(made, tmp_path, damage):
    path = made.save(tmp_path / "c.json")
    path.write_text(damage(path.read_text()))
    with pytest.raises(BadCalibration, match=r"the calibration .*c\.json is damaged"):
        read_calibration(path)


@pytest.mark.parametrize("cost", [-1e-9, float("nan"), float("inf"), 1e9, "fast", None])
@pytest.mark.parametrize("where", ["follow", "reads", "factors", "overheads"])
def test_no_cost_is_negative_or_no_number(made, tmp_path, where, cost):
    """Models divide by costs and choose by them: one below 0 makes its algorithm the fastest."""
    path = made.save(tmp_path / "c.json")
    body = json.loads(path.read_text())
    if where == "follow":
        body[where] = cost
    elif where == "overheads":
        body[where]["meshjoin"] = {"steps": 1.0, "iteration": cost, "request": 0.0}
    else:
        body[where][next(iter(body[where]))] = cost
    path.write_text(json.dumps(body))
    with pytest.raises(BadCalibration, match=r"the calibration .*c\.json is damaged: .*; run `headrace calibrate`"):
        read_calibration(path)


def test_a_negative_cost_is_named(made):
    with pytest.raises(BadInput, match=r"c_H=-1.0 is not a cost; expected a number from 0 up"):
        replace(made, factors=replace(made.factors, c_H=-1.0))
    with pytest.raises(BadInput, match=r"overheads\['inl'\].request=-0.1 is not a cost"):
        replace(made, overheads={"inl": Overhead(1.0, 0.0, -0.1)})


def test_seek_and_transfer_are_fitted():
    assert fitted({b: 3e-3 + b * 1e-4 for b in (1, 4, 16, 64)}) == pytest.approx((3e-3, 1e-4))
    assert fitted({1: 1.0, 2: 2.1, 4: 4.3})[0] >= 0
    assert fitted({1: 5.0, 64: 4.9})[1] >= 0


def test_a_quick_calibration_really_measures(tmp_path):
    seen = []
    found = calibrate(tmp_path, seconds=0.5, progress=lambda done, total: seen.append((done, total)))
    assert all(0 < value < 1e-3 for value in asdict(found.factors).values())
    # A result is columns of both sides copied; reading a tuple from the stream is a share of a slice.
    assert found.factors.c_S < found.factors.c_O
    assert all(0 < seconds < 1 for seconds in found.reads.values())
    assert found.seek + found.transfer > 0
    assert 0 <= found.follow <= found.seek
    assert found.disk in ("direct", "buffered")
    assert set(found.overheads) == set(MODELS)
    assert all(0.5 <= o.steps <= 3 and o.iteration >= 0 for o in found.overheads.values())
    # An iteration is Python between kernels: it is not free, and takes no tenth of a second. Each algorithm's is what one short
    # run took more than its steps, so one of them may meet a busy moment, but not most. Known steps are tested below.
    spent = [o.iteration + max(0, o.request) for name, o in found.overheads.items() if name != "inl"]
    assert 0 < statistics.median(spent) < 0.1, found.overheads
    assert list(tmp_path.iterdir()) == []
    assert seen[-1][0] == seen[-1][1]
    assert load_calibration(found.save(tmp_path / "c.json"), directory=tmp_path) == found


@pytest.mark.parametrize("algorithm", ["meshjoin", "rmeshjoin", "hybridjoin"])
def test_an_overhead_is_measured_with_the_sizes_that_the_model_takes(tmp_path, monkeypatch, algorithm):
    # Operators on a disk that nobody has measured tune by a guess of their overhead. The model took them to have none: what was
    # fitted belonged to other sizes. Here a run takes exactly what the model says for the sizes that the operator has.
    true = Overhead(1.2, 2e-3, 1e-4)
    seen = []

    def run(name, relation, stream, memory, *, measuring, **options):
        op = ALGORITHMS[name](relation, "k", memory, **options)
        op.offer(stream.open().take(10))
        sizes = (op.sizes.w, op.sizes.b) if "mesh" in name else (op.sizes.k,)
        facts = Facts.of(relation, skew=stream.exponent, stream_bytes=20, machine=machine)
        told = replace(machine, overheads={name: relation.disk.overhead(name)})
        work = predict(name, facts.on(told), memory)
        seen.append((sizes, tuple(work.parameters[p] for p in (("w", "b") if "mesh" in name else ("k",)))))
        return SimpleNamespace(rate=1 / work.work.seconds(true))

    machine = Machine(1e-4, 1e-5, Factors())
    monkeypatch.setattr("headrace.bench.overheads.service_rate", run)
    monkeypatch.setattr("headrace.bench.overheads.MODELS", [algorithm])
    monkeypatch.setattr("headrace.bench.overheads._ROWS", 40_000)
    found = measure_overheads(tmp_path, Disk("buffered", seek=1e-4, transfer=1e-5, factors=Factors()), machine)[
        algorithm
    ]
    assert len(seen) == 3 + 6
    for sizes, modelled in seen:
        assert sizes == pytest.approx(modelled, rel=0.2, abs=2)
    assert found.steps == pytest.approx(true.steps, rel=1e-3)
    assert found.iteration + found.request == pytest.approx(true.iteration + true.request, rel=1e-3)


def test_what_cannot_be_measured_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is not a directory"):
        calibrate(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="seconds=0"):
        calibrate(tmp_path, seconds=0)


class BusyClock(ManualClock):
    """A clock of a machine with so much other work that an hour passes between two looks at it."""

    def now(self) -> float:
        self.advance(4000)
        return super().now()


def test_a_measurement_that_other_work_disturbed_says_so_and_what_to_do(tmp_path):
    with pytest.raises(OutsideFailure) as caught:
        calibrate(tmp_path, seconds=1, clock=BusyClock())
    message = str(caught.value)
    assert message.startswith("the measurement of 1s gave what cannot be, as on a busy machine (")
    assert message.endswith("measure again when less runs here, or for 10 seconds") and "\n" not in message
    assert list(tmp_path.iterdir()) == []
