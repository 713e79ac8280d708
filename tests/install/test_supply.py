"""What is installed is what was pinned, file by file, and the bill of materials names it."""

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version

import pytest
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

from tests.support.installed_wheel import ROOT

SHA256 = re.compile(r"[0-9a-f]{64}")


def script(name):
    """A file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hashed_pins():
    """The checksums of constraints-hashed.txt, by name and version."""
    text = (ROOT / "constraints-hashed.txt").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {pin: [word.removeprefix("--hash=sha256:") for word in hashes] for pin, *hashes in lines}


def test_every_pin_has_checksums_and_nothing_else_has():
    pins = {line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")}
    hashed = hashed_pins()
    assert set(hashed) == pins
    assert all(hashes and all(map(SHA256.fullmatch, hashes)) for hashes in hashed.values())
    assert "://" not in (ROOT / "constraints-hashed.txt").read_text()


@pytest.mark.parametrize(
    ("tags", "python", "machine", "runs"),
    [
        ("py3-none-any", 11, "aarch64", True),
        ("py2.py3-none-any", 13, "x86_64", True),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", 11, "x86_64", True),
        ("cp311-cp311-manylinux_2_17_x86_64", 12, "x86_64", False),
        ("cp311-cp311-manylinux_2_17_x86_64", 11, "aarch64", False),
        ("cp39-abi3-manylinux_2_28_aarch64", 13, "aarch64", True),
        ("cp313-abi3-manylinux_2_28_aarch64", 12, "aarch64", False),
        ("cp313-cp313t-manylinux_2_28_x86_64", 13, "x86_64", False),
        ("cp311-cp311-musllinux_1_2_x86_64", 11, "x86_64", False),
        ("cp311-cp311-macosx_11_0_arm64", 11, "aarch64", False),
        ("pp311-pypy311_pp73-manylinux_2_17_x86_64", 11, "x86_64", False),
        ("py3-none-manylinux_2_17_x86_64", 12, "x86_64", True),
        ("py3-none-win_amd64", 12, "x86_64", False),
    ],
)
def test_checksums_are_of_the_wheels_that_run_on_our_pythons_and_machines(tags, python, machine, runs):
    assert script("hashes").fits(parse_tag(tags), python, machine) is runs


def test_a_source_is_taken_only_where_there_is_no_wheel():
    hashes = script("hashes")
    files = {"a-1.tar.gz": "s", "a-1-cp39-abi3-manylinux_2_28_x86_64.whl": "x", "a-1-cp39-abi3-win_amd64.whl": "w"}
    assert hashes.chosen(files) == ["s", "x"]
    assert hashes.chosen(files | {"a-1-cp39-abi3-manylinux_2_28_aarch64.whl": "a"}) == ["a", "x"]


@pytest.fixture
def shelf(tmp_path):
    """A directory with the wheel of a package of one file."""
    path = tmp_path / "shelf" / "sluice-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("sluice.py", "gate = 'open'\n")
        wheel.writestr("sluice-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sluice\nVersion: 1.0\n")
        wheel.writestr("sluice-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("sluice-1.0.dist-info/RECORD", "")
    return path


def install(tmp_path, shelf, line):
    pinned = tmp_path / "pinned.txt"
    pinned.write_text(line + "\n")
    place = tmp_path / "installed"
    outside = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf.parent), "PIP_TARGET": str(place)}
    command = [ROOT / "scripts" / "install-pinned", sys.executable, pinned, "--only-pinned"]
    done = subprocess.run(command, env={**os.environ, **outside}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr, (place / "sluice.py").exists()


def test_a_package_with_another_checksum_or_none_is_not_installed(tmp_path, shelf):
    right = hashlib.sha256(shelf.read_bytes()).hexdigest()
    code, said, there = install(tmp_path, shelf, f"sluice==1.0 --hash=sha256:{hashlib.sha256(b'').hexdigest()}")
    assert (code != 0, there) == (True, False)
    assert "DO NOT MATCH THE HASHES" in said
    code, said, there = install(tmp_path, shelf, "sluice==1.0")
    assert (code != 0, there) == (True, False)
    assert "hash" in said.lower()
    assert install(tmp_path, shelf, f"sluice==1.0 --hash=sha256:{right}") == (0, "", True)


def test_setup_and_the_tests_of_other_pythons_install_by_checksums():
    for name in ("setup", "test-python"):
        text = (ROOT / "scripts" / name).read_text()
        assert "scripts/install-pinned" in text
        assert "pip install" not in re.sub(r"^#.*|.*fail .*", "", text, flags=re.MULTILINE)


def test_the_bill_of_materials_names_all_that_runs(tmp_path):
    path = tmp_path / "bill.json"
    assert script("sbom").main([str(path)]) == 0
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["component"]["name"] == "headrace"
    assert bill["metadata"]["timestamp"].endswith("+00:00")
    parts = {part["name"]: part for part in bill["components"]}
    for part in parts.values():
        assert part["type"] == "library"
        assert part["bom-ref"] == part["purl"]
        assert part["purl"].startswith(("pkg:pypi/", "pkg:npm/"))
        assert part["version"]
    assert {"numpy", "pyarrow", "pyspark", "py4j", "deltalake", "httpx", "anyio", "leaflet", "uplot"} <= set(parts)
    assert not {"pytest", "sphinx", "duckdb", "axe-core"} & set(parts)  # for developers
    assert parts["numpy"]["version"] == version("numpy")
    assert all(SHA256.fullmatch(file["hashes"][0]["content"]) for file in parts["leaflet"]["components"])
    references = {part["bom-ref"] for part in parts.values()} | {bill["metadata"]["component"]["bom-ref"]}
    assert {entry["ref"] for entry in bill["dependencies"]} <= references
    assert {ref for entry in bill["dependencies"] for ref in entry["dependsOn"]} <= references
    pinned = {canonicalize_name(pin.split("==")[0]) for pin in hashed_pins()}
    assert {name for name, part in parts.items() if "pypi" in part["purl"]} <= pinned
