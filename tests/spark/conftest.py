"""Checkpoints, run logs and tables of queries are synced file by file: in memory that takes no time."""

import pytest


@pytest.fixture
def tmp_path(ram_path):
    """A directory in memory where there is room for it, on disk otherwise."""
    return ram_path
