"""The wheel of this tree, and empty environments that it is installed in."""

import json
import os
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(__file__).parent / "programs"
SMALLEST = "iniconfig"  # a package of a few kilobytes: whether pip reaches a registry at all


def build_wheel(directory: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    (wheel,) = directory.glob("*.whl")
    return wheel


class Environment:
    """A virtual environment of its own. What runs there sees neither this tree nor the libraries of the tests."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory / "venv", symlinks=True)
        self.bin = directory / "venv" / "bin"
        self.place = directory / "place"  # where programs run
        self.place.mkdir()
        self.site = Path(self.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def install(self, *what: object) -> None:
        """Install by the pip of the tests, which need not be installed there. Skips the test if there is no registry."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "--disable-pip-version-check"]
        # Compiling all of every library takes longer than installing it; what is used is compiled when it is imported.
        install = [*pip, "install", "--quiet", "--no-compile", *map(str, what)]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode == 0:
            return
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps", SMALLEST]
        if subprocess.run([*fetch, "--dest", str(self.place)], capture_output=True).returncode:
            pytest.skip(f"pip reaches no registry: {done.stderr.strip().splitlines()[-1]}")
        pytest.fail(done.stderr)

    def borrow_spark(self) -> None:
        """Put the Spark of the tests there, which is half a gigabyte. pip then checks its version as it does any other's."""
        for name in ("pyspark", "py4j"):
            here = Path(str(distribution(name).locate_file("")))
            for path in [here / name, *here.glob(f"{name}-*.dist-info")]:
                (self.site / path.name).symlink_to(path)

    def run(self, *command: object, code: int = 0) -> str:
        """Run a command that was installed there; return what it writes, or what it complains of if that is the wish."""
        program, *arguments = map(str, command)
        done = self.popen([str(self.bin / program), *arguments])
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    def run_program(self, name: str, *arguments: object) -> dict:
        """Run a program of tests/support/programs there; return the JSON that it writes."""
        return json.loads(self.run("python", "-I", PROGRAMS / name, *arguments))

    def popen(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        outside = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "NUMBA"))
        }
        outside |= {"PYSPARK_PYTHON": str(self.bin / "python"), "PYSPARK_DRIVER_PYTHON": str(self.bin / "python")}
        return subprocess.run(command, cwd=self.place, env=outside, capture_output=True, text=True)
