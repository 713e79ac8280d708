"""The published algorithms behind hr.enrich: every one, batch and streaming, gives what DuckDB gives."""

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace import errors
from headrace.semistream import ALGORITHMS
from tests.support.join_oracle import table
from tests.support.relation_joins import expected
from tests.support.similar_texts import random_texts
from tests.support.spark_streams import counted, duck, files, relation, source, streamed

HOWS = ["inner", "left", "semi", "anti"]


def unique_rows(random: Random) -> pa.Table:
    return table("int64", list(range(0, 900, 3)), random, tag="r")


def made(path, rows, algorithm):
    """The relation as the algorithm wants it."""
    if not getattr(ALGORITHMS[algorithm], "needs_popularity", False):
        return relation(path, rows, ["k0"])
    frequencies = rows.select(["k0"]).append_column("frequency", pa.array(range(rows.num_rows, 0, -1)))
    return hr.Relation.create(path, rows, key=["k0"], order="frequency", frequencies=frequencies, page_size="4KiB")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_oracle_batch_and_streaming(spark, tmp_path, algorithm):
    random = Random(algorithm)
    rows = unique_rows(random)
    parts = [table("int64", [random.randrange(1000) for _ in range(700)], random, nulls=0.1, tag="s") for _ in range(3)]
    rel = made(tmp_path / "r", rows, algorithm)
    stream = pa.concat_tables(parts)
    for how in HOWS:
        out = hr.enrich(
            spark.createDataFrame(stream), rel, on="k0", how=how, algorithm=algorithm, memory="8MiB"
        ).toArrow()
        assert counted(out) == duck(stream, rows, ["k0"], how), how
    df = source(spark, files(tmp_path / "in", *parts))
    out = streamed(hr.enrich(df, rel, on="k0", how="left", algorithm=algorithm, memory="8MiB"))
    assert counted(out) == duck(stream, rows, ["k0"], "left")


def test_progress_names_the_algorithm(spark, tmp_path):
    rows = unique_rows(Random(1))
    rel = relation(tmp_path / "r", rows, ["k0"])
    df = source(spark, files(tmp_path / "in", table("int64", list(range(500)), Random(2), tag="s")))
    query = (
        hr.enrich(df, rel, on="k0", algorithm="meshjoin", memory="8MiB")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    (progress,) = hr.progress(query)
    assert progress.algorithm == "meshjoin"
    assert progress.stats.tuples_in == 500
    assert progress.stats.iterations > 0


def test_stream_order_within_a_task(spark, tmp_path):
    rows = pa.table({"k0": [i % 50 for i in range(300)], "v": range(300)})
    rel = relation(tmp_path / "r", rows, ["k0"])
    stream = pa.table({"k0": pa.array([(7 * i) % 60 for i in range(2000)]), "seq": pa.array(range(2000))})
    for algorithm in ("auto", "meshjoin"):
        df = spark.createDataFrame(stream).coalesce(1)
        out = hr.enrich(df, rel, on="k0", algorithm=algorithm, order="stream", memory="8MiB").toArrow()
        seq = out["seq"].to_pylist()
        assert seq == sorted(seq)
        assert len(seq) == sum(6 for i in range(2000) if (7 * i) % 60 < 50)


def test_conditions_beyond_equality(spark, tmp_path):
    rows = pa.table(
        {"k0": range(40), "valid_from": [10 * i for i in range(40)], "valid_to": [10 * i + 4 for i in range(40)]}
    )
    rel = relation(tmp_path / "r", rows, ["k0"])
    stream = pa.table({"at": range(400)})
    condition = hr.between("at", "valid_from", "valid_to")
    out = hr.enrich(
        spark.createDataFrame(stream), rel, algorithm="meshjoin", condition=condition, memory="8MiB"
    ).toArrow()
    assert sorted(out["at"].to_pylist()) == [t for t in range(400) if t % 10 < 5]
    assert all(row["at"] // 10 == row["k0"] for row in out.to_pylist())
    alone = hr.enrich(spark.createDataFrame(stream), rel, condition=condition)  # auto: there is no key to look up
    assert sorted(alone.toArrow().to_pylist(), key=repr) == sorted(out.to_pylist(), key=repr)
    with pytest.raises(errors.BadInput, match=r"algorithm='inl' joins by equality of the key alone; .* meshjoin"):
        hr.enrich(spark.createDataFrame(stream), rel, algorithm="inl", condition=condition)
    with pytest.raises(errors.BadInput, match="neither on= nor condition="):
        hr.enrich(spark.createDataFrame(stream), rel)


def test_conditions_on_texts_and_a_function_of_the_user(spark, tmp_path):
    random = Random(3)
    texts = random_texts(random, 300)
    rows = pa.table({"k0": [i % 40 for i in range(200)], "t": texts[:200]})
    stream = pa.table({"n": range(100), "k0": [random.randrange(45) for _ in range(100)], "s": texts[200:]})
    rel, df = relation(tmp_path / "r", rows, ["k0"]), spark.createDataFrame(stream)
    longest = 3

    def short(left, right):  # a closure of this test travels to the workers
        return pc.less(pc.add(pc.utf8_length(left["s"]), pc.utf8_length(right["t"])), 2 * longest)

    for condition, on in (
        (hr.edit_distance("s", "t", at_most=2), None),
        (hr.jaccard("s", "t", at_least=0.5, q=2), "k0"),
        (hr.compare("s", "<", "t"), "k0"),
        (hr.all_of(hr.compare("s", ">", "t"), hr.predicate(short, "s", right="t")), None),
        (hr.predicate(short, "s", right="t"), "k0"),
    ):
        out = hr.enrich(df, rel, on, condition=condition, memory="8MiB")
        columns = ["t"] if on else ["k0", "t"]
        assert Counter(map(repr, map(tuple, out.collect()))) == expected(stream, rows, condition, "inner", columns, on)
    failing = hr.enrich(df, rel, condition=hr.predicate(lambda left, right: left["nope"], "s", right="t"))
    with pytest.raises(
        Exception, match=r"OutsideFailure: the predicate .*<lambda> failed on .* pairs of s and t: KeyError"
    ):
        failing.collect()


def test_a_column_that_is_not_the_key(spark, tmp_path):
    rows = pa.table({"k0": range(300), "city": [f"c{i % 7}" for i in range(300)], "size": range(300)})
    stream = pa.table({"n": range(30), "town": [None if i % 5 == 0 else f"c{i % 9}" for i in range(30)]})
    rel, df = relation(tmp_path / "r", rows, ["k0"]), spark.createDataFrame(stream)
    for algorithm in ("auto", "ameshjoin"):
        out = hr.enrich(df, rel, {"town": "city"}, "left", algorithm=algorithm, memory="8MiB")
        assert out.columns == ["n", "town", "k0", "size"]
        wanted = expected(stream, rows, None, "left", ["k0", "size"], {"town": "city"})
        assert Counter(map(repr, map(tuple, out.collect()))) == wanted
    with pytest.raises(errors.BadInput, match="AdaptiveJoin looks keys up, so join on the whole key, or use MeshJoin"):
        hr.enrich(df, rel, {"town": "city"}, algorithm="adaptive")
    with pytest.raises(errors.BadInput, match="names 'nowhere' of the relation, which has no such column"):
        hr.enrich(df, rel, {"town": "nowhere"})


def test_wrong_words_and_what_an_algorithm_does_not_take_are_refused_at_the_call(spark, tmp_path):
    rows = table("int64", [1, 1, 2], Random(4), tag="r")
    rel = relation(tmp_path / "r", rows, ["k0"])
    df = spark.createDataFrame(pa.table({"k0": pa.array([1])}))
    with pytest.raises(errors.BadInput, match=r"algorithm='mesh' is not supported; choose one of auto, .*meshjoin"):
        hr.enrich(df, rel, on="k0", algorithm="mesh")
    with pytest.raises(errors.BadInput, match="order='random'"):
        hr.enrich(df, rel, on="k0", order="random")
    with pytest.raises(errors.HeadraceError, match="unique"):
        hr.enrich(df, rel, on="k0", algorithm="hybridjoin")
