"""Learned controllers of gangs: the environment against plain loops, trainings that learn, checkpoints, mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gang_inputs import PENALTY, noisy
from gang_reference import Reference, surface

from hdsim.config.composer import Composer
from hdsim.errors import ConfigError
from hdsim.gangs.controllers import Controller, GangState, StaticWindow
from hdsim.gangs.lookahead import GangSeries, Lookahead
from hdsim.gangs.planner import Budget, GreedyPlanner, Planner
from hdsim.gangs.simulation import Gang
from hdsim.learning.controller import Learned
from hdsim.simulation.alone import run_alone

if TYPE_CHECKING:
    from hdsim.learning.training.gangs import GangTask

pytestmark = pytest.mark.requires("torch")
ROWS, COLUMNS, TASKS = 14, 6, 3


def random_gang(seed: int) -> tuple[Planner, np.ndarray, Reference]:
    """A gang, and the same in plain loops."""
    rng = np.random.default_rng(seed)
    profile = noisy(rng, TASKS)
    sizes, actual = rng.uniform(8.0, 52.0, (ROWS, COLUMNS, TASKS)), rng.uniform(8.0, 52.0, (ROWS, TASKS))
    measured = [
        {(size, share): grid[z, s] for z, size in enumerate(profile.sizes) for s, share in enumerate(profile.shares)}
        for grid in profile.durations
    ]
    reference = Reference(surface(measured), sizes.tolist(), actual.tolist())
    return GreedyPlanner(profile, Budget(), sizes), actual, reference


@pytest.mark.parametrize(("seed", "start"), [(0, 0), (1, 3), (2, 4)])
def test_the_environment_is_that_of_kube_gang_scheduling(seed: int, start: int) -> None:
    from hdsim.envs.gang import GangEnv

    planner, actual, reference = random_gang(seed)
    problem = Lookahead(actions=4, columns=5, durations=[75, 150], clip=False)
    env = GangEnv([GangSeries.of(problem, planner, actual)], problem, PENALTY, supersteps=10, start=start)
    seen, _ = env.reset(seed=0)
    shares, rng, checkpoints, durations = [1000] * TASKS, np.random.default_rng(seed), 0, 0.0
    for t in range(start, start + 10):
        led_to = [shares, *(reference.greedy(t, 0, width) for width in (1, 2, 3))]
        expected = [[(reference.slowest(each, t, c)[1] - 75) / (150 - 75) for c in range(5)] for each in led_to]
        np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-6)
        action = int(rng.integers(4))
        shares = led_to[action]
        took = reference.executed(shares, t)
        seen, reward, terminated, truncated, info = env.step(action)
        assert reward == pytest.approx((150 - 15 * (action != 0) - took) / 75, rel=1e-9)
        assert (terminated, truncated) == (False, t == start + 9)
        durations, checkpoints = durations + took, checkpoints + (action != 0 and t > start)
    total = pytest.approx(durations + PENALTY * checkpoints, rel=1e-9)
    assert info["metrics"] == {"duration": pytest.approx(durations), "checkpoints": checkpoints, "total": total}


def test_gymnasium_finds_no_fault_and_draws_rows_beside_those_held_out() -> None:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    import hdsim.envs

    settings = {"tasks": {"cap": "x", "zero": "y"}, "actions": 2, "columns": 2, "shares": {"total": 6000}}
    env: Any = gymnasium.make(hdsim.envs.GANG_ID, supersteps=90, held_out=[(0, 400), (800, 200)], **settings).unwrapped
    check_env(env, skip_render_check=True)
    starts = {env.reset(seed=seed)[0].tobytes() and env._rows.start for seed in range(200)}
    assert min(starts) >= 400 and max(starts) <= 800 - 90 and len(starts) > 100
    held = env.problem.durations
    assert held != gymnasium.make(hdsim.envs.GANG_ID, supersteps=90, **settings).unwrapped.problem.durations  # type: ignore[attr-defined]


class Choices(Controller):
    """Takes given actions."""

    def __init__(self, actions: Sequence[int]):
        self.actions = actions

    def decide(self, state: GangState) -> Any:
        action = self.actions[state.superstep]
        plans = state.planner.plans(state.row, ((0, 1), (0, 2), (0, 3)))
        return plans.shares[action - 1] if action else None


def test_an_episode_takes_as_long_as_the_run_with_its_actions() -> None:
    from hdsim.envs.gang import GangEnv

    planner, actual, _ = random_gang(5)
    problem = Lookahead(actions=4, columns=2)
    env = GangEnv([GangSeries.of(problem, planner, actual)], problem, PENALTY, supersteps=8, start=2)
    env.reset(seed=0)
    actions = [1, 0, 3, 0, 0, 2, 1, 0]
    *_, (*_, info) = (env.step(action) for action in actions)
    run = run_alone(Gang(planner, actual, Choices(actions), 2, 8, PENALTY))
    assert info["metrics"] == pytest.approx(run.metrics)


# ---- trainings


@pytest.fixture
def contrived(tmp_path: Path) -> list[str]:
    """A gang of two tasks, of which one has much to do for ten rows and then the other one."""
    (tmp_path / "series").mkdir()
    for name, shift in (("x", 0), ("y", 10)):
        rows = (",".join(str((t + c + shift) // 10 % 2) for c in range(8)) for t in range(200))
        (tmp_path / "series" / f"{name}_actual.csv").write_text("\n".join(rows) + "\n")
    return [
        f"actual={tmp_path / 'series'}",
        "forecasts=actual",
        "~tasks",
        "+tasks={cap: x, zero: y}",
        "shares.total=6000",
        "penalty=60",
        "supersteps=60",
        "env.supersteps=40",
        "env.actions=3",
        "env.columns=3",
        "train.validation=1",
        "train.baselines=[static_window]",
        "train.tensorboard=false",
    ]


def setup_of(*overrides: str) -> GangTask:
    from hdsim.learning.training.gangs import GangTask

    composer = Composer(config_name="bsp_train")
    return GangTask(composer.compose(composer.overrides(overrides)))


def train(directory: Path, *overrides: str) -> tuple[GangTask, dict[str, Any]]:
    from hdsim.learning.training.run import run_training

    directory.mkdir()
    setup = setup_of(*overrides)
    return setup, run_training(setup, directory, resume=False, progress=False)[1]["training"]


@pytest.mark.parametrize(
    "agent",
    [
        ["agent=ppo", "agent.gamma=0.9", "agent.learning_rate=3e-3", "agent.num_steps=32", "train.steps=5000"],
        ["agent=dqn", "agent.gamma=0.9", "agent.train_frequency=8", "agent.buffer_size=4000", "train.steps=2500"],
    ],
    ids=lambda agent: str(agent[0]),
)
def test_agents_learn_when_a_change_is_worth_its_price(tmp_path: Path, contrived: list[str], agent: list[str]) -> None:
    setup, facts = train(tmp_path / "run", *contrived, *agent, "train.evaluate_every=1000")
    (test,) = setup.test
    fixed = {"once": [2] + [0] * 59, "always": [1] * 60}
    totals = {
        name: run_alone(Gang(test.planner, test.actual, Choices(actions), 0, 60, 60.0)).metrics["total"]
        for name, actions in fixed.items()
    }
    assert facts["scores"]["best"][0] < 0.95 * min(totals.values())
    # The checkpoint is the agent of the card, in the engine as in the training.
    loaded = Learned(str(tmp_path / "run" / "checkpoints" / "best.safetensors"))
    run = run_alone(Gang(test.planner, test.actual, loaded, 0, 60, 60.0))
    assert run.metrics["total"] == facts["scores"]["best"][0]
    assert 3 <= run.metrics["checkpoints"] <= 20
    assert facts["scores"]["static_window"] == [
        run_alone(Gang(test.planner, test.actual, StaticWindow(), 0, 60, 60.0)).metrics["total"]
    ]


@pytest.mark.parametrize(
    "agent",
    [
        ["agent=actor_critic"],
        pytest.param(
            ["agent=sb3", "agent.algo=PPO", "agent.options={n_steps: 16}"],
            marks=pytest.mark.requires("stable-baselines3"),
        ),
        pytest.param(
            ["agent=sb3", "agent.algo=DQN", "agent.options={learning_starts: 50}"],
            marks=pytest.mark.requires("stable-baselines3"),
        ),
    ],
    ids=lambda agent: "-".join(agent[:2]),
)
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, contrived: list[str], agent: list[str]) -> None:
    for name in ("one", "two"):
        setup, _ = train(tmp_path / name, *contrived, *agent, "train.steps=300", "train.evaluate_every=150")
    for file in ("final.safetensors", "best.safetensors", "model_card.md"):
        one, two = ((tmp_path / name / "checkpoints" / file).read_bytes() for name in ("one", "two"))
        assert one == two
    seen = np.random.default_rng(0).random((50, 9), np.float32)
    legal = np.ones((50, 3), bool)
    loaded = Learned(str(tmp_path / "one" / "checkpoints" / "final.safetensors")).agent
    np.testing.assert_array_equal(loaded.probabilities(seen, legal), setup.agent.probabilities(seen, legal))


def test_a_checkpoint_serves_the_gang_it_was_trained_for(tmp_path: Path, contrived: list[str]) -> None:
    from hdsim.scheduling.agent import make_agent
    from hdsim.simulation.simulation import simulate

    setup, _ = train(tmp_path / "run", *contrived, "train.steps=1100", "train.validation=0")
    file = str(tmp_path / "run" / "checkpoints" / "final.safetensors")
    planner, actual, _ = random_gang(1)
    with pytest.raises(ConfigError, match=r"controller\.checkpoint: expected the tasks of the training, cap, zero"):
        run_alone(Gang(planner, actual, Learned(file), 0, 5, PENALTY))
    (test,) = setup.test
    short = GreedyPlanner(test.planner.profile, test.planner.budget, test.planner.predictions[:, :2])
    with pytest.raises(ConfigError, match="expected predictions of 3 supersteps for 3 columns, got 2"):
        run_alone(Gang(short, test.actual, Learned(file), 0, 5, PENALTY))
    with pytest.raises(ConfigError, match="expected an agent that schedules jobs, got one that controls the shares"):
        agent = make_agent({"_target_": "hdsim.agents.ppo.PPOAgent", "checkpoint": file})
        composer = Composer()
        config = composer.compose(["platform=teaching", "workload.jobs=10"])
        from hdsim.config.inputs import read_platform, read_workload

        platform = read_platform(config)
        simulate(platform, read_workload(config, platform), agent)
    with pytest.raises(ConfigError, match=r"expected a checkpoint of `hdsim bsp train`, 'kubernetes_dqn' is none"):
        Learned("kubernetes_dqn")
    with pytest.raises(ConfigError, match=r"controller\.checkpoint: expected a checkpoint, found no file 'nope'"):
        Learned("nope")
    with pytest.raises(ConfigError, match=r"controller\.checkpoint: expected the file of a trained agent, got null"):
        Learned()
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(Path(file).read_bytes()[:-40])
    with pytest.raises(ConfigError, match=r"controller\.checkpoint"):
        Learned(str(damaged))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.actions=1"], r"env\.actions: expected a whole number >= 2, got 1"),
        (["env.colums=3"], r"env\.colums: unknown key \(did you mean 'columns'\?\)"),
        (["env.actions=30"], r"env: expected predictions of 29 supersteps for 30 actions, got 8"),
        (["env.durations=[150,75]"], r"env\.durations: expected two numbers of seconds, the smaller one first"),
        (["env.supersteps=150"], r"train\.validation: expected windows of 150 rows \(env\.supersteps\)"),
        (["env.supersteps=150", "train.validation=0"], r"env\.supersteps: expected at most as many supersteps as"),
        (["env.start=190"], r"env\.supersteps: expected start \+ supersteps of at most 200"),
        (["train.validation=[30]"], r"train\.validation: expected windows of 40 rows .* got one from 30 on"),
        (["train.seeds=[2]"], r"train\.seeds: expected null with actual="),
        (["train.baselines=[dynamic_mcp]"], r"train\.baselines: .*\(did you mean 'dynamic_mpc'\?\)"),
        (["start=150"], r"supersteps: expected start \+ supersteps of at most 200, the rows of the series, got 210"),
        (["agent=easy"], r"agent: expected an agent that learns"),
        (["agent=imitation"], r"agent\.teacher: expected jobs that a policy can schedule, got a gang"),
        (["agent=dqn", "agent.heuristic_exploration=1"], r"agent\.heuristic_exploration: expected 0"),
        (["agent=gnn_dqn"], r"env\.observation"),
        (["train.traces=[x]"], r"train\.traces"),
    ],
)
def test_a_mistake_in_a_training_is_one_message(contrived: list[str], overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        setup_of(*contrived, *overrides)


def test_generated_series_of_other_seeds_are_trained_on(tmp_path: Path) -> None:
    few = ["~tasks", "+tasks={cap: x, zero: y}", "shares.total=6000", "train.seeds=[2,3]"]
    setup = setup_of(*few)
    assert len(setup.traces) == 2
    assert not any(np.array_equal(setup.test[0].actual, trace.actual) for trace in setup.traces)
    with pytest.raises(ConfigError, match=r"train\.seeds: expected other seeds than 3"):
        setup_of(*few, "seed=3")
