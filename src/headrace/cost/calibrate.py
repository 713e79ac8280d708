"""Calibration: the measured time of reads and of the steps of a join on this machine, kept in a file. [MESH] §3.2, Table 1

    headrace calibrate  ->  <state>/calibration.json  ->  headrace tune, choose

A calibration belongs to a machine and to the device of a directory, and expires: `load_calibration` refuses one that cannot be
trusted.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.cost.facts import Machine
from headrace.errors import BadInput, HeadraceError, shown
from headrace.files import NotRegular, draft_name, make_directory, open_new, read_regular, remove, replace, status_of
from headrace.files.checked_json import dump_checked, parse_checked
from headrace.metrics import Factors, Overhead
from headrace.paths import state_directory
from headrace.relation.disk import Disk, DiskKind

FORMAT = 3  # version of the file's layout; 2 had no checksum
_MOST_BYTES = 1 << 20  # of the file, which has some kilobytes
OLD = timedelta(days=30)  # age at which a calibration is stale: kernels, drivers and disks change
_LONGEST = 3600  # seconds: no read and no step takes an hour; nor does a join take so many times its steps
_TIMES = ("seek", "transfer", "follow", "seek_in_flight", "transfer_in_flight")


class BadCalibration(HeadraceError):
    """The calibration is missing, damaged, stale, or of another machine. The message says which, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The costs measured on a machine.

    Parameters
    ----------
    seek, transfer
        Seconds for a request and for 8 KiB of it, with one request at a time.
    follow
        Seconds for a request that starts where the last one ended, besides its transfer.
    seek_in_flight, transfer_in_flight
        Seconds for a request and for 8 KiB of it, with many requests in flight.
    reads
        c_I/O(b) as measured: seconds of a request by its pages of 8 KiB.
    disk
        direct, or buffered if the file system has no direct reads: then the times are those of the page cache.
    factors
        Seconds of each step of a join: c_E, c_S, c_A, c_H, c_O, c_X.
    overheads
        The time that each algorithm takes besides reads and steps.
    machine
        Processor, cores, kernel, and the device that was read; see `machine_facts`.
    date
        Date and time of the measurement, in UTC.
    """

    seek: float
    transfer: float
    follow: float
    seek_in_flight: float
    transfer_in_flight: float
    reads: dict[int, float]
    disk: str
    factors: Factors
    overheads: dict[str, Overhead]
    machine: dict[str, Any]
    date: str

    def __post_init__(self) -> None:
        costs = {name: getattr(self, name) for name in _TIMES} | asdict(self.factors)
        costs |= {f"reads[{pages}]": seconds for pages, seconds in self.reads.items()}
        for algorithm, overhead in self.overheads.items():
            costs |= {f"overheads[{algorithm!r}].{name}": value for name, value in asdict(overhead).items()}
        for name, value in costs.items():
            # A request that overlaps another may take less than the disk alone: what it takes more is negative then, and yet
            # less than a request takes.
            least = -(self.seek + self.transfer) if name.endswith("].request") else 0
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value < _LONGEST:
                raise BadInput(
                    f"{name}={shown(value)} is not a cost; expected a number from {least} up, below {_LONGEST:,}"
                )

    def as_machine(self) -> Machine:
        """Return the machine that cost models take."""
        many = self.seek_in_flight, self.transfer_in_flight
        return Machine(
            self.seek, self.transfer, self.factors, in_flight=many, follow=self.follow, overheads=self.overheads
        )

    def as_disk(self, kind: DiskKind = "direct") -> Disk:
        """Return a disk with the measured costs; joins of a relation opened on it plan and tune by them."""
        return Disk(
            kind,
            seek=self.seek_in_flight,
            transfer=self.transfer_in_flight,
            factors=self.factors,
            follow=self.follow,
            alone=(self.seek, self.transfer),
            overheads=self.overheads,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the contents of the file."""
        return {"calibration": "headrace", "format": FORMAT, **asdict(self)}

    def age(self, now: datetime) -> timedelta:
        """Return the time since the measurement."""
        return now - datetime.fromisoformat(self.date)

    def save(self, path: Path | None = None) -> Path:
        """Write the calibration, to the state directory by default; an earlier one is replaced atomically."""
        path = path or calibration_file()
        make_directory(path.parent, parents=True)
        draft = draft_name(path)
        try:
            with open_new(draft) as file:
                file.write(dump_checked(self.as_dict()))
                file.sync()
            replace(draft, path)
        finally:
            remove(draft)
        return path


def calibration_file() -> Path:
    """Return the path of the calibration in the state directory."""
    return state_directory() / "calibration.json"


def load_calibration(
    path: Path | None = None, *, directory: Path | None = None, now: datetime | None = None, old: timedelta = OLD
) -> Calibration:
    """Load the calibration; refuses one that is stale or of another machine.

    Parameters
    ----------
    path
        The file; that of the state directory by default.
    directory
        The directory of the relation; a calibration of another device is refused.
    now, old
        The current time, and the age at which a calibration is stale.
    """
    path = path or calibration_file()
    found = read_calibration(path)
    again = "run `headrace calibrate`"
    age = found.age(now or right_now())
    if age > old:
        raise BadCalibration(
            f"the calibration {path} is stale: it is {age.days} days old, {old.days} are allowed; {again}"
        )
    here = machine_facts(directory)
    for name in ("processor", "cores", *(("device",) if directory else ())):
        if found.machine.get(name) != here[name]:
            where = f"run `headrace calibrate --directory {directory}`" if name == "device" else again
            raise BadCalibration(
                f"the calibration {path} is foreign: its {name} is {found.machine.get(name)!r}, here it is {here[name]!r};"
                f" {where}"
            )
    return found


def read_calibration(path: Path) -> Calibration:
    """Read a calibration from its file, whatever its machine and age."""
    try:
        text = read_regular(path, most=_MOST_BYTES)
        body = json.loads(text)
    except FileNotFoundError:
        raise BadCalibration(f"there is no calibration at {path}; run `headrace calibrate`") from None
    except (ValueError, RecursionError, NotRegular) as error:
        raise BadCalibration(f"the calibration {path} is damaged: {error}; run `headrace calibrate`") from error
    try:
        if body.pop("calibration") != "headrace" or body.pop("format") != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        parse_checked(text)
        del body["checksum"]
        body["reads"] = {int(pages): float(seconds) for pages, seconds in body["reads"].items()}
        body["factors"] = Factors(**body["factors"])
        body["overheads"] = {name: Overhead(**parts) for name, parts in body["overheads"].items()}
        found = Calibration(**body)
        found.age(right_now())
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadCalibration(f"the calibration {path} is damaged: {error}; run `headrace calibrate`") from error
    return found


def machine_facts(directory: Path | None) -> dict[str, Any]:
    """Return the facts that identify a machine and, given a directory, its device."""
    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    if directory is not None:
        facts["device"] = _device(directory)
    return facts


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():  # files: of the kernel
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _device(directory: Path) -> str:
    """Return the device and file system of a directory, as the kernel names them, or else the number of the device."""
    number = status_of(directory).st_dev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    try:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():  # files: of the kernel
            mount, _, source = line.partition(" - ")
            if mount.split()[2] == wanted:
                kind, name = source.split()[:2]
                return f"{name} ({kind})"
    except (OSError, IndexError, ValueError):
        pass
    return wanted


def right_now() -> datetime:
    """Return the current date, which dates a calibration and tells its age."""
    return datetime.now(UTC)  # noqa: TID251
