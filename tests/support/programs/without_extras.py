"""`hide_extras`: from then on the libraries of the extras are not found, as where they are not installed."""

import sys

from headrace.errors import EXTRAS

ABSENT = EXTRAS.keys() - {"pydantic"}  # which Typer brings too, so that it may be there


class WithoutExtras:
    """Finds modules as another finder does, but none of the extras'."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in ABSENT else self.finder.find_spec(name, path, target)


def hide_extras():
    sys.meta_path[:] = [WithoutExtras(finder) for finder in sys.meta_path]
