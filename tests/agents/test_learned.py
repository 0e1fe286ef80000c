"""The order learned: its columns, its replays in the engine and in compiled code, and its evolution."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import ci, nightly
from training_setups import make_setup, train_whole_and_cut

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.errors import ConfigError
from hdsim.learning.training.order.windows import (
    OrderWindow,
    capability,
    draw_away,
    draw_capability,
    draw_home,
    draw_kind,
)
from hdsim.scheduling.kernels.profiles import Releases
from hdsim.scheduling.learned.like_jobs import expect, make_latest, note_ends
from hdsim.scheduling.learned.network import COLUMNS, LANES, STATE, WEIGHTS, learned_scores, past_sums
from hdsim.scheduling.learned.order import RULES, Checks, columns_of, power_order, read_networks, read_weights
from hdsim.scheduling.learned.queue import PERIOD
from hdsim.scheduling.orders import SHIPPED
from hdsim.scheduling.rules import NUMBERS, Backfilling
from hdsim.util.resources import folder
from hdsim.workload.generators.kinds import kinds
from hdsim.workload.generators.lublin import generate

#: The network that is smallest area first.
SAF = power_order(1.0, 1.0)
PLATFORM = hdsim.Platform.homogeneous(nodes=32, cores_per_node=2, gflops_per_core=1.0)


def reference_scores(weights, cores, backfill, now, idle, queue, jobs, running, errors):
    """The scores by formulas of whole arrays; `running` has (expected end, cores)."""
    r, c = np.maximum(jobs.requested, 1.0), jobs.size.astype(float)
    last = queue[-1] + 1
    past = slice(max(last - 256, 0), last)
    log_r, log_c = np.log(r), np.log(c)
    mean_r, mean_c = log_r[past].mean(), log_c[past].mean()
    area = (r * c)[past].sum() / cores
    load = math.log((area + 1) / (now - jobs.submission[past.start] + area / (last - past.start) + 1))
    ends = sorted((max(end, np.nextafter(now, math.inf)), width) for end, width in running)
    left = sum((end - now) * width for end, width in ends)
    clear = math.log(((r * c)[queue].sum() + left) / cores + 1)
    r, c, log_r, log_c, wait = r[queue], c[queue], log_r[queue], log_c[queue], now - jobs.submission[queue]
    delay, spare = np.zeros(len(queue)), np.zeros(len(queue))
    for i in range(len(queue)):
        free = idle
        for end, width in ends:
            if free >= c[i]:
                break
            free, delay[i] = free + width, end - now
        spare[i] = free - c[i]
    nearest = delay[c > idle].min() if (c > idle).any() else math.inf
    requested, bounded, fits = jobs.requested[queue], np.maximum(jobs.requested[queue], 10.0), c <= idle
    of_queue = log_r - log_r.mean(), log_c - log_c.mean()
    waited, share, beside = np.log1p(wait / bounded), 3 * c / cores, 5 * spare / cores
    ahead = [looked_ahead(i, backfill, idle, requested, c, bounded, delay, spare) for i in range(len(queue))]
    relieved, used, blocked, harm, slip = np.array(ahead).T
    columns = [
        *(log_r - mean_r, log_c - mean_c, *of_queue, waited, 2 * np.log1p(wait / (wait.mean() + 1)), share, 3.0 * fits),
        *(np.minimum(c / (idle + 1), 4), np.log1p(delay / bounded), np.log1p(delay / math.exp(mean_r)), beside),
        *(log_r - clear, 3 * np.maximum(math.log(10) - log_r, 0)),
        np.clip(math.log(nearest + 1) - log_r, -3, 3) if nearest < math.inf else np.full(len(queue), 3.0),
        *(fits * of_queue[0], fits * of_queue[1], fits * beside, 4 * relieved, 3 * used, 0.4 * np.log1p(blocked)),
        *(2 * harm, 0.4 * np.log1p(slip), fits * waited, fits * share),
    ]
    columns = np.stack(columns, axis=1)
    all_r, all_c = np.maximum(jobs.requested, 1.0)[past], jobs.size[past].astype(float)
    brevity, narrowness = math.log((1 / np.maximum(all_r, 10)).mean()) + mean_r, math.log((1 / all_c).mean()) + mean_c
    state = [
        *(math.log1p(len(queue)) / 3 - 1, idle / cores, np.clip(load, -3, 3), 0.5 * (clear - mean_r)),
        *(np.log(all_r).std() - 1.5, np.log(all_c).std() - 1, 0.5 * brevity, narrowness),
        *(0.5 * (mean_c - math.log(cores)) + 1, *errors, 1.0),
    ]
    state = np.array(state, float)
    shapes = ((STATE, COLUMNS), (COLUMNS, LANES), (STATE, LANES), (LANES,))
    parts = np.split(weights, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    products, inputs, context, output = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
    lanes = columns @ inputs + state @ context
    lanes[:, -1] += columns @ (state @ products)
    hidden = lanes[:, :-1] / (1 + np.abs(lanes[:, :-1]))
    return lanes[:, -1] + hidden @ output[:-1]


def write_card(folder: Path, weights: Any) -> Path:
    card = folder / "learned.json"
    card.write_text(json.dumps({"weights": {rule: own.tolist() for rule, own in weights.items()}}))
    return card


def campaigns_of_users(jobs: hdsim.Workload, users: int) -> hdsim.Workload:
    """Users whose jobs have one of two widths and one of two requested times, so that many are alike."""
    user = np.random.default_rng(0).integers(users, size=len(jobs))
    requested = np.where(jobs.requested_time < np.median(jobs.requested_time), 1800.0, 86400.0)
    return jobs.replaced(
        user=user,
        requested_cores=np.where(jobs.requested_cores < 8, 2, 16),
        requested_time=requested,
        runtime=np.minimum(jobs.runtime, requested),
    )


def looked_ahead(i, backfill, idle, requested, c, bounded, delay, spare):
    """What starts beside a head, and what a job that fits puts off, among the first 16 of either kind."""
    fits = c <= idle
    now, later = np.flatnonzero(fits)[:16], np.flatnonzero(~fits)[:16]
    left, beside = idle - c[i] * fits[i], []
    for k in now:
        passes = requested[k] < delay[i] or (backfill == NUMBERS["easy"] and c[k] <= spare[i])
        if k != i and c[k] <= left and (fits[i] or (passes and backfill != NUMBERS["none"])):
            beside.append(k)
            left -= c[k]
    pressure, relieved = (1 / bounded[now]).sum(), (1 / bounded[beside]).sum()
    late = [k for k in later if fits[i] and requested[i] > delay[k] and c[i] > spare[k]]
    return (
        relieved / pressure if len(now) else 0.0,
        (idle - left) / (idle + 1),
        delay[i] * (pressure - relieved),
        (1 / bounded[late]).sum() / (1 / bounded[later]).sum() if late else 0.0,
        ((requested[i] - delay[late]) / bounded[late]).sum(),
    )


@pytest.mark.parametrize("seed", range(6))
def test_scores_are_those_of_the_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workload = generate(400, seed=seed, cores=64, typed=False)
    jobs = columns_of(workload)
    queue = np.sort(rng.choice(np.arange(100 * (seed % 4)), 30, replace=False)) if seed % 4 else np.array([0])
    now = float(jobs.submission[queue[-1]] + rng.uniform(0, 5000))
    running = [(now + rng.uniform(-10, 9000), float(rng.integers(1, 9))) for _ in range(6)]
    ends, held = (np.array(column) for column in zip(*sorted(running), strict=True))
    idle = 64.0 - held.sum()
    weights, errors = rng.standard_normal(WEIGHTS), rng.standard_normal(2)
    for backfill, _ in RULES.values():
        out, releases = np.empty(len(queue)), Releases(ends, np.arange(6), held, np.array([6]))
        learned_scores(weights, 64.0, backfill, now, idle, queue, len(queue), *jobs[:4], errors, releases, out)
        expected = reference_scores(weights, 64.0, backfill, now, idle, queue, jobs, running, errors)
        np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.requires("torch")
@pytest.mark.parametrize(
    ("backfill", "commit"),
    [("none", False), ("none", True), ("greedy", False), ("easy", False), ("easy", True), ("rlscheduler", True)],
)
@pytest.mark.parametrize("batch", [True, *ci(False)])
@pytest.mark.parametrize(("seed", "users"), [(23, 3), *nightly((7, 0), (23, 0))])
def test_compiled_replays_are_those_of_the_engine(
    seed: int, users: int, backfill: str, commit: bool, batch: bool, tmp_path: Path
) -> None:
    from hdsim.learning.training.order.evolution import scales

    jobs = generate(250, seed=seed, cores=64, typed=False, estimates="tsafrir", arrival_factor=0.8)
    if users:
        jobs = campaigns_of_users(jobs, users)
    # Weights of the errors of requested times, too, which the first check finds.
    card = write_card(tmp_path, {rule: own + scales(estimates=True) for rule, own in read_weights(SHIPPED).items()})
    agent = {"job_policy": str(card), "backfill": backfill, "commit_head": commit}
    options = {"batch_events": batch, "kill_at_walltime": batch}
    compiled, engine = (hdsim.simulate(PLATFORM, jobs, agent, check=check, **options) for check in (False, True))
    assert (compiled.engine["mode"], engine.engine["mode"]) == ("compiled", "events")
    for name in engine.jobs:
        np.testing.assert_array_equal(compiled.jobs[name], engine.jobs[name], err_msg=name)
    assert engine.metrics["mean_waiting_time"] > 0
    # Errors of requested times change the order, and so do the run times of like jobs, but with RLScheduler's rule.
    other: Any = {"job_policy": "learned"}, jobs
    if users:
        other = {}, jobs.replaced(user=-1)
    changed = hdsim.simulate(PLATFORM, other[1], {**agent, **other[0]}, **options).jobs["starting_time"]
    assert (changed != engine.jobs["starting_time"]).any() == (not users or backfill != "rlscheduler")


@pytest.mark.parametrize(
    ("backfill", "commit"),
    [("none", False), ("none", True), ("greedy", False), ("easy", False), ("rlscheduler", True)],
)
def test_the_network_that_evolution_begins_with_is_smallest_area_first(backfill: str, commit: bool) -> None:
    trace = generate(300, seed=11, cores=64, typed=False)
    # Areas without ties, which logarithms would break in another way.
    runtime = trace.runtime + np.random.default_rng(0).uniform(1, 2, 300)
    jobs = dataclasses.replace(trace, runtime=runtime, requested_time=runtime)
    cost = OrderWindow(jobs).cost(SAF, NUMBERS[backfill], commit)
    saf = hdsim.simulate(PLATFORM, jobs, {"job_policy": "saf", "backfill": backfill, "commit_head": commit})
    assert cost == pytest.approx(saf.metrics["mean_bounded_slowdown"], rel=1e-12)


def test_a_plain_order_that_is_far_better_on_the_past_is_followed(tmp_path: Path) -> None:
    """Here the network serves the largest area first."""
    card = write_card(tmp_path, {"easy": -SAF})
    jobs = generate(600, seed=8, cores=64, typed=False, arrival_factor=0.7)
    agent = {"job_policy": str(card), "backfill": "easy"}
    compiled, engine = (hdsim.simulate(PLATFORM, jobs, agent, check=check) for check in (False, True))
    np.testing.assert_array_equal(compiled.jobs["starting_time"], engine.jobs["starting_time"])
    laf = hdsim.simulate(PLATFORM, jobs, "easy-laf")
    assert (compiled.jobs["starting_time"] != laf.jobs["starting_time"]).any()
    for network, follows in ((-SAF, True), (SAF, False)):
        checks = Checks(np.stack([network, SAF]), 64, NUMBERS["easy"], False)
        checks.advance(4, columns_of(jobs), engine.jobs["starting_time"], engine.jobs["finish_time"])
        assert any(checks.followed) == follows


@pytest.mark.parametrize(("sign", "compared"), [(1, [128, 384, 896, 1408]), (-1, list(range(128, 1537, 128)))])
def test_a_network_that_is_ahead_is_compared_with_plain_orders_less_often(
    sign: int, compared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = columns_of(generate(12 * PERIOD, seed=8, cores=64, typed=False, arrival_factor=0.7))
    checks, pasts = (
        Checks(sign * np.stack([SAF, -SAF]), 64, NUMBERS["easy"], False),
        [],
    )
    cost = checks._cost
    monkeypatch.setattr(checks, "_cost", lambda past, *rest: pasts.append(past.submission[-1]) or cost(past, *rest))
    checks.advance(12, jobs, jobs.submission, jobs.submission + jobs.requested)
    np.testing.assert_array_equal(pasts[::2], jobs.submission[np.array(compared) - 1])
    assert len(checks.followed) == len(checks.errors) == 13


def test_checks_know_nothing_of_ends_to_come() -> None:
    jobs = columns_of(generate(300, seed=8, cores=64, typed=False))
    networks = np.stack([-SAF, SAF])
    outcomes = []
    for later in (0.0, 5e5):
        start = jobs.submission + 100.0
        finish = start + jobs.requested / 2
        finish[finish >= jobs.submission[PERIOD - 1]] += later
        checks = Checks(networks, 64, NUMBERS["easy"], False)
        checks.advance(1, jobs, start, finish)
        outcomes.append((checks.followed, checks._advantage))
    assert outcomes[0][0] == outcomes[1][0]
    np.testing.assert_array_equal(outcomes[0][1], outcomes[1][1])


def test_checks_find_the_errors_of_requested_times() -> None:
    trace = generate(300, seed=8, cores=64, typed=False, estimates="tsafrir")
    jobs = columns_of(trace)
    start = jobs.submission + 100.0
    checks = Checks(SAF[np.newaxis], 64, NUMBERS["easy"], False)
    checks.advance(2, jobs, start, start + trace.runtime)
    for number, (mean, deviation) in enumerate(checks.errors):
        ended = (start + trace.runtime)[: number * PERIOD] < jobs.submission[number * PERIOD - 1]
        error = np.log(trace.runtime / trace.requested_time)[: number * PERIOD][ended]
        expected = (error.mean(), error.std()) if number else (0.0, 0.0)
        assert (mean, deviation) == pytest.approx(expected)
    assert checks.errors[2][0] < -0.1 and checks.followed == [0, 0, 0]


def test_scores_know_nothing_of_jobs_to_come() -> None:
    jobs = generate(120, seed=3, cores=64, typed=False)
    whole, part = columns_of(jobs), columns_of(jobs[:80])
    np.testing.assert_array_equal(whole.sums[:80], part.sums[:80])
    np.testing.assert_array_equal(past_sums(whole.requested, whole.size), whole.sums)


@pytest.mark.ci
def test_it_is_an_order_like_the_others() -> None:
    """By name, with contention on a platform of several speeds, and under every backfilling algorithm."""
    contended = hdsim.simulate("gaia", generate(60, seed=1, cores=64), "easy-learned", contention="threshold", seed=1)
    assert contended.metrics["jobs_completed"] == 60
    jobs = generate(80, seed=2, cores=64)
    for name in ("learned", "easy-learned", "conservative-learned", "greedy-learned-low_power"):
        result = hdsim.simulate(PLATFORM, jobs, name)
        assert result.metrics["jobs_completed"] == 80


def test_windows_of_machines_unlike_home_are_replayed_to_their_ends() -> None:
    rng = np.random.default_rng(5)
    others = [draw(rng, least=1.6) for draw in (draw_away, draw_capability, draw_kind) for _ in range(4)]
    for window in [draw_home(rng), *others]:
        costs = {name: window.cost(SAF, *rule) for name, rule in RULES.items()}
        assert all(1 <= cost < math.inf for cost in costs.values())
        jobs = window.workload
        assert jobs.requested_cores.max() <= jobs.cluster_cores


def test_no_window_of_a_training_is_of_a_kind_that_is_held_out() -> None:
    rng = np.random.default_rng(0)
    drawn = {draw_kind(rng, least=1.0).workload.source for _ in range(20)}
    names = {name: kind.held_out for name, kind in kinds().items()}
    found = {name for name in names if any(name in source for source in drawn)}
    assert len(found) > 3 and not any(names[name] for name in found)


def test_machines_for_wide_jobs_have_no_narrow_ones_and_the_load_that_was_asked_for() -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        jobs = capability(1024, 0.8, 500, rng)
        assert jobs.requested_cores.min() >= 1024 / 64 - 1
        assert jobs.requested_cores.max() <= 1024
        assert (jobs.requested_time >= jobs.runtime).all()
        offered = jobs.runtime @ jobs.requested_cores / (1024 * jobs.submission_time[-1])
        assert offered == pytest.approx(0.8, rel=0.05)  # the first job arrives at 0 s


#: Pairs of networks of a small training.
PAIRS = dict.fromkeys(RULES, 1)


@pytest.mark.requires("torch")
def test_evolution_is_reproducible_and_changes_the_order() -> None:
    from hdsim.learning.training.order.evolution import OrderEvolution

    trained = []
    for _ in range(2):
        evolution = OrderEvolution(
            seed=4, generations=2, **PAIRS | {"rlscheduler": 2, "greedy": 0}, each=1, home=1, away=1, capability=1
        )
        before = evolution.weights.copy()
        evolution.advance()
        evolution.advance()
        trained.append(np.stack(list(evolution.weights.values())))
        assert np.isfinite(trained[-1]).all()
        changed = {rule: (own != before[rule]).any() for rule, own in evolution.weights.items()}
        assert changed == {rule: rule != "greedy" for rule in RULES}
    np.testing.assert_array_equal(*trained)


@pytest.mark.requires("torch")
def test_weights_of_other_rules_begin_with_those_for_easy() -> None:
    from hdsim.learning.training.order.evolution import OrderEvolution

    start = {rule: np.arange(WEIGHTS) + place * 1e4 for place, rule in enumerate(("easy", "greedy", "committed"))}
    evolution = OrderEvolution(from_easy=["strict", "greedy"], start=start)
    found = {rule: own[0] for rule, own in evolution.weights.items() if rule != "rlscheduler"}
    assert found == {"strict": 0, "greedy": 0, "easy": 0, "committed": 2e4}
    for rule in RULES:
        np.testing.assert_array_equal(evolution.center(rule), evolution.weights[rule])
    # A rule that the card lacks begins as smallest area first.
    first = evolution.weights["rlscheduler"]
    np.testing.assert_array_equal(first, OrderEvolution(start={}).weights["rlscheduler"])


@pytest.mark.requires("torch")
def test_an_evolution_for_estimates_changes_nothing_where_run_times_are_known() -> None:
    from hdsim.learning.training.order.evolution import OrderEvolution

    evolution = OrderEvolution(seed=4, generations=1, **PAIRS, each=1, home=1, away=1, estimates=True)
    before = evolution.weights.copy()
    evolution.advance()
    changed = {rule: own != before[rule] for rule, own in evolution.weights.items()}
    assert all(0 < own.sum() < 0.1 * WEIGHTS for own in changed.values())
    rng = np.random.default_rng(6)
    known, estimated = draw_home(rng), draw_home(rng, estimates=True)
    for name, rule in RULES.items():
        assert known.cost(before[name], *rule) == known.cost(evolution.weights[name], *rule)
    far = before[name] + 3 * changed[name]
    assert estimated.cost(before[name], *rule) != estimated.cost(far, *rule)


SMALL = (
    "experiment=learned",
    "workload.generate.jobs=1024",
    "train.steps=4",
    *(f"train.evolution.{rule}={pairs}" for rule, pairs in PAIRS.items()),
    "train.evolution.each=1",
    "train.evolution.home=1",
    "train.evolution.away=1",
    "train.evolution.capability=1",
    "train.evolution.kinds=1",
    "train.validation=1",
    "train.evaluate_every=2",
    "train.checkpoint_every=1",
    "train.log_every=1",
    "train.test=1",
    "train.baselines=[saf]",
    "train.tensorboard=false",
)


@pytest.mark.requires("torch")
def test_a_training_of_the_order_goes_on_after_a_crash_and_leaves_a_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hdsim.learning.training.order.evolution import OrderEvolution, listed

    _, cut, setup = train_whole_and_cut(tmp_path, *SMALL, crash_after=1, monkeypatch=monkeypatch)
    card = json.loads((cut / "checkpoints/model_card.json").read_text())
    evolution = OrderEvolution(seed=1, generations=4, **PAIRS, each=1, home=1, away=1, capability=1, kinds=1)
    for _ in range(card["best_step"]):
        evolution.advance()
    assert card["weights"] == listed(evolution.weights) and card["parameters"] == 5 * WEIGHTS
    assert [point["step"] for point in card["curve"]] == [0, 2, 4] and card["episodes"] == 16
    assert "\nGeometric mean over windows and rules of" in (cut / "checkpoints/model_card.md").read_text()
    assert card["cpu_seconds"] > 0 and card["seed"] == 1
    untrained = setup.score(OrderEvolution(seed=1).weights)
    assert card["curve"][0]["score"] == untrained
    # Every rule counts alike, and every window, whatever its scale.
    weights = OrderEvolution(seed=1).weights
    costs = [window.cost(weights[name], *rule) for window in setup.validation for name, rule in RULES.items()]
    assert untrained == pytest.approx(math.prod(costs) ** (1 / len(costs)))
    assert len(costs) == 10
    agent = {"job_policy": str(cut / "checkpoints/model_card.json"), "backfill": "easy"}
    (window,) = setup.test
    replayed = hdsim.simulate(setup.platform, window, agent)
    assert replayed.metrics["mean_bounded_slowdown"] == card["scores"]["best"][0]
    assert len({part["jobs_sha256"] for name in ("validation", "test") for part in card[f"{name}_windows"]}) == 3


@pytest.mark.requires("torch")
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agent=ppo", "train.evolution: expected null, which trains agents of their own"),
        ("+train.evolution.pairs=3", "train.evolution: expected .*rlscheduler"),
        ("train.evolution.easy=2.5", "train.evolution.easy: expected a whole number >= 0, got 2.5"),
        ("train.evolution.start=3", "train.evolution.start: expected a card such as learned.json or null, got 3"),
        ("train.evolution.start=nowhere.json", "nowhere.json: expected a card with the weights"),
        ("train.evolution.from_easy=[esay]", "train.evolution.from_easy: expected a list of strict, greedy, easy"),
        (
            "train.evolution.typical_slowdown.easy=0",
            "train.evolution.typical_slowdown: expected numbers above 0 by rule",
        ),
        ("train.evolution.after_start=1", "train.evolution.after_start: expected true or false, got 1"),
        ("train.traces=[lublin_4000]", "train.traces: expected null with train.evolution"),
        ("train.validation=[0]", "train.validation: expected a number of windows"),
        ("backend=batsim", "backend: expected sim with train.evolution, got batsim"),
    ],
)
def test_mistakes_in_a_training_of_the_order(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_setup(*SMALL, override)


@pytest.mark.requires("torch")
def test_the_experiment_has_the_settings_of_the_evolution() -> None:
    from hdsim.learning.training.order.evolution import TYPICAL, OrderEvolution

    config = make_setup("experiment=learned", "train.validation=0").config["train"]
    defaults = {field.name: field.default for field in dataclasses.fields(OrderEvolution) if field.init}
    found = {"seed": 1, "generations": config["steps"], **config["evolution"]}
    expected = {name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()}
    assert found == expected | {"typical_slowdown": TYPICAL, "from_easy": []}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "expected a card with the weights of a network"),
        ("{}", "expected a card with the weights of a network"),
        ('{"weights": [1, 2]}', r"weights: expected a list for each rule, such as easy, got \[1, 2\]"),
        ('{"weights": {"a": 1}}', "weights: expected one of strict, greedy, easy, committed, rlscheduler, got 'a'"),
        ('{"weights": {"easy": [1]}}', rf"weights.easy: expected a list of {WEIGHTS} weights, got \[1\]"),
        (json.dumps({"weights": {"strict": [0.0] * WEIGHTS}}), "expected weights for the rule easy, got strict"),
        *(
            (
                json.dumps({"weights": {"easy": [0.0] * (WEIGHTS - 1) + [wrong]}}),
                r"weights.easy: expected a number from -1e\+100 to 1e\+100 each",
            )
            for wrong in (math.inf, math.nan, 1e308, 10**400, True, "1", None, [1])
        ),
    ],
)
def test_a_card_without_weights_is_an_error(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=told) as caught:
        read_networks(str(path), *RULES["easy"])
    assert caught.value.where == str(path) and len(str(caught.value)) < 300


def test_jobs_are_scored_after_every_start_but_where_a_head_stays_the_head_without_backfilling() -> None:
    """The schedules of the engine differ where they are scored once a pass."""
    jobs = generate(400, seed=9, cores=64, typed=False, arrival_factor=0.5)
    for name, (number, commit) in RULES.items():
        settings = {"backfill": Backfilling(number).name.lower(), "commit_head": commit}
        agent, once = ClassicAgent("learned", **settings), ClassicAgent("learned", **settings)
        assert once.rules is not None
        once.rules = dataclasses.replace(once.rules, order=dataclasses.replace(once.rules.order, after_start=False))
        starts = [hdsim.simulate(PLATFORM, jobs, each, check=True).jobs["starting_time"] for each in (agent, once)]
        assert (starts[0] == starts[1]).all() == (name == "committed")


@pytest.mark.requires("torch")
def test_an_evolution_begins_with_the_weights_of_a_card() -> None:
    begin = ("train.evolution.start=learned.json", "train.evolution.after_start=true")
    evolution = make_setup(*SMALL, "train.validation=0", *begin).evolution
    weights = json.loads((folder("agents") / "learned.json").read_text())["weights"]
    assert {rule: own.tolist() for rule, own in evolution.weights.items()} == weights and evolution.after_start


@given(
    ends=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 50)), max_size=20),
    seed=st.integers(0, 99),
)
def test_jobs_are_expected_to_last_as_long_as_the_longer_of_the_last_two_like_jobs(
    ends: list[tuple[int, int, int]], seed: int
) -> None:
    """Ends are (kind, finish, run time); which of several at one time is told first makes no difference."""
    kind = np.array([*(kind for kind, _, _ in ends), 0, 1, 2, -1])
    waiting, requested = np.arange(len(ends), len(kind)), np.full(len(kind), 40.0)
    expected, logs = requested.copy(), np.log(requested)
    latest = make_latest(kind)
    told = np.random.default_rng(seed).permutation(len(ends))
    finish, runtime = (np.array([end[column] for end in ends], float) for column in (1, 2))
    note_ends(latest, kind, told, (finish - runtime)[told], finish[told])
    expect(waiting, len(waiting), kind, latest, requested, expected, logs)
    for job in waiting:
        alike = sorted((finish[i], i, runtime[i]) for i in range(len(ends)) if kind[i] == kind[job])[-2:]
        time = min(max(1.0, *(end[2] for end in alike)), 40.0) if len(alike) == 2 else 40.0
        assert expected[job] == time and logs[job] == pytest.approx(math.log(time))


def test_the_network_sees_what_the_agent_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = generate(200, seed=3, cores=64, typed=False, estimates="tsafrir", arrival_factor=0.5)
    scores, seen = learned_scores, []

    def noted(*arguments: Any) -> None:
        queue, count, requested = arguments[5], arguments[6], arguments[8]
        seen.append((requested[queue[:count]] == jobs.runtime[queue[:count]]).all())
        scores(*arguments)

    monkeypatch.setattr("hdsim.scheduling.learned.order.learned_scores", noted)
    agent = {"job_policy": "learned", "backfill": "easy", "estimates": "actual"}
    assert hdsim.simulate(PLATFORM, jobs, agent).metrics["jobs_completed"] == 200
    assert len(seen) > 10 and all(seen)
