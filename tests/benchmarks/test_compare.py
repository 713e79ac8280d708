"""`python -m benchmarks compare`: ratios and the limit, which tree is imported, and the core measured on a small relation."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import headrace
from benchmarks import streams
from benchmarks.compare import cli, measure
from benchmarks.compare.report import report_compare
from benchmarks.runner import RunFailed

HERE = Path(__file__).parents[2]


def raw(*pairs):
    """Raw results of one case: each pair has seconds a batch and MiB, of this tree and of the other."""
    cells = [[{"batch": 10, "samples": [s], "cpu": s, "base": 0, "peak": m << 20} for s, m in pair] for pair in pairs]
    return {
        "other": "a" * 40,
        "machine": {"commit": "b"},
        "parameters": {"limit": 0.03},
        "pairs": [{"section": "core", "case": "one", "this": this, "other": other} for this, other in cells],
    }


@pytest.mark.parametrize(
    ("pairs", "within"),
    [
        ([((1.02, 100), (1.0, 100))], True),
        ([((1.05, 100), (1.0, 100))], False),
        ([((1.0, 105), (1.0, 100))], False),
        ([((1.5, 150), (1.0, 100)), ((1.0, 100), (1.0, 100)), ((1.0, 100), (1.0, 100))], True),  # one round is noise
        ([((0.5, 50), (1.0, 100))], True),
    ],
)
def test_the_limit_is_held_against_the_median_of_the_ratios(pairs, within):
    console = Console(record=True, width=150, quiet=False)
    assert report_compare(raw(*pairs), console) is within
    assert ("within" if within else "beyond") in console.export_text()


def test_options():
    options = cli._parser().parse_args(["HEAD~1", "--limit", "5%", "--rows", "200_000,1000000", "--only", "core"])
    assert (options.limit, options.rows, options.only, options.rounds) == (0.05, [200_000, 1_000_000], "core", 5)
    assert cli._parser().parse_args(["HEAD"]).limit == 0.03


@pytest.mark.skipif(not (HERE / ".git").exists(), reason="needs the repository")
def test_a_revision_is_laid_out_once_by_its_commit(tmp_path):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True)
    tree = cli.checkout("HEAD", tmp_path)
    assert tree.name == commit.stdout.strip()
    assert (tree / "src" / "headrace" / "__init__.py").exists()
    (tree / "compiled").touch()
    assert (cli.checkout("HEAD", tmp_path) / "compiled").exists()


def test_an_unknown_revision_is_refused_by_name(tmp_path):
    console = Console(record=True, width=150)
    assert cli.main(["no-such-revision"], console, tmp_path) == 2
    assert "no revision 'no-such-revision'" in console.export_text()


def test_a_process_that_imports_another_headrace_fails(tmp_path):
    # There is no headrace in this tree, so that Python finds the one that is installed.
    with pytest.raises(RunFailed, match="which is not in"):
        cli._spawn(measure.Task("core", 1_000, str(tmp_path), tree=str(tmp_path)))


@pytest.mark.parametrize("order", ["any", "stream"])
def test_the_core_is_measured(tmp_path, monkeypatch, order):
    monkeypatch.setattr(streams, "STREAM_ROWS", 10_000)
    for name, value in {"BATCH": 1_000, "WARM": 1, "MEASURED": 2, "BUDGET": 100.0}.items():
        monkeypatch.setattr(measure, name, value)
    task = measure.Task("core", 2_000, str(tmp_path), order, tree=str(Path(headrace.__file__).parents[2]))
    task.data.write()
    (made,) = measure.prepare(task)
    (found,) = measure.measure_core(replace(task, relation=made["relation"]))
    assert found["batch"] == 1_000 and len(found["samples"]) == 2
    assert found["peak"] >= found["base"] > 0 and found["cpu"] > 0


def test_a_relation_in_a_format_that_a_tree_cannot_read_is_made_again(tmp_path):
    task = measure.Task("prepare", 1_000, str(tmp_path), tree="/some/tree")
    task.data.write()
    (task.data.directory / "compare").mkdir()
    assert measure.prepare(task) == [{"relation": str(task.data.directory / "compare-tree")}]
