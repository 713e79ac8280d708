"""Surrogate keys for production keys: found in the lookup relation, or given out once and committed to it.

All that happens between the look at the latest version and the commit of the next one happens with no other writer at work, and
the commit is one atomic version that holds the new keys together with the largest number given out. So whoever is killed has
given out nothing or everything, and whoever comes again finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Int64s
from headrace.errors import BadInput, shown
from headrace.relation import Relation
from headrace.relation.keys import KeyCodec, Keys, positions
from headrace.relation.update import Change

HIGHEST = "highest"  # the note that Relation.apply keeps up to date
_CHAIN = 64  # keys that may stand for one another in a row: more is taken for a cycle


@dataclass(frozen=True)
class Lookup:
    """The columns of a lookup relation that surrogate keys need.

    Parameters
    ----------
    surrogate
        The column of the warehouse's own keys, whole numbers.
    inferred
        The boolean column that marks members of which nothing but the key is known; None: there is none.
    first
        The first number given out, where no higher one is in the relation.
    """

    surrogate: str
    inferred: str | None
    first: int


def surrogates_of(keys: pa.Table, lookup: Relation, meaning: Lookup, same_as: Relation | None = None) -> pa.Array:
    """The surrogate key of each production key; those never seen before get the next numbers, in the order they come in.

    Parameters
    ----------
    keys
        The lookup's key columns, without nulls; keys may repeat.
    lookup
        The lookup relation, at any version.
    meaning
        What its columns mean.
    same_as
        Production keys that stand for others, or for a surrogate key that is known.
    """
    codec = lookup.codec
    which, first_rows = distinct(keys, codec)
    wanted = keys.take(pa.array(first_rows))
    found: list[pa.Array] = []

    def decide(latest: Relation) -> Change | None:
        numbers, rows, highest = _decide(wanted, latest, meaning, same_as)
        found.append(numbers)
        if rows is None:
            return None
        return Change(rows, notes={HIGHEST: {**latest.notes.get(HIGHEST, {}), meaning.surrogate: highest}})

    lookup.revise(decide)
    return found[0].take(pa.array(which))


def _decide(
    wanted: pa.Table, latest: Relation, meaning: Lookup, same_as: Relation | None
) -> tuple[pa.Array, pa.Table | None, int]:
    """Numbers of distinct keys, the rows to add to the lookup, and the largest number given out."""
    numbers, _ = _look_up(wanted, latest, meaning.surrogate)
    new = np.flatnonzero(pc.is_null(numbers))
    if not new.size:
        return numbers, None, 0
    fresh = wanted.take(pa.array(new))
    meant, given = _resolve(fresh, latest, meaning, same_as)
    # Of the keys that are meant some are known; each of the others gets one number, however many keys mean it.
    known, rows = _look_up(meant, latest, meaning.surrogate)
    known = pc.coalesce(given, known)
    unknown = np.flatnonzero(pc.is_null(known))
    which, first_rows = distinct(meant.take(pa.array(unknown)), latest.codec)
    highest = highest_number(latest, meaning)
    after = highest + first_rows.size
    type_ = latest.schema.field(meaning.surrogate).type
    if after >= 1 << (type_.bit_width - 1):
        raise BadInput(
            f"column {meaning.surrogate!r} of {latest.path} has type {type_}, and {after:,} does not fit; create the relation"
            " again with a wider type"
        )
    filled = np.asarray(known.fill_null(0)).copy()
    filled[unknown] = highest + 1 + which
    out = np.asarray(numbers.fill_null(0)).copy()
    out[new] = filled
    members = pa.array(filled).cast(type_)
    table = _rows(fresh, members, rows, given, latest, meaning)
    # A key that only others stand for so far is a member too, so that it gets the same number when it comes itself.
    others = meant.take(pa.array(unknown[first_rows]))
    absent = np.flatnonzero(~among(others, fresh, latest.codec))
    if absent.size:
        some, at = others.take(pa.array(absent)), pa.array(unknown[first_rows[absent]])
        none = pa.nulls(absent.size, given.type)
        table = pa.concat_tables([table, _rows(some, members.take(at), rows.take(at), none, latest, meaning)])
    return pa.array(out).cast(type_), table, after


def _rows(
    keys: pa.Table, numbers: pa.Array, like: pa.Table, given: pa.Array, latest: Relation, meaning: Lookup
) -> pa.Table:
    """Rows for the lookup. A key that means a known member has that member's row; a new member has nothing but its number."""
    columns: dict[str, Any] = {name: keys.column(name) for name in latest.key}
    columns |= {name: like.column(name) for name in like.column_names if name not in columns}
    columns[meaning.surrogate] = numbers
    if meaning.inferred is not None:
        unknown = pc.and_(pc.is_null(like.column(meaning.surrogate)), pc.is_null(given))
        columns[meaning.inferred] = pc.coalesce(like.column(meaning.inferred), unknown)
    return pa.table([columns[name] for name in latest.schema.names], schema=latest.schema)


def _look_up(keys: pa.Table, relation: Relation, surrogate: str) -> tuple[pa.Array, pa.Table]:
    """The number of each key, null where there is none; and the key's whole row, or nulls."""
    rows = align(keys, relation.lookup(keys), relation.codec)
    return rows.column(surrogate).combine_chunks(), rows


def _resolve(keys: pa.Table, latest: Relation, meaning: Lookup, same_as: Relation | None) -> tuple[pa.Table, pa.Array]:
    """For each key the one that it stands for, at the end of the chain; and its surrogate key, where `same_as` has that."""
    given = pa.nulls(keys.num_rows, latest.schema.field(meaning.surrogate).type)
    if same_as is None:
        return keys, given
    if meaning.surrogate in same_as.schema.names:
        mapped = align(keys, same_as.lookup(keys, columns=[meaning.surrogate]), same_as.codec)
        return keys, mapped.column(meaning.surrogate).combine_chunks().cast(given.type)
    for _ in range(_CHAIN):
        mapped = align(keys, same_as.lookup(keys), same_as.codec)
        stands = [mapped.column(f"same_{name}") for name in latest.key]
        if all(column.null_count == len(column) for column in stands):
            return keys, given
        there = pc.is_valid(stands[0])
        columns = [
            pc.if_else(there, to.cast(latest.schema.field(name).type), keys.column(name))
            for name, to in zip(latest.key, stands, strict=True)
        ]
        keys = pa.table(columns, names=list(latest.key))
    at = int(np.flatnonzero(there)[0])
    value = ", ".join(shown(keys.column(name)[at].as_py()) for name in latest.key)
    raise BadInput(
        f"same_as={same_as.path} leads from key ({value}) on and on, through more than {_CHAIN} others; a key must not stand for"
        " itself: remove one of the rows"
    )


def highest_number(latest: Relation, meaning: Lookup) -> int:
    """The largest number given out so far, from the relation's notes; where they lack it, all its rows are read."""
    noted = latest.notes.get(HIGHEST, {}).get(meaning.surrogate)
    if noted is None:
        largest = [pc.max(b.column(meaning.surrogate)).as_py() for b in latest.scan(columns=[meaning.surrogate])]
        noted = max((n for n in largest if n is not None), default=meaning.first - 1)
    return max(int(noted), meaning.first - 1)


# -- keys --------------------------------------------------------------------------------------------------------------


def encoded(keys: pa.Table, codec: KeyCodec) -> Keys:
    """Keys without nulls, as the relation compares them."""
    return codec.encode([keys.column(name) for name in codec.names])[0]


def distinct(keys: pa.Table, codec: KeyCodec) -> tuple[Int64s, Int64s]:
    """For each row which of the distinct keys it has, and the first row of each distinct key, in the order they come in."""
    those = encoded(keys, codec)
    order = those.argsort()
    fresh = those.take(order).repeats() == 0
    group = np.cumsum(fresh) - 1
    first = order[fresh]  # the sort is stable: the first row of a key comes first
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    which = np.empty(order.size, np.int64)
    which[order] = rank[group]
    return which, np.sort(first)


def align(keys: pa.Table, rows: pa.Table, codec: KeyCodec) -> pa.Table:
    """For each key the row that has it, or nulls. Keys of rows are distinct."""
    at, equal = _places(keys, rows, codec)
    return rows.take(pa.array(at, mask=~equal))


def among(keys: pa.Table, others: pa.Table, codec: KeyCodec) -> Bools:
    """Which keys are among others, which are distinct."""
    return _places(keys, others, codec)[1]


def _places(keys: pa.Table, rows: pa.Table, codec: KeyCodec) -> tuple[Int64s, Bools]:
    mine, theirs = encoded(keys, codec), encoded(rows, codec)
    order, by_key = mine.argsort(), theirs.argsort()
    low, same = positions(mine.take(order), theirs.take(by_key))
    at, equal = np.zeros(order.size, np.int64), np.zeros(order.size, np.bool_)
    equal[order] = same
    at[order[same]] = by_key[low[same]]
    return at, equal
