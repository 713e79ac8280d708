"""The plan of a pipeline: its parts in order, the algorithms chosen and why, and the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.cost import Facts, choose, load_calibration
from headrace.cost.broadcast import BROADCAST, BroadcastAdvice
from headrace.cost.calibrate import BadCalibration
from headrace.pipeline.columns import type_word
from headrace.pipeline.fields import filled_size
from headrace.pipeline.models import Pipeline
from headrace.pipeline.noting import Checked
from headrace.pipeline.parts import Enrich, Step
from headrace.pipeline.sampling_parts import JoinInPart, JoinWindows, Sample, Sampling
from headrace.semistream import MeshJoin
from headrace.semistream.base import SemiStreamJoin
from headrace.units import format_size, parse_size


def explain(pipeline: Pipeline, checked: Checked) -> dict[str, Any]:
    """Return the plan, for people or as JSON. Values from the environment are shown as ${NAME}."""
    hide = pipeline.document.hide
    steps = [_step(step, checked.operators.get(i), hide) for i, step in enumerate(pipeline.steps)]
    for step, schema in zip(steps, checked.schemas[1:], strict=True):
        step["gives"] = _columns(schema)
    budgets = [_budget(step) for step in pipeline.steps]
    memory = sum(parse_size(size, name="memory") for size in budgets if size is not None)
    by_rows = [
        f"step {i}" for i, s in enumerate(pipeline.steps, 1) if isinstance(s, Sampling) and budgets[i - 1] is None
    ]
    beside = f", and what the rows of {' and '.join(by_rows)} take" if by_rows else ""
    sources = {
        name: _given(source, hide) | {"gives": _columns(_schema(checked, name))}
        for name, source in pipeline.sources.items()
    }
    return {
        "name": pipeline.name,
        "every": pipeline.head.every,
        "state": str(pipeline.head.state or f"{pipeline.name}.state"),
        "source": _given(pipeline.source, hide) | {"gives": _columns(checked.schemas[0])},
        **({"sources": sources} if sources else {}),
        "steps": steps,
        "sink": _given(pipeline.sink, hide),
        "memory": f"{format_size(memory)} an executor for the joins{beside}",
    }


def _schema(checked: Checked, source: str) -> pa.Schema | None:
    """Return the columns of a source that a step joins with."""
    columns = checked.sources.get(source)
    return None if columns is None else columns.schema


def _budget(step: Step) -> int | str | None:
    """Return the memory of an executor for a step; None where it has none, or is for a number of rows."""
    if isinstance(step, JoinInPart):
        return step.budget
    found: int | str | None = filled_size(getattr(step, "memory", None))
    return found


def _given(part: Any, hide: Callable[[str], str]) -> dict[str, Any]:
    """Return the keys of a part as they are written in the file, without secrets."""
    values = {name: getattr(part, name) for name in type(part).model_fields if name in part.model_fields_set}
    return {name: _plain(value, hide) for name, value in values.items() if name != "columns"}


def _plain(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(v, hide) for v in value]
    if isinstance(value, dict):
        return {name: _plain(v, hide) for name, v in value.items()}
    return value if isinstance(value, int | float) else hide(str(value))


def _step(step: Any, operator: SemiStreamJoin | None, hide: Callable[[str], str]) -> dict[str, Any]:
    facts = _given(step, hide)
    if isinstance(step, Sampling):
        return facts | {"method": _method(step), "memory": _sample_memory(step)}
    if operator is None:
        return facts
    relation = operator.relation
    algorithm, why = _algorithm(step, operator)
    if getattr(step, "columns", None):
        facts["columns"] = list(step.columns)
    return facts | {
        "algorithm": algorithm,
        "why": why,
        "relation": f"{relation.num_rows} rows in {relation.num_pages} pages, version {relation.version}",
        "memory": _memory(step, operator),
    }


def _method(step: Sampling) -> str:
    if isinstance(step, JoinWindows | JoinInPart):
        return step.method
    given = step.method if isinstance(step, Sample) else None
    return given or ("reservoir" if step.window is None else "fair")


def _sample_memory(step: Sampling) -> str:
    """Say how much a step keeps: bytes, or rows."""
    budget = _budget(step)
    if budget is not None:
        return f"{format_size(parse_size(budget, name='memory'))} an executor"
    if isinstance(step, JoinInPart):
        return f"for {step.tuples} rows of both sides together"
    of_each = "" if step.other is None else " of each side"
    if step.size is not None:
        return f"for {step.size} rows{of_each}"
    if isinstance(step, Sample) or step.sample is None:
        return "for all rows of the windows"
    return f"for {max(1, round(step.sample * step.window))} rows{of_each}"


def _algorithm(step: Enrich, operator: SemiStreamJoin) -> tuple[str, str]:
    if step.algorithm != "auto":
        return step.algorithm, "the file says so"
    if isinstance(operator, MeshJoin):
        return "meshjoin", "no key to look up"
    if step.condition is not None:
        return "adaptive", "by the key, and then the condition"
    shown = operator.columns if operator.how in ("inner", "left") else ()
    advice = BroadcastAdvice.of(operator.relation, shown).words()
    beside = f"; {advice}" if advice else ""
    try:
        machine = load_calibration().as_machine()
    except BadCalibration:
        return "adaptive", f"it needs no costs to choose by; headrace calibrate measures some{beside}"
    facts = Facts.of(operator.relation, skew=1.0, machine=machine, columns=step.columns)
    found = choose(facts, operator.budget.limit)
    return found.algorithm, f"for a skewed stream, as an example; the first rows decide: {found.why}{beside}"


def _memory(step: Enrich, operator: SemiStreamJoin) -> str:
    if getattr(step, "algorithm", None) == BROADCAST:
        return "Spark's own, in the JVM: it holds all rows of the relation"
    parts = sorted(operator.budget.held().items(), key=lambda part: -part[1])
    held = ", ".join(f"{name} {format_size(size)}" for name, size in parts if size)
    return f"{format_size(operator.budget.limit)} an executor" + (f": {held} to begin with" if held else "")


def _columns(schema: pa.Schema | None) -> dict[str, str] | str:
    if schema is None:
        return "what SQL gives: see --check"
    return {field.name: type_word(field.type) for field in schema}
