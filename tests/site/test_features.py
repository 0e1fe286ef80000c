"""Expressions of features."""

from __future__ import annotations

import pytest

from hdsim.site.features import features_in, is_simulated, nodes_having

NODES = [{"a"}, {"b"}, {"a", "b"}, {"c"}, {"a", "c"}, set[str]()]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a", [0, 2, 4]),
        ("a&b", [2]),
        ("a|c", [0, 2, 3, 4]),
        ("b|a&c", [4]),
        ("b|(a&c)", [1, 2, 4]),
        ("(a|b)&c", [4]),
        ("((a))", [0, 2, 4]),
        ("d", []),
    ],
)
def test_operators_are_taken_from_left_to_right(text: str, nodes: list[int]) -> None:
    assert nodes_having(text, NODES).nonzero()[0].tolist() == nodes
    assert is_simulated(text)


@pytest.mark.parametrize("text", ["a*2", "[a|b]", "(a", "a)", "a&", "&a", "a b", "()", ""])
def test_other_forms_are_refused(text: str) -> None:
    assert not is_simulated(text)
    with pytest.raises(ValueError, match=r"^expected (features|a feature)"):
        nodes_having(text, NODES)


def test_features_in() -> None:
    assert features_in("[rack1*2&(rack2|x-1)]") == ["rack1", "rack2", "x-1"]
