"""Manifests, pages and run logs that were written wrong, with checksums that fit: a few seconds of what the soak does.

The corpus has inputs that something went wrong with once. `python -m soak fuzz-storage` keeps what it finds under names for it.
"""

import pytest

from soak.fuzz_storage import fuzz_for
from tests.support.fuzzed_storage import CORPUS, TARGETS

INPUTS = 150  # some of the corpus, and the others mutations of it and of sound files: a few seconds
LARGEST = 100_000  # bytes of the corpus


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_contract_a_file_that_was_written_wrong_is_named(target, tmp_path):
    tried, wrong = fuzz_for(target, 20261118, tmp_path, inputs=INPUTS)
    assert not wrong, "\n".join(wrong)
    assert tried == INPUTS


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_of_the_corpus_has_its_file(target, ram_path):
    known = {name for name, _ in TARGETS[target](ram_path).corpus()}
    paths = list((CORPUS / target).iterdir())
    assert paths
    assert {path.name.split("..")[0].replace("__", "/") for path in paths} == known


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for target in TARGETS for path in (CORPUS / target).iterdir()) < LARGEST
