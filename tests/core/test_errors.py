import pickle

import pytest

import headrace
from headrace import errors
from headrace.errors import BadInput, DamagedRelation, HeadraceError, RelationError, choice

HOWS = ("inner", "left", "semi", "anti")


def test_every_error_is_a_headrace_error():
    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert len(kinds) == 23
    assert all(issubclass(kind, HeadraceError) for kind in kinds)
    assert all(kind.__name__ in headrace.__all__ for kind in kinds)
    assert issubclass(BadInput, ValueError)


def test_damage_names_its_place():
    damage = DamagedRelation("s1.pages", "checksum does not match", shard=1, page=7)
    assert isinstance(damage, RelationError)
    assert (damage.file, damage.shard, damage.page) == ("s1.pages", 1, 7)
    assert str(damage) == "shard 1, page 7 of s1.pages: checksum does not match"
    assert str(DamagedRelation("manifest", "truncated")) == "manifest: truncated"


def test_damage_crosses_processes():
    damage = DamagedRelation("s1.pages", "checksum does not match", shard=1, page=0)
    copy = pickle.loads(pickle.dumps(damage))
    assert (str(copy), copy.shard, copy.page) == (str(damage), 1, 0)


def test_choice_returns_a_known_word():
    assert choice("how", "semi", HOWS) == "semi"


def test_choice_lists_the_known_words():
    with pytest.raises(BadInput) as caught:
        choice("how", "outer", HOWS)
    assert str(caught.value) == ("how='outer' is not supported; choose one of inner, left, semi, anti")


@pytest.mark.parametrize(("word", "meant"), [("iner", "inner"), ("LEFT", "left"), ("lefft", "left")])
def test_choice_suggests_the_nearest(word, meant):
    with pytest.raises(BadInput, match=f"did you mean '{meant}'"):
        choice("how", word, HOWS)


def test_choice_refuses_what_is_not_a_word():
    with pytest.raises(BadInput, match="how=None is not supported"):
        choice("how", None, HOWS)
