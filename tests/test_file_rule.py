"""The rule that only headrace.files touches files: `scripts/check_files.py` finds every way around it, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load_rule():
    spec = importlib.util.spec_from_file_location("check_files", ROOT / "scripts" / "check_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RULE = load_rule()


def found(text):
    """The names of the calls that the rule finds in a text."""
    return [fault.rpartition(": ")[2] for fault in RULE.found_in(Path("some.py"), text)]


@pytest.mark.parametrize(
    "call",
    [
        *(f"{name}(a)" for name in sorted(RULE.FUNCTIONS)),
        *(f"path.{name}()" for name in sorted(RULE.METHODS)),
        "Path(a, b).exists()",
        "(place / name).stat()",
        "self.path.stat(follow_symlinks=False)",
        "path.open('rb')",
        "path.open(mode='w')",
        "path.open(encoding='utf-8')",
        "draft.replace(path)",
        "path.rename(other)",
        "path.write_text(text, encoding='utf-8')",
    ],
)
def test_a_call_that_touches_files_is_found_wherever_it_stands(call):
    assert len(found(call)) == 1
    assert found(f"def f():\n    if x:\n        return [{call} for _ in y]") == found(call)


@pytest.mark.parametrize(
    "text",
    [
        "text.replace('a', 'b')",
        "moment.replace(tzinfo=UTC)",
        "replace(draft, path)",
        "files.exists(path)",
        "exists(path)",
        "self._disk.open(path)",
        "desk.open(number)",
        "frame.rename('a', 'b')",
        "ledger.unlink(shard, batch)",
        "relation.exists(keys)",
        "operator.open(3)",
        "stream.open()",
        "'os.open(path)'",
        "# os.open(path)",
        "import os",
        "os.path.join(a, b)",
        "os.environ.get('HOME')",
        "opened(path)",
        "path.parent / 'lock'",
    ],
)
def test_a_call_that_touches_none_is_not(text):
    assert found(text) == []


def test_a_reason_on_one_of_its_lines_exempts_a_call_and_no_other():
    assert found("path.read_text()  # files: the user's own pipeline") == []
    assert found("sorted(\n    path.glob(\n        pattern\n    )  # files: the user's own data\n)") == []
    assert found("path.read_text()  # files: the user's own\npath.unlink()") == ["path.unlink"]
    assert found("path.read_text()  # of files") == ["path.read_text"]


def test_a_reason_has_words():
    assert found("path.read_text()  # files: ") == ["path.read_text"]
    assert found("path.read_text()  # files: …") == ["path.read_text"]


def test_a_name_that_was_imported_is_known_by_what_it_is():
    assert found("from os import fsync\nfsync(3)") == ["os.fsync"]
    assert found("from shutil import rmtree as gone\ngone(path)") == ["shutil.rmtree"]
    assert found("import os as system\nsystem.open(path, 0)") == ["os.open"]
    assert found("import pyarrow.parquet as parquet\nparquet.read_table(path)") == ["pq.read_table"]
    assert found("from headrace.files import replace, open_new\nreplace(draft, path)\nopen_new(path)") == []
