from __future__ import annotations

import math
from collections import Counter

import bsp_reference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.errors import WorkloadError
from hdsim.workload.patterns import PATTERNS, Pattern, grid, make_pattern


def messages_of(name, tasks, volume):
    """(source, target, bytes) as the names define them, task by task."""
    everybody = range(tasks)
    if name == "h_relation":
        return [(i, j, volume / (tasks - 1)) for i in everybody for j in everybody if i != j]
    if name == "all_to_all":
        return [(i, j, volume) for i in everybody for j in everybody if i != j]
    if name == "ring":
        return [(i, (i + 1) % tasks, volume) for i in everybody if tasks > 1]
    if name == "master_worker":
        return [pair for i in range(1, tasks) for pair in ((0, i, volume), (i, 0, volume))]
    if name == "halo_2d":
        rows = min((r for r in range(1, tasks + 1) if tasks % r == 0 and r * r >= tasks), default=1)
        columns = tasks // rows
        found = []
        for i in everybody:
            row, column = divmod(i, columns)
            for r, c in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
                if 0 <= r < rows and 0 <= c < columns:
                    found.append((i, r * columns + c, volume))
        return found
    return []


def h_of(messages, tasks):
    """Valiant's h by its definition."""
    out = [sum(volume for source, _, volume in messages if source == task) for task in range(tasks)]
    into = [sum(volume for _, target, volume in messages if target == task) for task in range(tasks)]
    return max(out + into)


def grouped(messages, nodes):
    return sorted(
        (*key, count)
        for key, count in Counter((nodes[i], nodes[j], v) for i, j, v in messages if v).items()
        if key[0] != key[1]
    )


@given(st.sampled_from(PATTERNS), st.integers(1, 24), st.sampled_from([0.0, 1.0, 3e6]), st.data())
def test_a_named_pattern_is_its_definition(name, tasks, volume, data):
    pattern = make_pattern(name, tasks, volume)
    expected = messages_of(name, tasks, volume)
    nodes = data.draw(st.lists(st.integers(0, 5), min_size=tasks, max_size=tasks))
    assert pattern.tasks == tasks
    assert pattern.h == pytest.approx(h_of(expected, tasks), rel=1e-12)
    assert pattern.between(nodes) == grouped(expected, nodes)
    matrix = np.zeros((tasks, tasks))
    for source, target, size in expected:
        matrix[source, target] += size
    assert bsp_reference.matrix(pattern) == pytest.approx(matrix, rel=1e-12)


@given(st.integers(1, 9), st.booleans(), st.data())
def test_a_matrix_gives_the_bytes_between_each_two_tasks(tasks, flat, data):
    sizes = st.sampled_from([0, 1, 2, 2.5, 1000])
    row = st.lists(sizes, min_size=tasks, max_size=tasks)
    matrix = data.draw(st.lists(row, min_size=tasks, max_size=tasks))
    nodes = data.draw(st.lists(st.integers(0, 3), min_size=tasks, max_size=tasks))
    messages = [(i, j, float(matrix[i][j])) for i in range(tasks) for j in range(tasks) if i != j and matrix[i][j]]
    pattern = make_pattern([size for row in matrix for size in row] if flat else matrix, tasks)
    assert pattern.h == pytest.approx(h_of(messages, tasks) if messages else 0.0)
    assert pattern.between(nodes) == grouped(messages, nodes)


def test_listed_messages_and_an_exchange_add_up():
    pattern = Pattern(3, np.array([0, 0]), np.array([1, 2]), np.array([10.0, 1.0]), exchange=1.0)
    assert pattern.h == 13.0
    assert pattern.between([4, 4, 7]) == [(4, 7, 1.0, 3), (7, 4, 1.0, 2)]
    assert bsp_reference.matrix(pattern).tolist() == [[0, 11, 2], [1, 0, 1], [1, 1, 0]]


def test_an_h_relation_is_balanced():
    matrix = bsp_reference.matrix(make_pattern("h_relation", 7, 12.0))
    assert matrix.sum(axis=0) == pytest.approx([12.0] * 7)
    assert matrix.sum(axis=1) == pytest.approx([12.0] * 7)


@pytest.mark.parametrize(
    ("tasks", "shape"), [(1, (1, 1)), (2, (2, 1)), (7, (7, 1)), (12, (4, 3)), (16, (4, 4)), (60, (10, 6))]
)
def test_the_grid_is_that_of_mpi_dims_create(tasks, shape):
    assert grid(tasks) == shape


def test_a_total_exchange_among_thousands_of_tasks_lists_no_messages():
    pattern = make_pattern("all_to_all", 20_000, 8)
    assert pattern.h == 8 * 19_999
    assert pattern.between(np.arange(20_000) // 10_000) == [(0, 1, 8.0, 10**8), (1, 0, 8.0, 10**8)]


@pytest.mark.parametrize(
    ("spec", "tasks", "volume", "message"),
    [
        ("rign", 4, 1.0, r"here: expected one of none, .*, got 'rign' \(did you mean 'ring'\?\)"),
        ("ring", 0, 1.0, "at least 1 task, got 0"),
        ("ring", 4, -1.0, "volume of 0 bytes or more, got -1.0"),
        ("ring", 4, math.nan, "got nan"),
        ("ring", 4, 10**400, "got 1000"),
        ("ring", 4, True, "got True"),
        ("ring", 4, "8", "got '8'"),
        ([[0, 1], [1, 0]], 3, 1.0, "3 rows of 3 numbers, or 9 numbers for a job of 3 tasks, got 2 x 2 numbers"),
        ([0, 1, 2], 2, 1.0, "got 3 numbers"),
        ([[0, 1], [1]], 2, 1.0, "rows of different lengths"),
        ([["a", 1], [1, 0]], 2, 1.0, r"2 rows of 2 numbers.*got \[\['a', 1\]"),
        ([[True, False], [False, True]], 2, 1.0, "got .*True"),
        (None, 2, 1.0, "got None"),
        ([[0, 1], [-5, 0]], 2, 1.0, "0 bytes or more, got -5 from task 1 to task 0"),
        ([[0, math.inf], [5, 0]], 2, 1.0, "got inf from task 0 to task 1"),
    ],
)
def test_an_impossible_pattern_is_refused(spec, tasks, volume, message):
    with pytest.raises(WorkloadError, match=message):
        make_pattern(spec, tasks, volume, where="here")
