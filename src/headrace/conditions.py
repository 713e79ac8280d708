"""Join conditions: what the columns of two tuples must satisfy. Left is the stream, right is the relation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from headrace.errors import BadInput, choice, shown

On: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
Op = Literal["<", "<=", ">", ">=", "!=", "="]
Metric = Literal["euclidean", "manhattan", "chebyshev", "cosine"]
Side = Literal["left", "right"]
Inclusive = Literal["both", "low", "high", "neither"]
Amount: TypeAlias = "int | float | Decimal | timedelta"

ON_FORMS = "'col', ['a', 'b'] or {'stream_col': 'relation_col'}"
OPS = ("<", "<=", ">", ">=", "!=", "=")
METRICS = ("euclidean", "manhattan", "chebyshev", "cosine")
HIGHEST_RECALL = 0.999  # below 1: what is beyond costs more than it finds, and the exact join is better
LONGEST_GRAM = (
    3  # code points of a q-gram at most: three of 21 bits fit into a 64-bit word, so that grams are compared exactly
)


@dataclass(frozen=True)
class Condition(ABC):
    """A condition that two tuples must satisfy to be joined."""

    @property
    @abstractmethod
    def left_columns(self) -> tuple[str, ...]:
        """The columns that are read on the left side (the stream)."""

    @property
    @abstractmethod
    def right_columns(self) -> tuple[str, ...]:
        """The columns that are read on the right side (the relation)."""


@dataclass(frozen=True)
class Equal(Condition):
    """The condition that columns are equal in pairs. A null equals nothing.

    Args:
        left: columns of the left side.
        right: columns of the right side, in the same order.

    Example:
        >>> Equal(("product",), ("product_id",)).right_columns
        ('product_id',)
    """

    left: tuple[str, ...]
    right: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_columns("left", self.left)
        _check_columns("right", self.right)
        if len(self.left) != len(self.right):
            raise BadInput(
                f"an equality pairs columns: left has {len(self.left)} {list(self.left)}, "
                f"right has {len(self.right)} {list(self.right)}"
            )

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The columns of the left side."""
        return self.left

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the right side."""
        return self.right


@dataclass(frozen=True)
class Compare(Condition):
    """The condition `left op right` of numbers, dates, timestamps or texts. Nulls and NaN satisfy nothing, not even !=.

    Texts are compared byte by byte in UTF-8, as Spark does: 'Z' < 'a' < 'é'.

    Args:
        left: a column of the left side.
        op: one of <, <=, >, >=, !=, =.
        right: a column of the right side.
    """

    left: str
    op: Op
    right: str

    def __post_init__(self) -> None:
        _check_columns("left", (self.left,))
        choice("op", self.op, OPS)
        _check_columns("right", (self.right,))

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The column of the left side."""
        return (self.left,)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The column of the right side."""
        return (self.right,)


@dataclass(frozen=True)
class Between(Condition):
    """The condition low <= column <= high, with the column on one side and the two bounds on the other.

    Args:
        column: the column that must lie between.
        low, high: the bounds; where low is above high nothing lies between.
        of: the side that `column` is on.
        inclusive: which bounds are included: both, low (a validity that ends where the next begins), high or neither.
        open_ends: whether a null bound is none, as in a row that is valid until further notice. For bounds of the right side.
    """

    column: str
    low: str
    high: str
    of: Side = "left"
    inclusive: Inclusive = "both"
    open_ends: bool = False

    def __post_init__(self) -> None:
        choice("of", self.of, ("left", "right"))
        choice("inclusive", self.inclusive, ("both", "low", "high", "neither"))
        if self.open_ends and self.of == "right":
            raise BadInput(
                f"open_ends=True is for bounds of the right side, and {self.low!r} and {self.high!r} are of the left; fill their"
                " nulls with the least and the largest value instead"
            )
        _check_columns("left", self.left_columns)
        _check_columns("right", self.right_columns)

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The columns of the left side: the column, or the bounds."""
        return (self.column,) if self.of == "left" else (self.low, self.high)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the right side: the bounds, or the column."""
        return (self.low, self.high) if self.of == "left" else (self.column,)


@dataclass(frozen=True)
class Band(Condition):
    """The condition right - below <= left <= right + above.

    Args:
        left: a column of the left side.
        right: a column of the right side.
        below, above: how far left may lie below and above right; timedeltas where the columns are dates or timestamps.
    """

    left: str
    right: str
    below: Amount
    above: Amount

    def __post_init__(self) -> None:
        _check_columns("left", (self.left,))
        _check_columns("right", (self.right,))
        for name, amount in (("below", self.below), ("above", self.above)):
            _check_amount(name, amount, (int, float, Decimal, timedelta), "a number or a timedelta of 0 or more")
            if amount < type(amount)(0):  # type: ignore[operator]
                raise BadInput(f"{name}={amount!r} is negative; give 0 or more")
        if isinstance(self.below, timedelta) != isinstance(self.above, timedelta):
            raise BadInput(
                f"below={self.below!r} and above={self.above!r} are of two kinds; give two numbers or two timedeltas"
            )

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The column of the left side."""
        return (self.left,)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The column of the right side."""
        return (self.right,)


@dataclass(frozen=True, repr=False)
class Within(Condition):
    """The condition that the distance of two vectors is at most eps.

    The cosine distance is 1 - x·y / (|x| |y|), from 0 to 2; a vector of zeros has none, and matches nothing.

    Args:
        left: a list column of the left side, or numeric columns, one a coordinate.
        right: the same of the right side. A relation stores no lists: numeric columns there.
        eps: the largest distance, above 0.
        metric: euclidean, manhattan, chebyshev or cosine.
        dims: the number of coordinates; lists that are not of a fixed size, such as Spark's arrays, need it.
        recall: 1 for all pairs; below 1 a progressive join may miss a pair, with a probability of at most 1 - recall.
        seed: of the random directions by which it finds them.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    eps: float
    metric: Metric = "euclidean"
    dims: int | None = None
    recall: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_columns("left", self.left)
        _check_columns("right", self.right)
        if len(self.left) > 1 and len(self.right) > 1 and len(self.left) != len(self.right):
            raise BadInput(f"vectors of {len(self.left)} and of {len(self.right)} coordinates have no distance")
        choice("metric", self.metric, METRICS)
        _check_amount("eps", self.eps, (int, float), "a distance above 0")
        if self.eps <= 0:
            raise BadInput(f"eps={self.eps!r} is not a distance above 0")
        if self.dims is not None:
            whole = isinstance(self.dims, int) and not isinstance(self.dims, bool)
            if not whole or self.dims < 1:
                raise BadInput(f"dims={shown(self.dims)} is not a number of coordinates; give 1 or more")
            for columns in (self.left, self.right):
                if len(columns) not in (1, self.dims):
                    raise BadInput(
                        f"dims={self.dims} and {len(columns)} columns {list(columns)} are of different sizes"
                    )
        _check_amount("recall", self.recall, (int, float), f"1, or a part of the pairs up to {HIGHEST_RECALL}")
        if self.recall != 1 and not 0 < self.recall <= HIGHEST_RECALL:
            raise BadInput(f"recall={self.recall!r} is neither 1 nor above 0 and at most {HIGHEST_RECALL}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise BadInput(f"seed={shown(self.seed)} is not a whole number")

    def __repr__(self) -> str:
        # What has its default is left out: states and messages of joins that use none of it stay as they were.
        said = f"left={self.left!r}, right={self.right!r}, eps={self.eps!r}, metric={self.metric!r}"
        more = (("dims", None), ("recall", 1.0), ("seed", 0))
        said += "".join(f", {name}={getattr(self, name)!r}" for name, usual in more if getattr(self, name) != usual)
        return f"Within({said})"

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The vector of the left side."""
        return self.left

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The vector of the right side."""
        return self.right


@dataclass(frozen=True)
class Intersects(Condition):
    """The condition that two boxes have a point in common; touching is enough.

    Args:
        left: the low corner, then the high corner: (xmin, ymin, xmax, ymax) in two dimensions.
        right: the same of the right side.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_columns("left", self.left)
        _check_columns("right", self.right)
        for side, columns in (("left", self.left), ("right", self.right)):
            if len(columns) % 2:
                raise BadInput(
                    f"the {side} box has {len(columns)} columns {list(columns)}; give the low corner, then the high corner, such"
                    " as ('xmin', 'ymin', 'xmax', 'ymax')"
                )
        if len(self.left) != len(self.right):
            raise BadInput(
                f"boxes of {len(self.left) // 2} and of {len(self.right) // 2} dimensions do not intersect; name as many columns"
                " on both sides"
            )

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The box of the left side."""
        return self.left

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The box of the right side."""
        return self.right


@dataclass(frozen=True)
class EditDistance(Condition):
    """The condition that one text becomes the other by few insertions, deletions and substitutions of a code point.

    Args:
        left: a text column of the left side.
        right: a text column of the right side.
        at_most: the most edits, 0 or more.
    """

    left: str
    right: str
    at_most: int

    def __post_init__(self) -> None:
        _check_columns("left", (self.left,))
        _check_columns("right", (self.right,))
        if not isinstance(self.at_most, int) or isinstance(self.at_most, bool) or self.at_most < 0:
            raise BadInput(f"at_most={shown(self.at_most)} is not a number of edits; give a whole number of 0 or more")

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The text of the left side."""
        return (self.left,)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The text of the right side."""
        return (self.right,)


@dataclass(frozen=True)
class Jaccard(Condition):
    """The condition that two texts have a large part of their q-grams in common: |A ∩ B| / |A ∪ B| >= at_least.

    The q-grams of a text are the set of its runs of q code points. A shorter text has one, which is the text itself; the empty
    text has none, and is similar to the empty text alone.

    Args:
        left: a text column of the left side.
        right: a text column of the right side.
        at_least: the least similarity, above 0 and at most 1.
        q: code points of a gram, 1 to 3.
    """

    left: str
    right: str
    at_least: float
    q: int = LONGEST_GRAM

    def __post_init__(self) -> None:
        _check_columns("left", (self.left,))
        _check_columns("right", (self.right,))
        _check_amount("at_least", self.at_least, (int, float), "a similarity above 0 and at most 1")
        if not 0 < self.at_least <= 1:
            raise BadInput(f"at_least={self.at_least!r} is not a similarity above 0 and at most 1")
        if not isinstance(self.q, int) or isinstance(self.q, bool) or not 1 <= self.q <= LONGEST_GRAM:
            raise BadInput(f"q={shown(self.q)} is not a length of grams; give 1 to {LONGEST_GRAM} code points")

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The text of the left side."""
        return (self.left,)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The text of the right side."""
        return (self.right,)


@dataclass(frozen=True, repr=False)
class Predicate(Condition):
    """The condition that a function of the user says of pairs of rows.

    Args:
        fn: takes two record batches, row i of the one with row i of the other, and returns a boolean for each row.
        left, right: the columns that it reads of each side.
        names: what `fn` calls them, where these differ from the columns: left, then right.
    """

    fn: Callable[[Any, Any], Any]
    left: tuple[str, ...]
    right: tuple[str, ...]
    names: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise BadInput(f"fn={shown(self.fn)} is not a function of two record batches")
        _check_columns("left", self.left)
        _check_columns("right", self.right)

    def __repr__(self) -> str:
        # The address that a function's own repr has differs from process to process, and logs compare what is written here.
        return f"Predicate({self.called}, left={self.left!r}, right={self.right!r})"

    @property
    def called(self) -> str:
        """The name of the function, for messages."""
        return str(getattr(self.fn, "__qualname__", type(self.fn).__qualname__))

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The columns of the left side that the function reads."""
        return self.left

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the right side that the function reads."""
        return self.right


@dataclass(frozen=True)
class AllOf(Condition):
    """The condition that several conditions all hold."""

    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        if not self.conditions:
            raise BadInput("all_of() of no conditions; give one or more")
        for condition in self.conditions:
            check_condition(condition)

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The columns of the left side that any of the conditions reads."""
        return tuple(dict.fromkeys(name for c in self.conditions for name in c.left_columns))

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the right side that any of the conditions reads."""
        return tuple(dict.fromkeys(name for c in self.conditions for name in c.right_columns))


def equal(left: str, right: str | None = None) -> Equal:
    """Make the condition that two columns are equal; one name stands for both sides.

    Example:
        >>> equal("k")
        Equal(left=('k',), right=('k',))
        >>> equal("lk", "rk")
        Equal(left=('lk',), right=('rk',))
    """
    return Equal((left,), (left if right is None else right,))


def compare(left: str, op: Op, right: str) -> Compare:
    """Make the condition that a column of the left side is <, <=, >, >=, != or = one of the right side.

    Example:
        >>> compare("price", "<", "limit")
        Compare(left='price', op='<', right='limit')
    """
    return Compare(left, op, right)


def between(
    column: str, low: str, high: str, *, of: Side = "left", inclusive: Inclusive = "both", open_ends: bool = False
) -> Between:
    """Make the condition that a column of one side lies between two columns of the other.

    Example:
        >>> between("id", "first", "last", of="right").left_columns  # id is of the relation, the bounds are of the stream
        ('first', 'last')
        >>> # a dimension's history: from valid_from up to, without, valid_to, which is null for what is valid now
        >>> between("sold_at", "valid_from", "valid_to", inclusive="low", open_ends=True)
        Between(column='sold_at', low='valid_from', high='valid_to', of='left', inclusive='low', open_ends=True)
    """
    return Between(column, low, high, of, inclusive, open_ends)


def band(left: str, right: str | None = None, *, below: Amount, above: Amount) -> Band:
    """Make the condition that right - below <= left <= right + above; one name stands for both sides.

    Example:
        >>> band("x", "y", below=1, above=2)
        Band(left='x', right='y', below=1, above=2)
    """
    return Band(left, left if right is None else right, below, above)


def within(
    left: str | Sequence[str],
    *,
    eps: float,
    metric: Metric = "euclidean",
    right: str | Sequence[str] | None = None,
    dims: int | None = None,
    recall: float = 1.0,
    seed: int = 0,
) -> Within:
    """Make the condition that two vectors are at most eps apart; one set of names stands for both sides.

    A vector is a fixed-size list column, a list column with `dims`, or a tuple of numeric columns. With a recall below 1 a
    progressive join finds a pair with at least that probability over the seed, much sooner; what it finds is within eps.

    Example:
        >>> within(("x", "y"), eps=0.5)
        Within(left=('x', 'y'), right=('x', 'y'), eps=0.5, metric='euclidean')
        >>> within("v", eps=2, metric="manhattan", right=("a", "b")).right_columns
        ('a', 'b')
        >>> within("embedding", eps=0.1, metric="cosine", dims=384, recall=0.99)
        Within(left=('embedding',), right=('embedding',), eps=0.1, metric='cosine', dims=384, recall=0.99)
    """
    return Within(_names(left), _names(left if right is None else right), eps, metric, dims, recall, seed)


def intersects(left: Sequence[str], right: Sequence[str] | None = None) -> Intersects:
    """Make the condition that two boxes have a point in common; one set of names stands for both sides.

    Example:
        >>> intersects(("xmin", "ymin", "xmax", "ymax")).right
        ('xmin', 'ymin', 'xmax', 'ymax')
    """
    return Intersects(_names(left), _names(left if right is None else right))


def edit_distance(left: str, right: str | None = None, *, at_most: int) -> EditDistance:
    """Make the condition that two texts are at most so many edits apart; one name stands for both sides.

    An edit inserts, deletes or replaces one code point (Levenshtein distance). It needs the extra ``text``.

    Example:
        >>> edit_distance("name", at_most=2)
        EditDistance(left='name', right='name', at_most=2)
    """
    return EditDistance(left, left if right is None else right, at_most)


def jaccard(left: str, right: str | None = None, *, at_least: float, q: int = LONGEST_GRAM) -> Jaccard:
    """Make the condition that two texts share so large a part of their q-grams; one name stands for both sides.

    Example:
        >>> jaccard("name", "title", at_least=0.6, q=2)
        Jaccard(left='name', right='title', at_least=0.6, q=2)
    """
    return Jaccard(left, left if right is None else right, at_least, q)


def predicate(
    fn: Callable[[Any, Any], Any], left: str | Sequence[str], *, right: str | Sequence[str] | None = None
) -> Predicate:
    """Make the condition that a function says of pairs of rows; one set of names stands for both sides.

    `fn(left, right)` gets two record batches with the named columns, row i of the one with row i of the other, and returns an
    Arrow or NumPy array of booleans, one for each row. A null counts as false. It sees the pairs that all other conditions leave,
    some thousands at a time, so put something narrow beside it: alone it sees every pair.

    Example:
        >>> import pyarrow.compute as pc
        >>> def heavier(left, right):
        ...     return pc.greater(left["weight"], pc.multiply(right["limit"], 2))
        >>> predicate(heavier, "weight", right="limit")
        Predicate(heavier, left=('weight',), right=('limit',))
    """
    return Predicate(fn, _names(left), _names(left if right is None else right))


def all_of(*conditions: Condition) -> AllOf:
    """Make the condition that several conditions all hold.

    Example:
        >>> all_of(compare("a", "<=", "b"), band("t", below=0, above=5)).left_columns
        ('a', 't')
    """
    return AllOf(conditions)


def check_condition(condition: object) -> None:
    """Refuse an object that is not a condition."""
    if not isinstance(condition, Condition):
        raise BadInput(
            f"{condition!r} is not a condition; make one with equal, compare, between, band, within, intersects, edit_distance,"
            " jaccard, predicate or all_of"
        )


def renamed(condition: Condition, left: Callable[[str], str], right: Callable[[str], str]) -> Condition:
    """Return a condition with other names for the columns of each side. A predicate's function sees the names it was made with.

    Example:
        >>> renamed(between("T", "Low", "High"), str.lower, str.upper)
        Between(column='t', low='LOW', high='HIGH', of='left', inclusive='both', open_ends=False)
    """
    match condition:
        case AllOf(conditions):
            return AllOf(tuple(renamed(one, left, right) for one in conditions))
        case Between():
            inside, bounds = (left, right) if condition.of == "left" else (right, left)
            return replace(
                condition, column=inside(condition.column), low=bounds(condition.low), high=bounds(condition.high)
            )
        case Predicate(_, a, b, names):
            return replace(condition, left=tuple(map(left, a)), right=tuple(map(right, b)), names=names or (a, b))
        case Equal(a, b) | Within(a, b) | Intersects(a, b):
            return replace(condition, left=tuple(map(left, a)), right=tuple(map(right, b)))
        case Compare(x, _, y):
            return replace(condition, left=left(x), right=right(y))
        case Band(x, y) | EditDistance(x, y) | Jaccard(x, y):
            return replace(condition, left=left(x), right=right(y))
    raise BadInput(f"{condition!r} is not a condition that a join knows")


def parse_on(on: On) -> Equal:
    """Return the equality that ``on=`` stands for: a column, several, or a mapping of stream to relation columns.

    Example:
        >>> parse_on(["a", "b"])
        Equal(left=('a', 'b'), right=('a', 'b'))
        >>> parse_on({"product": "product_id"})
        Equal(left=('product',), right=('product_id',))
    """
    left: tuple[str, ...]
    right: tuple[str, ...]
    if isinstance(on, str):
        left, right = (on,), (on,)
    elif isinstance(on, Mapping):
        left, right = tuple(on.keys()), tuple(on.values())
    elif isinstance(on, list | tuple):
        left = right = tuple(on)
    else:
        raise BadInput(f"on={shown(on)} is not understood; give {ON_FORMS}")
    if not left:
        raise BadInput(f"on={shown(on)} names no column; give {ON_FORMS}")
    return Equal(left, right)


def _check_columns(side: str, columns: tuple[str, ...]) -> None:
    if not columns:
        raise BadInput(f"the {side} side names no column")
    for column in columns:
        if not isinstance(column, str) or not column:
            raise BadInput(f"{column!r} on the {side} side is not a column name")
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise BadInput(f"{', '.join(twice)} is named twice on the {side} side")


def _check_amount(name: str, value: Any, types: tuple[type, ...], expected: str) -> None:
    fits = isinstance(value, types) and not isinstance(value, bool)
    if not fits or (not isinstance(value, timedelta) and not math.isfinite(value)):
        raise BadInput(f"{name}={shown(value)} is not {expected}")


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)
