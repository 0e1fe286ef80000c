"""The slow reference, the engine and the compiled replay give the same schedules and figures in random cases."""

from __future__ import annotations

from collections import Counter

import pytest
import random_cases

STEP = len(random_cases.KINDS)


@pytest.mark.parametrize("kind", range(STEP), ids=random_cases.KINDS)
def test_reference_engine_and_compiled_replay_agree(kind: int) -> None:
    ran: Counter[str] = Counter()
    for number in range(kind, 12 * STEP, STEP):
        found, modes = random_cases.compare(random_cases.make(number))
        assert not found, f"case {number}"
        ran += modes
    # Failures and agents of one's own need the engine; the default replay of the others is compiled where it can be.
    assert ran["events"] >= 12
    assert (ran["compiled"] > 0) == (random_cases.KINDS[kind] not in ("failures", "resizes"))


def test_a_node_that_could_give_more_than_a_candidate_needs_is_not_preferred() -> None:
    """One core of the head's margin would free two cores on node 2 and one on node 0; only one is needed."""
    assert not random_cases.compare(random_cases.make(4830))[0]


def test_a_candidate_starts_where_only_a_search_finds_cores() -> None:
    """Six chunks beside the head, of which one node must give five: margins spent one by one make too little room."""
    found, ran = random_cases.compare(random_cases.make(17_625))
    assert not found and ran["searched"] == 1


@pytest.mark.parametrize("number", [1059, 1315, 1651])
def test_reservations_of_equal_cores_are_of_numbers_whatever_the_core_policy(number: int) -> None:
    """Policies that look at processors or nodes choose cores; the plan counts them."""
    found, ran = random_cases.compare(random_cases.make(number))
    assert not found and ran["compiled"] == 1


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(1000, 3000, 200))
def test_more_random_cases(first: int) -> None:
    for number in range(first, first + 200):
        assert not random_cases.compare(random_cases.make(number))[0], f"case {number}"


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(10_000, 10_000 + 2 * STEP))
def test_long_queues(number: int) -> None:
    assert not random_cases.compare(random_cases.make(number, 1200))[0]
