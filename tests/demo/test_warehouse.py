"""The warehouse: what is started, resumed, replaced, and left alone."""

import json
import os

import pytest

from headrace.demo.scenario import Scenario
from headrace.demo.warehouse import Warehouse
from headrace.errors import BadInput

SCENARIO = Scenario(rate=10, seconds=2)


def test_a_new_one_and_its_resumption(tmp_path):
    with Warehouse.start(tmp_path / "w", SCENARIO) as made:
        assert not made.finished
        made.table.mkdir()
    with Warehouse.resume(tmp_path / "w") as again:
        assert again.scenario == SCENARIO
        assert again.table.exists()


def test_an_unfinished_one_is_replaced_only_when_told(tmp_path):
    with Warehouse.start(tmp_path / "w", SCENARIO) as made:
        made.table.mkdir()
    with pytest.raises(BadInput, match="--resume, or begin anew with --overwrite"):
        Warehouse.start(tmp_path / "w", SCENARIO)
    assert made.table.exists()
    with Warehouse.start(tmp_path / "w", Scenario(rate=20), overwrite=True) as new:
        assert new.scenario.rate == 20
        assert not new.table.exists()


def test_one_without_sales_is_replaced(tmp_path):
    Warehouse.start(tmp_path / "w", SCENARIO).close()
    with Warehouse.start(tmp_path / "w", Scenario(rate=20)) as new:
        assert new.scenario.rate == 20


def test_a_finished_one_is_replaced_but_not_what_others_put_there(tmp_path):
    with Warehouse.start(tmp_path / "w", SCENARIO) as made:
        made.table.mkdir()
        made.mark(finished=True)
        assert made.finished
    (tmp_path / "w" / "notes.txt").write_text("mine")
    with Warehouse.start(tmp_path / "w", SCENARIO) as new:
        assert not new.finished
        assert not new.table.exists()
    assert (tmp_path / "w" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_the_demos_is_never_touched(tmp_path, overwrite):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "thesis.tex").write_text("years of work")
    (tmp_path / "f").write_text("a file")
    for place in ("w", "f"):
        with pytest.raises(BadInput, match="left alone"):
            Warehouse.start(tmp_path / place, SCENARIO, overwrite=overwrite)
    (tmp_path / "w" / "demo.json").write_text(json.dumps({"kind": "another demo"}))
    with pytest.raises(BadInput, match="left alone"):
        Warehouse.start(tmp_path / "w", SCENARIO, overwrite=overwrite)
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == ["demo.json", "thesis.tex"]


def test_an_empty_directory_will_do(tmp_path):
    (tmp_path / "w").mkdir()
    with Warehouse.start(tmp_path / "w", SCENARIO) as made:
        assert made.path == tmp_path / "w"


def test_nothing_to_resume(tmp_path):
    with pytest.raises(BadInput, match="no demo to resume; start one without --resume"):
        Warehouse.resume(tmp_path / "w")


def test_a_resumption_keeps_the_scenario(tmp_path):
    Warehouse.start(tmp_path / "w", SCENARIO).close()
    Warehouse.resume(tmp_path / "w", rate=10, seconds=None).close()
    with pytest.raises(BadInput, match="--rate 11 does not go with --resume: this demo was started with 10"):
        Warehouse.resume(tmp_path / "w", rate=11)


def test_one_at_a_time(tmp_path):
    with Warehouse.start(tmp_path / "w", SCENARIO):
        for again in (
            lambda: Warehouse.resume(tmp_path / "w"),
            lambda: Warehouse.start(tmp_path / "w", SCENARIO, overwrite=True),
        ):
            with pytest.raises(BadInput, match="a demo is running"):
                again()
    Warehouse.resume(tmp_path / "w").close()


def test_temporary_files_of_a_killed_run_are_removed(tmp_path):
    made = Warehouse.start(tmp_path / "w", SCENARIO)
    (made.scratch / "start-signal").write_text("1")
    os.close(made._lock)  # private: as if killed, when the system lets go of the lock and nothing is tidied up
    made._lock = -1  # private: it must not close a descriptor that is another file's by now
    with Warehouse.resume(tmp_path / "w") as again:
        assert list(again.scratch.iterdir()) == []
    assert not again.scratch.exists()
