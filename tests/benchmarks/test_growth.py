"""The chart on the front page: figures are taken from raw results, kept in a file, drawn, and said as they are in the README."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.spark import growth

ROOT = Path(__file__).parents[2]


def cell(system, rows, seconds, *, section="beyond", workload="zipf", batch=10_000, limit=3 << 29):
    return {
        "section": section,
        "system": system,
        "rows": rows,
        "workload": workload,
        "batch": batch,
        "memory": 1,
        "limit": limit,
        "method": "cgroup",
        "samples": [(batch, s) for s in seconds],
    }


def raw(*cells, cpu="A chip"):
    return {
        "date": "2026-11-18T10:00:00+00:00",
        "command": "python -m benchmarks beyond",
        "machine": {"cpu": cpu},
        "cells": list(cells),
    }


def test_figures_are_medians_of_ours_and_of_the_best_of_sparks_forms():
    found = growth.figures(
        raw(
            cell("headrace", 10**6, [0.3, 0.1, 0.2]),
            cell("spark-plain", 10**6, [1.5]),
            cell("spark-cached", 10**6, [1.25]),
            cell("headrace", 10**6, [9.0], workload="uniform"),
            cell("headrace", 10**6, [9.0], batch=500_000),
            cell("headrace", 10**7, []),
        )
    )
    assert [(f.rows, f.system, f.milliseconds, f.memory) for f in found] == [
        (10**6, "headrace", 200, "1.5 GiB"),
        (10**6, "spark", 1250, "1.5 GiB"),
    ]
    assert {(f.date, f.machine, f.command) for f in found} == {
        ("2026-11-18", "A chip, local[2]", "python -m benchmarks beyond")
    }


def test_limited_memory_goes_before_the_page_cache():
    cells = [
        cell("headrace", 10**7, [0.5]),
        cell("headrace", 10**7, [0.2], section="spark", limit=0),
        cell("spark-plain", 10**7, [0.1], section="spark", limit=0),
    ]
    kept = {f.place: (f.milliseconds, f.memory) for f in growth.figures(raw(*cells))}
    assert kept == {(10**7, "headrace"): (500, "1.5 GiB"), (10**7, "spark"): (100, "all")}


def test_a_run_replaces_its_figures_and_those_of_other_machines(tmp_path, monkeypatch):
    data, chart = tmp_path / "data" / "figures.csv", tmp_path / "chart.svg"
    monkeypatch.setattr(growth, "DATA", data)
    monkeypatch.setattr(growth, "CHART", chart)
    runs = [
        raw(cell("headrace", 10**6, [0.1]), cell("spark-plain", 10**6, [0.4])),
        raw(cell("headrace", 10**6, [0.3])),
        raw(cell("headrace", 10**7, [0.2]), cpu="Another"),
    ]
    monkeypatch.setattr(growth.results, "load", lambda path: runs[int(path.name)])
    console = Console(quiet=True)
    assert growth.main(["0"], console) == 0
    first = chart.read_bytes()
    assert growth.main([], console) == 0
    assert chart.read_bytes() == first  # the same figures are the same picture
    assert growth.main(["1"], console) == 0
    assert {f.system: f.milliseconds for f in growth.read()} == {"headrace": 300, "spark": 400}
    assert chart.read_bytes() != first
    assert growth.main(["2"], console) == 0  # one chart is of one machine
    assert [(f.machine, f.rows) for f in growth.read()] == [("Another, local[2]", 10**7)]


def test_results_without_small_micro_batches_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "DATA", tmp_path / "figures.csv")
    monkeypatch.setattr(growth.results, "load", lambda path: raw(cell("headrace", 10**6, [0.1], workload="uniform")))
    assert growth.main(["run.json"], Console(quiet=True)) == 2
    assert not growth.DATA.exists()


@pytest.mark.parametrize("figure", growth.read(), ids=lambda f: f"{f.system}-{f.rows}")
def test_the_readme_and_the_page_say_what_the_chart_shows(figure):
    [alt] = re.findall(r'<img src="docs/micro-batch.svg"[^>]* alt="([^"]+)"', (ROOT / "README.md").read_text())
    ours, sparks = alt.split("Spark's own join:")
    words = f"{growth.seconds_words(figure.milliseconds)} with {figure.rows / 1e6:.0f} million"
    assert words in (ours if figure.system == "headrace" else sparks)
    assert f"{figure.milliseconds:,} ms" in (ROOT / "docs" / "benchmarks.md").read_text()


def test_the_sentence_under_the_chart_is_of_the_largest_table():
    text = (ROOT / "README.md").read_text()
    largest = max(f.rows for f in growth.read())
    said = text[text.index("## How it grows") :].split("</p>")[1]
    assert f"{largest / 1e6:.0f} million rows" in said
    for figure in growth.read():
        if figure.rows == largest:
            assert growth.seconds_words(figure.milliseconds) in said
