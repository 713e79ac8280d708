"""`make soak`: its sections are found by their names; what is not there yet is left out, and a mistake is told."""

from soak import __main__ as soak


def test_a_section_that_is_not_there_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(soak, "SECTIONS", {"later": ("soak.not_yet", ())})
    assert soak.main([]) == 0
    assert "later: there is no soak.not_yet here; left out" in capsys.readouterr().out


def test_a_section_that_fails_fails_the_run(monkeypatch, capfd):
    monkeypatch.setattr(soak, "SECTIONS", {"tests": ("soak.long_tests", ())})
    assert soak.main(["tests", "--no-such-option"]) == 1
    assert "tests ended with 4" in capfd.readouterr().out  # pytest's code for wrong use


def test_an_unknown_section_is_told(capsys):
    assert soak.main(["kaos"]) == 2
    assert "'kaos' is none of chaos, burst, promise, tests" in capsys.readouterr().err


def test_help_lists_the_sections(capsys):
    assert soak.main(["--help"]) == 0
    assert "chaos, burst" in capsys.readouterr().out
