"""Pages: cut, written, sealed, checked, searched and gathered, against plain Python rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernels.jit import int64, kernel, store_u64, void
from headrace.kernels.pages import (
    BAD_CHECKSUM,
    BAD_LAYOUT,
    BAD_MAGIC,
    BAD_PLACE,
    HEADER,
    SOUND,
    expand_rows,
    find_ints,
    find_strings,
    gather_fixed,
    gather_valid,
    gather_variable,
    last_not_above,
    page_checksum,
    page_facts,
    paginate,
    seal,
    verify,
    write_column,
)
from headrace.relation.columns import NO_BYTES, address
from tests.support.kernel_arrays import (
    BYTE_STRINGS,
    RELAXED,
    fit,
    ints,
    longs,
    octets,
    space,
    strings,
    to_bytes,
)

SIZE = 4096
WIDTHS = np.array([8, 0, 16], np.int64)  # of the columns of the page that is damaged below


def check(pages, page_size, shard, numbers, widths, verdict) -> int:
    """Check pages of one shard, none of which was checked before."""
    return verify(pages, page_size, np.full(pages.size, shard), numbers, widths, numbers, NO_BYTES, verdict)


def overhead(columns: int) -> int:
    """Bytes of a page that are no rows: more than any columns take."""
    return HEADER + columns * (8 + 24)


# -- paginate --------------------------------------------------------------------------------------


def page_starts(rows, fixed, nullable, variable, breaks, overhead_, room) -> list[int]:
    starts = np.full(rows + 1, -9, np.int64)
    count = paginate(rows, fixed, nullable, longs(variable), longs(breaks), overhead_, room, starts)
    return starts[: count + 1].tolist()


@given(
    st.lists(st.integers(0, 60), max_size=30),
    st.integers(1, 20),
    st.integers(0, 3),
    st.sets(st.integers(0, 35)),
    st.integers(0, 20),
    st.integers(20, 120),
    st.booleans(),
)
@RELAXED
def test_oracle_pages_are_as_full_as_they_may_be(sizes, fixed, nullable, breaks, head, room, variable):
    rows = len(sizes)
    inside = sorted(b for b in breaks if b <= rows)
    starts = page_starts(rows, fixed, nullable, sizes if variable else [], inside, head, room)
    size_of = sizes if variable else [0] * rows

    def needs(a, b):
        return head + (b - a) * fixed + sum(size_of[a:b]) + nullable * -(-(b - a) // 8)

    assert starts[0] == 0
    assert starts[-1] == rows
    assert all(a < b for a, b in pairwise(starts)), "an empty page"
    assert {b for b in inside if 0 < b < rows} <= set(starts)
    for a, b in pairwise(starts):
        assert needs(a, b) <= room or b - a == 1
        if b < rows and b not in breaks:
            assert needs(a, b + 1) > room, "the next row would have fitted"


# -- pages with every kind of column ---------------------------------------------------------------


class Built:
    """Sealed pages of some columns: each is (width, values, valid), the values as bytes."""

    def __init__(self, columns, starts, *, page_size=SIZE, shard=3, first_number=10):
        self.columns, self.starts, self.page_size = columns, starts, page_size
        self.count = len(starts) - 1
        self.pages = np.zeros(self.count * page_size, np.uint8)
        self.cursor = np.full(self.count, HEADER + 8 * len(columns), np.int64)
        for position, (width, values, valid) in enumerate(columns):
            if width:
                data, offsets = np.frombuffer(b"".join(values), np.uint8), longs([])
            else:
                data, offsets = strings(values, b"xyz")
            write_column(
                address(self.pages),
                page_size,
                longs(starts),
                position,
                width,
                address(data),
                offsets,
                octets(valid),
                self.cursor,
            )
        seal(address(self.pages), page_size, longs(starts), shard, first_number, self.cursor)

    @property
    def widths(self) -> np.ndarray:
        return longs([width for width, _, _ in self.columns])

    @property
    def addresses(self) -> np.ndarray:
        return address(self.pages) + np.arange(self.count) * self.page_size

    def verdicts(self, shard=3, first_number=10) -> list[int]:
        verdict = np.full(self.count, -9, np.int32)
        numbers = np.arange(first_number, first_number + self.count)
        damaged = check(self.addresses, self.page_size, shard, numbers, self.widths, verdict)
        assert damaged == np.count_nonzero(verdict)
        return verdict.tolist()

    def rows(self, some) -> tuple[np.ndarray, np.ndarray]:
        """(page address, row in the page) of rows by their number."""
        page = np.searchsorted(longs(self.starts), longs(some), side="right") - 1
        return self.addresses[page], ints(r - self.starts[p] for r, p in zip(some, page, strict=True))


def values_of(width):
    return st.binary(min_size=width, max_size=width) if width else BYTE_STRINGS


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 40))
    columns = []
    for width in draw(st.lists(st.sampled_from([0, 1, 2, 4, 8, 16]), min_size=1, max_size=5)):
        values = draw(st.lists(values_of(width), min_size=rows, max_size=rows))
        valid = draw(st.one_of(st.just([]), st.lists(st.booleans(), min_size=rows, max_size=rows)))
        columns.append((width, values, valid))
    cuts = sorted({0, rows, *draw(st.sets(st.integers(1, rows)))})
    some = draw(st.lists(st.integers(0, rows - 1), max_size=60))
    return columns, cuts, some


@given(tables())
@RELAXED
def test_oracle_written_then_gathered(case):
    columns, starts, some = case
    built = Built(columns, starts)
    assert built.verdicts() == [SOUND] * built.count
    at, row = built.rows(some)
    for position, (width, values, valid) in enumerate(columns):
        expected = [values[r] for r in some]
        if width:
            out = np.zeros(len(some) * width, np.uint8)
            gather_fixed(at, row, position, width, address(out))
            assert out.tobytes() == b"".join(expected)
        else:
            room = sum(map(len, expected))
            out, offsets = np.zeros(room + 8, np.uint8), np.zeros(len(some) + 1, np.uint32)
            assert gather_variable(at, row, position, address(out), room, 0, address(offsets)) == room
            assert to_bytes(out, offsets) == expected
            assert not out[room:].any(), "wrote past the room it was given"
        here = np.full(len(some), 9, np.uint8)
        nulls = gather_valid(at, row, position, address(here))
        expected_valid = [int(valid[r]) if valid else 1 for r in some]
        assert here.tolist() == expected_valid
        assert nulls == expected_valid.count(0)


@given(tables())
@RELAXED
def test_oracle_page_facts(case):
    columns, starts, _ = case
    built = Built(columns, starts)
    rows, used = np.zeros(built.count, np.int32), np.zeros(built.count, np.int64)
    page_facts(built.addresses, rows, used)
    assert rows.tolist() == [b - a for a, b in pairwise(starts)]
    assert used.tolist() == built.cursor.tolist()
    for p, (a, b) in enumerate(pairwise(starts)):
        least = HEADER + 8 * len(columns)
        for width, values, valid in columns:
            least += -(-(b - a) // 8) if valid else 0
            least += (b - a) * width if width else 4 * (b - a + 1) + sum(map(len, values[a:b]))
        assert least <= used[p] <= least + len(columns) * 14
        assert used[p] <= overhead(len(columns)) + least - HEADER
        assert not built.pages[p * SIZE + used[p] : (p + 1) * SIZE].any()


def test_gathering_strings_goes_on_where_it_stopped():
    built = Built([(0, [b"one", b"", b"three"], [])], [0, 2, 3])
    out, offsets = np.zeros(20, np.uint8), np.zeros(6, np.uint32)
    at, row = built.rows([2, 1, 0])
    assert gather_variable(at[:1], row[:1], 0, address(out), 20, 0, address(offsets)) == 5
    assert gather_variable(at[1:], row[1:], 0, address(out), 20, 5, address(offsets[1:])) == 8
    assert to_bytes(out, offsets[:4]) == [b"three", b"", b"one"]


@pytest.mark.parametrize("room", range(8))
def test_gathering_strings_says_when_there_is_no_room(room):
    built = Built([(0, [b"one", b"three"], [])], [0, 2])
    out, offsets = np.zeros(8, np.uint8), np.zeros(3, np.uint32)
    at, row = built.rows([0, 1])
    assert gather_variable(at, row, 0, address(out), room, 0, address(offsets)) == -1
    assert not out[room:].any()


# -- find ------------------------------------------------------------------------------------------


@st.composite
def searches(draw, keys):
    values = sorted(draw(st.lists(keys, min_size=1, max_size=30)))
    cuts = sorted({0, len(values), *draw(st.sets(st.integers(1, len(values))))})
    asked = draw(st.lists(st.tuples(st.integers(0, len(cuts) - 2), keys), max_size=20))
    return values, cuts, asked


def check_find(built, values, starts, asked, total, low, high):
    rows = []
    for (page, key), a, b in zip(asked, low.tolist(), high.tolist(), strict=True):
        inside = values[starts[page] : starts[page + 1]]
        matching = [r for r, value in enumerate(inside) if value == key]
        assert list(range(a, b)) == matching
        assert a == sum(value < key for value in inside)
        rows += [(built.addresses[page], r) for r in matching]
    assert total == len(rows)
    at, row = np.full(total, -9, np.int64), np.full(total, -9, np.int32)
    expand_rows(built.addresses[[page for page, _ in asked]], low, high, at, row)
    assert list(zip(at.tolist(), row.tolist(), strict=True)) == rows


@given(searches(st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))))
@RELAXED
def test_oracle_find_ints(case):
    values, starts, asked = case
    raw = [v.to_bytes(8, "little", signed=True) for v in values]
    built = Built([(8, raw, [])], starts)
    low, high = space(find_ints, 2, len(asked)), space(find_ints, 3, len(asked))
    pages = built.addresses[[page for page, _ in asked]] if asked else longs([])
    total = find_ints(pages, longs(key for _, key in asked), low, high)
    check_find(built, values, starts, asked, total, low, high)


@given(searches(st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))))
@RELAXED
def test_oracle_last_not_above(case):
    """In the second column; the first has texts, so that it does not start where the first would."""
    values, starts, asked = case
    raw = [v.to_bytes(8, "little", signed=True) for v in values]
    built = Built([(0, [b"abc"] * len(values), []), (8, raw, [])], starts)
    row = space(last_not_above, 3, len(asked))
    pages = built.addresses[[page for page, _ in asked]] if asked else longs([])
    last_not_above(pages, 1, longs(key for _, key in asked), row)
    inside = [values[starts[page] : starts[page + 1]] for page, _ in asked]
    wanted = [sum(v <= key for v in some) - 1 for (_, key), some in zip(asked, inside, strict=True)]
    assert row.tolist() == wanted


@given(searches(BYTE_STRINGS))
@RELAXED
def test_oracle_find_strings(case):
    values, starts, asked = case
    built = Built([(0, values, [])], starts)
    keys = sorted({key for _, key in asked})
    data, offsets = strings(keys, b"??")
    low, high = space(find_strings, 4, len(asked)), space(find_strings, 5, len(asked))
    pages = built.addresses[[page for page, _ in asked]] if asked else longs([])
    which = fit(find_strings, 3, (keys.index(key) for _, key in asked))
    total = find_strings(pages, address(data), offsets, which, low, high)
    check_find(built, values, starts, asked, total, low, high)


# -- damage ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> np.ndarray:
    """One page with a full load: nulls, strings, fixed values, padding at its end."""
    rng = np.random.default_rng(1)
    rows = 60
    columns = [
        (8, [int(i).to_bytes(8, "little") for i in range(rows)], []),
        (0, [rng.bytes(int(rng.integers(0, 40))) for _ in range(rows)], rng.random(rows) < 0.9),
        (16, [rng.bytes(16) for _ in range(rows)], []),
    ]
    built = Built(columns, [0, rows])
    assert built.verdicts() == [SOUND]
    assert 2500 < built.cursor[0] < SIZE - 64
    return built.pages


@pytest.mark.parametrize("pattern", [1, 2, 4, 8, 16, 32, 64, 128, 0xFF, 0x55])
def test_every_damaged_byte_is_found(page, pattern):
    """All 4,096 positions: each in a copy of the page that has only that byte wrong."""
    copies = np.tile(page, (SIZE, 1))
    copies[np.arange(SIZE), np.arange(SIZE)] ^= pattern
    verdict = np.zeros(SIZE, np.int32)
    at = address(copies) + np.arange(SIZE) * SIZE
    assert check(at, SIZE, 3, np.full(SIZE, 10), WIDTHS, verdict) == SIZE
    assert set(verdict.tolist()) == {BAD_CHECKSUM}, "a header is not believed before its checksum"


@pytest.mark.parametrize("byte", [0, 1, 127, 255])
def test_every_overwritten_byte_is_found(page, byte):
    changed = np.flatnonzero(page != byte)
    copies = np.tile(page, (changed.size, 1))
    copies[np.arange(changed.size), changed] = byte
    verdict = np.zeros(changed.size, np.int32)
    at = address(copies) + np.arange(changed.size) * SIZE
    assert check(at, SIZE, 3, np.full(changed.size, 10), WIDTHS, verdict) == changed.size


@given(st.integers(0, SIZE - 1), st.integers(1, SIZE), st.integers(0, 255))
@settings(deadline=None, max_examples=200)
def test_a_range_written_over_is_found(page, start, size, byte):
    damaged = page.copy()
    damaged[start : start + size] = byte
    verdict = np.zeros(1, np.int32)
    bad = check(longs([address(damaged)]), SIZE, 3, longs([10]), WIDTHS, verdict)
    assert bad == int((damaged != page).any())


def test_words_exchanged_inside_a_page_are_found(page):
    """The lanes of the checksum must not commute."""
    words = page.view(np.uint64)
    rng = np.random.default_rng(2)
    for distance in (1, 2, 8, 16, 64):
        for a in rng.integers(1, words.size - distance, 50).tolist():
            damaged = words.copy()
            damaged[[a, a + distance]] = damaged[[a + distance, a]]
            verdict = np.zeros(1, np.int32)
            bad = check(longs([address(damaged)]), SIZE, 3, longs([10]), WIDTHS, verdict)
            assert bad == int((damaged != words).any()), (a, distance)


@kernel(void(int64, int64))
def reseal(page, size):
    store_u64(page, page_checksum(page, size))


@pytest.mark.parametrize("pattern", [1, 4, 0x80, 0xFF])
def test_a_sealed_page_that_leads_outside_of_itself_is_not_sound(page, pattern):
    """Every byte of header, directory and offsets changed, with a checksum that fits: sound only if all stays inside."""
    rows, directory = 60, HEADER + 8 * 3
    table = int(page[HEADER + 12 : HEADER + 16].view(np.uint32)[0])
    found = 0
    for at in [*range(24, directory), *range(table, table + 4 * (rows + 1))]:
        damaged = page.copy()
        damaged[at] ^= pattern
        reseal(address(damaged), SIZE)
        verdict = np.zeros(1, np.int32)
        bad = check(longs([address(damaged)]), SIZE, 3, longs([10]), WIDTHS, verdict)
        assert verdict[0] in (SOUND, BAD_LAYOUT)
        assert bool(bad) == (not inside(damaged)), at
        found += bad
    assert found > 100


def inside(page) -> bool:
    """What the kernel checks, in plain Python."""
    words = page.view(np.uint32).tolist()
    rows, used, end = words[6], words[7], HEADER + 8 * 3
    if used > SIZE:
        return False
    for column, width in enumerate(WIDTHS.tolist()):
        bitmap, data = words[8 + 2 * column], words[9 + 2 * column]
        for start, size in [(bitmap, -(-rows // 8))] * (bitmap != 0) + [
            (data, rows * width if width else 4 * (rows + 1))
        ]:
            if start < end or start + size > used:
                return False
            end = start + size
        if not width:
            offsets = np.frombuffer(page.tobytes(), np.uint32, rows + 1, data).astype(np.int64)
            if offsets[0] or (np.diff(offsets) < 0).any():
                return False
            end += int(offsets[-1])
    return end <= used


def test_a_page_of_zeros_is_not_sound():
    for size in (4096, 8192, 65536):
        zeros = np.zeros(size, np.uint8)
        verdict = np.zeros(1, np.int32)
        assert check(longs([address(zeros)]), size, 0, longs([0]), WIDTHS, verdict) == 1


@pytest.mark.parametrize("size", [4096, 8192, 12288])
def test_sound_only_where_it_belongs(size):
    raw = [bytes([i]) for i in range(6)]
    built = Built([(1, raw, [])], [0, 2, 3, 6], page_size=size, shard=5, first_number=7)
    assert built.verdicts(5, 7) == [SOUND] * 3
    assert built.verdicts(4, 7) == [BAD_PLACE] * 3
    assert built.verdicts(5, 8) == [BAD_PLACE] * 3


def test_a_sound_checksum_over_something_else():
    """A page of another program, whose checksum happens to be right, is still not ours."""
    built = Built([(1, [b"x"], [])], [0, 1])
    built.pages[8] ^= 1
    built.pages[:8].view(np.uint64)[0] = page_checksum(address(built.pages), SIZE)
    assert built.verdicts() == [BAD_MAGIC]


def test_each_page_is_judged_alone():
    raw = [bytes([i]) for i in range(6)]
    built = Built([(1, raw, [])], [0, 2, 3, 6])
    built.pages[SIZE + 100] ^= 4
    assert built.verdicts() == [SOUND, BAD_CHECKSUM, SOUND]


def test_inputs_are_not_changed():
    built = Built([(0, [b"ab", b"c"], [True, False])], [0, 1, 2])
    before = built.pages.copy()
    built.verdicts()
    at, row = built.rows([0, 1])
    gather_valid(at, row, 0, address(np.zeros(2, np.uint8)))
    gather_variable(at, row, 0, address(np.zeros(8, np.uint8)), 8, 0, address(np.zeros(3, np.uint32)))
    assert (built.pages == before).all()
