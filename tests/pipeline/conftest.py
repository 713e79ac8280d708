import subprocess
from pathlib import Path

import pytest

from tests.support.pipeline_place import Place


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def mounted(tmp_path):
    """Mounts a small file system of its own: mounted("name", "size=1m") gives its directory, where this user may mount."""
    there = []

    def mount(name: str, options: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], capture_output=True)
        if done.returncode:
            pytest.skip("this user may not mount a file system")
        there.append(directory)
        return directory

    yield mount
    for directory in there:
        subprocess.run(["umount", "-l", directory], check=True)


@pytest.fixture
def read_only(mounted):
    return mounted("read-only", "size=64k,ro")
