import pytest

from headrace.conditions import Condition, Equal, equal, parse_on
from headrace.errors import BadInput


def test_equal():
    assert equal("k") == Equal(("k",), ("k",))
    assert equal("lk", "rk") == Equal(("lk",), ("rk",))
    assert isinstance(equal("k"), Condition)
    assert hash(equal("k")) == hash(equal("k"))


@pytest.mark.parametrize(
    ("on", "left", "right"),
    [
        ("k", ("k",), ("k",)),
        (["a", "b"], ("a", "b"), ("a", "b")),
        (("a",), ("a",), ("a",)),
        ({"s": "r"}, ("s",), ("r",)),
        ({"s": "r", "t": "q"}, ("s", "t"), ("r", "q")),
    ],
)
def test_on(on, left, right):
    condition = parse_on(on)
    assert (condition.left_columns, condition.right_columns) == (left, right)


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ([], "names no column"),
        ({}, "names no column"),
        ("", "'' on the left side is not a column name"),
        (None, "on=None is not understood; give 'col'"),
        (7, "on=7 is not understood"),
        ([1], "1 on the left side is not a column name"),
        ({"a": 1}, "1 on the right side is not a column name"),
        (["a", "b", "a"], "a is named twice on the left side"),
        ({"a": "k", "b": "k"}, "k is named twice on the right side"),
    ],
)
def test_what_on_cannot_be(on, says):
    with pytest.raises(BadInput, match=says):
        parse_on(on)


def test_sides_pair_up():
    with pytest.raises(BadInput, match=r"left has 2 .*right has 1"):
        Equal(("a", "b"), ("a",))
