"""A scheduler of actors in one process: at every call to the file system and every sleep, a seed says who goes on.

    actor A   open ......... write ............ link
    actor B          lock ......... (killed)
    actor C                              open ......        one order of many; the seed is the order

An actor stands for a process. When it is killed, none of its code makes another call, and what it had open is closed.
"""

from __future__ import annotations

import gc
import os
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from greenlet import getcurrent, greenlet

from headrace.clock import SystemClock, WallClock
from headrace.files.faulty import Killed
from headrace.files.local import LocalFiles
from headrace.files.watched import FileCall, WatchedFiles

T = TypeVar("T")
_MOST_TURNS = 50  # of actors, for each step that may be made: beyond it they only sleep
_BATCH = 4096  # random numbers drawn at a time
_COLLECT = 5000  # turns between two collections of garbage


@dataclass
class Actor:
    """A process of the simulation: what it runs, and the files that it has open."""

    name: str
    run: Callable[[], None]
    green: greenlet | None = None
    dead: bool = False
    open_files: set[int] = field(default_factory=set)
    wakes: float = 0.0
    """when it goes on, by the simulation's clock"""
    steps: int = 0


class SimulatedClock:
    """The clock of a simulation: an actor that sleeps lets others go on, and time passes when all sleep."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        """Seconds since the simulation began."""
        return self._scheduler.time

    def sleep(self, seconds: float) -> None:
        """Let others go on until so many seconds have passed."""
        self._scheduler.sleep(seconds)


class Scheduler(WatchedFiles):
    """Runs actors, one call at a time. It is the form of files while it runs.

    Parameters
    ----------
    seed
        Of all choices.
    kill
        The chance of an actor to be killed at a call.
    jump
        The chance that the wall clock jumps by a day at a call.
    """

    def __init__(self, seed: int, *, kill: float = 0.0, jump: float = 0.0) -> None:
        super().__init__()
        self.seed, self.kill, self.jump = seed, kill, jump
        self.steps = self.kills = self.jumps = 0
        self.time = 0.0
        self.wall = 1.8e9
        self.trace = 0
        """a number that tells the order of all calls"""
        self.failure: BaseException | None = None
        self._rng = np.random.default_rng(seed)
        self._drawn: list[float] = []
        self._actors: list[Actor] = []
        self._main = getcurrent()
        self._of: dict[greenlet, Actor] = {}
        self._over = False
        self._orphans: set[int] = set()  # numbers of files that killed actors had open

    # -- randomness --------------------------------------------------------------------------------------------------------

    def draw(self) -> float:
        """Draw a number from 0 up to 1."""
        if not self._drawn:
            self._drawn = self._rng.random(_BATCH).tolist()
        return self._drawn.pop()

    def below(self, n: int) -> int:
        """Draw a whole number below another."""
        return int(self.draw() * n)

    def _uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=(int(self.draw() * 2**52) << 64) | int(self.draw() * 2**52), version=4)

    # -- actors ------------------------------------------------------------------------------------------------------------

    def spawn(self, name: str, run: Callable[[], None]) -> Actor:
        """Start a process."""
        actor = Actor(name, run)
        if not self._over:
            actor.green = greenlet(lambda: self._life(actor), self._main)
            self._of[actor.green] = actor
            self._actors.append(actor)
        return actor

    def _life(self, actor: Actor) -> None:
        try:
            actor.run()
        except Killed:
            pass
        except BaseException as error:
            self.failure = self.failure or error
        finally:
            actor.dead = True

    def current(self) -> Actor | None:
        """The actor that runs."""
        return self._of.get(getcurrent())

    def run(self, most: int) -> None:
        """Let actors go on until all have ended, so many steps are made, or one has failed."""
        with self._in_place():
            turns = 0
            while self._actors and self.steps < most and self.failure is None:
                turns += 1
                if turns % _COLLECT == 0:
                    gc.collect()
                if turns > _MOST_TURNS * most:
                    raise AssertionError(f"the actors wait for each other: {[actor.name for actor in self._actors]}")
                self._actors = [actor for actor in self._actors if actor.green is not None and not actor.green.dead]
                ready = [actor for actor in self._actors if actor.wakes <= self.time]
                if not ready:
                    if not self._actors:
                        break
                    self.time = min(actor.wakes for actor in self._actors)
                    continue
                actor = ready[self.below(len(ready))]
                assert actor.green is not None
                actor.green.switch()
            self._over = True
            for actor in self._actors:
                self._end(actor)
            if self.failure is None:  # else its traceback holds objects that will close what they had open
                self._close_orphans()
        if self.failure is not None:
            raise self.failure

    def _end(self, actor: Actor) -> None:
        """Kill an actor; it does nothing more."""
        self._die(actor)
        if actor.green:  # it has begun, and not ended
            actor.green.throw(Killed)

    def _die(self, actor: Actor) -> None:
        actor.dead = True
        if actor.open_files:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for fd in actor.open_files:
                os.dup2(nothing, fd, inheritable=False)  # not close: objects that are collected later close the number
            os.close(nothing)
            self._orphans |= actor.open_files
            actor.open_files.clear()

    def _close_orphans(self) -> None:
        """Close what killed actors had open and nothing of theirs has closed: the end of a process would."""
        gc.collect()
        for fd in self._orphans:
            with suppress(OSError):  # closed by an object that was collected
                if os.path.samestat(os.fstat(fd), Path(os.devnull).stat()):
                    os.close(fd)
        self._orphans.clear()

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Names and times come from the seed, so that a run can be repeated.

        Garbage is collected between turns alone: what it closes would be a step of whoever runs at that moment.
        """
        from headrace.files import using

        collects = gc.isenabled()
        gc.disable()
        gc.freeze()  # what was there before is no garbage of the run: looking at it took a sixth of the time
        drawn, told, system = uuid.uuid4, WallClock.now, (SystemClock.now, SystemClock.sleep)
        uuid.uuid4 = self._uuid4
        WallClock.now = lambda _: self.wall + self.time  # type: ignore[method-assign]
        SystemClock.now = lambda _: self.time  # type: ignore[method-assign]
        SystemClock.sleep = lambda _, seconds: self.sleep(seconds)  # type: ignore[method-assign]
        try:
            with using(self):
                yield
        finally:
            uuid.uuid4 = drawn
            WallClock.now = told  # type: ignore[method-assign]
            SystemClock.now, SystemClock.sleep = system  # type: ignore[method-assign]
            gc.unfreeze()
            if collects:
                gc.enable()

    # -- steps -------------------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Let others go on until so many seconds have passed."""
        actor = self.current()
        if actor is None:
            self.time += seconds
            return
        if actor.dead:
            raise Killed
        actor.wakes = self.time + seconds
        self._switch(actor)

    def _switch(self, actor: Actor) -> None:
        self._main.switch()
        if actor.dead:
            raise Killed

    def around(self, call: FileCall, perform: Callable[[], T]) -> T:
        """Let somebody else go on, or not, and then make the call."""
        actor = self.current()
        if actor is None:
            return perform()
        if actor.dead:
            if call.name == "close":
                return perform()
            raise Killed
        self.steps += 1
        actor.steps += 1
        self.trace = zlib.crc32(f"{actor.name} {call.name}".encode(), self.trace)
        self._switch(actor)
        if self.kill and self.draw() < self.kill:
            self.kills += 1
            self._die(actor)
            raise Killed
        if self.jump and self.draw() < self.jump:
            self.jumps += 1
            self.wall += 86_400 if self.draw() < 0.7 else -86_400
        self.time += 1e-4  # a call takes time
        return perform()

    def open(self, path, flags, mode=0o600):  # type: ignore[no-untyped-def]
        """See `LocalFiles`."""
        fd = super().open(path, flags, mode)
        self._orphans.discard(fd)  # the number was closed before
        actor = self.current()
        if actor is not None:
            actor.open_files.add(fd)
        return fd

    def close(self, fd: int) -> None:
        """See `LocalFiles`."""
        super().close(fd)
        actor = self.current()
        if actor is not None:
            actor.open_files.discard(fd)

    def wait_for_lock(self, fd: int, *, shared: bool = False) -> None:
        """See `LocalFiles`: others go on meanwhile."""
        actor = self.current()
        while not LocalFiles.lock(self, fd, shared=shared):
            if actor is None:
                raise AssertionError("a lock is held by an actor, and nobody can give it up")
            self.sleep(1e-3)
