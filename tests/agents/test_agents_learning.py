"""Agents learn what is known to be right, fit machines of other sizes, and are what their options say."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from training_setups import make_setup, run, train_until

import hdsim
from hdsim.envs.episodes import TraceWindow
from hdsim.errors import ConfigError
from hdsim.util.resources import folder

if TYPE_CHECKING:
    from hdsim.learning.agent import LearningAgent
    from hdsim.learning.training.loop import Training
    from hdsim.learning.training.task import EpisodeTask

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.requires("torch")

#: Options of the group `agent` whose agents learn.
LEARNERS = sorted(
    path.stem
    for path in (folder("conf") / "agent").glob("*.yaml")
    if "checkpoint" in (yaml.safe_load(path.read_text()) or {})
)
_GRAPH = "env.observation=graph"
_GAMMA = "agent.gamma=0.95"
#: By agent, or agent and algorithm: what it needs on the two cases besides its defaults, which learn the second one.
#: With the seeds given
#: the untrained network prefers the wrong action.
CASES: dict[str, dict[str, tuple[str, ...]]] = {
    "spread_or_pack": {
        "actor_critic": (_GAMMA, "train.steps=4000"),
        "dqn": (_GAMMA, "train.steps=8000", "seed=3"),
        "evolution": ("agent.pairs=8", "agent.windows=2", "agent.hidden=[16]", "train.steps=3000"),
        "gnn_actor_critic": (_GRAPH, "~env.scale", _GAMMA, "agent.learning_rate=7e-3", "train.steps=2500"),
        "gnn_dqn": (
            _GRAPH,
            "~env.scale",
            _GAMMA,
            "agent.batch_size=64",
            "train.steps=2500",
            "seed=6",
        ),
        "gnn_imitation": (_GRAPH, "~env.scale", "agent.teacher=first-high_mem_bw", "train.steps=2500"),
        "gnn_ppo": (_GRAPH, "~env.scale", _GAMMA, "agent.learning_rate=3e-3", "agent.num_steps=16", "train.steps=4000"),
        "imitation": ("agent.teacher=first-high_mem_bw", "train.steps=2500"),
        "ppo": (_GAMMA, "agent.learning_rate=3e-3", "agent.num_steps=16", "agent.gae_lambda=1", "train.steps=8000"),
        "reinforce": (_GAMMA, "agent.learning_rate=5e-3", "train.steps=8000"),
        "sb3 A2C": (_GAMMA, "train.steps=5000"),
        "sb3 DQN": (_GAMMA, "agent.total_steps=20000", "train.steps=5000", "seed=3"),
        "sb3 MaskablePPO": ("train.steps=14000",),
        "sb3 PPO": ("train.steps=14000",),
    },
    "fast_or_frugal": {
        "actor_critic": ("train.steps=3000",),
        "dqn": ("train.steps=3000",),
        "evolution": ("train.steps=2500", "seed=2"),
        "gnn_actor_critic": (_GRAPH, "train.steps=3000"),
        "gnn_dqn": (_GRAPH, "train.steps=2500", "seed=6"),
        "gnn_imitation": (_GRAPH, "agent.teacher=first-low_power", "train.steps=2500"),
        "gnn_ppo": (_GRAPH, "agent.learning_rate=3e-3", "train.steps=8000"),
        "imitation": ("agent.teacher=first-low_power", "train.steps=2500"),
        "ppo": ("train.steps=15000",),
        "reinforce": ("train.steps=15000",),
        "sb3 A2C": ("train.steps=3000",),
        "sb3 DQN": ("train.steps=10000",),
        "sb3 MaskablePPO": ("train.steps=18000",),
        "sb3 PPO": ("train.steps=18000",),
    },
}


def probability(probe: EpisodeTask, agent: LearningAgent, action: int) -> float:
    """Mean probability of an action over the decisions of the first test window, in an environment of its own."""
    environment = probe.environments[0]
    observation, info = environment.reset(seed=0, options={"workload": probe.test[0]})
    found, over = [], False
    while not over:
        (probabilities,) = agent.probabilities(
            {name: array[None] for name, array in observation.items()}
            if isinstance(observation, dict)
            else observation[None],
            info["action_mask"][None],
        )
        found.append(float(probabilities[action]))
        observation, _, over, _, info = environment.step(int(probabilities.argmax()))
    return float(np.mean(found))


#: Learners that the nightly tier tries: actor-critic methods, whose machinery is that of PPO.
LATER = {"actor_critic", "gnn_actor_critic", "gnn_ppo"}
#: The action to be learned; the other one comes first, which networks choose that have learned nothing.
RIGHT = {"fast_or_frugal": "first-low_power", "spread_or_pack": "first-high_mem_bw"}


@pytest.mark.requires("stable-baselines3")
@pytest.mark.parametrize(
    ("experiment", "name"),
    [
        # The other case is repetition; tests/agents/test_sb3.py compares updates of sb3 with the library's own.
        pytest.param(
            case,
            name,
            marks=pytest.mark.nightly
            if case == "fast_or_frugal" or name.startswith("sb3") or name in LATER
            else ()
            if name == "ppo"
            else pytest.mark.ci,
        )
        for case, names in CASES.items()
        for name in names
    ],
)
def test_an_agent_learns_the_right_policy(
    tmp_path: Path, name: str, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    option, _, algo = name.partition(" ")
    overrides = (
        f"experiment={experiment}",
        f"agent={option}",
        "train.validation=1",
        "train.test=1",
        "train.tensorboard=false",
        "train.evaluate_every=250",
        f"env.pairs=[first-high_gflops,{RIGHT[experiment]}]",
        *([f"agent.algo={algo}"] if algo else []),
        *CASES[experiment][name],
    )
    probe = make_setup(*overrides)
    wrong, right = probe.actions

    def learned(setup: EpisodeTask, training: Training) -> bool:
        score = training.records.rows[-1][f"validation_{setup.evaluation.metric}"]
        return score < 1.02 * training.state.baselines[right] and probability(probe, setup.agent, 1) > 0.9

    setup = train_until(tmp_path, *overrides, learned=learned, monkeypatch=monkeypatch)
    means = {agent: setup.evaluation.scores(agent, setup.test).mean() for agent in (right, wrong, setup.agent)}
    assert means[right] < 0.8 * means[wrong]
    assert means[setup.agent] < 1.02 * means[right]


def test_every_learner_is_tried_on_both() -> None:
    from hdsim.agents.sb3 import ALGORITHMS

    # Nothing that matching decides is an action of an environment.
    everyone = {*LEARNERS, *(f"sb3 {algo}" for algo in ALGORITHMS)} - {"sb3", "matching"}
    assert all(set(names) == everyone for names in CASES.values())


#: By agent, or agent and algorithm: what it needs to put pods on nodes with room within a second. The perceptrons of
#: sb3 take longer, and `matching` chooses no nodes: only their weights have to change.
PODS: dict[str, tuple[str, ...]] = {
    "actor_critic": ("agent.gamma=0", "agent.learning_rate=3e-3", "train.steps=1000"),
    "dqn": ("agent.gamma=0", "train.steps=1000"),
    "evolution": ("agent.pairs=4", "agent.windows=1", "agent.num_envs=1", "train.steps=300"),
    "gnn_actor_critic": (_GRAPH, "agent.gamma=0", "agent.learning_rate=3e-3", "train.steps=600"),
    "gnn_dqn": (_GRAPH, "agent.gamma=0", "train.steps=1000"),
    "gnn_imitation": (_GRAPH, "agent.teacher=first-spread", "train.steps=300"),
    "gnn_ppo": (_GRAPH, "agent.gamma=0", "agent.learning_rate=3e-3", "agent.num_steps=16", "train.steps=640"),
    "imitation": ("agent.teacher=first-spread", "train.steps=500"),
    "ppo": ("agent.gamma=0", "agent.learning_rate=3e-3", "agent.num_steps=16", "train.steps=1024"),
    "reinforce": ("agent.gamma=0", "agent.learning_rate=1e-2", "agent.episodes_per_update=2", "train.steps=1000"),
    "sb3 A2C": ("train.steps=160",),
    "sb3 DQN": ("agent.options={learning_starts: 50, target_update_interval: 80}", "train.steps=200"),
    "sb3 MaskablePPO": ("agent.options={n_steps: 8}", "train.steps=160"),
    "sb3 PPO": ("agent.options={n_steps: 8}", "train.steps=160"),
}
_MATCHING = (
    "experiment=matching",
    "train.traces=null",
    "env.jobs=20",
    "train.steps=100",
    "agent.windows=1",
    "agent.pairs=2",
    "agent.num_envs=1",
)


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.requires("stable-baselines3") if name.startswith("sb3") else ())
            for name in PODS
        ),
        "matching",
    ],
)
def test_a_training_changes_all_weights_and_brings_the_score_down(tmp_path: Path, name: str) -> None:
    from hdsim.learning import checkpoint

    option, _, algo = name.partition(" ")
    case = _MATCHING
    if name in PODS:
        case = ("experiment=kubernetes", "workload.generate.epochs=6", "env.jobs=60", f"agent={option}", *PODS[name])
    setup = make_setup(
        *case,
        *([f"agent.algo={algo}"] if algo else []),
        "seed=3",
        "train.validation=1",
        "train.test=1",
        "train.baselines=[]",
        "train.tensorboard=false",
        "train.evaluate_every=100000",
    )
    parts = {part: getattr(setup.agent, part) for part in setup.agent.weights}
    before = {part: [weights.detach().clone() for weights in module.parameters()] for part, module in parts.items()}
    first, last = (point["score"] for point in run(setup, tmp_path)["curve"])
    for part, module in parts.items():
        kept = checkpoint.load(tmp_path / "checkpoints/final.safetensors")["weights"][part]
        for (key, weights), old in zip(module.named_parameters(), before[part], strict=True):
            assert (weights != old).any(), f"{part}.{key} is what it was before the training"
            np.testing.assert_array_equal(kept[key], weights.detach())
    if name in PODS and option != "sb3":
        assert last < 0.2 * first


def test_all_weights_of_every_learner_are_watched() -> None:
    from hdsim.agents.sb3 import ALGORITHMS

    assert {*PODS, "matching"} == {*LEARNERS, *(f"sb3 {algo}" for algo in ALGORITHMS)} - {"sb3"}


@pytest.mark.parametrize("name", LEARNERS)
def test_an_option_has_the_defaults_of_its_class(name: str) -> None:
    from hdsim.agents.rollout import Rollout
    from hdsim.scheduling.agent import make_agent

    option = yaml.safe_load((folder("conf") / "agent" / f"{name}.yaml").read_text())
    agent: Any = make_agent(option)
    defaults = {field.name: field.default for field in dataclasses.fields(agent)}
    del option["_target_"], defaults["task"]
    # Settings of another agent, which the group names so that they can be overridden one by one.
    search, usual = option.pop("search", {}), inspect.signature(Rollout).parameters
    assert defaults.pop("search", None) is None and search == {key: usual[key].default for key in search}
    assert {key: tuple(value) if isinstance(value, list) else value for key, value in option.items()} == defaults
    docs = "".join(base.__doc__ or "" for base in type(agent).__mro__)
    assert all(f"        {key}: " in docs for key in agent.settings()), "undocumented setting"


@pytest.mark.ci
def test_a_kernel_fits_any_queue_and_any_machine(tmp_path: Path) -> None:
    import hdsim

    setup = make_setup(
        "platform=homogeneous_256",
        "workload.jobs=400",
        "env.action=job",
        "env.observation=jobs",
        "env.queue_size=16",
        "env.objective=bounded_slowdown",
        "env.jobs=50",
        "agent=ppo",
        "agent.num_steps=32",
        "train.steps=1000",
        "train.validation=0",
        "train.test=1",
        "train.baselines=[fcfs]",
        "train.tensorboard=false",
    )
    run(setup, tmp_path)
    agent = {"_target_": "hdsim.agents.ppo.PPOAgent", "checkpoint": str(tmp_path / "checkpoints/final.safetensors")}
    for nodes in (3, 700):
        platform = hdsim.Platform.homogeneous(nodes, 4)
        workload = hdsim.load_workload(folder("workloads") / "even_1000.swf", platform=platform, jobs=60)
        assert hdsim.simulate(platform, workload, agent, check=True).metrics["jobs_completed"] == 60
    observations = np.random.default_rng(0).random((2, 300, 8), np.float32)
    probabilities = setup.agent.probabilities(observations, np.ones((2, 300), bool))
    assert probabilities.shape == (2, 300)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    # The order of the rows does not matter, and rows of no job change nothing but their own share.
    np.testing.assert_allclose(
        setup.agent.probabilities(observations[:, ::-1].copy(), np.ones((2, 300), bool)),
        probabilities[:, ::-1],
        rtol=1e-4,
    )


@pytest.mark.parametrize(("shape", "actions"), [((40, 8), 40), ((40, 8), 41), ((21,), 5)])
def test_a_network_without_torch_chooses_the_same(shape: tuple[int, ...], actions: int) -> None:
    import torch

    from hdsim.learning.agent import TensorShapes
    from hdsim.learning.training.networks import numpy_policy, score_network

    network = score_network(TensorShapes(shape, actions), (16,), (16, 8), gain=1.0)
    best = numpy_policy(network)
    rng = np.random.default_rng(1)
    chosen = set()
    for case in range(60):
        observation, mask = rng.random(shape, np.float32), rng.random(actions) < 0.2
        mask[case % 5] = True
        if len(shape) == 2:
            observation[25:] = 0.0
            mask[25 : shape[0]] = False
        with torch.no_grad():
            scores = network(torch.from_numpy(observation)[None])[0].numpy()
            chosen.add(best(observation, mask))
            assert scores[best(observation, mask)] >= scores[mask].max() - 1e-5
            assert mask[best(observation, mask)]
            for weights in network.parameters():  # it follows them
                weights.add_(torch.randn_like(weights), alpha=0.1)
    assert len(chosen) > 2


@pytest.mark.parametrize("void", [0, 1])
def test_a_kernel_gives_a_minibatch_of_rows_in_use_what_it_gives_whole_observations(void: int) -> None:
    import torch

    from hdsim.learning.training.row_networks import RowKernel, Rows

    observations = torch.rand(50, 12, 3)
    observations[torch.rand(50, 12) < 0.6] = 0.0
    observations[7] = 0.0
    chosen = torch.randint(50, (30,))
    kernel = RowKernel(3, (8, 4), void, gain=1.0)
    results = kernel(Rows.of(observations)[chosen]), torch.cat([kernel(one[None]) for one in observations[chosen]])
    torch.testing.assert_close(*results)
    gradients = [torch.autograd.grad(result.square().sum(), list(kernel.parameters())) for result in results]
    torch.testing.assert_close(*gradients)


def test_plain_layers_take_observations_without_any_row() -> None:
    import torch

    from hdsim.learning.training.row_networks import RowKernel, Rows

    kernel, empty = RowKernel(3, (8, 4), 1, gain=1.0), Rows.of(torch.zeros(2, 5, 3))
    torch.testing.assert_close(kernel.plain_layers(empty), (torch.zeros(2, 5), torch.zeros(2, 4)))


@pytest.mark.parametrize("hidden", [(32, 16, 8), (5, 7), (9,)])
def test_compiled_layers_and_their_gradients_are_those_of_pytorch_in_double_precision(hidden: tuple[int, ...]) -> None:
    import torch

    from hdsim.learning.kernels.row_networks import BLOCK
    from hdsim.learning.training.row_networks import RowKernel, Rows

    torch.manual_seed(1)
    observations = torch.rand(60, 2 * BLOCK, 3)
    # Observations without a row, with few of them, and with more than a block.
    observations[torch.rand(60, 2 * BLOCK) < torch.rand(60, 1)] = 0.0
    observations[::7] = 0.0
    observations[11] = 0.5
    rows = Rows.of(observations)[torch.randint(60, (40,))]
    kernel = RowKernel(3, hidden, 1, gain=1.0)
    for weights in kernel.parameters():
        weights.data = torch.randn_like(weights) / 3
    reference = copy.deepcopy(kernel).double()
    exact = reference.plain_layers(Rows(rows.inputs.double(), rows.places, rows.first, rows.counts, rows.size))
    results = kernel.compiled_layers(rows)
    torch.testing.assert_close(results, exact, rtol=1e-4, atol=1e-4, check_dtype=False)
    slopes = [torch.randn_like(result) for result in results]
    found, expected = (
        torch.autograd.grad(outputs, [*network.embed.parameters(), *network.score.parameters()], given)
        for outputs, network, given in (
            (results, kernel, slopes),
            (exact, reference, [slope.double() for slope in slopes]),
        )
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3, check_dtype=False)


def test_compiled_layers_compute_again_what_another_call_has_overwritten() -> None:
    import torch

    from hdsim.learning.training.row_networks import RowKernel

    torch.manual_seed(1)
    kernel, seen = RowKernel(3, (8, 4), 0, gain=1.0), torch.rand(20, 6, 3)
    alone = torch.autograd.grad(kernel(seen).square().sum(), [*kernel.embed.parameters()])
    result = kernel(seen)
    kernel(torch.rand(20, 30, 3))
    torch.testing.assert_close(torch.autograd.grad(result.square().sum(), [*kernel.embed.parameters()]), alone)


def test_joined_rows_are_those_of_all_observations() -> None:
    import torch

    from hdsim.learning.training.row_networks import RowKernel, Rows, packed_rows

    observations = torch.rand(12, 6, 3) * (torch.rand(12, 6, 1) < 0.5)
    parts = [packed_rows(part.numpy()) for part in observations.split(5)]
    kernel, joined = RowKernel(3, (8, 4), 1, gain=1.0), Rows.joined(parts, 6, observations.device)
    chosen = torch.tensor([11, 0, 6, 6])
    torch.testing.assert_close(kernel(joined[chosen]), kernel(observations[chosen]))


@pytest.mark.parametrize("void", [0, 1])
def test_policy_and_value_without_torch_are_those_of_the_network_and_follow_its_weights(void: int) -> None:
    import torch

    from hdsim.learning.agent import TensorShapes
    from hdsim.learning.training.networks import ActorCritic, numpy_actor_critic
    from hdsim.learning.training.row_networks import packed_rows

    torch.manual_seed(1)
    network = ActorCritic.of(TensorShapes((40, 3), 40 + void), (4,), (8, 4))
    outputs = numpy_actor_critic(network)
    for weights in network.parameters():
        weights.data.copy_(torch.randn_like(weights))
    observations = torch.rand(30, 40, 3) * (torch.rand(30, 40, 1) < torch.rand(30, 1, 1))
    observations[5] = 0.0
    with torch.no_grad():
        expected = [each.numpy() for each in network(observations)]
    for found, exact in zip(outputs(packed_rows(observations.numpy()), 40), expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ent_coef", [0.0, 0.1])
def test_losses_of_ppo_are_those_of_the_paper(ent_coef: float) -> None:
    import torch

    from hdsim.agents.ppo import PPOAgent

    rng = np.random.default_rng(2)
    masks, actions = rng.random((200, 6)) < 0.6, rng.integers(6, size=200)
    masks[np.arange(200), actions] = True
    logits, values = rng.normal(size=(200, 6)), rng.normal(size=200)
    log_probs, advantages, returns = rng.normal(size=200) - 1.5, rng.normal(size=200), rng.normal(size=200)
    policy = np.where(masks, np.exp(logits), 0)
    policy /= policy.sum(axis=1, keepdims=True)
    ratio = policy[np.arange(200), actions] / np.exp(log_probs)
    assert (abs(ratio - 1) > 0.2).any() and (abs(ratio - 1) < 0.2).any()
    gain = (advantages - advantages.mean()) / advantages.std()
    terms = {
        "policy_loss": -np.minimum(gain * ratio, gain * np.clip(ratio, 0.8, 1.2)).mean(),
        "value_loss": ((values - returns) ** 2).mean() / 2,
        "entropy": -(policy * np.log(np.where(masks, policy, 1))).sum() / 200,
        "approx_kl": (ratio - 1 - np.log(ratio)).mean(),
    }
    expected = {"loss": terms["policy_loss"] + 0.5 * terms["value_loss"] - ent_coef * terms["entropy"], **terms}
    agent, outputs = PPOAgent(ent_coef=ent_coef), [torch.tensor(each, requires_grad=True) for each in (logits, values)]
    agent.network = lambda _: outputs
    given = (torch.from_numpy(each) for each in (masks, actions, log_probs, advantages, returns))
    losses = agent.losses(None, *given)
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(expected, rel=1e-6)


def test_an_update_of_a2c_is_that_of_ppo_with_the_policy_of_the_rollout() -> None:
    import torch

    from hdsim.agents.actor_critic import ActorCriticAgent
    from hdsim.agents.ppo import PPOAgent

    rng = np.random.default_rng(3)
    logits, masks, actions = rng.normal(size=(50, 6)), np.ones((50, 6), bool), rng.integers(6, size=50)
    values, advantages = rng.normal(size=50), rng.normal(size=50)
    log_probs = torch.from_numpy(logits).log_softmax(1).numpy()[np.arange(50), actions]
    given = [torch.from_numpy(each) for each in (masks, actions, log_probs, advantages, values + advantages)]
    gradients = []
    # The two divide by another estimate of the deviation, and another constant precedes the squares of the value.
    for agent, factor in ((ActorCriticAgent(ent_coef=0.1), (50 / 49) ** 0.5), (PPOAgent(ent_coef=0.1, vf_coef=1), 1)):
        outputs = [torch.tensor(each, requires_grad=True) for each in (logits, values)]
        network: Any = lambda _, outputs=outputs: outputs  # noqa: E731
        agent.network = network
        losses = agent.losses(None, *given)
        (losses["policy_loss"] * factor + agent.vf_coef * losses["value_loss"] - 0.1 * losses["entropy"]).backward()
        gradients.append(np.column_stack([outputs[0].grad, outputs[1].grad]))
    np.testing.assert_allclose(*gradients, rtol=1e-6, atol=1e-9)


def test_advantages_of_ppo_are_generalised_advantage_estimates() -> None:
    from hdsim.agents.ppo import PPOAgent

    rng = np.random.default_rng(1)
    agent = PPOAgent(num_steps=5, gamma=0.9, gae_lambda=0.7)
    over = rng.random((5, 3)) < 0.3
    rewards, values, last = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 3), (5, 3), (3,)))
    agent.rollout = {"rewards": rewards, "values": values, "over": over}
    advantages, returns = agent._advantages(last)
    after = np.vstack([values[1:], last])
    for env in range(3):
        for t in range(5):
            total, factor = 0.0, 1.0
            for k in range(t, 5):
                total += factor * (rewards[k, env] + 0.9 * after[k, env] * (not over[k, env]) - values[k, env])
                if over[k, env]:
                    break
                factor *= 0.9 * 0.7
            assert advantages[t, env] == pytest.approx(total, rel=1e-4)
    np.testing.assert_allclose(returns, advantages + values)


def test_initial_weights_do_not_depend_on_the_number_of_threads() -> None:
    import torch

    from hdsim.agents.ppo import PPOAgent
    from hdsim.decisions import DecisionProblem

    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            agent = PPOAgent(hidden=(128, 200))
            agent.begin_training(DecisionProblem(action="policy_pair"), hdsim.Platform.homogeneous(2, 2), 1)
            assert torch.get_num_threads() == threads
            found.append([weights.detach().numpy().tobytes() for weights in agent.network.parameters()])
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def test_each_update_of_ppo_changes_all_weights() -> None:
    from hdsim.agents.ppo import PPOAgent
    from hdsim.decisions import DecisionProblem
    from hdsim.learning.agent import Transitions

    agent = PPOAgent(num_envs=2, num_steps=16, device="cpu")
    problem = DecisionProblem(action="job", observation="jobs", queue_size=6)
    agent.begin_training(problem, hdsim.Platform.homogeneous(2, 2), 3)
    rng = np.random.default_rng(3)
    for _ in range(2):
        before = [weights.detach().clone() for weights in agent.network.parameters()]
        for _ in range(agent.num_steps):
            seen, masks = (
                rng.random((2, *agent.shapes.observation), np.float32),
                np.ones((2, agent.shapes.actions), bool),
            )
            actions, over = agent.explore(seen, masks), np.zeros(2, bool)
            agent.learn(Transitions(seen, masks, actions, rng.normal(size=2), seen, masks, over, over))
        assert all((old != new).any() for old, new in zip(before, agent.network.parameters(), strict=True))


@pytest.mark.parametrize("name", ["ppo", "evolution"])
def test_the_learning_rate_falls_to_0_after_the_last_update(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hdsim.agents.evolution import EvolutionAgent
    from hdsim.agents.ppo import PPOAgent
    from hdsim.decisions import DecisionProblem
    from hdsim.learning.agent import Transitions

    agent: Any = (
        PPOAgent(num_envs=2, num_steps=4, learning_rate=0.1, anneal=32)
        if name == "ppo"
        else EvolutionAgent(num_envs=2, windows=8, learning_rate=0.1, anneal=32)
    )
    agent.begin_training(DecisionProblem(), hdsim.Platform.homogeneous(2, 2), 3)
    agent._playing = [TraceWindow(0, 0, 1)] * 2
    rates = []
    monkeypatch.setattr(
        agent,
        "_update" if name == "ppo" else "_generation",
        lambda *_: rates.append(agent.optimizer.param_groups[0]["lr"]) or {},
    )
    seen, masks = np.zeros((2, *agent.shapes.observation), np.float32), np.ones((2, agent.shapes.actions), bool)
    for _ in range(16):
        actions = agent.explore(seen, masks) if name == "ppo" else np.zeros(2, np.int64)
        over = np.ones(2, bool)
        agent.learn(Transitions(seen, masks, actions, np.ones(2), seen, masks, over, ~over))
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert agent.optimizer.param_groups[0]["lr"] == 0


def test_members_of_a_generation_are_compared_window_by_window() -> None:
    from hdsim.agents.evolution import relative

    scores = np.array([[3.0, 500.0, 0.0], [1.0, 100.0, 0.0], [np.nan, 20.0, 0.0]])
    found = relative(scores)
    np.testing.assert_allclose(found[:, 0], [np.log(3) / 2, -np.log(3) / 2, 0.0])
    np.testing.assert_allclose(found[:, 1], [np.log(5), 0.0, -np.log(5)], atol=1e-12)
    np.testing.assert_allclose(found[:, 2], 0.0)


def test_a_perceptron_fits_one_size_only(tmp_path: Path) -> None:
    import hdsim

    setup = make_setup(
        "platform=teaching",
        "workload.path=even_1000",
        "env.observation=small",
        "env.jobs=20",
        "agent=reinforce",
        "train.steps=100",
        "train.validation=0",
        "train.test=1",
        "train.baselines=[]",
        "train.tensorboard=false",
    )
    run(setup, tmp_path)
    agent = {
        "_target_": "hdsim.agents.reinforce.ReinforceAgent",
        "checkpoint": str(tmp_path / "checkpoints/final.safetensors"),
    }
    platform = hdsim.Platform.homogeneous(5, 4)
    workload = hdsim.load_workload(folder("workloads") / "even_1000.swf", platform=platform, jobs=60)
    with pytest.raises(ConfigError, match="expected a platform like the one it was trained on"):
        hdsim.simulate(platform, workload, agent)


def test_random_actions_are_legal_and_depend_on_the_seed() -> None:
    import hdsim

    platform = hdsim.Platform.homogeneous(4, 4)
    workload = hdsim.load_workload(
        folder("workloads") / "even_1000.swf", platform=platform, jobs=200, arrival_factor=0.4
    )
    agent = {"_target_": "hdsim.agents.random.RandomAgent", "task": {"action": "job", "observation": "jobs"}}
    starts = [hdsim.simulate(platform, workload, agent, seed=seed).starting_time for seed in (1, 1, 2)]
    assert np.array_equal(starts[0], starts[1]) and not np.array_equal(starts[0], starts[2])


def test_the_even_trace_is_what_its_program_makes(tmp_path: Path) -> None:
    text = (folder("workloads") / "README.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
    )
    assert (tmp_path / "even_1000.swf").read_bytes() == (folder("workloads") / "even_1000.swf").read_bytes()
