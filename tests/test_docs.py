"""What the documents show runs, and what they point to exists."""

import importlib
import logging
import re
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace
from headrace.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY = re.compile(r"^```(python|toml|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # right after a block: what that prints
CODE = re.compile(r"^```\w*\n(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"(?<![\w./-])headrace(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"^(?!\.\/)(?:[\w.-]+/)+[\w.-]*$", re.MULTILINE)  # all of an inline code, or of a line
FILE = re.compile(r"(?<![\w./<{$-])(?:[\w.-]+/)*[\w-]+\.py\b|(?<![\w./<{$-])(?:[\w.-]+/)+(?![\w*<{.])")
#: Folders that a path may begin in, as a reader of the page understands it. The first component tells whether it is ours at all.
PLACES = [ROOT, ROOT / "src", ROOT / "src" / "headrace"]
MADE = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if "/" in line.rstrip("/")]
USERS_OWN = {"job.py"}  # a reader's program in an example


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def unset_since(spark, before: set[str]) -> None:
    """The session is that of all tests: settings of a document end with it."""
    for setting in set(spark.conf.getAll) - before:
        spark.conf.unset(setting)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=name)
def test_python_in_documents_runs(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    request.addfinalizer(partial(logging.getLogger("headrace").setLevel, logging.NOTSET))
    text = page.read_text()
    if "pyspark" in text:
        spark = request.getfixturevalue("spark")
        request.addfinalizer(partial(unset_since, spark, set(spark.conf.getAll)))
        # Hadoop has a working directory of its own, which PySpark offers no way to set but its private gateway to Java.
        hadoop = spark._jvm.org.apache.hadoop.fs  # private: see above
        files = hadoop.FileSystem.get(spark._jsc.hadoopConfiguration())  # private: see above
        files.setWorkingDirectory(hadoop.Path(str(tmp_path)))
    if "WAREHOUSE_URL" in text:
        monkeypatch.setenv("WAREHOUSE_URL", request.getfixturevalue("database").url)
    if "KAFKA_SERVERS" in text:
        monkeypatch.setenv("KAFKA_SERVERS", request.getfixturevalue("kafka").servers)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in ANY.finditer(text):
        kind, code = block.groups()
        if kind == "python":
            # blank lines before it, so that a traceback shows the document's own line numbers
            code = "\n" * text.count("\n", 0, block.start(2)) + code
            with redirect_stdout(StringIO()) as out:
                exec(compile(code, name(page), "exec"), namespace)
            if printed := PRINTED.match(text, block.end()):
                assert out.getvalue() == printed.group(1)
        elif kind == "toml":
            Path(code.split("\n")[0].removeprefix("# ")).write_text(code)
        else:
            for command in re.findall(r"^headrace (run .*?)(?: *#.*)?$", code, re.MULTILINE):
                result = CliRunner().invoke(app, command.split())
                assert result.exit_code == 0, (command, result.output)


def found(dotted: str) -> bool:
    """Whether a dotted name is a module, or what attributes lead to from one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        try:
            for attribute in parts[cut:]:
                thing = getattr(thing, attribute)
        except AttributeError:
            return False
        return True
    return False


def exists(path: str) -> bool:
    """Whether a file or folder is there, is made by a command, or is none of ours; a bare name may be anywhere."""
    if path.rstrip("/") in MADE or path.startswith("build/") or path in USERS_OWN:
        return True
    if "/" not in path:
        folders = ("src", "tests", "soak", "reproduction", "benchmarks", "examples")
        return any(next((ROOT / folder).rglob(path), None) for folder in folders)
    ours = [place for place in PLACES if (place / path.split("/")[0]).is_dir()]
    return not ours or any((place / path).exists() for place in ours)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_and_files_that_documents_name_exist(page):
    text = page.read_text()
    code = "\n".join(a or b for a, b in CODE.findall(text))
    missing = [dotted for dotted in MODULE.findall(text) if not found(dotted)]
    missing += [path for path in FILE.findall(code) + PATH.findall(code) if not exists(path)]
    assert missing == []


@pytest.mark.parametrize("public", headrace.__all__)
def test_every_public_name_is_there(public):
    assert getattr(headrace, public) is not None


def test_the_readme_is_found():
    assert ROOT / "README.md" in PAGES
