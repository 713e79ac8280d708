"""The house rule: no class of the large packages is one object cut into files by inheritance, or holds too much."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import textwrap

import pytest

PACKAGES = ("headrace.semistream", "headrace.progressive", "headrace.sampling", "headrace.xml")
MOST_ABOVE, MOST_ATTRIBUTES = 2, 30


def classes():
    """Every class that is defined in the packages, by its full name."""
    found = {}
    for package in PACKAGES:
        root = importlib.import_module(package)
        names = [package, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
        for name in names:
            for cls in vars(importlib.import_module(name)).values():
                if inspect.isclass(cls) and cls.__module__ == name:
                    found[f"{name}.{cls.__qualname__}"] = cls
    return found


def above(cls):
    """Classes of the project that a class inherits from, directly or not."""
    return [base for base in cls.__mro__[1:] if base.__module__.split(".")[0] == "headrace"]


def attributes(cls):
    """Names that the methods of a class and of its bases assign to self; slots and fields of data classes with them."""
    found = set()
    for one in (cls, *above(cls)):
        if dataclasses.is_dataclass(one):
            found |= {field.name for field in dataclasses.fields(one)}
        found |= {name for name in getattr(one, "__slots__", ()) if not name.startswith("__")}
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(one)))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                found.add(node.attr)
    return found


CLASSES = classes()


def breaks(cls):
    """What is against the rule in a class, in words; nothing if all is well."""
    bases, held = above(cls), attributes(cls)
    found = []
    if len(bases) > MOST_ABOVE:
        found.append(f"has {len(bases)} project classes above it: {', '.join(base.__name__ for base in bases)}")
    if len(held) > MOST_ATTRIBUTES:
        found.append(f"has {len(held)} attributes: {', '.join(sorted(held))}")
    return found


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_has_few_classes_above_it_and_few_attributes(name):
    assert not breaks(CLASSES[name])


def test_the_rule_sees_what_it_should():
    class Deep(CLASSES["headrace.semistream.adaptive.local_hot_set.LocalHotSet"]):
        def __init__(self):
            self.a = self.b = 1
            self.c, (self.d, *self.e) = 1, (2, 3)

    assert [base.__name__ for base in above(Deep)] == ["LocalHotSet", "HotSet"]
    assert {"a", "b", "c", "d", "e", "segments", "_load_filter"} <= attributes(Deep)
