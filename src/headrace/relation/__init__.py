"""The disk-resident relation: pages, index, filter, versions, disk."""

from headrace.relation.disk import Disk
from headrace.relation.relation import Relation
from headrace.relation.sketch import Sketch

__all__ = ["Disk", "Relation", "Sketch"]
