"""Segments hold core ids as intervals; results from intervals equal those from core ids, one by one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from procset import ProcSet

from hdsim.platform import power
from hdsim.platform.model import Platform
from hdsim.results.segments import Segments
from hdsim.util.intervals import IntervalSets

PLATFORM = Platform.from_dict(
    {
        "name": "mixed",
        "clusters": [{"id": "c", "nodes": [{"type": "thin", "number": 3}, {"type": "fat", "number": 2}]}],
        "types": {
            "processor": {
                "one": {"cores": 1, "clock_rate": 1, "dpflops_per_cycle": 1, "mem_bw": 10, "power": 7.3},
                "four": {"cores": 4, "clock_rate": 1, "dpflops_per_cycle": 1, "mem_bw": 10, "power": 101.9},
                "board": {
                    "cores": 1,
                    "clock_rate": 1,
                    "dpflops_per_cycle": 1,
                    "mem_bw": 1,
                    "power": 250,
                    "type": "GPU",
                },
            },
            "node": {
                "thin": {"memory": {"capacity": 1}, "processors": [{"type": "one", "number": 2}]},
                "fat": {
                    "memory": {"capacity": 1},
                    "processors": [{"type": "four", "number": 2}, {"type": "board", "number": 1}],
                },
            },
        },
    }
)
TIMES = st.integers(0, 20).map(float)
ROWS = st.lists(
    st.tuples(st.sets(st.integers(0, PLATFORM.n_cores - 1), min_size=1), TIMES, TIMES, st.integers(0, 3)), max_size=8
)


def joined(sets: Iterable[list[int]]) -> list[int]:
    return [core for one in sets for core in one]


def flat(sets: list[list[int]]) -> IntervalSets:
    return IntervalSets.of(np.array(joined(sets), np.int32), np.array([len(one) for one in sets], np.int64))


@given(st.lists(st.sets(st.integers(0, 130)).map(sorted), max_size=8), st.data())
def test_interval_sets_equal_lists(sets: list[list[int]], data: st.DataObject) -> None:
    ours = flat(sets)
    assert len(ours) == len(sets)
    assert ours.ids.tolist() == joined(sets)
    assert ours.sizes.tolist() == [len(one) for one in sets]
    assert (ours.last[:-1] + 1 < ours.first[1:])[np.diff(np.repeat(np.arange(len(sets)), ours.counts)) == 0].all()
    assert ours.procsets() == [ProcSet(*one) for one in sets]
    assert [str(each) for each in ours.procsets()] == ours.texts
    again = IntervalSets.parse(ours.texts)
    for one, other in zip((ours.counts, ours.first, ours.last), (again.counts, again.first, again.last), strict=True):
        assert one.tolist() == other.tolist()
    group = np.sort(data.draw(st.lists(st.integers(0, 9), min_size=131, max_size=131))).astype(np.int32)
    assert ours.groups(group).tolist() == [len(set(group[one])) for one in sets]
    if sets:
        chosen = data.draw(st.lists(st.integers(0, len(sets) - 1)))
        assert ours[np.array(chosen, np.int64)].ids.tolist() == joined(sets[i] for i in chosen)
        both = IntervalSets.concatenate([ours, ours[np.array(chosen, np.int64)]])
        assert both.texts == ours.texts + [ours.texts[i] for i in chosen]


@given(ROWS)
def test_segments_equal_core_ids(rows: list[tuple[set[int], float, float, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[1])
    sets = [sorted(held) for held, *_ in rows]
    begin = np.array([row[1] for row in rows])
    end = begin + [row[2] for row in rows]
    job = np.array([row[3] for row in rows], np.int64)
    segments = Segments.once(PLATFORM, job, begin, end, flat(sets))
    owner = PLATFORM.core_processor
    used = segments.usage
    expected = [
        (i, p, owner[held].tolist().count(p)) for i, held in enumerate(sets) for p in sorted(set(owner[held].tolist()))
    ]
    assert list(zip(used.segment.tolist(), used.processor.tolist(), used.cores.tolist(), strict=True)) == expected
    assert segments.gpus.tolist() == [int(PLATFORM.is_gpu[owner[held]].sum()) for held in sets]

    core_seconds, active_seconds = power.busy_seconds(PLATFORM, segments.held, begin, end)
    instants = np.arange(0.0, 41.0)  # every segment begins and ends at one
    on = np.zeros((len(instants), PLATFORM.n_processors))  # allocated cores
    for held, since, until in zip(sets, begin, end, strict=True):
        for core in held:
            on[(instants >= since) & (instants < until), owner[core]] += 1
    assert core_seconds == pytest.approx(on.sum(axis=0), rel=1e-12)
    assert active_seconds == pytest.approx((on > 0).sum(axis=0), rel=1e-12)

    union: dict[int, set[int]] = {}
    for row, held in zip(job.tolist(), sets, strict=True):
        union.setdefault(row, set()).update(held)
    assert segments.attempts.job.tolist() == list(union)
    assert segments.attempts.held.ids.tolist() == joined(sorted(held) for held in union.values())


@given(st.lists(st.tuples(TIMES, TIMES), max_size=6), st.randoms())
def test_power_is_that_of_every_core(spans: list[tuple[float, float]], random: object) -> None:
    """Disjoint parts of the platform are held one after another, each at its own time."""
    spans = sorted(spans)
    order = list(range(PLATFORM.n_cores))
    random.shuffle(order)  # type: ignore[attr-defined]
    sets = [sorted(part.tolist()) for part in np.array_split(order, max(len(spans), 1))][: len(spans)]
    begin, end = np.array([a for a, _ in spans]), np.array([a + b for a, b in spans])
    times = np.concatenate([begin, end])
    events = np.argsort(times, kind="stable")
    watts = power.power_after(PLATFORM, flat(sets), events)[0]
    held = np.zeros(PLATFORM.n_cores, bool)
    for event, got in zip(events.tolist(), watts.tolist(), strict=True):
        held[sets[event % len(sets)]] = event < len(sets)
        awake = np.isin(PLATFORM.core_processor, PLATFORM.core_processor[held])
        share = np.where(held, 1.0, np.where(awake, 0.25, 0.05))
        assert got == pytest.approx(float(share @ PLATFORM.power[PLATFORM.core_processor]), rel=1e-12)


def test_texts_of_many_sets() -> None:
    ids = np.arange(140_000, dtype=np.int32)
    assert IntervalSets.of(ids, np.full(70_000, 2)).texts == [f"{i}-{i + 1}" for i in range(0, 140_000, 2)]
