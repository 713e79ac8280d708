"""Warehouse: the directory of a demonstration, and the rules for starting, resuming and replacing it.

headrace-demo/
  demo.json      the scenario, and whether its sales are all loaded and proved
  products.rel   the relation
  sales          the Delta table
  checkpoint     Spark's checkpoint
  spark.log      Spark's log
  scratch        temporary files
  lock           held while a demonstration runs
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace import files
from headrace.demo.scenario import Scenario
from headrace.errors import BadInput

_NOTE = "demo.json"
_LOCK = "lock"
_TABLE = "sales"
_KIND = "headrace demo"


class Warehouse:
    """A demonstration's directory, locked by this process until it is closed. Make one with `start` or `resume`.

    Example:
        >>> import tempfile
        >>> where = Path(tempfile.mkdtemp()) / "demo"
        >>> with Warehouse.start(where, Scenario(rate=10)) as warehouse:
        ...     warehouse.finished
        False
        >>> with Warehouse.resume(where) as warehouse:
        ...     warehouse.scenario.rate
        10
    """

    def __init__(self, path: Path, scenario: Scenario, lock: int) -> None:
        self.path = path
        self.scenario = scenario
        self.products = path / "products.rel"
        self.table = path / _TABLE
        self.checkpoint = path / "checkpoint"
        self.log = path / "spark.log"
        self.scratch = path / "scratch"  # in the warehouse, so that a killed run leaves no temporary files elsewhere
        self._lock = lock
        files.remove_tree(self.scratch)  # left by a run that was killed
        files.make_directory(self.scratch)

    @classmethod
    def start(cls, path: Path, scenario: Scenario, *, overwrite: bool = False) -> Warehouse:
        """Make an empty warehouse.

        An existing warehouse that is finished or has no sales is replaced, an unfinished one only on request, and a directory
        that is no warehouse never.
        """
        path = path.absolute()
        note = _read_note(path)
        if note is None and files.exists(path) and not (files.is_directory(path) and _is_empty(path)):
            raise BadInput(
                f"{path} was not made by the demo and is left alone; choose another place with --warehouse DIR"
            )
        if note is not None and not (note["finished"] or overwrite) and files.exists(path / _TABLE):
            raise BadInput(
                f"{path} holds a demo that did not finish; go on with --resume, or begin anew with --overwrite"
            )
        files.make_directory(path, parents=True)
        warehouse = cls(path, scenario, _take_lock(path))
        warehouse.mark(finished=False)  # before emptying it, so that a run killed meanwhile counts as unfinished
        warehouse._empty()
        return warehouse

    @classmethod
    def resume(cls, path: Path, **wanted: Any) -> Warehouse:
        """Open the warehouse of an earlier run. A value in `wanted` must be that of its scenario; None accepts any."""
        path = path.absolute()
        note = _read_note(path)
        if note is None:
            raise BadInput(f"{path} holds no demo to resume; start one without --resume")
        scenario = Scenario(**note["scenario"])
        for name, value in wanted.items():
            begun = getattr(scenario, name)
            if value is not None and value != begun:
                raise BadInput(
                    f"--{name} {value} does not go with --resume: this demo was started with {begun}; leave the option"
                    " out, or begin anew with --overwrite"
                )
        return cls(path, scenario, _take_lock(path))

    @property
    def finished(self) -> bool:
        """Whether all sales are loaded and checked."""
        note = _read_note(self.path)
        return note is not None and bool(note["finished"])

    def mark(self, *, finished: bool) -> None:
        """Record atomically whether the run is finished."""
        note = {"kind": _KIND, "finished": finished, "scenario": self.scenario.as_dict()}
        draft = self.path / f"{_NOTE}.draft"
        with files.open_new(draft) as file:
            file.write(json.dumps(note, indent=2).encode())
            file.sync()
        files.replace(draft, self.path / _NOTE)

    def close(self) -> None:
        """Remove temporary files and release the lock."""
        if self._lock >= 0:
            files.remove_tree(self.scratch)
            files.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _empty(self) -> None:
        # Only known names are removed: a file of the user's stays.
        for directory in (self.products, self.table, self.checkpoint):
            if files.exists(directory):
                files.remove_tree(directory, errors=True)
        files.remove(self.log)


def _read_note(path: Path) -> dict[str, Any] | None:
    """Read demo.json; None if the directory is not a warehouse."""
    try:
        note = json.loads(files.read_regular(path / _NOTE))
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) and note.get("kind") == _KIND else None


def _is_empty(path: Path) -> bool:
    # A start that was killed before it wrote demo.json leaves these files, which are empty.
    return set(files.names_in(path)) <= {_LOCK, f"{_NOTE}.draft"}


def _take_lock(path: Path) -> int:
    lock = files.open_lock(path / _LOCK)
    if files.lock(lock):
        return lock
    files.close(lock)
    raise BadInput(f"a demo is running in {path}; wait for its end, or choose another place with --warehouse DIR")
