"""A PostgreSQL of our own, for a comparison and for tests: a cluster in a directory that is gone later, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from headrace.errors import BadInput

_PROGRAMS = ("initdb", "pg_ctl", "psql")
_USERS = ("postgres", "nobody")  # it refuses to run as root


def find_programs() -> Path | None:
    """Where initdb, pg_ctl and psql are; the newest."""
    candidates = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    candidates += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True
    )
    return next((path for path in candidates if all((path / name).exists() for name in _PROGRAMS)), None)


class PostgreSQL:
    """A server that only this process reaches, over a socket in its own directory.

    Parameters
    ----------
    settings
        Of the server, by name.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        programs = find_programs()
        if programs is None:
            raise BadInput(
                "PostgreSQL is not installed; run scripts/postgresql (Debian, Ubuntu: apt-get install postgresql), or put"
                " initdb, pg_ctl and psql on the PATH"
            )
        self._programs = programs
        self._settings = {"listen_addresses": "''", **(settings or {})}
        self._user = next((u for u in _USERS if _exists(u)), None) if os.geteuid() == 0 else None
        self._root = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        if self._user:
            shutil.chown(self._root, self._user)

    def __enter__(self) -> PostgreSQL:
        try:
            data = str(self._root / "data")
            self._run("initdb", "-D", data, "-A", "trust", "-U", "headrace", "--no-sync", "-E", "UTF8", "--locale=C")
            self._start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(BadInput):
            self._run("pg_ctl", "-D", str(self._root / "data"), "-m", "immediate", "-w", "stop")
        self._remove()

    def url(self, database: str = "postgres") -> str:
        """For clients on this machine."""
        return f"postgresql://headrace@/{database}?host={self._root}"

    @property
    def version(self) -> str:
        """As it says."""
        return self.query("SHOW server_version")

    def query(self, sql: str, rows: Iterable[str] = (), database: str = "postgres") -> str:
        """What psql prints for a statement: values with | between them. `rows`: for a COPY FROM STDIN."""
        command = [
            str(self._programs / "psql"),
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "headrace",
            "-h",
            str(self._root),
            "-d",
            database,
            "-c",
            sql,
        ]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._root,
            user=self._user,
        ) as process:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.writelines(rows)
            out, err = process.communicate()
        if process.returncode:
            raise BadInput(f"PostgreSQL refuses {sql[:80]!r}: {err.strip()}")
        return out.strip()

    def _start(self) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        options += f" -c unix_socket_directories={self._root}"
        data, log = str(self._root / "data"), str(self._root / "log")
        self._run("pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")

    def _run(self, program: str, *arguments: str) -> None:
        # Not captured: a server that stays would keep a pipe open.
        with (self._root / f"{program}.out").open("w+") as said:
            done = subprocess.run(
                [str(self._programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self._root,
                user=self._user,
                check=False,
            )
            if done.returncode:
                said.seek(0)
                raise BadInput(f"{program} fails with {done.returncode}: {said.read().strip()[-500:]}")

    def _remove(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


def _exists(user: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
