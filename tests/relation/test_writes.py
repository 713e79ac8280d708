"""Writes that the system cuts short, and files that do not have the size that was written: nothing of it is committed."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest

import headrace as hr

ROWS = pa.table({"id": range(50_000), "name": [f"product number {i}" for i in range(50_000)]})

# A child process: the limit on the size of a file stays with it. Python ignores SIGXFSZ, so a write past the limit is cut
# short first, and the next one fails.
CHILD = """
import json, resource, sys
import pyarrow as pa
import headrace as hr
from headrace import HeadraceError

what, root, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = pa.table({"id": range(50_000), "name": [f"changed {i} {'x' * 40}" for i in range(50_000)]})
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    if what == "apply":
        hr.Relation.open(root).apply(upserts=rows)
    elif what == "compact":
        hr.Relation.open(root).compact()
    else:
        hr.Relation.create(root, rows, key="id", overwrite=True)
    print(json.dumps("done"))
except (OSError, HeadraceError) as error:
    print(json.dumps(str(error)))
"""


def limited(what, root, limit):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, what, str(root), str(limit)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("what", ["apply", "create", "compact"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_contract_a_write_cut_short_leaves_the_relation_as_it_was(tmp_path, what, share):
    root = tmp_path / "products"
    hr.Relation.create(root, ROWS, key="id", shards=1).close()
    largest = max(path.stat().st_size for path in root.glob("*.pages"))
    said = limited(what, root, int(share * largest) // 4096 * 4096 + 100)
    assert said != "done"
    assert "File too large" in said or "were written" in said
    with hr.Relation.open(root) as rel:
        assert rel.version == 1
        rel.verify()
        assert rel.lookup([7, 49_999]).column("name").to_pylist() == ["product number 7", "product number 49999"]
    hr.Relation.open(root).apply(upserts=ROWS.slice(0, 10))  # a later writer is not in the way of what was left
    with hr.Relation.open(root) as rel:
        assert rel.version == 2
        rel.verify()
    assert {path.name for path in tmp_path.iterdir()} == {"products"}
    named = {f["name"] for f in json.loads((root / "manifest-000002.json").read_text())["shards"][0]["files"]}
    assert {path.name for path in root.glob("*.pages")} == named


def test_contract_a_file_of_another_size_is_not_committed(tmp_path, monkeypatch):
    """A file system that says that all is written, and cuts the file short all the same."""
    from headrace.relation import update

    root = tmp_path / "products"
    rel = hr.Relation.create(root, ROWS, key="id", shards=1)
    write = update.write_sidecars

    def cut(root_, stem, *args, **options):
        path = root_ / f"{stem}.pages"
        with path.open("rb+") as file:
            file.truncate(path.stat().st_size // 2)
        return write(root_, stem, *args, **options)

    monkeypatch.setattr(update, "write_sidecars", cut)
    with pytest.raises(hr.RelationError, match=r"were written"):
        rel.apply(upserts=ROWS.slice(0, 10))
    monkeypatch.undo()
    with hr.Relation.open(root) as again:
        assert again.version == 1
        again.verify()
