"""The disk-resident relation: pages, index, filter, versions, disk."""

from headrace.relation.disk import Disk
from headrace.relation.relation import Relation

__all__ = ["Disk", "Relation"]
