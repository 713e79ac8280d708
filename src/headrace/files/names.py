"""Names of files and directories: created once, replaced at once, removed, listed. What is given a name is on disk."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import FileFault
from headrace.files.current import directory_mode, explained, files


def create_exclusively(draft: Path, path: Path) -> bool:
    """Give a finished file its name, unless another has that name already: then False, and the other stays.

    A hard link fails where the name is taken; a rename would replace what another process committed.
    """
    with explained(path):
        try:
            files().link(draft, path)
        except FileExistsError:
            return False
        files().sync_directory(path.parent)
    return True


def replace(draft: Path, path: Path, *, sync: bool = True) -> None:
    """Give a finished file its name, in the place of the one that has it, at once.

    Parameters
    ----------
    sync
        Whether the name is on disk then; else a power cut may bring the earlier file back.
    """
    with explained(path):
        files().rename(draft, path)
        if sync:
            files().sync_directory(path.parent)


def rename_exclusively(old: Path, new: Path) -> None:
    """Give a file or a directory another name in the same directory; FileExistsError if that is taken."""
    with explained(new):
        files().rename_exclusively(old, new)
        files().sync_directory(new.parent)


def exchange(one: Path, other: Path) -> None:
    """Exchange two names of one directory, so that each is there at any time."""
    with explained(other):
        files().exchange(one, other)
        files().sync_directory(other.parent)


def sync_directory(path: Path) -> None:
    """Have the names in a directory on disk."""
    with explained(path):
        files().sync_directory(path)


def remove(path: Path, *, missing_ok: bool = True) -> None:
    """Remove a file. Nobody waits for that to be on disk: what is removed is in nobody's way if it comes back."""
    with explained(path):
        try:
            files().unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise


def remove_tree(path: Path, *, errors: bool = False) -> None:
    """Remove a directory with all that is in it; a symbolic link is removed, not followed.

    Parameters
    ----------
    errors
        Whether to raise what keeps something from being removed, instead of leaving it.
    """
    try:
        if not is_directory(path, follow=False):
            files().unlink(path)
            return
        for name in files().names(path):
            remove_tree(path / name, errors=errors)
        files().rmdir(path)
    except OSError:
        if errors:
            raise


def make_directory(path: Path, *, parents: bool = False, exist_ok: bool = True, private: bool = True) -> None:
    """Make a directory and have its name on disk.

    Parameters
    ----------
    parents
        Whether to make those above it that are missing.
    exist_ok
        Whether it may be there already.
    private
        Whether it is for its owner alone; else as the process's umask says.
    """
    with explained(path):
        try:
            files().mkdir(path, directory_mode(private=private))
        except FileNotFoundError:
            if not parents:
                raise
            make_directory(path.parent, parents=True, private=private)
            make_directory(path, exist_ok=exist_ok, private=private)
            return
        except FileExistsError:
            if exist_ok and is_directory(path):
                return
            raise
        files().sync_directory(path.parent)


def temporary_directory(place: Path, prefix: str) -> Path:
    """Make a directory for its owner alone, with a name that nobody can guess."""
    path = place / f"{prefix}{uuid.uuid4().hex}"
    with explained(path):
        files().mkdir(path, 0o700)
    return path


def own_directory(path: Path) -> Path:
    """Make a directory for its owner alone, in a place that others can write to; it may be there already, but only if it is ours.

    Who makes a directory first can read and replace what is put into it later. So a link is refused, and what belongs to another
    user, or what others may write to.
    """
    with explained(path):
        try:
            files().mkdir(path, 0o700)
        except FileExistsError:
            found = files().status(path, follow=False)
            if not stat.S_ISDIR(found.st_mode):
                raise FileFault(errno.EPERM, "it is not a directory, or a link to one", str(path)) from None
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise FileFault(errno.EPERM, "another user can write to this directory", str(path)) from None
    return path


@contextmanager
def scratch_directory(prefix: str, place: Path | None = None) -> Iterator[Path]:
    """Use a directory for its owner alone, by default where the system has temporary files; it is gone after the block."""
    path = temporary_directory(Path(tempfile.gettempdir()) if place is None else place, prefix)
    try:
        yield path
    finally:
        remove_tree(path)


def names_in(path: Path) -> list[str]:
    """List the names in a directory, sorted."""
    with explained(path):
        return sorted(files().names(path))


def paths_in(path: Path, pattern: str = "*", *, missing_ok: bool = False) -> list[Path]:
    """List the files and directories in a directory whose names match a pattern, sorted.

    Parameters
    ----------
    missing_ok
        Whether a directory that is not there has nothing in it.
    """
    try:
        names = names_in(path)
    except (FileNotFoundError, NotADirectoryError):
        if missing_ok:
            return []
        raise
    return [path / name for name in names if pattern == "*" or fnmatch.fnmatchcase(name, pattern)]


def files_below(path: Path, pattern: str = "*") -> Iterator[Path]:
    """List the files anywhere below a directory whose names match a pattern; links to directories are not followed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for child in paths_in(path):
            if is_directory(child, follow=False):
                yield from files_below(child, pattern)
            elif fnmatch.fnmatchcase(child.name, pattern):
                yield child


def status(path: Path, *, follow: bool = True) -> os.stat_result | None:
    """Return what the system says of a name; None if nothing has it."""
    with explained(path):
        try:
            return files().status(path, follow=follow)
        except ValueError:  # a NUL, which no name has
            return None
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
                return None
            raise


def status_of(path: Path, *, follow: bool = True) -> os.stat_result:
    """Return what the system says of a name; FileNotFoundError if nothing has it."""
    with explained(path):
        return files().status(path, follow=follow)


def size_of(path: Path) -> int:
    """Return the bytes of a file; FileNotFoundError if nothing has that name."""
    return status_of(path).st_size


def exists(path: Path) -> bool:
    """Whether something has that name."""
    return status(path) is not None


def is_directory(path: Path, *, follow: bool = True) -> bool:
    """Whether a directory has that name, or a link to one if `follow`."""
    found = status(path, follow=follow)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_file(path: Path) -> bool:
    """Whether a regular file has that name, or a link to one."""
    found = status(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def draft_name(path: Path, prefix: str = ".draft-") -> Path:
    """A name for a draft beside a path, which no other draft has."""
    return path.with_name(f"{prefix}{uuid.uuid4().hex}")
