"""Steps that sample, without Spark: what is read, which mistakes are named at which line, and which columns come out."""

import pytest

from headrace.cli.running import line
from headrace.metrics import JoinStats
from headrace.pipeline.check import check_draft, check_pipeline
from headrace.pipeline.explain import explain
from headrace.pipeline.read import read_draft
from headrace.pipeline.run import PipelineStatus
from tests.support.pipeline_place import SALES

PAID = """
name = "paid"
[source]
format = "json"
path = "incoming"
[source.columns]
sale = "long"
shop = "string"
t = "timestamp"
[sources.payments]
format = "json"
path = "payments"
[sources.payments.columns]
sale = "long"
amount = "double"
t = "timestamp"
[[step]]
STEP
[sink]
format = "parquet"
path = "out"
"""
FIRST = 18  # the line of the step's first key
JOINED = ["sale", "shop", "t", "amount", "t_right"]
ESTIMATES = ["quantity", "estimate", "low", "high", "rows", "kept"]
BY_TIME = 'window = "10 minutes"\ntime = "t"\nlate = "10 seconds"'
BY_SALE, BY_AT = (BY_TIME.replace('"t"', f'"{name}"') for name in ("sale", "at"))


@pytest.fixture(autouse=True)
def payments(place):
    (place.root / "payments").mkdir()


def checked(place, *lines, text=PAID):
    place.write(text.replace("STEP", "\n".join(lines)))
    return check_pipeline(place.read())


def mistakes(place, *lines, text=PAID, **environment):
    """The mistakes of a file, as (line, words)."""
    place.write(text.replace("STEP", "\n".join(lines)))
    draft = read_draft(place.file, environment)
    check_draft(draft)
    assert len({str(p) for p in draft.problems}) == len(draft.problems)
    return [(p.line, f"{p.key}: {p.message}") for p in sorted(draft.problems, key=lambda p: p.line)]


@pytest.mark.parametrize(
    ("step", "columns"),
    [
        (f'window_join = "payments"\non = "sale"\n{BY_TIME}\nmethod = "all"', JOINED),
        ('window_join = "payments"\non = "SALE"\nwindow = 100\nsample = 0.1', JOINED),
        (f'window_join = "payments"\non = "sale"\n{BY_TIME}\nmemory = "${{MEMORY}}"', JOINED),
        (
            'window_join = "payments"\ncondition = { equal = ["sale"], compare = ["t", "<", "t"] }\nwindow = 9\nsize = 9',
            JOINED,
        ),
        ('approximate_join = "payments"\non = "sale"\nsuffix = "_p"', [*JOINED[:-1], "t_p"]),
        ('approximate_join = "payments"\non = "sale"\nmethod = "mixture"\nquality = 1\ntuples = 10', JOINED),
    ],
)
def test_columns_of_joins_of_two_sources(place, step, columns):
    place.write(PAID.replace("STEP", step))
    found = check_pipeline(place.read(MEMORY="8MiB"))
    assert found.schemas[1].names == columns
    assert found.spark == []


@pytest.mark.parametrize(
    ("step", "columns"),
    [
        ("sample = 1000", ["sale", "shop", "t", "batch"]),
        (f'sample = "4MiB"\n{BY_TIME}\nmethod = "chain"\nbatch_column = false', ["sale", "shop", "t"]),
        ('estimate = "count"\nsize = 10', ["batch", *ESTIMATES]),
        (
            f'estimate = ["count", "sum( sale )"]\nsize = 10\ngroup_by = "shop"\n{BY_TIME}',
            ["batch", "shop", "other", *ESTIMATES, "at"],
        ),
    ],
)
def test_columns_of_samples_and_estimates(place, step, columns):
    alone = PAID[: PAID.index("[sources.payments]")] + PAID[PAID.index("[[step]]") :]
    assert checked(place, step, text=alone).schemas[1].names == columns


def test_an_estimate_of_a_join_is_one_step_and_its_types_are_known(place):
    step = 'estimate = ["count", "avg(amount)"]\nwindow_join = "payments"\non = "sale"\nwindow = 50\nsample = 0.5'
    found = checked(place, step, 'group_by = "t_right"').schemas[1]
    assert found.names == ["batch", "t_right", "other", *ESTIMATES]
    assert [str(t) for t in found.types[:4]] == ["int64", "timestamp[us, tz=UTC]", "bool", "string"]


@pytest.mark.parametrize(
    ("step", "at", "words"),
    [
        ('window_join = "paiments"\non = "sale"\nwindow = 9\nsize = 9', 0, "did you mean 'payments'?"),
        ('window_join = "payments"\nwindow = 9\nsize = 9', -1, "on: is missing in a window_join step"),
        ('window_join = "payments"\non = "sale"\nsize = 9', -1, "window: is missing in a window_join step"),
        ('window_join = "payments"\non = { sal = "sale" }\nwindow = 9\nsize = 9', 1, "on: there is no column 'sal'"),
        (
            'window_join = "payments"\non = { sale = "sal" }\nwindow = 9\nsize = 9',
            1,
            "on: source 'payments' has no column 'sal'",
        ),
        (
            'window_join = "payments"\non = { shop = "sale" }\nwindow = 9\nsize = 9',
            -1,
            "'sale' of the right side has type int64",
        ),
        (
            'window_join = "payments"\non = "sale"\nwindow = 9\nsize = 10',
            3,
            "size=10 is larger than the window of 9 rows",
        ),
        ('window_join = "payments"\non = "sale"\nwindow = 9', -1, "takes one of sample=, size= and memory="),
        ('window_join = "payments"\non = "sale"\nwindow = -1\nsize = 9', 2, "expected a number of rows, or a duration"),
        (
            'window_join = "payments"\non = "sale"\nwindow = "soon"\nsize = 9',
            2,
            "expected a number of rows, or a duration",
        ),
        ('window_join = "payments"\non = "sale"\nwindow = 9\nsample = 1.5', 3, "expected a part of the whole"),
        ('window_join = "payments"\non = "sale"\nwindow = 9\nsize = 9\ncell = 2', 4, "cell=2 is for boxes and vectors"),
        (
            'window_join = "payments"\non = "sale"\nwindow = 9\nsize = 9\nlate = "1s"',
            4,
            "late: is for a window by time",
        ),
        (
            'window_join = "payments"\non = "sale"\nwindow = 9\nmethod = "all"\nsize = 1',
            3,
            "method='all' keeps everything",
        ),
        ('window_join = "payments"\non = "sale"\nwindow = 9\nsmaple = 0.1', 3, "did you mean 'sample'?"),
        (
            f'window_join = "payments"\non = "sale"\n{BY_SALE}\nsize = 9',
            3,
            "time: column 'sale' has type int64; a window by time is on a timestamp",
        ),
        (
            f'window_join = "payments"\non = "sale"\n{BY_AT}\nsize = 9',
            3,
            "source 'payments' has no column 'at'",
        ),
        ('approximate_join = "payments"\non = "sale"\nmethod = "mixture"', -1, "quality=None and method='mixture'"),
        ('approximate_join = "payments"\non = "sale"\ntuples = 9\nmemory = "1MiB"', 3, "memory= and tuples= both say"),
        ('approximate_join = "payments"\non = "sale"\ncounters = "1MiB"', 2, "counters='1MiB' is for prob"),
        (
            'approximate_join = "payments"\ncondition = { compare = ["sale", "<", "sale"] }',
            -1,
            "cannot divide two streams",
        ),
        ('sample = "lots"', 0, "expected a number of rows, or a size"),
        ("sample = 10\nwindow = 9", 0, "sample: size=10 is larger than the window of 9 rows"),
        ('sample = "1KiB"\nwindow = 9', 0, "sample: memory='1KiB' is 1KiB for each of 1 workers"),
        ('sample = 10\nmethod = "fair"', -1, "window=None is not a window"),
        ('sample = 10\nbatch_column = "Sale"', 1, "batch_column: 'Sale' is a column already"),
        ('sample = 10\nwindow = "1m"\nlate = 0', -1, "time: is missing in a sample step with a window by time"),
        ('estimate = ["count", "sum(amount)"]\nsize = 9', 0, "there is no column 'amount'"),
        ('estimate = "sum(shop)"\nsize = 9', 0, "column 'shop' has type string, which cannot be summed"),
        ('estimate = "max(sale)"\nsize = 9', 0, "expected what to estimate: 'count', 'sum(column)' or 'avg(column)'"),
        ('estimate = "count"\ngroup_by = "shp"\nsize = 9', 1, "did you mean 'shop'?"),
        ('estimate = "count"\nconfidence = 95\nsize = 9', 1, "found 95, expected less than 1"),
        ('estimate = "count"\nsample = 0.5\nwindow = 9', 1, "sample: is for two windows joined"),
        ('estimate = "count"', -1, "needs its size"),
        (
            'estimate = "count"\nwindow_join = "payments"\non = "sale"\nsize = 9',
            -1,
            "window: is missing in an estimate step",
        ),
        ('window_join = "payments"\nfilter = "true"', -1, "found window_join and filter in one step"),
    ],
)
def test_a_mistake_is_named_with_its_line(place, step, at, words):
    text = PAID.replace('t = "timestamp"\n[sources', 't = "timestamp"\nat = "timestamp"\n[sources')
    # A step without another source would make the table of payments a mistake too.
    if "join" not in step:
        text = text[: text.index("[sources.payments]")] + text[text.index("[[step]]") :]
    first = text.split("\n").index("STEP") + 1
    ((line, found),) = mistakes(place, step, text=text)
    assert words in found
    assert line == first + at


def test_one_check_names_mistakes_of_all_steps(place):
    found = mistakes(
        place,
        'window_join = "payments"\non = { sal = "sale" }\nwindow = "10 minutes"\nmemory = "1KiB"\nmethod = "fare"',
        '[[step]]\nsample = "2 rows"\ntime = "t"',
        '[[step]]\nestimate = ["count", "sum(amont)"]\nsize = 0\ngroup_by = "amount"',
    )
    assert [(line - FIRST, words.split(":")[0]) for line, words in found] == [
        (-1, "step 1, time"),
        (-1, "step 1, late"),
        (1, "step 1, on"),
        (3, "step 1, memory"),
        (4, "step 1, method"),
        (6, "step 2, sample"),
        (7, "step 2, time"),
        (9, "step 3, estimate"),
        (10, "step 3, size"),
    ]


def test_mistakes_of_a_further_source_are_those_of_a_source(place):
    text = PAID.replace('format = "json"\npath = "payments"', 'format = "jsn"\npath = "payments"')
    step = 'window_join = "payments"\non = "sal"\nwindow = 9\nsize = 9\n[[step]]\nselect = ["amount", "shop"]'
    found = mistakes(place, step, text=text)
    assert [line for line, _ in found] == [11, 19, 19]
    assert "sources.payments.format: found 'jsn'" in found[0][1]
    assert "source 'payments' has no column 'sal'; expected one of sale, amount, t" in found[2][1]
    text = PAID.replace('path = "payments"', 'path = "nowhere"\nrequired = "amont"')
    found = mistakes(place, 'window_join = "payments"\non = "sale"\nwindow = 9\nsize = 9', text=text)
    assert [words.split(";")[0] for _, words in found] == [
        "sources.payments.path: found nothing at 'nowhere', expected a directory",
        "sources.payments.required: there is no column 'amont'",
    ]


def test_each_further_source_is_joined_with_once(place):
    found = mistakes(place, "sample = 9")
    assert found == [(10, "sources.payments: no step joins with it; name it in a window_join, or leave it out")]
    twice = 'approximate_join = "payments"\non = "sale"'
    ((line, words),) = mistakes(place, f"{twice}\n[[step]]\n{twice}\nsuffix = '_2'")
    assert line == FIRST + 3
    assert "step 1 joins with 'payments' already, and a source is read once" in words
    text = PAID.replace("[sources.payments", '[sources."a/b"')
    assert any("expected a name of letters, digits" in words for _, words in mistakes(place, "sample = 9", text=text))
    assert "expected a table [sources.NAME]" in str(mistakes(place, "sample = 9", text="sources = 3\n" + SALES))


def test_after_a_mistake_in_a_step_later_names_are_still_compared(place):
    step = 'window_join = "payments"\non = "sale"\nwindow = 9\nsample = 7'
    later = '[[step]]\nestimate = "sum(amuont)"\nsize = 9\n[[step]]\nsample = 9\nbatch_column = "Quantity"'
    found = mistakes(place, step, later)
    assert [words.split(";")[0] for _, words in found] == [
        "step 1, sample: found 7, expected a part of the whole: more than 0, and 1 at most",
        "step 2, estimate: there is no column 'amuont'",
        "step 3, batch_column: 'Quantity' is a column already",
    ]


def test_the_plan_says_what_each_step_keeps(place):
    place.write(
        PAID.replace(
            "STEP",
            'approximate_join = "payments"\non = "sale"\n[[step]]\nsample = "2MiB"\n[[step]]\nestimate = "count"\nwindow = 50'
            "\nsize = 20",
        )
    )
    pipeline = place.read()
    plan = explain(pipeline, check_pipeline(pipeline))
    assert [step["memory"] for step in plan["steps"]] == ["64MiB an executor", "2MiB an executor", "for 20 rows"]
    assert [step["method"] for step in plan["steps"]] == ["rajhash", "reservoir", "fair"]
    assert plan["memory"] == "66MiB an executor for the joins, and what the rows of step 3 take"
    assert plan["sources"]["payments"]["gives"] == {"sale": "long", "amount": "double", "t": "timestamp"}
    assert plan["steps"][2]["gives"]["estimate"] == "double"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("estimate = true", 'estimate: is for shed = "sample"'),
        ('shed = "topw"\nestimate = true', "rows that are shed at random, and shed='topw' chooses them"),
        ('shed = "auto"\nestimate = true', "and shed='keep' chooses them; use shed='sample'"),
        ('shed = "sample"\nestimate = ["prize"]', "there is no column 'prize' to estimate"),
        ('shed = "sample"\nestimate = 3', "expected true for the number of results, or columns that are summed"),
        ('shed = "sample"\nestimate = true\ndeadline = "5s"', "here rows may wait"),
    ],
)
def test_mistakes_in_what_shedding_estimates(place, keys, words):
    place.products().close()
    ((_, found),) = mistakes(place, text=SALES.replace('memory = "4MiB"', keys))
    assert words in found
    assert found.startswith("step 1, estimate: ")
    place.write(SALES.replace('memory = "4MiB"', 'shed = "sample"\nestimate = ["price", "quantity"]'))
    assert check_pipeline(place.read()).schemas[1].names[-1] == "price"


def test_the_status_of_a_step_that_samples_says_its_results_and_what_came_too_late():
    stats = {"products": JoinStats(tuples_in=9, hits=9), "window join": JoinStats(tuples_in=9, results=4, late=2)}
    found = line(PipelineStatus("paid", batches=1, rows=18, joins=stats))
    assert found.endswith("products 100.0% from memory · window join 4 results, 2 rows too late")
