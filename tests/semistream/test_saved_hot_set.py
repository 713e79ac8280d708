"""A hot set that is saved: the next run begins with it, and a file that does not fit is passed over."""

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.semistream import AdaptiveJoin
from headrace.semistream.adaptive.group import HOT_SETS, Group
from tests.support.group_workers import check, numbered, stream

KEYS = 40_000


@pytest.fixture
def relation(tmp_path):
    return hr.Relation.create(tmp_path / "r", numbered(KEYS), key="k", page_size="4KiB")


class Run:
    """A join of a group of one worker, in a directory of its own: no memory is left from the run before."""

    def __init__(self, relation: hr.Relation, directory, memory: str = "3MiB") -> None:
        directory.mkdir()
        self.clock = ManualClock()
        self.join = AdaptiveJoin(
            relation, on="k", memory=memory, group=Group(directory, 1), whole=False, clock=self.clock
        )
        self._rng = np.random.default_rng(5)

    def batches(self, count: int) -> float:
        """Join batches, minutes apart; returns the share of their rows that were in the hot set."""
        before = self.join.stats.hits, self.join.stats.tuples_in
        for _ in range(count):
            self.clock.advance(60.0)
            batch = stream(self._rng, 3000, KEYS, True)
            assert self.join.enter()
            check(batch, pa.Table.from_batches(self.join.join(batch), self.join.output_schema(batch.schema)))
            self.join.leave()
        return (self.join.stats.hits - before[0]) / (self.join.stats.tuples_in - before[1])


def saved(relation: hr.Relation):
    return list((relation.path / HOT_SETS).glob("*")) if (relation.path / HOT_SETS).exists() else []


def test_the_first_batch_of_the_next_run_finds_what_was_popular(relation, tmp_path, caplog):
    caplog.set_level("INFO", "headrace.semistream.adaptive.saved_hot_set")
    first = Run(relation, tmp_path / "first")
    cold = first.batches(1)
    first.batches(100)
    warm = first.batches(5)
    assert len(saved(relation)) == 1
    again = Run(relation, tmp_path / "again").batches(1)
    assert cold < 0.5 * warm
    assert again > 0.8 * warm
    said = [record.getMessage() for record in caplog.records]
    assert any(text.startswith(f"saved the hot set to {relation.path}") for text in said)
    assert any(text.startswith("begins with the hot set of an earlier run") for text in said)


def test_a_file_that_does_not_fit_is_passed_over(relation, tmp_path):
    Run(relation, tmp_path / "first").batches(100)
    (file,) = saved(relation)
    whole = file.read_bytes()
    cold = Run(relation, tmp_path / "other", memory="2MiB").batches(1)  # another division of the memory
    for number, content in enumerate(
        (whole[:-1], whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:], b"", whole[8:])
    ):
        file.write_bytes(content)
        assert Run(relation, tmp_path / f"damaged{number}").batches(1) <= 1.5 * cold
    file.write_bytes(whole)
    relation.apply(deletes=[1])  # another version
    assert Run(hr.Relation.open(relation.path), tmp_path / "later").batches(1) <= 1.5 * cold


def test_a_directory_that_cannot_be_written_to_goes_without(relation, tmp_path):
    (relation.path / HOT_SETS).write_text("a file is in its place")
    assert Run(relation, tmp_path / "first").batches(100) > 0
    assert (relation.path / HOT_SETS).read_text() == "a file is in its place"
