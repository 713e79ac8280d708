"""The note of which algorithm joins in a query, in the relation's directory, which all executors see under one path.

    relation/batches/<query>/choice-<step>     {"algorithm": "inl", "why": "...", "run": "...", "identity": "...", "file": ...}
    relation/batches/jobs/choice-<step>        of a batch DataFrame

The first task to create the file has chosen for all. A restart of the query has new steps, and chooses again.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace import files
from headrace.clock import WallClock
from headrace.errors import DamagedRelation, RelationReplaced
from headrace.files.checked_json import read_checked
from headrace.relation import Relation
from headrace.relation.batch_versions import batch_notes
from headrace.runlog.files import write_facts

_PREFIX = "choice-"
_JOBS = "jobs"  # in place of a query's id, which is a UUID
_LEVELS = 2  # of a note's name that are its own: the query, and the step
_CURE = "stop the query, remove this file, and start the query again, which chooses anew"
_KEPT = 7 * 86_400.0  # seconds that a note of an earlier run or of a batch job stays: longer than such a job takes


@dataclass(frozen=True)
class Chosen:
    """An algorithm, and why that one."""

    algorithm: str
    why: str


@dataclass(frozen=True)
class ChoiceNote:
    """The file that holds a choice.

    Parameters
    ----------
    path
        Where it is, or will be.
    query
        The streaming query; None for a batch DataFrame.
    relation
        The relation that is joined with; a choice for one that was in its place before is refused.
    """

    path: Path
    query: str | None
    relation: Relation

    def read(self) -> Chosen | None:
        """The choice; None if there is none yet. A damaged one is refused."""
        try:
            note = read_checked(self.path)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise DamagedRelation(self.path, f"{error}; {_CURE}") from error
        try:
            identity, chosen = str(note["identity"]), Chosen(str(note["algorithm"]), str(note["why"]))
        except KeyError as error:
            raise DamagedRelation(self.path, f"it does not say {error}; {_CURE}") from error
        try:
            self.relation.check_identity(identity)
        except RelationReplaced as error:
            raise RelationReplaced(f"{self.path} is a choice for another relation: {error}") from error
        return chosen

    def write(self, choice: Chosen, run: str) -> Chosen | None:
        """Make a choice known, unless another task was first; gives what was chosen, or None where nothing can be written."""
        facts = {"algorithm": choice.algorithm, "why": choice.why, "run": run, "identity": self.relation.identity}
        try:
            files.make_directory(self.path.parent, parents=True)
            if write_facts(self.path, facts, _LEVELS):
                self._remove_old(run)
                return choice
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                return self.read()
            raise
        return self.read()

    def _remove_old(self, run: str) -> None:
        """Remove notes that no task asks for any more: those of earlier runs of the query, and of batch jobs that have ended."""
        since = WallClock().now() - _KEPT
        for path in files.paths_in(self.path.parent, f"{_PREFIX}*"):
            with suppress(OSError, ValueError):
                mine = self.query is not None and read_checked(path).get("run") == run
                if files.status_of(path).st_mtime < since and not mine:
                    files.remove(path)


def noted_choice(relation: Relation, query: str | None, step: str) -> ChoiceNote:
    """The note of a step, in the directory of its relation."""
    return ChoiceNote(batch_notes(relation.path, query or _JOBS) / f"{_PREFIX}{step}", query, relation)
