"""Public methods have docstrings, their own or those of the methods that they override."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in [*(ROOT / "hdsim").rglob("*.py"), *(ROOT / "agents").glob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                yield path, node


def names_of_bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def test_every_public_method_has_a_docstring_of_its_own_or_of_what_it_overrides() -> None:
    bases, documented = defaultdict(list), defaultdict(set)
    for _, node in classes():
        bases[node.name] += names_of_bases(node)
        methods = [each for each in node.body if isinstance(each, METHODS)]
        documented[node.name] |= {each.name for each in methods if ast.get_docstring(each)}

    def inherits(name: str, method: str) -> bool:
        return any(method in documented[base] or inherits(base, method) for base in bases[name] if base != name)

    lacking = [
        f"{path.relative_to(ROOT)}: {node.name}.{method.name}"
        for path, node in classes()
        if not node.name.startswith("_") and "Protocol" not in names_of_bases(node)
        for method in node.body
        if isinstance(method, METHODS) and not method.name.startswith("_")
        if not ast.get_docstring(method) and not inherits(node.name, method.name)
    ]
    assert not lacking
