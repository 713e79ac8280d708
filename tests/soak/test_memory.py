"""Memory truth in small: operators in processes of their own, with the rows that were hardest on them, watched from outside."""

import json
from dataclasses import replace

import pytest

from headrace.memory import OVERHEAD
from soak.memory import run
from soak.memory.cells import Cell
from soak.memory.measure import Measured, measure

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("operator", "shape"), [("enrich-hot", "long"), ("progressive-key", "long"), ("window-join", "long")]
)
def test_contract_an_operator_keeps_to_its_budget_and_the_declared_overhead(tmp_path, operator, shape):
    measured = measure(Cell(operator, shape, 16 << 20), 3.0, tmp_path)
    assert measured.fault is None and measured.refused is None
    assert measured.facts["rows_in"] > 0
    assert measured.growth > 4 << 20, "what is counted is not held, or was not seen"


def test_what_is_beyond_is_a_fault_and_a_table_says_so(tmp_path, capsys):
    cell = Cell("reservoir", "wide", 16 << 20)
    most = int(1.05 * cell.budget) + OVERHEAD
    kept = Measured(cell, 1.0, 100 << 20, most, [most], 10, 1, {"rows_in": 5})
    assert kept.fault is None
    beyond = replace(kept, cell=Cell("reservoir", "long", 16 << 20), growth=most + 1)
    assert "grew by 40.8 MiB" in beyond.fault
    died = replace(kept, cell=Cell("reservoir", "many", 16 << 20), facts={"died": "Killed"})
    assert died.fault == "reservoir, many, 16MiB: Killed"
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(m.as_dict()) + "\n" for m in (kept, beyond, died)))
    assert run(["--table", str(raw)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[-1] for line in lines[2:5]] == ["kept |", "exceeded |", "exceeded |"]


def test_a_name_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        run(["--only", "enrichment"])
    assert "'enrichment' is none of enrich, progressive" in capsys.readouterr().err
