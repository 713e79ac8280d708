"""kill -9 of a Python worker and of the driver while streams of documents are joined: every result is in the table, and once."""

from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.delta_tables import by_deltalake, rows
from tests.support.killed_driver import run_with_kills
from tests.support.programs import join_documents
from tests.support.programs.killable_job import Job
from tests.support.xml_files import xml_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ELEMENTS, KEYS = 4, 400, 500


def make(job: Job) -> Counter:
    """The documents, one of them cut off; gives the results that must be in the table."""
    job.scratch.mkdir()
    job.input.mkdir()
    rng, sides = np.random.default_rng(5), []
    for side, element in (("a", "x"), ("b", "y")):
        by_key: dict[int, list[str]] = {}
        for n in range(FILES):
            keys, names = rng.integers(0, KEYS, ELEMENTS).tolist(), [f"{side}{n}-{i}" for i in range(ELEMENTS)]
            made = (f"<{element}><k>{k}</k><n>{name}</n></{element}>" for k, name in zip(keys, names, strict=True))
            text = f"<r>{''.join(made)}</r>".encode()
            cut = (side, n) == ("a", 1)
            xml_files(job.input / side, text[:-20] if cut else text)
            for k, name in () if cut else zip(keys, names, strict=True):
                by_key.setdefault(k, []).append(name)
        sides.append(by_key)
    pairs = ((a, b) for k in set(sides[0]) & set(sides[1]) for a in sides[0][k] for b in sides[1][k])
    return Counter(pairs)


@pytest.mark.parametrize("call", ["xquery", pytest.param("twig_join", marks=pytest.mark.soak)])
def test_oracle_every_result_once_with_a_worker_and_the_driver_killed(tmp_path, call):
    job = Job(tmp_path)
    (tmp_path / "call").write_text(call)
    wanted = make(job)
    run_with_kills(tmp_path, join_documents.__file__)
    table = by_deltalake(job.table)
    if call == "xquery":
        assert rows(table, ["result"]) == Counter(
            {repr([f"<r><n>{a}</n><n>{b}</n></r>"]): n for (a, b), n in wanted.items()}
        )
    else:
        assert rows(table, ["a.n", "b.n"]) == Counter({repr(list(pair)): n for pair, n in wanted.items()})
    [dead] = (tmp_path / "dead").rglob("*.parquet")
    assert pq.read_table(dead).num_rows == 1
