"""Test modules stand alone: what they share lies in tests/support."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def imported(code: ast.AST) -> set[str]:
    """Every module that code imports, also where the code of a program is a text in it."""
    found = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            try:
                found |= imported(ast.parse(node.value))
            except SyntaxError:  # a sentence
                continue
    return found


def test_nothing_is_imported_from_a_test_module():
    modules = list(TESTS.rglob("*.py"))
    assert len(modules) > 100
    foreign = [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in modules
        for name in imported(ast.parse(path.read_text()))
        if name.startswith((".", "tests")) and not name.startswith("tests.support.")
    ]
    assert not foreign, "move what is shared to tests/support"
