"""Line numbers of keys, and values of the environment that nobody gets to see."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.document import BadPipeline, Filled, filled, read_document

TEXT = '''# a comment
name = "x"
a.b = 3

[source]
format = "json"   # [not a table]
path = """
[not.a.table]
${HOME}"""
columns = { a = "long", b = "int" }
[[step]]
enrich = "r"
on = [
  "a",
  ["b"]]

[step.condition]
z = 1
[[step]]
filter = "q"
[sink.options]
"k.k" = 1
'''


def written(tmp_path, text: str | bytes):
    path = tmp_path / "p.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(tmp_path, text, **environment):
    try:
        problems = read_document(written(tmp_path, text), environment).problems
    except BadPipeline as error:
        problems = error.problems
    assert problems
    return [(p.line, p.key, p.message) for p in problems]


def test_every_key_has_its_line(tmp_path):
    lines = read_document(written(tmp_path, TEXT), {"HOME": "h"}).lines
    wanted = {
        ("name",): 2,
        ("a", "b"): 3,
        ("source",): 5,
        ("source", "format"): 6,
        ("source", "path"): 7,
        ("source", "columns", "b"): 10,
        ("step", 0): 11,
        ("step", 0, "enrich"): 12,
        ("step", 0, "on"): 13,
        ("step", 0, "condition"): 17,
        ("step", 0, "condition", "z"): 18,
        ("step", 1): 19,
        ("step", 1, "filter"): 20,
        ("sink", "options", "k.k"): 22,
    }
    assert {key: lines[key] for key in wanted} == wanted


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["", "# c", 'k{n} = "[x]"', "k{n} = [\n1,\n2]", 't{n} = """\n[a]\n"""']), max_size=12))
def test_the_line_is_where_the_key_stands(tmp_path_factory, parts):
    text = "\n".join(part.format(n=i) for i, part in enumerate(parts))
    path = tmp_path_factory.mktemp("d") / "p.toml"
    path.write_text(text)
    document = read_document(path, {})
    rows = text.split("\n")
    assert len(document.values) == sum("=" in part for part in parts)
    for name in document.values:
        assert rows[document.lines[(name,)] - 1].startswith(f"{name} =")


def test_windows_line_ends_count_the_same(tmp_path):
    assert (
        read_document(written(tmp_path, TEXT.replace("\n", "\r\n")), {"HOME": "h"}).lines[("step", 1, "filter")] == 20
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nb = \n", 2, "not TOML"),
        ("a = 1\na = 2\n", 2, "Cannot overwrite"),
        ('a = "\n', 1, "not TOML"),
        (b"a = 1\nb = '\xff'\n", 2, "UTF-8"),
    ],
)
def test_what_is_not_toml_is_refused_with_its_line(tmp_path, text, line, words):
    ((found, _, message),) = refused(tmp_path, text)
    assert found == line
    assert words in message


def test_values_come_from_the_environment_and_are_not_shown(tmp_path):
    text = 'url = "postgresql://me:${PASSWORD}@db/x"\nraw = "$${PASSWORD}"\n'
    document = read_document(written(tmp_path, text), {"PASSWORD": "hunter2!"})
    assert filled(document.values["url"]) == "postgresql://me:hunter2!@db/x"
    assert filled(document.values["raw"]) == "${PASSWORD}"
    for shown in (repr(document), str(document.values), f"{document.values['url']}", json.dumps(document.values)):
        assert "hunter2" not in shown
    assert isinstance(document.values["url"], Filled)


def test_a_text_by_others_is_cleared_of_secrets(tmp_path):
    document = read_document(
        written(tmp_path, 'url = "${PASSWORD}"\nn = "${N}"\n'), {"PASSWORD": "p@ss 'w/d", "N": "2"}
    )
    for form in ("p@ss 'w/d", "p%40ss%20%27w%2Fd", "p%40ss+%27w%2Fd", repr("p@ss 'w/d")):
        assert document.hide(f"cannot connect to {form}, line 2") in (
            "cannot connect to ${PASSWORD}, line 2",
            'cannot connect to "${PASSWORD}", line 2',
        )


def test_a_variable_that_is_not_set_is_named(tmp_path):
    assert refused(tmp_path, 'a = 1\n[b]\nc = ["x", "${NO_SUCH}"]\n') == [
        (3, "b.c 2", "the environment has no NO_SUCH; set it before the run: export NO_SUCH=...")
    ]


@pytest.mark.parametrize("text", ["${}", "${1a}", "${a b}", "${open"])
def test_what_is_not_a_variable_is_refused(tmp_path, text):
    ((line, key, message),) = refused(tmp_path, f'a = "{text}"\n')
    assert (line, key) == (1, "a")
    assert "expected the name of a variable" in message


@pytest.mark.parametrize("depth", [33, 5000])
@pytest.mark.parametrize(("begin", "inner", "end"), [("a = ", "[", "]"), ("a = ", "{b = ", ""), ("a", ".b", " = 1")])
def test_values_that_are_nested_too_deep_are_refused_in_words(tmp_path, depth, begin, inner, end):
    path = tmp_path / "deep.toml"
    path.write_text(
        begin + inner * depth + ("1" + "}" * depth if inner[0] == "{" else end * (depth if end == "]" else 1))
    )
    with pytest.raises(BadPipeline, match="nested more than 32 deep"):
        read_document(path, {})


def test_brackets_that_are_never_closed_are_refused(tmp_path):
    path = tmp_path / "open.toml"
    path.write_text("a = " + "[" * 5000)
    with pytest.raises(BadPipeline):
        read_document(path, {})


def test_a_number_of_more_digits_than_python_takes_is_refused(tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text("cores = " + "9" * 5000)
    with pytest.raises(BadPipeline, match=r"not TOML: .*digits"):
        read_document(path, {})
