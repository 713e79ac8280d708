"""The run log of an operator: its directory, the settings that it was created with, and a description of its contents.

state/
  <query>/<operator>/
    log.json                                    format and number of shards; another one is refused
    shard-0000/0000000007.waiting.arrow         state after batch 7; never changed
               0000000001-0000000006.waiting.arrow    state of several batches, compacted
    dead_letter/shard-0000-0000000007.parquet   rows kept for people
"""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace import files
from headrace.errors import BadInput, DamagedLog, OtherLog, RunLogError
from headrace.files.checked_json import parse_checked
from headrace.runlog.files import CURE, count_rows, read_state, write_facts
from headrace.runlog.shard import ShardLog

FORMAT = 2  # 1 had no checksums in small files and kept rows, and is refused
_FACTS = "log.json"
_MOST_FACTS = 1 << 20  # bytes of log.json, which has a few hundred
_MOST_SHARDS = 1 << 20  # more than anybody has: whoever describes a log looks at each
_LONGEST = 120  # bytes of a directory's name; file systems allow 255, and a draft's name may be added
_PATIENCE = 600.0  # seconds that an attempt waits for another to end: longer than a micro-batch should take


class RunLog:
    """What one operator of one query remembers across micro-batches, on disk.

    A task of micro-batch N for shard s writes what it must remember as one file that is never changed, and reads only files of
    earlier batches. The first attempt decides: where a file of (s, N) is there already, its decision stays, and later attempts
    do as it says. A shard is a number computed from the key of a row.

    Parameters
    ----------
    directory
        Where logs are kept, the same for every process that takes part.
    query, operator
        Whose log it is. Any text: it is made safe for a path.
    shards
        How many shards the operator has. It cannot be changed once the log is there.
    division
        What rows are divided by, where that cannot be changed either: pivots of vectors, for example. None asks for nothing.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> log = hr.RunLog(tempfile.mkdtemp(), "my query", "enrich", shards=2)
    >>> rows = pa.table({"k": [1, 2]})
    >>> with log.shard(0) as shard:
    ...     decided = shard.find("waiting", batch=7) or shard.write("waiting", 7, rows.schema, rows.to_batches())
    >>> decided.rows
    2
    >>> with log.shard(0) as shard:
    ...     [file.table().to_pydict() for file in shard.read("waiting", before=8)]
    [{'k': [1, 2]}]
    """

    def __init__(
        self, directory: str | Path, query: str, operator: str, *, shards: int, division: str | None = None
    ) -> None:
        if not isinstance(shards, int) or isinstance(shards, bool) or shards < 1:
            raise BadInput(f"shards={shards!r} is not a number of shards; give 1 or more")
        self.directory = Path(directory)
        self.query, self.operator, self.shards = query, operator, shards
        self.path = self.directory / safe_name("query", query) / safe_name("operator", operator)
        files.make_directory(self.path, parents=True)
        path = self.path / _FACTS
        if not files.exists(path):
            facts = {"log": "headrace", "format": FORMAT, "query": query, "operator": operator, "shards": shards}
            write_facts(path, facts if not division else {**facts, "division": division})
        known = _facts(path)
        there = known["shards"]
        if there != shards:
            raise OtherLog(
                f"the run log at {self.path} has {there} shards, and shards={shards} is asked for; give shards={there}, or"
                " another state directory for a query that starts anew"
            )
        if division is not None and known["division"] != division:
            raise OtherLog(
                f"the run log at {self.path} has rows divided by {known['division'] or 'something else'}, and {division} is asked"
                " for; give the same condition and pivots as before, or another state directory for a query that starts anew"
            )

    def shard(self, number: int, *, patience: float = _PATIENCE) -> AbstractContextManager[ShardLog]:
        """Lock one shard for one attempt. Other attempts wait for the lock, but not longer than `patience` seconds."""
        if not 0 <= number < self.shards:
            raise BadInput(f"shard {number} is not one of the {self.shards} shards of the run log at {self.path}")
        return ShardLog(self.path, number).held(patience)

    def __repr__(self) -> str:
        return f"RunLog({str(self.directory)!r}, {self.query!r}, {self.operator!r}, shards={self.shards})"

    # -- inspection ------------------------------------------------------------------------------------------------------

    @classmethod
    def find(cls, directory: str | Path, query: str | None = None) -> list[RunLog]:
        """Find the logs below a directory, of one query or of all."""
        root = Path(directory)
        queries = files.paths_in(root, missing_ok=True) if query is None else [root / safe_name("query", query)]
        operators = [path for q in queries if files.is_directory(q) for path in files.paths_in(q, missing_ok=True)]
        # A link that leads nowhere is no log that is not there: it is in the place of one.
        named = [path / _FACTS for path in operators if files.status(path / _FACTS, follow=False) is not None]
        facts = [_facts(path) for path in named]
        return [cls(directory, f["query"], f["operator"], shards=f["shards"]) for f in facts]

    def describe(self) -> dict[str, Any]:
        """Count the files, rows and bytes of each kind, and say which micro-batches they are of. Damaged files are refused.

        Nothing is locked: a file that a query or a replay removes meanwhile is not counted.
        """
        state: dict[str, dict[str, int]] = {}
        batches: list[int] = []
        for shard in range(self.shards):
            for kind, entry in ShardLog(self.path, shard).listed():
                with suppress(FileNotFoundError):
                    _count(state, kind, read_state(entry.path).rows, entry.path)
                    batches += [entry.first, entry.last]
        kept: dict[str, dict[str, int]] = {}
        kinds = [kind for kind in files.paths_in(self.path) if files.is_directory(kind)]
        for path in [path for kind in kinds for path in files.paths_in(kind, "shard-*.parquet", missing_ok=True)]:
            with suppress(FileNotFoundError):
                _count(kept, path.parent.name, count_rows(path), path)
        return {
            "query": self.query,
            "operator": self.operator,
            "path": str(self.path),
            "format": FORMAT,
            "shards": self.shards,
            "first_batch": min(batches, default=None),
            "last_batch": max(batches, default=None),
            "state": state,
            "kept": kept,
        }


def find_logs(directory: str | Path) -> list[RunLog]:
    """Find every log below a directory; refuses one that has none."""
    if not files.is_directory(Path(directory)):
        raise RunLogError(f"there is no directory {directory}; give the state= of a query")
    found = RunLog.find(directory)
    if not found:
        raise RunLogError(f"there is no run log below {directory}; give the state= of a query")
    return found


def safe_name(what: str, name: str) -> str:
    """Escape a name for use in a path: the result leads to no other directory, and different names stay different.

    Example
    -------
    >>> safe_name("query", "../etc")
    '%2E%2E%2Fetc'
    """
    if not isinstance(name, str) or not name:
        raise BadInput(f"{what}={name!r} is not a name; give a text")
    safe = quote(name, safe="", errors="surrogatepass").replace(".", "%2E")
    if len(safe) > _LONGEST:
        safe = f"{safe[: _LONGEST - 33]}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"
    return safe


def _facts(path: Path) -> dict[str, Any]:
    try:
        text = files.read_regular(path, most=_MOST_FACTS)
        facts = json.loads(text)
        if facts["log"] != "headrace":
            raise KeyError("log")
        written = int(facts["format"])
        if written != FORMAT:
            raise OtherLog(
                f"the run log at {path.parent} has format {written}, and this Headrace reads format {FORMAT}; go on with the"
                f" Headrace that wrote it, or begin anew with another state directory and checkpoint ({path})"
            )
        facts = parse_checked(text)
        of = safe_name("query", facts["query"]), safe_name("operator", facts["operator"])
        if path.absolute().parts[-3:-1] != of:
            raise DamagedLog(f"{path} is damaged: it is that of the log {'/'.join(of)}; {CURE}")
        return {
            "query": str(facts["query"]),
            "operator": str(facts["operator"]),
            "shards": _shards(facts["shards"]),
            "division": str(facts.get("division", "")),
        }
    except files.NotRegular as error:
        raise DamagedLog(f"{path} is damaged: it is not a regular file; {CURE}") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DamagedLog(f"{path} is damaged: it does not say what log it is of; {CURE}") from error


def _shards(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MOST_SHARDS:
        raise ValueError("shards")
    return number


def _count(into: dict[str, dict[str, int]], kind: str, rows: int, path: Path) -> None:
    size = files.size_of(path)
    counts = into.setdefault(kind, {"files": 0, "rows": 0, "bytes": 0})
    counts["files"] += 1
    counts["rows"] += rows
    counts["bytes"] += size
