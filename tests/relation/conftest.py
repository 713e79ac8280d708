"""One server of children for all tests that kill."""

from collections.abc import Iterator

import pytest

from tests.support.killable_children import Children


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    some = Children()
    yield some
    some.close()
