"""Crash states: the calls of a run are recorded, and every state that a power cut may leave is made from them.

After A. Pillai et al., "All file systems are not created equal" (ALICE), OSDI 2014. The model is weaker than any common file
system: until a file is synced, each of its writes may be on disk, be missing, be torn in the middle, or have given the file its
length and no bytes; until a directory is synced, each change of its names may be on disk or not, in any combination.

    recorded calls    create d | write d | fsync d | link d m | sync . | unlink d
    state after 4     names on disk: nothing, or d, or m, or both; bytes of d: all, since it was synced before
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from headrace.files.watched import FileCall, WatchedFiles

T = TypeVar("T")
Damage = Literal["torn", "zeros"]


@dataclass(frozen=True)
class Step:
    """One recorded change, or a mark that the caller made.

    A file has a number, which stays the same whatever names it has.
    """

    kind: Literal[
        "create", "write", "truncate", "fsync", "link", "rename", "exchange", "unlink", "mkdir", "rmdir", "sync", "mark"
    ]
    path: str = ""
    """below the root; of a file: the name under which it was opened"""
    other: str = ""
    file: int = -1
    data: bytes = b""
    offset: int = 0
    size: int = 0

    @property
    def directory(self) -> str:
        """The directory whose names the step changes."""
        return (self.other or self.path).rpartition("/")[0]


class RecordingFiles(WatchedFiles):
    """Local files that note every change below a directory, with its bytes.

    Parameters
    ----------
    root
        The directory. What is there already is on disk: the states begin with it.
    native
        A pattern of names that others write, delta-rs for example: they are noted, unsynced, at the first call after they came.
    """

    def __init__(self, root: Path, native: str | None = None) -> None:
        super().__init__()
        self.native = native
        self.root = root
        self.steps: list[Step] = []
        self.base = Tree.read(root)
        self._names = {
            name: file for file, name in enumerate(sorted(self.base.files))
        }  # names of files, and their numbers
        self.base.number(self._names)
        self._next = len(self._names)
        self._others = set(self.base.directories)  # directories that are known
        self._open: dict[int, int] = {}  # descriptors and the numbers of their files

    def mark(self, label: str) -> None:
        """Note that something was acknowledged: it must be in every state after this step."""
        self.steps.append(Step("mark", label))

    def around(self, call: FileCall, perform: Callable[[], T]) -> T:
        """Make a call, and note what it changed."""
        if not call.path.is_relative_to(self.root):
            return perform()
        self.discover()
        name = str(call.path.relative_to(self.root))
        other = "" if call.other is None else str(call.other.relative_to(self.root))
        fresh = call.name == "open" and bool(call.flags & os.O_CREAT) and not call.path.exists()
        result = perform()
        if call.name == "open":
            assert isinstance(result, int)
            if fresh:
                self._names[name], self._next = self._next, self._next + 1
                self.steps.append(Step("create", name, file=self._names[name]))
            if name in self._names:
                self._open[result] = self._names[name]
        elif call.fd >= 0:
            self._on_file(call, name, result)
        else:
            self._on_names(call.name, name, other)
        return result

    def discover(self) -> None:
        """Note what came without a call of ours."""
        if self.native is None:
            return
        for path in sorted(self.root.rglob(self.native)):
            name = str(path.relative_to(self.root))
            if name in self._names or name in self._others:
                continue
            for parent in [str(p.relative_to(self.root)) for p in path.parents if p.is_relative_to(self.root)][-2::-1]:
                if parent not in self._others:
                    self._others.add(parent)
                    self.steps.append(Step("mkdir", parent))
            if path.is_dir():
                self._others.add(name)
                self.steps.append(Step("mkdir", name))
            else:
                file, self._next = self._next, self._next + 1
                self._names[name] = file
                self.steps += [Step("create", name, file=file), Step("write", name, file=file, data=path.read_bytes())]

    def _on_file(self, call: FileCall, name: str, result: object) -> None:
        file = self._open.get(call.fd, -1)
        if call.name in ("write", "append") and call.data is not None:
            assert isinstance(result, int)
            self.steps.append(Step("write", name, file=file, data=bytes(call.data[:result]), offset=call.offset))
        elif call.name == "truncate":
            self.steps.append(Step("truncate", name, file=file, size=call.size))
        elif call.name == "fsync":
            self.steps.append(Step("fsync", name, file=file))
        elif call.name == "close":
            self._open.pop(call.fd, None)

    def _on_names(self, call: str, name: str, other: str) -> None:
        names = self._names
        match call:
            case "link":
                names[other] = names[name]
                self.steps.append(Step("link", name, other, file=names[name]))
            case "rename" | "rename_exclusively":
                self._move(name, other)
                self.steps.append(Step("rename", name, other))
            case "exchange":
                aside = f"{name}\0"
                self._move(name, aside)
                self._move(other, name)
                self._move(aside, other)
                self.steps.append(Step("exchange", name, other))
            case "unlink":
                names.pop(name, None)
                self.steps.append(Step("unlink", name))
            case "mkdir" | "rmdir":
                (self._others.add if call == "mkdir" else self._others.discard)(name)
                self.steps.append(Step(call, name))
            case "sync_directory":
                self.steps.append(Step("sync", name))

    def _move(self, old: str, new: str) -> None:
        for name in [n for n in self._names if n == old or n.startswith(f"{old}/")]:
            self._names[new + name[len(old) :]] = self._names.pop(name)


@dataclass
class Tree:
    """What is below a directory: names of directories and files, and the bytes of files by number."""

    directories: set[str] = field(default_factory=set)
    files: dict[str, int] = field(default_factory=dict)
    contents: dict[int, bytearray] = field(default_factory=dict)
    _loose: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path) -> Tree:
        """Read what is there."""
        tree = cls()
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_dir() and not path.is_symlink():
                tree.directories.add(name)
            elif path.is_file():
                tree.files[name], tree._loose[name] = -1, path.read_bytes()
        return tree

    def number(self, names: dict[str, int]) -> None:
        """Give files their numbers."""
        self.files = dict(names)
        self.contents = {file: bytearray(self._loose[name]) for name, file in names.items()}

    def copy(self) -> Tree:
        """Copy it; bytes of files are shared until they are written."""
        return Tree(set(self.directories), dict(self.files), dict(self.contents))

    def apply(self, step: Step, damage: Damage | None = None) -> None:
        """Change it as a step does; what a name's change needs and is not there makes it do nothing."""
        match step.kind:
            case "create" | "link":
                self.files[step.other or step.path] = step.file
                self.contents.setdefault(step.file, bytearray())
            case "write":
                before = self.contents.get(step.file, bytearray())
                data = step.data
                if damage == "torn":
                    data = data[: len(data) // 2]
                elif damage == "zeros":
                    data = bytes(len(data))
                after = bytearray(before.ljust(step.offset, b"\0"))
                after[step.offset : step.offset + len(data)] = data
                self.contents[step.file] = after
            case "truncate":
                self.contents[step.file] = bytearray(
                    self.contents.get(step.file, bytearray())[: step.size].ljust(step.size, b"\0")
                )
            case "rename":
                if self._has(step.path):
                    self._drop(step.other)
                    self._move(step.path, step.other)
            case "exchange":
                if self._has(step.path) and self._has(step.other):
                    self._move(step.path, f"{step.path}\0")
                    self._move(step.other, step.path)
                    self._move(f"{step.path}\0", step.other)
            case "unlink":
                self.files.pop(step.path, None)
            case "mkdir":
                self.directories.add(step.path)
            case "rmdir":
                self._drop(step.path)

    def _has(self, name: str) -> bool:
        return name in self.files or name in self.directories

    def _drop(self, name: str) -> None:
        self.files = {n: f for n, f in self.files.items() if not _below(n, name)}
        self.directories = {n for n in self.directories if not _below(n, name)}

    def _move(self, old: str, new: str) -> None:
        self.files = {(new + n[len(old) :] if _below(n, old) else n): f for n, f in self.files.items()}
        self.directories = {(new + n[len(old) :] if _below(n, old) else n) for n in self.directories}

    def reachable(self) -> dict[str, bytes | None]:
        """Names and bytes of what can be reached from the root; None for directories."""
        there: dict[str, bytes | None] = {}
        for name in sorted(self.directories):
            parent = name.rpartition("/")[0]
            if not parent or parent in there:
                there[name] = None
        for name, file in self.files.items():
            parent = name.rpartition("/")[0]
            if not parent or parent in there:
                there[name] = bytes(self.contents.get(file, b""))
        return there

    def write(self, root: Path) -> None:
        """Make it below a directory, which is emptied first."""
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for name, data in self.reachable().items():
            if data is None:
                (root / name).mkdir()
            else:
                (root / name).write_bytes(data)


@dataclass(frozen=True)
class CrashState:
    """A state that a power cut may leave."""

    after: int
    """steps that were made before the power cut"""
    lost: tuple[int, ...]
    """of these, the ones that are not on disk"""
    damaged: tuple[int, Damage] | None
    """a write that is there in part"""
    acknowledged: tuple[str, ...]
    """marks before the power cut"""
    tree: Tree

    def __str__(self) -> str:
        broken = "" if self.damaged is None else f", step {self.damaged[0]} {self.damaged[1]}"
        return f"after step {self.after}, without {list(self.lost)}{broken}"


def crash_states(
    base: Tree, steps: list[Step], *, bound: int = 64, seed: int = 0, ignored_sync: int | None = None
) -> Iterator[CrashState]:
    """Give every state that a power cut may leave, each once for what was acknowledged by then.

    Parameters
    ----------
    bound
        Most combinations of lost steps after each step; beyond it a random choice is made among those of more than two.
    seed
        Of that choice.
    ignored_sync
        The number of an `fsync` or `sync` step that the disk did not carry out, though it said so.
    """
    seen: set[bytes] = set()
    rng = np.random.default_rng(seed)
    marks: tuple[str, ...] = ()
    for after in range(len(steps) + 1):
        if after and steps[after - 1].kind == "mark":
            marks += (steps[after - 1].path,)
        pending = _pending(steps[:after], ignored_sync)
        for lost, damaged in _choices(steps, pending, bound, rng):
            tree = base.copy()
            for number, step in enumerate(steps[:after]):
                if number not in lost:
                    tree.apply(step, damaged[1] if damaged is not None and damaged[0] == number else None)
            digest = _digest(tree, marks)
            if digest not in seen:
                seen.add(digest)
                yield CrashState(after, lost, damaged, marks, tree)


def _pending(steps: list[Step], ignored: int | None) -> list[int]:
    """The changes that no later sync has brought to disk."""
    synced_files: set[int] = set()
    synced_directories: set[str] = set()
    pending: list[int] = []
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        match step.kind:
            case "fsync" if number != ignored:
                synced_files.add(step.file)
            case "sync" if number != ignored:
                synced_directories.add("" if step.path == "." else step.path)
            case "write" | "truncate":
                if step.file not in synced_files:
                    pending.append(number)
            case "create" | "link" | "rename" | "exchange" | "unlink" | "mkdir" | "rmdir":
                if step.directory not in synced_directories:
                    pending.append(number)
    return pending[::-1]


def _choices(
    steps: list[Step], pending: list[int], bound: int, rng: np.random.Generator
) -> Iterator[tuple[tuple[int, ...], tuple[int, Damage] | None]]:
    """Which of the pending steps are lost, and which write is there in part."""
    yield (), None
    yield tuple(pending), None
    for number in pending:
        yield (number,), None
        yield tuple(n for n in pending if n != number), None
    for number in pending:
        if steps[number].kind == "write":
            yield (), (number, "torn")
            yield (), (number, "zeros")
    if 2 ** len(pending) <= bound:
        for size in range(2, len(pending) - 1):
            for lost in combinations(pending, size):
                yield lost, None
    else:
        for _ in range(bound):
            yield tuple(n for n in pending if rng.random() < 0.5), None


def _digest(tree: Tree, marks: tuple[str, ...]) -> bytes:
    digest = hashlib.blake2b(repr(marks).encode())
    for name, data in sorted(tree.reachable().items()):
        digest.update(f"\0{name}\0{'d' if data is None else len(data)}\0".encode())
        digest.update(data or b"")
    return digest.digest()


def _below(name: str, directory: str) -> bool:
    return name == directory or name.startswith(f"{directory}/")
