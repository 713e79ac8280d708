"""Documents in files and in memory: compressed or not, ill-formed or damaged, in memory that does not grow with them."""

import functools
import gzip
import io
import os

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.bench.auctions import auctions
from headrace.errors import BadInput, IllFormed, MemoryRefused, OutsideFailure
from headrace.files import NotRegular
from headrace.spark.dead_letter_file import DeadLetterFile
from headrace.spark.fragments_task import LETTER, FragmentsTask
from headrace.xml import DocumentMatcher, Limits, Twig, read_document
from headrace.xml.documents import CHUNK
from tests.support.xml_documents import document as drawn
from tests.support.xml_documents import twig as drawn_twig

SITE = b"".join(auctions(3_000_000))
ITEMS = "//item[id][name]"


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


def rows(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def matched(matcher, data, **arguments):
    return rows(matcher.fragments(lambda: io.BytesIO(data), **arguments))


SKIPPED = bytes.fromhex("502a4d1804000000") + b"abcd"


@pytest.mark.parametrize(
    "packed",
    [
        SITE,
        gzip.compress(SITE, 1),
        gzip.compress(SITE[:1_000_000], 1) + gzip.compress(SITE[1_000_000:], 1) + b"\0" * 512,  # members, and padding
        zstd(SITE),
        SKIPPED + zstd(SITE[:1_000_000]) + zstd(SITE[1_000_000:]),  # frames
    ],
    ids=["plain", "gzip", "gzip members", "zstd", "zstd frames"],
)
def test_a_file_is_known_by_its_first_bytes(tmp_path, packed):
    file = tmp_path / "site.xml"
    file.write_bytes(packed)
    chunks = list(read_document(file))
    assert b"".join(chunks) == SITE
    assert max(map(len, chunks)) <= CHUNK
    assert rows(Twig(ITEMS).fragments(chunks)) == matched(DocumentMatcher(Twig(ITEMS)), packed)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_chunk_is_small_however_well_it_was_compressed(pack):
    bomb = pack(b"<a>" + b" " * (64 << 20) + b"</a>")
    assert len(bomb) < 1 << 20
    before = psutil.Process().memory_info().rss
    assert matched(DocumentMatcher(Twig("//b")), bomb) == []
    assert psutil.Process().memory_info().rss - before < 16 << 20


@pytest.mark.parametrize("partial", ["drop", "keep"])
@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_compressed_bytes_that_are_cut_off(pack, cut, partial):
    data = pack(SITE)
    matcher = DocumentMatcher(Twig(ITEMS), partial=partial)
    found = []
    with pytest.raises(IllFormed, match=r"site\.xml, line \d+, column \d+: the compressed bytes .* cut off") as caught:
        for batch in matcher.fragments(lambda: io.BytesIO(data[: int(len(data) * cut)]), "site.xml"):
            found += rows([batch])
    whole = matched(matcher, SITE)
    assert found == ([] if partial == "drop" else whole[: len(found)])
    if partial == "keep":
        assert caught.value.made == f"{len(found)} fragments"
        assert caught.value.line > 1


def test_bytes_that_were_changed_after_compression():
    data = bytearray(gzip.compress(SITE))
    data[-6] ^= 1  # of the checksum: all of the document has come before
    with pytest.raises(IllFormed, match="CRC check failed") as caught:
        matched(DocumentMatcher(Twig(ITEMS)), bytes(data))
    assert caught.value.line == SITE.count(b"\n") + 1


def test_an_error_of_the_disk_is_not_one_of_the_document():
    class Broken(io.BytesIO):
        def read(self, size=-1):
            if self.tell():
                raise OSError(5, "the disk is gone")
            return super().read(size)

    for data in (SITE, gzip.compress(SITE, 1), zstd(SITE)):
        with pytest.raises(OSError, match="the disk is gone"):
            list(DocumentMatcher(Twig(ITEMS)).fragments(lambda data=data: Broken(data)))


ALL = "//*"  # has more fragments than are held


@pytest.mark.parametrize("twig", [ITEMS, ALL])
def test_an_ill_formed_document_gives_all_or_nothing_unless_told_otherwise(twig):
    bad = SITE[: SITE.rindex(b"</site>")] + b"</sitf>"
    drop, keep = DocumentMatcher(Twig(twig)), DocumentMatcher(Twig(twig), partial="keep")
    found = {}
    for matcher in (drop, keep):
        got = found.setdefault(matcher.partial, [])
        with pytest.raises(IllFormed) as caught:
            for batch in matcher.fragments(lambda: io.BytesIO(bad), "bad.xml"):
                got += rows([batch])
        at = len(bad) - len(b"</sitf>")
        assert (caught.value.file, caught.value.line) == ("bad.xml", bad.count(b"\n", 0, at) + 1)
        assert caught.value.reason.startswith("an end tag does not have the name")
    whole = matched(drop, SITE)
    assert whole == matched(keep, SITE)
    assert found["drop"] == []
    assert found["keep"] == whole[: len(whole) - (twig == ALL)]  # the root has not ended


def test_a_document_is_read_twice_only_if_it_has_many_fragments():
    opened = []

    def opener():
        opened.append(1)
        return io.BytesIO(SITE)

    for twig, times in ((ITEMS, 1), (ALL, 2)):
        opened.clear()
        list(DocumentMatcher(Twig(twig)).fragments(opener))
        assert len(opened) == times
    opened.clear()
    list(DocumentMatcher(Twig(ALL), partial="keep").fragments(opener))
    assert len(opened) == 1


def test_a_document_that_changes_between_two_readings_is_said_to():
    versions = iter([SITE[:-100], SITE])  # what is matched is cut, what is checked is not
    with pytest.raises(OutsideFailure, match=r"site\.xml changed while it was read"):
        list(DocumentMatcher(Twig(ALL)).fragments(lambda: io.BytesIO(next(versions)), "site.xml"))


def test_a_text_is_utf8_whatever_it_declares():
    declared = "<?xml version='1.0' encoding='ISO-8859-1'?><a><b>é</b></a>".encode()
    matcher = DocumentMatcher(Twig("//b"))
    assert matched(matcher, declared, text=True) == [("é",)]
    assert matched(matcher, declared) == [("Ã©",)]
    assert matched(matcher, "<?xml version='1.0' encoding='UTF-16'?><b>é</b>".encode(), text=True) == [("é",)]


def test_differential_a_machine_used_again_finds_what_a_new_one_does():
    """Names, places, limits and half-done documents leave nothing behind."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        twig = Twig(drawn_twig(rng))
        matcher = DocumentMatcher(twig, partial="keep", limits=Limits(names=40))
        for number in range(12):
            data = drawn(rng, nodes=int(rng.integers(1, 30)))
            kind = rng.integers(0, 4)
            if kind == 0:
                data = data[: rng.integers(0, len(data))]
            elif kind == 1:
                data = b"<r>" + b"".join(b"<n%d x%d='1'/>\n" % (number, i) for i in range(20)) + data + b"</r>"
            again = given(matcher.fragments(functools.partial(io.BytesIO, data)))
            assert again == given(twig.fragments([data], limits=Limits(names=40)))


def given(fragments):
    """The rows that come, and the words of the error that ends them."""
    out = []
    try:
        for batch in fragments:
            out += rows([batch])
    except IllFormed as error:
        return out, str(error)
    return out, ""


def test_memory_that_one_document_took_is_not_missing_for_the_next():
    texts = b"<a><b>" + b"x" * (2 << 20) + b"</b></a>"
    subtrees = b"<a><c>" + b"x" * (2 << 20) + b"</c></a>"
    twig = Twig("//a[b]", content={"a": "xml"}, optional=("b",))
    matcher = DocumentMatcher(twig, memory="24MiB")
    for data in (texts, subtrees) * 3:
        assert len(matched(matcher, data)) == 1
    with pytest.raises(MemoryRefused, match=r"big\.xml: .* asked"):
        matched(matcher, b"<a><b>" + b"x" * (24 << 20) + b"</b></a>", file="big.xml")


def test_a_large_file_is_never_held_whole(tmp_path):
    """The process itself is measured: 60 MB, of which every element is wanted."""
    part = SITE[SITE.index(b"<regions>") : SITE.index(b"</site>")]
    file = tmp_path / "large.xml.gz"
    with gzip.open(file, "wb", 1) as out:
        out.write(b"<site>")
        for _ in range(20):
            out.write(part)
        out.write(b"</site>")
    task = FragmentsTask(Twig(ITEMS), ("document",), True, False, "drop", "16MiB", None)
    paths = pa.array([str(file)])
    process, peak, found = psutil.Process(), 0, 0
    list(task.run(iter([pa.record_batch([paths.slice(0, 0)] * 2, ["c0", "c1"])]), None))
    before = process.memory_info().rss
    for batch in task.run(iter([pa.record_batch([paths, paths], ["c0", "c1"])]), None):
        found += batch.num_rows
        peak = max(peak, process.memory_info().rss)
    assert found == 20 * part.count(b"<item ")
    assert peak - before < 32 << 20


def test_what_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.xml")
    with pytest.raises(NotRegular, match=r"pipe\.xml is not a regular file"):
        list(read_document(tmp_path / "pipe.xml"))
    (tmp_path / "a.xml").write_bytes(b"<a/>")
    (tmp_path / "link.xml").symlink_to("a.xml")
    assert list(read_document(tmp_path / "link.xml")) == [b"<a/>"]


def test_a_word_that_is_none():
    with pytest.raises(BadInput, match=r"partial='dropped' is not supported.*did you mean 'drop'"):
        DocumentMatcher(Twig("//a"), partial="dropped")


def column(documents, *kept, type_=None):
    arrays = [pa.array(documents, type_), *(pa.array(values) for values in kept)]
    return pa.record_batch(arrays, [f"c{i}" for i in range(len(arrays))])


def test_kept_values_are_repeated_in_batches_of_bounded_size():
    task = FragmentsTask(Twig("//b"), ("note",), False, True, "drop", "8MiB", None)
    large = "n" * 300_000
    batch = column(["<a>" + "<b>x</b>" * 40 + "</a>", "<a/>", None, "<a><b>y</b></a>"], [large, "no", "null", "small"])
    out = list(task.run(iter([batch]), None))
    assert rows(out) == [("x", large)] * 40 + [("y", "small")]
    assert max(b.nbytes for b in out) < 2 << 20


def test_small_documents_share_a_batch():
    task = FragmentsTask(Twig("//b"), ("n",), False, True, "drop", "8MiB", None)
    (out,) = task.run(iter([column([f"<a><b>{i}</b></a>" for i in range(500)], range(500))]), None)
    assert rows([out]) == [(str(i), i) for i in range(500)]


def test_dead_letters_have_the_document_the_reason_and_the_place(tmp_path):
    task = FragmentsTask(Twig("//b"), ("id", "at"), False, False, "keep", "8MiB", None)
    documents = [b"<a><b>1</b>\n  <b>2</b></c>", b"<a><b>3</b></a>", b"\xff\xfe", b""]
    batch = column(documents, [1, 2, 3, 4], [None, "x", "y", "z"], type_=pa.binary())
    with pytest.raises(IllFormed, match="document, line 2, column"):
        list(task.run(iter([batch]), None))
    for _ in range(2):  # a task that is repeated
        out = list(task.run(iter([batch]), DeadLetterFile(tmp_path, 3, "part-00001", LETTER)))
        assert rows(out) == [("1", 1, None), ("2", 1, None), ("3", 2, "x")]
    assert [path.name for path in (tmp_path / "batch=3").iterdir()] == ["part-00001.parquet"]
    letters = pq.read_table(tmp_path / "batch=3" / "part-00001.parquet").to_pylist()
    assert letters[0] == {
        "reason": "an end tag does not have the name of the element that is open",
        "record": "<a><b>1</b>\n  <b>2</b></c>",
        "source": '{"id": 1, "at": null}',
        "line": 2,
        "column": 11,
        "fragments": 2,
    }
    assert [(row["record"], row["fragments"]) for row in letters[1:]] == [(r"\xff\xfe", 0), ("", 0)]


def test_a_task_that_fails_leaves_no_letters(tmp_path):
    task = FragmentsTask(Twig("//b"), (), False, True, "drop", "8MiB", None)

    def broken():
        yield column(["<a>"])
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(task.run(broken(), DeadLetterFile(tmp_path, 0, "part-0", LETTER)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
