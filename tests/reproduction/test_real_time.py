"""Figures of [PQP] in real time: the same results, with the seconds of the machine, on a page of their own."""

import os
import time
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import headrace as hr
import reproduction
from headrace.errors import BadInput
from headrace.progressive import RRPJ, BoxGrid
from reproduction import pqp_4, pqp_5
from reproduction.cli import main
from reproduction.own_disk import OwnDisk
from reproduction.pqp import GAP, Setting, course
from reproduction.run import curves_of, load

TUPLES = 400


def box_setting():
    condition = hr.intersects(pqp_5.COLUMNS)
    streams = partial(pqp_5.boxes, TUPLES / pqp_5.BOXES, 0.4, 0.5)
    return Setting(streams, condition, partial(BoxGrid, condition, (0, 0, 1, 1), 4, 1), 0.1)


def key_setting():
    streams = partial(pqp_4.steady, "harmony", TUPLES / pqp_4.TUPLES, uniform=True, partitions=5)
    return Setting(streams, hr.equal("k"), partial(pqp_4.HashPartitioning, hr.equal("k"), 5), 0.1)


@pytest.mark.parametrize("setting", [key_setting(), box_setting()])
def test_both_clocks_have_the_same_results_and_only_one_has_seconds_of_the_machine(setting):
    virtual = course(setting, RRPJ(), clean=True)
    begun = time.perf_counter()
    real = course(setting, RRPJ(), clock="real")
    passed = time.perf_counter() - begun
    np.testing.assert_array_equal(virtual.results, real.results)
    np.testing.assert_array_equal(virtual.arrived, real.arrived)
    assert virtual.total == real.total > real.results[-1] > 0
    assert virtual.facts["flushes"] == real.facts["flushes"] > 0
    assert virtual.at[-1] >= TUPLES * GAP
    assert (np.diff(real.at) > 0).all() and real.cleaned > 0
    assert 0 < real.at[-1] + real.cleaned < passed


def test_a_chapter_in_real_time_has_a_page_of_its_own(tmp_path, capsys):
    where = ["--relations", str(tmp_path / "r"), "--docs", str(tmp_path / "docs")]
    main(["pqp", "--chapter", "4", "--figure", "4.1a,4.3", "--scale", "0.0002", "--clock", "real", *where])
    names = sorted(path.name for path in (tmp_path / "docs" / "data").iterdir())
    assert names == ["pqp-4-real-4.1a.csv", "pqp-4-real-4.3.csv"]
    page = (tmp_path / "docs" / "pqp-4-real.md").read_text()
    assert page.startswith("# [PQP] Progressive query processing, chapter 4: relational joins, in real time")
    assert "make reproduce PAPER=pqp CHAPTER=4 CLOCK=real" in page and "a load of" in page
    assert "(pqp-4-real-4.1a.png)" in page and (tmp_path / "docs" / "pqp-4-real-4.1a.png").exists()
    assert "| % of the data that has arrived | xjoin | rpj | rrpj | foresight |" in page
    assert (
        "| and cleaned up | " in page and "total: rrpj is within 0% of rpj everywhere | 0.00% at most | holds" in page
    )
    assert " seconds |" in page and "| results a second: rrpj is at least" in page
    assert "| T4.3 |" in page and "not in real time: it counts results against" in page
    assert "pqp-4-real.md written" in capsys.readouterr().out
    paper = reproduction.paper("pqp", "4").on("real")
    figure = next(f for f in paper.figures if f.id == "4.1a")
    raw = load(paper, figure, tmp_path / "docs")
    for curve in curves_of(figure, raw, "seconds").values():
        assert [x for x, _ in curve] == [10.0 * n for n in range(1, 11)]
        assert all(0 < a < b < 60 for (_, a), (_, b) in pairwise(curve))


def own_disk(directory):
    try:
        return OwnDisk(directory=directory)
    except BadInput as refused:
        pytest.skip(str(refused))  # a temporary directory in memory


def test_the_appendix_takes_the_seconds_of_reads(tmp_path, capsys):
    own_disk(tmp_path).close()
    begun = time.perf_counter()
    where = ["--relations", str(tmp_path / "r"), "--docs", str(tmp_path / "docs")]
    main(["pqp", "--chapter", "A", "--figure", "A.5c,A.7b", "--scale", "0.05", "--clock", "real", *where])
    assert not list((tmp_path / "r").iterdir())  # the files that were read from
    page = (tmp_path / "docs" / "pqp-a-real.md").read_text()
    assert "(pqp-a-real-A.5c.png)" in page
    assert "| A.5b | I/O, clustered arrivals | | not in real time: a count" in page
    assert "static is at least 1.5 times sibnl" in capsys.readouterr().out
    paper = reproduction.paper("pqp", "A").on("real")
    figure = next(f for f in paper.figures if f.id == "A.7b")
    raw = load(paper, figure, tmp_path / "docs")
    io, seconds = (curves_of(figure, raw, value)["static"][-1][1] for value in ("io", "seconds"))
    assert io == 1380  # as on the virtual clock
    assert 0 < seconds < time.perf_counter() - begun


def test_a_request_is_a_read_and_waiting_is_real(tmp_path, monkeypatch):
    disk, places, read_into = own_disk(tmp_path), [], os.preadv

    def noted(file, room, place):
        places.append((place, read_into(file, room, place)))

    monkeypatch.setattr(os, "preadv", noted)
    begun = disk.clock.now()
    disk.charge(requests=0, tests=10**12)
    disk.charge(requests=20, tests=0)
    read = disk.clock.now()
    disk.clock.advance(0.01)
    assert len(places) == 20 < len({place for place, _ in places}) + 2 and {size for _, size in places} == {4096}
    assert begun < read < begun + 60 and disk.clock.now() >= read + 0.01
    disk.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.charge(requests=1, tests=0)


def test_what_has_no_real_time_is_refused_with_the_reason(tmp_path, capsys):
    for arguments, message in (
        (["mesh"], "CLOCK=real is not there: mesh is measured on a virtual clock alone"),
        (["pqp", "--chapter", "4", "--figure", "T4.3"], "FIGURE=T4.3 is not measured in real time: it counts results"),
    ):
        with pytest.raises(SystemExit):
            main([*arguments, "--clock", "real", "--docs", str(tmp_path)])
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_figure_of_the_thesis_has_a_real_time_or_says_why_not():
    counted = {"7", "8", "9", "D"}  # what is kept and how good it is; no figure has a time that a machine takes
    for chapter in reproduction.chapters_of("pqp"):
        paper = reproduction.paper("pqp", chapter)
        assert bool(paper.real) == (chapter not in counted)
        if chapter in counted:
            continue
        assert all(figure.real for figure in paper.figures)
        timed = [figure for figure in paper.on("real").figures if not isinstance(figure.real, str)]
        assert timed and all(figure.alone for figure in timed)
