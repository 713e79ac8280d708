"""What the functions of headrace.files promise, on a real file system."""

from __future__ import annotations

import errno
import os
import stat

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import files
from headrace.errors import FileFault


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_new_files_and_directories_are_for_their_owner_alone(tmp_path):
    with files.open_new(tmp_path / "note") as file:
        file.write(b"x")
    files.make_directory(tmp_path / "a" / "b", parents=True)
    os.close(files.open_lock(tmp_path / "lock"))
    files.append(tmp_path / "journal", b"line\n")
    found = {path.name: mode(path) for path in [*tmp_path.iterdir(), tmp_path / "a" / "b"]}
    assert found == {"note": 0o600, "a": 0o700, "b": 0o700, "lock": 0o600, "journal": 0o600}


def test_what_is_not_private_has_the_mode_of_the_umask(tmp_path):
    os.umask(0o027)
    files.open_new(tmp_path / "part.parquet", private=False).close()
    files.make_directory(tmp_path / "table", private=False)
    assert (mode(tmp_path / "part.parquet"), mode(tmp_path / "table")) == (0o640, 0o750)


def test_pieces_of_every_size_come_out_in_order(tmp_path):
    pieces = [bytes([i % 251]) * size for i, size in enumerate([1, 7, 1 << 18, 3, 0, (1 << 18) + 1, 5])]
    with files.open_new(tmp_path / "f") as file:
        for piece in pieces:
            assert file.write(piece) == len(piece)
        assert file.tell() == sum(map(len, pieces))
        file.write_at(2, b"XY")
        file.sync()
    whole = bytearray(b"".join(pieces))
    whole[2:4] = b"XY"
    assert files.read_regular(tmp_path / "f") == bytes(whole)


def test_arrow_and_parquet_write_to_a_new_file(tmp_path):
    table = pa.table({"k": range(100_000)})
    with files.open_new(tmp_path / "p") as file:
        pq.write_table(table, file)
        file.sync()
    assert pq.read_table(tmp_path / "p") == table


def test_a_new_file_takes_the_place_of_what_a_stopped_writer_left(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / "draft").symlink_to(tmp_path / "elsewhere")
    with files.open_new(tmp_path / "draft") as file:
        file.write(b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
    assert (tmp_path / "draft").read_bytes() == b"new"


def test_a_write_that_is_cut_short_goes_on(tmp_path):
    class Short(files.LocalFiles):
        def write(self, fd, data, offset):
            return super().write(fd, data[: max(1, len(data) // 2)], offset)

        def read(self, fd, size, offset):
            return super().read(fd, max(1, size // 3), offset)

    with files.using(Short()):
        with files.open_new(tmp_path / "f") as file:
            file.write(bytes(range(200)))
        assert files.read_regular(tmp_path / "f") == bytes(range(200))


@pytest.mark.parametrize(
    "call", ["open", "write", "fsync", "link", "rename", "unlink", "mkdir", "names", "sync_directory"]
)
def test_faults_of_the_disk_name_the_file_and_say_what_to_do(tmp_path, call):
    class Full(files.LocalFiles):
        pass

    def fails(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    setattr(Full, call, fails)
    path = tmp_path / "f"
    doing = {
        "open": lambda: files.open_new(path),
        "write": lambda: _write(path),
        "fsync": lambda: _write(path),
        "link": lambda: files.create_exclusively(tmp_path / "d", path),
        "rename": lambda: files.replace(tmp_path / "d", path),
        "unlink": lambda: files.remove(path),
        "mkdir": lambda: files.make_directory(path),
        "names": lambda: files.names_in(path),
        "sync_directory": lambda: files.sync_directory(path),
    }
    with files.using(Full()), pytest.raises(FileFault, match="make room on its disk and try again") as raised:
        doing[call]()
    assert str(path) in str(raised.value)
    assert raised.value.errno == errno.ENOSPC


def _write(path):
    with files.open_new(path) as file:
        file.write(b"x")
        file.sync()


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dir").mkdir()
    for name in ("fifo", "link", "dir"):
        for opening in (files.open_regular, files.read_regular, files.map_regular, files.open_lock):
            with pytest.raises(files.NotRegular, match="is not a regular file"):
                opening(tmp_path / name)


def test_a_name_is_given_once(tmp_path):
    for text in ("one", "two"):
        (tmp_path / text).write_text(text)
    assert files.create_exclusively(tmp_path / "one", tmp_path / "name")
    assert not files.create_exclusively(tmp_path / "two", tmp_path / "name")
    with pytest.raises(FileExistsError):
        files.rename_exclusively(tmp_path / "two", tmp_path / "name")
    assert (tmp_path / "name").read_text() == "one"
    files.exchange(tmp_path / "two", tmp_path / "name")
    assert ((tmp_path / "name").read_text(), (tmp_path / "two").read_text()) == ("two", "one")


def test_a_tree_is_removed_and_what_links_point_to_is_not(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_text("x")
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "link").symlink_to(tmp_path / "kept")
    files.remove_tree(tmp_path / "tree")
    files.remove_tree(tmp_path / "tree")  # nothing there
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["f", "kept"]


def test_a_nameless_file_has_no_name(tmp_path):
    with files.open_nameless(tmp_path) as file:
        file.write(b"spilled")
        assert list(tmp_path.iterdir()) == []
        assert file.read_at(0, 7) == b"spilled"


def test_one_holder_of_a_lock_at_a_time(tmp_path):
    with files.locked(tmp_path / "lock") as mine, files.locked(tmp_path / "lock", patience=0.05) as other:
        assert (mine, other) == (True, False)
    with files.locked(tmp_path / "lock") as again:
        assert again


def test_a_directory_of_our_own_in_a_shared_place(tmp_path):
    ours = files.own_directory(tmp_path / "headrace-7")
    assert mode(ours) == 0o700
    assert files.own_directory(ours) == ours
    (tmp_path / "link").symlink_to(ours)
    (tmp_path / "file").touch()
    for other in ("link", "file"):
        with pytest.raises(FileFault, match=rf"{other}: it is not a directory, or a link to one; .*another place"):
            files.own_directory(tmp_path / other)
    ours.chmod(0o770)
    with pytest.raises(FileFault, match="headrace-7: another user can write to this directory"):
        files.own_directory(ours)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_that_another_user_made_first_is_refused(tmp_path):
    theirs = tmp_path / "headrace-7"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12345, 12345)
    with pytest.raises(FileFault, match="another user can write to this directory"):
        files.own_directory(theirs)


def test_nothing_is_appended_through_a_link(tmp_path):
    files.append(tmp_path / "journal", b"one\n")
    files.append(tmp_path / "journal", b"two\n")
    assert files.read_regular(tmp_path / "journal") == b"one\ntwo\n"
    (tmp_path / "link").symlink_to(tmp_path / "journal")
    with pytest.raises(OSError, match="link"):
        files.append(tmp_path / "link", b"three\n")
