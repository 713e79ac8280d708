"""Write constraints-hashed.txt: every package of constraints.txt with the checksums of the files that may be installed for it.

Those are all wheels for Linux on x86_64 and aarch64 with the Pythons of PYTHONS, and the source where a package has no wheel for
one of them. The addresses and the checksums are asked of the registry that pip is set up with; none is written down.

Hashes are in a file of their own, and not in constraints.txt: a single one there would have pip ask for a hash of everything,
also where a user gives the file as `--constraint` beside a package that has none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pip._internal.commands import create_command
from pip._internal.index.collector import parse_links
from pip._internal.models.link import Link

ROOT = Path(__file__).parents[1]
PINS, HASHED = ROOT / "constraints.txt", ROOT / "constraints-hashed.txt"
PYTHONS = (11, 12, 13)  # of Python 3
MACHINES = ("x86_64", "aarch64")
HEAD = """\
# The packages of constraints.txt with the SHA-256 of each file that make setup may install for them. `make pins` writes it anew.
"""


def main() -> int:
    """Write the file; returns the exit code."""
    pins = [line.split("==") for line in PINS.read_text().split() if "==" in line]
    ask = Registry()
    lines, failed = [HEAD], []
    for name, version in pins:
        found = chosen(ask.files(name, version))
        if not found:
            failed.append(f"{name}=={version}")
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{sum_}" for sum_ in found)]) + "\n")
    if failed:
        sys.stderr.write(f"hashes: the registry has no file, or no SHA-256, for {', '.join(failed)}\n")
        return 1
    HASHED.write_text("".join(lines))
    return 0


def chosen(files: dict[str, str]) -> list[str]:
    """Return the checksums of the files that may be installed, out of those of a release by their names."""
    wheels = {name: parse_wheel_filename(name)[3] for name in files if name.endswith(".whl")}
    targets = [(python, machine) for python in PYTHONS for machine in MACHINES]
    found = {name for name, tags in wheels.items() if any(fits(tags, *target) for target in targets)}
    if not all(any(fits(wheels[name], *target) for name in found) for target in targets):
        found |= {name for name in files if name.endswith((".tar.gz", ".zip"))}
    return sorted(files[name] for name in found)


def fits(tags: Iterable[Tag], python: int, machine: str) -> bool:
    """Whether a wheel with these tags runs on Linux with CPython 3.`python` on such a machine."""
    for tag in tags:
        on_machine = tag.platform == "any" or (
            tag.platform.startswith(("manylinux", "linux")) and tag.platform.endswith(f"_{machine}")
        )
        if on_machine and _is_for(tag, python):
            return True
    return False


def _is_for(tag: Tag, python: int) -> bool:
    kind, number = tag.interpreter[:2], tag.interpreter[2:]
    if tag.abi == "none":
        return number == "3" or (number[:1] == "3" and int(number[1:]) <= python)
    if kind != "cp" or number[:1] != "3":
        return False
    return tag.abi == f"cp3{python}" or (tag.abi == "abi3" and int(number[1:]) <= python)


class Registry:
    """The registry that pip is set up with, asked as pip asks it: it has no public way to list files with their checksums."""

    def __init__(self) -> None:
        command = create_command("install")
        options, _ = command.parse_args(["nothing"])
        self._context = command.main_context()  # kept: pip's session is closed with it
        self._context.__enter__()
        session = command.get_default_session(options)
        self._collector = command._build_package_finder(options, session)._link_collector

    def files(self, name: str, version: str) -> dict[str, str]:
        """Return the SHA-256 of each file of a release, by its name."""
        found: dict[str, str] = {}
        for place in self._collector.search_scope.get_index_urls_locations(canonicalize_name(name)):
            page = self._collector.fetch_response(Link(place))
            for link in parse_links(page) if page is not None else ():
                if link.hash_name == "sha256" and _is_of(link.filename, name, version):
                    found[link.filename] = link.hash
        return found


def _is_of(filename: str, name: str, version: str) -> bool:
    try:
        parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
        its_name, its_version = parse(filename)[:2]
    except (InvalidSdistFilename, InvalidWheelFilename):
        return False
    return its_name == canonicalize_name(name) and its_version == Version(version)


if __name__ == "__main__":
    sys.exit(main())
