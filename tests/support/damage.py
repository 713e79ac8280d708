"""Damage: files whose bytes, sizes or kinds are wrong, one at a time, and what whoever uses them makes of it.

Used by `tests/support/programs/damage_files.py`, in a process of its own: what is tried may crash, hang or ask for all memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import HeadraceError

MASKS = (0x01, 0x80, 0xFF)
EVERY = 50_000  # cases of one file at most, also where every byte is asked for: some files have 12,000 bytes, one has 260,000
PATIENCE = 20.0  # seconds for one use of a damaged instance of some kilobytes: it takes milliseconds
SPARSE = 1 << 40  # bytes of a file that has none on disk: whoever reads it whole asks for a terabyte


@dataclass(frozen=True)
class Kind:
    """A kind of thing on disk, how a small one is made, and how it is used.

    Parameters
    ----------
    make
        Makes one in an empty directory. Instances of two seeds have files of the same names, but for those of queries, and none
        with the same content.
    use
        Reads all of it, in the ways in which it is used, and returns what a user can see. It changes nothing.
    files
        Patterns of the files that are of this kind, relative to the directory.
    redundant
        Patterns of files that may have any content without anybody noticing, each with the reason.
    accepts
        Whether a result is right, given the one of the undamaged files.
    beside
        Patterns of files that may be named instead of the damaged one, each with the reason.
    anonymous
        Patterns of files of which nothing says whose they are, each with the reason: those of another instance are not tried.
    """

    name: str
    make: Callable[[Path, int], None]
    use: Callable[[Path], object]
    files: tuple[str, ...] = ("*",)
    redundant: Mapping[str, str] = field(default_factory=dict)
    accepts: Callable[[Any, Any], bool] = lambda sound, found: bool(sound == found)
    beside: Mapping[str, str] = field(default_factory=dict)
    anonymous: Mapping[str, str] = field(default_factory=dict)

    def paths(self, root: Path) -> list[Path]:
        """The files of an instance that are of this kind, sorted."""
        there = sorted(path for path in root.rglob("*") if path.is_file())
        return [path for path in there if matches(path, root, self.files)]


def matches(path: Path, root: Path, patterns: tuple[str, ...] | Mapping[str, str]) -> bool:
    """Whether a path below a directory matches one of some patterns; a star matches slashes too."""
    return any(fnmatch(str(path.relative_to(root)), pattern) for pattern in patterns)


@dataclass
class Report:
    """What became of the cases of one kind."""

    refused: int = 0
    same: int = 0
    """cases in which the result was right all the same"""
    wrong: list[str] = field(default_factory=list)
    files: int = 0

    @property
    def tried(self) -> int:
        """How many cases there were."""
        return self.refused + self.same + len(self.wrong)


class Hangs(BaseException):
    """A use of a damaged instance takes too long. No Exception, so that nothing handles it as an error of its own."""


@dataclass(frozen=True)
class Case:
    """One damage: a context manager that has it on disk, and whether nobody need notice it."""

    path: Path
    what: str
    damage: Callable[[], Any]
    may_pass: bool = False


class Damaged:
    """An instance of a kind that is damaged, again and again, and used.

    Parameters
    ----------
    kind, root
        What it is, and the empty directory that it is made in.
    """

    def __init__(self, kind: Kind, root: Path) -> None:
        self.kind, self.root = kind, root / "own"
        self.root.mkdir(parents=True)
        kind.make(self.root, 1)
        self.foreign = root / "foreign"
        self.foreign.mkdir()
        kind.make(self.foreign, 2)
        self.elsewhere = root / "elsewhere"
        self.elsewhere.mkdir()
        self.sound = kind.use(self.root)
        self.paths = kind.paths(self.root)
        again = kind.use(self.root)
        assert kind.accepts(self.sound, again), "two uses of sound files differ"
        assert self.paths == kind.paths(self.root), "a use leaves files"

    def run(self, cases: Iterator[Case], note: Callable[[str], None]) -> Report:
        """Try cases, one after the other. `note` is told of each before it is tried."""
        report = Report(files=len(self.paths))
        for case in cases:
            note(f"{case.path.relative_to(self.root)}: {case.what}")
            found = self._try(case)
            if found == "refused":
                report.refused += 1
            elif found == "same":
                report.same += 1
            else:
                report.wrong.append(f"{case.path.relative_to(self.root)}: {case.what}: {found}")
        assert self.kind.accepts(self.sound, self.kind.use(self.root)), "the files are not as they were before"
        return report

    def _try(self, case: Case) -> str:
        with case.damage():
            try:
                with _within(PATIENCE):
                    got = self.kind.use(self.root)
            except HeadraceError as error:
                return "refused" if self._names(case.path, str(error)) else f"it is not named: {error!r}"
            except Hangs:
                return "it hangs"
            except BaseException as error:
                return f"{type(error).__name__}: {str(error)[:300]}"
        if not self.kind.accepts(self.sound, got):
            return "another result"
        return "same" if case.may_pass or matches(case.path, self.root, self.kind.redundant) else "nobody noticed"

    def _names(self, path: Path, message: str) -> bool:
        if str(path) in message:
            return True
        others = [p for p in self.paths if matches(p, self.root, self.kind.beside)]
        return any(str(other) in message for other in others)

    def cases(self, how: str, random: Random, most: int | None) -> Iterator[Case]:
        """The cases of a damage: `bytes`, `sizes`, `swaps` or `instead`; all, or a sample of so many."""
        if how == "bytes":
            return self.bytes(random, most)
        every = list({"sizes": self.sizes, "swaps": self.swaps, "instead": self.instead}[how]())
        return iter(every if most is None or most >= len(every) else random.sample(every, most))

    # -- cases -----------------------------------------------------------------------------------------------------------

    def bytes(self, random: Random, most: int | None) -> Iterator[Case]:
        """One wrong byte: every byte with every mask, or about so many cases, some of each file and more of the small ones."""
        for path in self.paths:
            size = path.stat().st_size
            cases = [(at, mask) for at in range(size) for mask in MASKS]
            share = max(8, most // len(self.paths)) if most is not None else min(len(cases), EVERY)
            if share < len(cases):
                ends = [case for case in cases if case[0] < 8 or case[0] >= size - 8]
                some = {*random.sample(ends, min(len(ends), share // 4))}
                cases = sorted(some | {*random.sample(cases, share - len(some))})
            for at, mask in cases:
                yield Case(path, f"byte {at} ^ {mask:#x}", lambda path=path, at=at, mask=mask: flipped(path, at, mask))

    def sizes(self) -> Iterator[Case]:
        """Files that are cut, extended, or followed by themselves."""
        for path in self.paths:
            good = path.read_bytes()
            size = len(good)
            ends = {0, 1, 7, 8, 16, 28, 32, 64, 4095, 4096, 4097, size // 3, size // 2, size - 65, size - 64, size - 28}
            ends |= {size - 9, size - 8, size - 7, size - 4, size - 2, size - 1}
            for end in sorted(end for end in ends if 0 <= end < size):
                yield Case(path, f"cut to {end} of {size} bytes", lambda p=path, new=good[:end]: holding(p, new))
            for more in (b"\0", b"}", bytes(8), bytes(64), bytes(4096), good or b"x"):
                yield Case(path, f"{len(more)} bytes more", lambda p=path, new=good + more: holding(p, new))
            # White space after JSON is none of it.
            yield Case(path, "a line more", lambda p=path, new=good + b"\n": holding(p, new), may_pass=good[:1] == b"{")
            for what, new in {
                "zeros of its size": bytes(size),
                "zeros from the middle on": good[: size // 2] + bytes(size - size // 2),
                "its halves exchanged": good[size // 2 :] + good[: size // 2],
            }.items():
                if new != good:
                    yield Case(path, what, lambda p=path, new=new: holding(p, new))

    def swaps(self) -> Iterator[Case]:
        """Files that are intact, but of another place: of this instance, or of another one."""
        by_suffix: dict[str, list[Path]] = {}
        for path in self.paths:
            by_suffix.setdefault(path.suffix, []).append(path)
        theirs = self.kind.paths(self.foreign)
        by_name = {(path.parent.name, path.name): path for path in theirs}
        foreign = dict(zip(self.paths, theirs, strict=False)) if len(theirs) == len(self.paths) else {}
        for path in self.paths:
            good = path.read_bytes()
            others = [other for other in by_suffix[path.suffix] if other != path]
            same = foreign.get(path) or by_name.get((path.parent.name, path.name))
            if same is not None and not matches(path, self.root, self.kind.anonymous):
                others.append(same)
            for other in others:
                content = other.read_bytes()
                if content != good:
                    where = f"{other.parent.relative_to(self.root.parent)}/{other.name}"
                    yield Case(path, f"the file {where}", lambda p=path, new=content: holding(p, new))

    def instead(self) -> Iterator[Case]:
        """Something else in the place of a file."""
        table = pa.table({"k": [1, 2, 3], "text": ["a", "b", None]})
        parquet, stream, file = (pa.BufferOutputStream() for _ in range(3))
        pq.write_table(table, parquet)
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        contents = {
            "an empty file": b"",
            "a Parquet file": parquet.getvalue().to_pybytes(),
            "an Arrow stream": stream.getvalue().to_pybytes(),
            "an Arrow file": file.getvalue().to_pybytes(),
            "an object": b"{}",
            "a list": b"[]",
            "null": b"null",
            "a number": b"17",
            "facts": json.dumps({"rows": 1, "batch": 1, "facts": [1]}).encode(),
            "brackets": b"[" * 200_000,
            "text": b"dear diary\n",
            "no text": b"\xff\xfe\x00" * 50,
        }
        for path in self.paths:
            for what, content in contents.items():
                yield Case(path, what, lambda p=path, new=content: holding(p, new))
            yield Case(path, "a huge sparse file", lambda p=path: replaced(p, make_sparse))
            copy = self.elsewhere / path.name
            copy.write_bytes(path.read_bytes())
            link = lambda p, copy=copy: p.symlink_to(copy)  # noqa: E731
            yield Case(path, "a link to a sound copy", lambda p=path, link=link: replaced(p, link), may_pass=True)
            for what, make in NO_FILES.items():
                yield Case(path, what, lambda p=path, make=make: replaced(p, make))


# -- damage that is undone -------------------------------------------------------------------------------------------------

_moment = time.time_ns()  # the time of a file's last change, which rises with every change here


def _touched(path: Path) -> None:
    """Give a file a time of its own: the system's clock may show the same one for two changes, and caches compare it."""
    global _moment
    _moment += 1_000_000
    with suppress(OSError):
        os.utime(path, ns=(_moment, _moment), follow_symlinks=False)


@contextmanager
def flipped(path: Path, at: int, mask: int) -> Iterator[None]:
    """One byte of a file is wrong."""
    fd = os.open(path, os.O_RDWR)
    try:
        good = os.pread(fd, 1, at)
        os.pwrite(fd, bytes([good[0] ^ mask]), at)
        _touched(path)
        yield
    finally:
        os.pwrite(fd, good, at)
        os.close(fd)
        _touched(path)


@contextmanager
def holding(path: Path, content: bytes) -> Iterator[None]:
    """A file has another content; it is the same file, as for somebody who has it open."""
    good = path.read_bytes()
    path.write_bytes(content)
    _touched(path)
    try:
        yield
    finally:
        path.write_bytes(good)
        _touched(path)


@contextmanager
def replaced(path: Path, make: Callable[[Path], Any]) -> Iterator[None]:
    """Something else has the name of a file."""
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    try:
        make(path)
        yield
    finally:
        with suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
        aside.rename(path)
        _touched(path)


def make_sparse(path: Path) -> None:
    """Make a file of a terabyte that has nothing on disk."""
    with path.open("wb") as file:
        os.ftruncate(file.fileno(), SPARSE)


def make_socket(path: Path) -> None:
    """Make a socket that nobody listens to. Its address has a hundred bytes at most, so it is made beside and renamed."""
    near = Path(f"/tmp/headrace-{os.getpid()}")
    near.symlink_to(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(near / "s"))
        (path.parent / "s").rename(path)
    finally:
        near.unlink()


NO_FILES: dict[str, Callable[[Path], Any]] = {
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
    "a socket": make_socket,
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
