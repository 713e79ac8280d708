import subprocess
import sys

import pytest

import headrace

HEAVY = ("numba", "numpy", "pandas", "pyarrow", "pyspark", "typer")


@pytest.mark.parametrize("statement", ["import headrace", "from headrace import MemoryBudget, equal"])
def test_import_loads_nothing_heavy(statement):
    code = f"{statement}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_help_loads_neither_arrow_nor_numba():
    code = (
        "import sys; from headrace.cli import app; "
        "print([m for m in ('pyarrow', 'numba', 'pyspark') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Relatoin'"):
        headrace.Relatoin  # noqa: B018


def test_dir_lists_the_public_names():
    assert set(headrace.__all__) <= set(dir(headrace))
