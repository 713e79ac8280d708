"""Every kind of file, damaged in every way: the same result, or an error that names the file.

Never a wrong result, a crash or a hang. `tests/support/damage_kinds.py` has the kinds, and `tests/support/damage.py` what is done
to their files. Here is a sample of it, the same in every run; with `--soak` it is every byte with three masks, and every other
case.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.damage_kinds import KINDS
from tests.support.damaging_child import DamagingChild

SAMPLES = {"bytes": 120, "sizes": 60, "swaps": 40, "instead": 60}
#: Kinds whose use takes some tens of milliseconds.
SLOW = {
    "hot-set": 0.3,
    "progressive-join": 0.5,
    "ledger": 0.7,
    "relation-changed": 0.7,
    "relation-changed-by-frequency": 0.7,
}
#: Kinds that are passed over where they are damaged, in whole or by the line.
PASSED_OVER = {"journal", "hot-set"}


@pytest.fixture(scope="module")
def child(ram_path_factory):
    child = DamagingChild(ram_path_factory.mktemp("damage"))
    yield child
    child.close()


def check(kind, how, found):
    assert not found["wrong"], "\n".join(found["wrong"][:20])
    assert found["files"] > 0
    if kind not in PASSED_OVER:
        assert found["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", SAMPLES)
def test_contract_damage_is_named_or_of_no_consequence(how, kind, child):
    check(kind, how, child.run(kind, how, int(SAMPLES[how] * SLOW.get(kind, 1))))


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", SAMPLES)
def test_contract_every_damage_is_named_or_of_no_consequence(how, kind, child):
    check(kind, how, child.run(kind, how, None))


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_mapped_file_that_is_cut_while_it_is_open(when, tmp_path):
    """Of its own process: without a check of the size it would be ended by SIGBUS, which nothing in Python handles."""
    command = [sys.executable, "-m", "tests.support.programs.cut_open_file", str(tmp_path), when]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert ended.returncode == 0, ended.stderr
    assert "0000000001.waiting.arrow is damaged: it was cut short while it was open" in ended.stdout
