"""Every section of the benchmarks can be planned, with the sizes of a quick run and those of a whole one."""

import sys

import pytest

from benchmarks import cli
from benchmarks.runner import Runner


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "whole"])
def test_all_sections_are_planned(tmp_path, monkeypatch, quick):
    planned = []

    def run(self, keep):
        plan = self.plan
        places = list(plan.service.places())
        others = [*plan.sampling.all(), *plan.xml.all(), *plan.feeds.all()]
        planned.append([*plan.cells("none"), *plan.progressive.joins(), *others, *places])
        return {"cells": []}

    monkeypatch.setattr(Runner, "run", run)
    monkeypatch.setattr(cli.results, "save", lambda raw, name: tmp_path / name)
    monkeypatch.setattr(cli, "report", lambda file, console: None)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--data", str(tmp_path), *(["--quick"] if quick else [])])
    assert cli.main() == 0
    assert {cell.section for cell in planned[0] if hasattr(cell, "section")} >= {
        "lookup",
        "memory",
        "create",
        "spark-load",
    }
