"""Which form of files this process uses: the local one, unless a test puts another in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import BadInput, FileFault
from headrace.files.local import LocalFiles

_form: LocalFiles = LocalFiles()


def files() -> LocalFiles:
    """Return the form of files that is in use."""
    return _form


@contextmanager
def using(form: LocalFiles) -> Iterator[None]:
    """Use another form in the whole process, until the block ends."""
    global _form
    before, _form = _form, form
    try:
        yield
    finally:
        _form = before


class explained:  # noqa: N801 - used as a function, as contextlib's are
    """Raise the system's errors about a disk as `FileFault`, with the name of the file and what to do. Used by ``with``.

    Errors that callers act on (a name that is taken, or not there) stay as they are.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, OSError) and error.errno in FileFault.ADVICE and not isinstance(error, FileFault):
            name = error.filename2 or error.filename or self._path
            raise FileFault(error.errno, error.strerror or "", str(name)) from error


def _umask() -> int:
    text = os.environ.get("HEADRACE_UMASK", "077")
    try:
        bits = int(text, 8)
    except ValueError:
        bits = -1
    if not 0 <= bits <= 0o777:
        raise BadInput(f"HEADRACE_UMASK={text!r} is not a umask; give three octal digits, such as 077 or 027")
    return bits


_PRIVATE = _umask()


def file_mode(*, private: bool = True) -> int:
    """Return the mode of a new file: for its owner alone, unless $HEADRACE_UMASK says otherwise or it is not private."""
    return 0o666 & ~_PRIVATE if private else 0o666


def directory_mode(*, private: bool = True) -> int:
    """Return the mode of a new directory; see `file_mode`."""
    return 0o777 & ~_PRIVATE if private else 0o777
