"""Third-party files: fetched by name, version and hash, packed by the wheel with their licences, and never in git."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.console import assets

ROOT = Path(__file__).parent.parent.parent
MOST_WHEEL = 5_000_000  # bytes


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("assets_script", ROOT / "scripts" / "assets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PACKAGE = {
    "name": "made-up",
    "version": "1.0.0",
    "use": "console",
    "files": {"dist/a.js": hashlib.sha256(b"good").hexdigest()},
}


def test_a_file_with_another_hash_is_not_installed(script, tmp_path, monkeypatch):
    monkeypatch.setitem(script.PLACES, "console", tmp_path)
    with pytest.raises(ValueError, match=r"dist/a\.js of made-up 1\.0\.0"):
        script.install(PACKAGE, {"dist/a.js": b"bad"})
    assert not list(tmp_path.rglob("*"))
    script.install(PACKAGE, {"dist/a.js": b"good"})
    assert script.complete(PACKAGE)
    (tmp_path / "made-up" / "dist" / "a.js").write_bytes(b"changed")
    assert not script.complete(PACKAGE)


def test_what_cannot_be_fetched_is_said_and_no_failure(script, tmp_path, monkeypatch, capsys):
    manifest = tmp_path / "assets.json"
    manifest.write_text(json.dumps({"packages": [PACKAGE]}))
    monkeypatch.setattr(script, "MANIFEST", manifest)
    monkeypatch.setitem(script.PLACES, "console", tmp_path / "assets")
    monkeypatch.setattr(script, "find_npm", lambda: [sys.executable, "-c", "raise SystemExit(1)"])
    assert script.main() == 0
    assert "no made-up" in capsys.readouterr().err


def test_the_manifest_names_versions_hashes_and_licences():
    packages = json.loads((assets.HERE / "assets.json").read_text())["packages"]
    for package in packages:
        assert set(package) == {"name", "version", "license", "use", "files"}
        assert "LICENSE" in package["files"]
        assert all(len(sha256) == 64 for sha256 in package["files"].values())
    assert "://" not in (assets.HERE / "assets.json").read_text()


def test_what_is_there_is_what_the_manifest_names():
    if assets.missing():
        pytest.skip(f"make setup could not fetch {', '.join(assets.missing())}")
    for asset in assets.manifest():
        assert hashlib.sha256((assets.PLACE / asset.path).read_bytes()).hexdigest() == asset.sha256


def test_git_has_none_of_them():
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert not [
        path
        for path in tracked
        if path.startswith(("src/headrace/console/assets/", "tests/.assets/", "tests/console/screenshots/"))
    ]


def test_the_wheel_is_small_and_has_pages_and_third_party_files(tmp_path):
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < MOST_WHEEL
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    ours = {"pages/index.html", "pages/desk.js", "pages/desk.css", "pages/icon.svg", "assets.json"}
    assert {f"headrace/console/{name}" for name in ours} <= names
    if not assets.missing():
        assert {f"headrace/console/assets/{asset.path}" for asset in assets.manifest()} <= names
    assert not [name for name in names if "axe" in name]
