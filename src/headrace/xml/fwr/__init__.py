"""XQuery over documents that arrive: for, where and return, as twigs, selections, a join and construction. [PQP] §7.1"""

from headrace.xml.fwr.query import Results, XQuery, xquery

__all__ = ["Results", "XQuery", "xquery"]
