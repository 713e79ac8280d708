"""What the documents show runs, and what they point to exists."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace
from headrace.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY = re.compile(r"^```(python|toml|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=name)
def test_python_in_documents_runs(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    if "pyspark" in text:
        spark = request.getfixturevalue("spark")
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
            exec(compile(code, name(page), "exec"), namespace)
        elif kind == "toml":
            Path(code.split("\n")[0].removeprefix("# ")).write_text(code)
        else:
            for command in re.findall(r"^headrace (run .*?)(?: *#.*)?$", code, re.MULTILINE):
                result = CliRunner().invoke(app, command.split())
                assert result.exit_code == 0, (command, result.output)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_exist(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = [link.split("#")[0] for link in LINK.findall(prose)]
    local = [link for link in links if link and "://" not in link]
    missing = [link for link in local if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("public", headrace.__all__)
def test_every_public_name_is_there(public):
    assert getattr(headrace, public) is not None


def test_the_readme_is_found():
    assert ROOT / "README.md" in PAGES
