"""What every kernel stands on: how it is compiled, and memory by address."""

import importlib
import pkgutil

import pytest

import headrace.kernels

MODULES = [m.name for m in pkgutil.iter_modules(headrace.kernels.__path__, "headrace.kernels.")]


HELPERS = tuple(
    f"headrace.kernels.{name}" for name in ("jit", "chains", "count_sketch", "feed_geometry", "feed_html")
)  # what kernels of other files are made of


@pytest.mark.parametrize("name", [m for m in MODULES if m not in HELPERS])
def test_kernels_have_one_signature_and_a_cache(name):
    """Compiled at import, once a machine: a Spark worker's first call must not cost seconds."""
    module = importlib.import_module(name)
    kernels = {
        k: v for k, v in vars(module).items() if hasattr(v, "nopython_signatures") and v.py_func.__module__ == name
    }
    fixed = {k for k, v in kernels.items() if not v._can_compile}  # Numba says this nowhere else
    assert fixed, f"{name} has no kernel"
    for kernel in fixed:
        dispatcher = kernels[kernel]
        assert len(dispatcher.nopython_signatures) == 1
        assert dispatcher.targetoptions["nogil"]
        assert dispatcher.stats.cache_path
