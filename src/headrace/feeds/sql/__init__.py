"""SQL over feeds: a query is parsed, checked and planned, and runs on record batches of items."""

from headrace.feeds.sql.mistakes import BadQuery
from headrace.feeds.sql.operator import QueryOperator
from headrace.feeds.sql.plan import QueryPlan
from headrace.feeds.sql.planner import parse_query

__all__ = ["BadQuery", "QueryOperator", "QueryPlan", "parse_query"]
