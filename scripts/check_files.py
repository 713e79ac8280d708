"""Hold the rule that only headrace.files touches files: `make check` runs this over src/headrace.

A call that has to be made elsewhere (the user's own data, /proc, memory without a name) says why, in a comment on its line:

    text = path.read_text()  # files: the user's own pipeline, read once
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "headrace"
EXEMPT = re.compile(r"# files: \w")
SHORT = {"pyarrow": "pa", "pyarrow.parquet": "pq", "numpy": "np"}  # how modules are called below

FUNCTIONS = {
    "open", "io.open", "gzip.open", "fcntl.flock", "fcntl.lockf", "mmap.mmap", "logging.FileHandler",
    "pa.memory_map", "pa.OSFile", "pa.input_stream", "pa.output_stream", "pa.csv.open_csv", "pa.csv.read_csv",
    "np.save", "np.load", "np.memmap", "np.fromfile",
    *(f"os.{name}" for name in (
        "open close fdopen read pread preadv readv write pwrite pwritev writev fsync fdatasync ftruncate truncate link symlink"
        " rename replace renames unlink remove removedirs mkdir makedirs rmdir listdir scandir walk stat lstat"
        " chmod chown utime access"
    ).split()),
    *(f"os.path.{name}" for name in "exists isfile isdir islink getsize getmtime".split()),
    *(f"shutil.{name}" for name in "rmtree copy copy2 copyfile copytree move disk_usage".split()),
    *(f"tempfile.{name}" for name in "TemporaryFile NamedTemporaryFile TemporaryDirectory mkdtemp mkstemp".split()),
    *(f"pq.{name}" for name in "ParquetFile ParquetWriter read_table read_metadata read_schema write_table".split()),
}  # fmt: skip
METHODS = set(
    "read_text read_bytes write_text write_bytes unlink mkdir rmdir rename touch iterdir glob rglob hardlink_to symlink_to exists"
    " is_file is_dir is_symlink stat lstat chmod savefig".split()
)
MOST_ARGUMENTS = {"unlink": 1, "rename": 1, "exists": 0, "stat": 0}  # with more it is a method of something else


def main() -> int:
    """Print every call that breaks the rule; returns the exit code."""
    faults = [
        fault for path in sorted(SOURCES.rglob("*.py")) if path.parent.name != "files" for fault in found_in(path)
    ]
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    if faults:
        sys.stdout.write(
            f"{len(faults)} calls touch files; use headrace.files, or say why not in a comment on the line: # files: …\n"
        )
    return 1 if faults else 0


def found_in(path: Path, text: str | None = None) -> Iterator[str]:
    """List the calls of one file that break the rule."""
    text = path.read_text() if text is None else text
    lines = text.splitlines()
    tree = ast.parse(text)
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := touches(node, names)):
            own = lines[node.lineno - 1 : (node.end_lineno or node.lineno)]
            if not any(EXEMPT.search(line) for line in own):
                yield f"{path}:{node.lineno}: {name}"


def imported(tree: ast.AST) -> dict[str, str]:
    """Return what the names that a file imports stand for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.asname: SHORT.get(one.name, one.name) for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = SHORT.get(node.module, node.module)
            for one in node.names:
                names[one.asname or one.name] = SHORT.get(f"{node.module}.{one.name}", f"{module}.{one.name}")
    return names


def touches(call: ast.Call, names: dict[str, str]) -> str | None:
    """Return the name of what is called, if it touches files."""
    first, dot, rest = ast.unparse(call.func).partition(".")
    name = names.get(first, first) + dot + rest
    if name in FUNCTIONS:
        return name
    if not isinstance(call.func, ast.Attribute):
        return None
    method, given = call.func.attr, len(call.args)
    if method in METHODS and given <= MOST_ARGUMENTS.get(method, 9):
        return name
    if method == "replace" and given == 1 and not call.keywords:  # a text's takes two, a date's names its own
        return name
    if method == "open" and is_mode(call):
        return name
    return None


def is_mode(call: ast.Call) -> bool:
    """Whether the arguments are those of a path's `open`; a disk, a stream and a task have others."""
    given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "mode")]
    if not given:
        return any(word.arg in ("encoding", "errors", "newline") for word in call.keywords)
    mode = given[0]
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rwxab+t")


if __name__ == "__main__":
    sys.exit(main())
