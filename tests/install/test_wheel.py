"""The wheel in empty environments: what it packs, what it says without its extras, and that it works with the lowest versions."""

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import headrace
from headrace.errors import EXTRAS
from tests.support.installed_wheel import PROGRAMS, ROOT, Environment, build_wheel

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_USERS = {
    name: lines for name, lines in PROJECT["optional-dependencies"].items() if name not in ("bench", "docs", "dev")
}
LARGEST = 3 << 20  # bytes of the wheel: 1.7 MB now, of which the console's pages are a third
LOWEST = ROOT / "constraints-lowest.txt"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_SPARK = 'hr.enrich needs pyspark, which is not installed; run: pip install "headrace[spark]"'
#: What somebody has installed already, and pip must leave alone.
OLDER = ["numpy==2.1.3", "pandas==2.2.3", "pyarrow==19.0.1"]


def requirements(lines):
    return [Requirement(line) for line in lines if not line.startswith("headrace[")]


def versions(path):
    """The versions of a file of constraints."""
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    return dict(line.split("==") for line in lines if line)


def readme_program():
    """All that the README shows in Python, as one program that also says which Headrace ran."""
    blocks = PYTHON_BLOCK.findall((ROOT / "README.md").read_text())
    return "\n".join([*blocks, "import headrace", "print(headrace.__file__)"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def lowest(wheel, tmp_path_factory):
    """An environment with the lowest versions of what Headrace always needs; and what is refused there for want of an extra."""
    place = Environment(tmp_path_factory.mktemp("lowest"))
    place.install("--constraint", LOWEST, wheel)
    place.refused = {command: place.run("headrace", *command.split(), code=2) for command in ("run x.toml", "console")}
    return place


def test_ranges_begin_at_the_lowest_versions_and_hold_the_pinned_ones():
    lowest, pinned = (versions(ROOT / name) for name in ("constraints-lowest.txt", "constraints.txt"))
    pinned = {canonicalize_name(name): version for name, version in pinned.items()}
    used = requirements([*PROJECT["dependencies"], *(line for lines in FOR_USERS.values() for line in lines)])
    assert {requirement.name for requirement in used} == set(lowest)
    for requirement in used:
        bounds = {part.operator: part.version for part in requirement.specifier}
        assert set(bounds) == {">=", "<"}, requirement
        assert f"{lowest[requirement.name]}.".startswith(f"{bounds['>=']}."), requirement
        assert re.fullmatch(r"[0.]*", lowest[requirement.name].removeprefix(bounds[">="])), requirement
        assert requirement.specifier.contains(pinned[requirement.name]), requirement


def test_what_is_pinned_is_installed_here():
    every = requirements(
        [*PROJECT["dependencies"], *(x for lines in PROJECT["optional-dependencies"].values() for x in lines)]
    )
    pinned = {canonicalize_name(name): version for name, version in versions(ROOT / "constraints.txt").items()}
    installed = {name: importlib.metadata.version(name) for name in {requirement.name for requirement in every}}
    assert installed == {name: pinned[name] for name in installed}


def test_every_library_of_an_extra_is_known_to_its_error():
    packages = importlib.metadata.packages_distributions()
    for library, extra in EXTRAS.items():
        if library == "py4j":  # PySpark brings it
            continue
        (distribution,) = {canonicalize_name(name) for name in packages[library]}
        assert distribution in {requirement.name for requirement in requirements(FOR_USERS[extra])}, library
    names = {requirement.name for lines in FOR_USERS.values() for requirement in requirements(lines)}
    assert names == {canonicalize_name(packages[library][0]) for library in EXTRAS} - {"py4j"}


def test_the_wheel_packs_the_library_and_nothing_else(wheel):
    assert wheel.stat().st_size < LARGEST
    with zipfile.ZipFile(wheel) as packed:
        names = {
            name for name in packed.namelist() if not name.startswith(f"headrace-{headrace.__version__}.dist-info/")
        }
    caches = [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".nbi", ".nbc"))]
    assert caches == []
    assert {name.split("/")[0] for name in names} == {"headrace"}
    console = ROOT / "src" / "headrace" / "console"
    pages = [path for folder in ("pages", "assets") for path in (console / folder).rglob("*") if path.is_file()]
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("*.java"),
        ROOT / "src" / "headrace" / "py.typed",
        *pages,
    ]
    assert names >= {str(path.relative_to(ROOT / "src")) for path in sources}


def test_without_extras_each_name_says_which_one_it_needs():
    program = subprocess.run(
        [sys.executable, PROGRAMS / "missing_extras.py"], capture_output=True, text=True, check=True
    )
    refused = json.loads(program.stdout)
    assert {kind for kind, _ in refused.values()} == {"MissingExtra"}
    assert refused["hr.enrich"][1] == NO_SPARK
    needs = {
        what: re.fullmatch(r'[\w.]+ needs (\w+), which is not installed; run: pip install "headrace\[(\w+)\]"', said)
        for what, (_, said) in refused.items()
    }
    assert all(needs.values())
    found = {what: " ".join(need.groups()) for what, need in needs.items()}
    wanted = {
        "a Delta table": "deltalake spark",
        "a table of PostgreSQL": "adbc_driver_postgresql postgresql",
        "similar names": "rapidfuzz text",
        "hr.load": "deltalake spark",
        "hr.sql": "httpx feeds",
    }
    assert {what: found[what] for what in wanted} == wanted


@pytest.mark.parametrize(
    ("arguments", "library", "extra"),
    [
        (["run", "sales.toml"], "pyspark", "spark"),
        (["demo"], "deltalake", "spark"),
        (["replay", "state", "table"], "deltalake", "spark"),
        (["console"], "starlette", "console"),
        (["feeds", "list"], "httpx", "feeds"),
        (["sql", "SELECT 1"], "sqlglot", "feeds"),
    ],
)
def test_a_command_says_which_extra_it_needs(arguments, library, extra, tmp_path):
    absent = "from without_extras import hide_extras; hide_extras(); from headrace.cli import app; app()"
    code = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); {absent}"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f'needs {library}, which is not installed; run: pip install "headrace[{extra}]"' in done.stderr


@pytest.mark.slow
def test_extras_that_are_really_absent_are_named(lowest):
    assert (
        'headrace run needs pydantic, which is not installed; run: pip install "headrace[spark]"'
        in lowest.refused["run x.toml"]
    )
    assert (
        'the console needs starlette, which is not installed; run: pip install "headrace[console]"'
        in lowest.refused["console"]
    )


@pytest.mark.slow
def test_oracle_joins_with_the_lowest_versions(lowest):
    seen = lowest.run_program("installed_joins.py", lowest.place)
    assert Path(seen["file"]).is_relative_to(lowest.site)
    constraints = versions(LOWEST)
    assert seen["versions"] == {name: constraints[name] for name in seen["versions"]}
    assert (seen["enriched"], seen["pairs"]) == (8_000, 30_105)


@pytest.mark.slow
def test_the_command_line_with_the_lowest_versions(lowest):
    assert lowest.run("headrace", "--version") == f"headrace {PROJECT['version']}\n"
    assert "relation" in lowest.run("headrace", "--help")
    create_relation(lowest)
    assert json.loads(lowest.run("headrace", "relation", "describe", "r.rel", "--json"))["rows"] == 3
    found = lowest.run("headrace", "relation", "lookup", "r.rel", "2")
    assert "beta" in found and "alpha" not in found
    lowest.run("headrace", "relation", "verify", "r.rel")


@pytest.mark.slow
@pytest.mark.soak
def test_the_readme_runs_beside_older_libraries(wheel, tmp_path):
    place = Environment(tmp_path)
    place.install(*OLDER)
    place.borrow_spark()
    place.install(f"{wheel}[spark]")
    for name, version in (line.split("==") for line in OLDER):
        assert place.run("python", "-c", f"import {name}; print({name}.__version__)").strip() == version
    check_readme(place)


@pytest.mark.slow
@pytest.mark.soak
def test_the_readme_and_each_extra_with_the_lowest_versions(wheel, lowest):
    lowest.borrow_spark()
    lowest.install("--constraint", LOWEST, f"{wheel}[{','.join(FOR_USERS)}]")
    check_readme(lowest)
    seen = lowest.run_program("installed_extras.py")
    assert seen["text"] == [[1, "ada", "adam"]]
    assert "rss('https://example.org/feed')" in seen["feeds"][0]
    assert "127.0.0.1" in seen["postgresql"]
    create_relation(lowest)
    lowest.run("headrace", "tune", "r.rel", "--memory", "1MiB", "--machine", "ssd", "--plot", "rates.png")
    assert (lowest.place / "rates.png").read_bytes().startswith(b"\x89PNG")


def create_relation(place):
    table = "pa.table({'k': [1, 2, 3], 'v': ['alpha', 'beta', 'gamma']})"
    place.run("python", "-c", f"import pyarrow as pa, pyarrow.parquet as pq; pq.write_table({table}, 'r.parquet')")
    place.run("headrace", "relation", "create", "r.parquet", "r.rel", "--key", "k", "--overwrite")


def check_readme(place):
    (place.place / "readme.py").write_text(readme_program())
    said = place.run("python", "-I", "readme.py")
    assert Path(said.splitlines()[-1]).is_relative_to(place.site)
    if "hr.load(" in readme_program():
        (log,) = place.place.rglob("_delta_log")
        count = f"from deltalake import DeltaTable; print(DeltaTable({str(log.parent)!r}).count())"
        assert int(place.run("python", "-c", count)) > 0
