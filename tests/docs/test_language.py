"""Comments, docstrings and error messages are plain technical English."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for place in ("hdsim", "agents") for path in (ROOT / place).rglob("*.py"))

BANNED = {
    "a person as subject": r"\b(?:who|whom|whoever|nobody|somebody|anybody|everybody)\b",
    "a question word as subject": r"(?:^|[.:] )(?:What|Who|How(?! many)|Where) (?!to\b)",
    "s without a number for seconds": (
        r"(?<![\w/'.)]) ?(?<![\d)] )\bs (?:of|that|from|until|since|at|for|by|before|after|which|in|to|when|with)\b"
        r"|(?<!/)\bin s\b|[,(:] s[.,;)](?!\d)"
    ),
    "a riddle": (
        r"none of (?:its|his) business|keeps? books|\btells? (?:of|what|how|when|whether)\b|\b(?:is|are) told\b"
        r"|\bin vain\b|\bfor good\b|\bfor ever\b|\bso (?:many|much)\b|\bgo(?:es)? on\b|\bturn(?:s|ed)? away\b"
        r"|\bone a (?:job|line|core|node|file)\b|\bmerely\b"
    ),
}


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of comments, docstrings and messages of exceptions."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
        elif isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def faults(text: str) -> list[str]:
    """Names of the banned patterns in a text."""
    return [name for name, pattern in BANNED.items() if re.search(pattern, text, re.MULTILINE)]


def test_sentences_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in FILES
        for line, text in sentences(path)
        for fault in faults(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Handshake timeout per read, seconds.", 0),
        ("Memory bandwidth of each core, 4 GB/s of it.", 0),
        ("Draws above e^12 s are repeated.", 0),
        ("s that a peer may take.", 1),
        ("Time in s.", 1),
        ("What tells the dates of running jobs.", 1),
        ("Nobody else may use it: nobody.", 1),
        ("A delay is none of its business.", 1),
    ],
)
def test_the_patterns_find_what_they_should(text: str, count: int) -> None:
    assert len(faults(text)) == count
