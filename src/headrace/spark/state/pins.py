"""Pins: the driver holds the relations of a plan open, each at its latest version, for one micro-batch after another."""

from __future__ import annotations

from dataclasses import replace

from headrace.relation import Relation
from headrace.spark.plan import Plan


class Pins:
    """The driver's hold on the relations of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._relations = list(plan.relations)

    def latest(self) -> Plan:
        """The plan with each relation at its latest version, which stays open until the next call.

        A relation that was made in the place of one of the plan is refused.
        """
        latest: list[Relation | None] = []
        for relation in self._relations:
            if relation is None:
                latest.append(None)
                continue
            newest = relation.refresh()
            newest.check_identity(relation.identity)
            latest.append(relation if newest.version == relation.version else newest)
        self._relations = latest
        pairs = zip(self.plan.steps, latest, strict=True)
        # A step that remembers takes the version that its first attempt noted, also after a restart.
        steps = (s if r is None else s.with_relation(r, follow=s.remembers is not None) for s, r in pairs)
        return replace(self.plan, steps=tuple(steps))
