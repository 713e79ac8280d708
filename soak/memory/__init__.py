"""Memory truth: what each operator takes of the machine, beside the budget that it was given."""

from soak.memory.main import run

__all__ = ["run"]
