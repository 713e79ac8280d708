"""One server of children for all tests that kill."""

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.relation.brute", "tests.relation.children")

from tests.relation.children import Children  # noqa: E402


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    some = Children()
    yield some
    some.close()
