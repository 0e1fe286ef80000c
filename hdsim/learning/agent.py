"""Learning agents: what an algorithm's file in ``agents/`` is built on, on every backend and in training.

Nothing here imports torch before an agent is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions import DecisionProblem
from hdsim.errors import ConfigError
from hdsim.learning import checkpoint
from hdsim.learning.settings import checked, integer
from hdsim.scheduling.agent import Agent

if TYPE_CHECKING:
    import torch

    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform

#: Observations of E environments: an array (E, ...), or several by name.
Observations = NDArray[Any] | dict[str, NDArray[Any]]
#: Actions that are legal in each of E environments, (E, A).
Masks = NDArray[np.bool_]

#: Limit on each dimension in a checkpoint: more is a mistake that takes all memory.
_LARGEST = 1_000_000


@dataclass(frozen=True)
class TensorShapes:
    """What a network is built for.

    Attributes:
        observation: Shape of an observation's array, or of each of its arrays by name.
        actions: A, the number of actions.
    """

    observation: tuple[int, ...] | dict[str, tuple[int, ...]]
    actions: int

    @classmethod
    def of(cls, problem: DecisionProblem, platform: Platform) -> TensorShapes:
        """Shapes of a decision problem on a platform."""
        return cls(map_arrays(lambda array: tuple(array.shape), problem.arrays(platform)), problem.n_actions(platform))

    @classmethod
    def read(cls, observation: Any, actions: Any) -> TensorShapes:
        """Shapes from a checkpoint.

        Raises:
            ValueError: They are none.
        """
        shapes = observation.values() if isinstance(observation, dict) else [observation]
        sizes = [actions, *(size for shape in shapes for size in shape)]
        if not all(type(size) is int and 1 <= size <= _LARGEST for size in sizes):
            raise ValueError(f"shapes {observation!r} and {actions!r} actions")
        return cls(map_arrays(tuple, observation), actions)

    @property
    def row_per_action(self) -> bool:
        """Whether an observation has a row for each action, but for one that takes none of them: jobs or nodes."""
        observation = self.observation
        return isinstance(observation, tuple) and len(observation) == 2 and self.actions - observation[0] in (0, 1)


@dataclass(frozen=True)
class Transitions:
    """One step of E environments.

    Attributes:
        observations: (E, ...) what was seen.
        masks: (E, A) what was legal.
        actions: (E,) what was done.
        rewards: (E,) what it brought.
        next_observations: (E, ...) what was seen then; at the end of an episode still that episode's.
        next_masks: (E, A) what was legal then.
        terminated: (E,) whether the episode came to its end.
        truncated: (E,) whether it was cut off, so that more would have followed.
    """

    observations: Observations
    masks: Masks
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    next_observations: Observations
    next_masks: Masks
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


@dataclass(eq=False, kw_only=True)
class LearningAgent(Agent):
    """Base class of agents that learn: settings are fields; `build`, `probabilities`, `explore`, `learn` the algorithm.

    One object is either trained, after `begin_training`, or used in a replay as any other agent; in a replay it does
    not learn. What it decides and sees is a :class:`hdsim.decisions.DecisionProblem`, so it works on every backend.

    Attributes:
        weights: Names of the attributes that `probabilities` needs: networks, normalisers. They make up a checkpoint.
        progress: Names of what training needs besides: optimisers, buffers, counters. Values are anything with
            ``state_dict``, NumPy generators, arrays, numbers, or lists and dicts of those.
        starts_from: Names of other agents whose `network` can be the start of `policy_network`.
        any_size: The weights fit every number of jobs or nodes.
        trainable: There is something to learn.

    Args:
        checkpoint: A checkpoint to decide by; its settings replace those given here, except the next two.
        sample: Draw actions from the policy instead of taking the most probable one.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` ...
        num_envs: Environments that are stepped together in training.
        start: A checkpoint whose weights training begins with: of the same algorithm, or of imitation.
        task: Settings of the :class:`hdsim.decisions.DecisionProblem` of an agent without a checkpoint.
    """

    weights: ClassVar[tuple[str, ...]] = ("network",)
    progress: ClassVar[tuple[str, ...]] = ("optimizer",)
    starts_from: ClassVar[tuple[str, ...]] = ()
    trainable: ClassVar[bool] = True
    any_size = False

    checkpoint: str | None = None
    sample: bool = False
    device: str = "auto"
    num_envs: int = integer(1)
    start: str | None = None
    task: Mapping[str, Any] | None = None

    # ---- what an algorithm defines

    @abstractmethod
    def build(self, shapes: TensorShapes) -> None:
        """Makes networks, optimisers and storage; PyTorch's generator is seeded."""

    @abstractmethod
    def probabilities(self, observations: Observations, masks: Masks) -> NDArray[np.float64]:
        """(E, A) how probable each action is under the present policy, without exploration."""

    @abstractmethod
    def explore(self, observations: Observations, masks: Masks) -> NDArray[np.int64]:
        """(E,) actions to learn from."""

    @abstractmethod
    def learn(self, step: Transitions) -> dict[str, float]:
        """Takes in the step that followed the latest `explore`; returns losses by name if the networks were updated."""

    # ---- in a replay

    def __post_init__(self) -> None:
        """Takes everything from the checkpoint, if one is given."""
        for setting in fields(self):
            setattr(self, setting.name, checked(setting, getattr(self, setting.name)))
        if self.checkpoint is not None:
            self._open(str(self.checkpoint))
        elif self.task is not None:
            self._take(DecisionProblem(**self.task))

    def begin(self, cluster: Cluster) -> None:
        """Called once before the first event of a replay.

        Raises:
            ConfigError: There is neither a checkpoint nor training behind the agent, or it was trained for another
                number of nodes or jobs and cannot cope with this one.
        """
        if not hasattr(self, "decisions"):
            raise ConfigError(
                "expected agent.checkpoint=FILE of a trained agent; `hdsim train` makes one", where="agent.checkpoint"
            )
        shapes = TensorShapes.of(self.decisions, cluster.platform)
        if self.trainable and shapes != self.shapes and not self.any_size:
            raise ConfigError(
                f"expected a platform like the one it was trained on, with observations of {self.shapes.observation} "
                f"and {self.shapes.actions} actions; here they are {shapes.observation} and {shapes.actions}",
                where="agent.checkpoint",
            )
        self._draws = cluster.rng
        self.decisions.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        """Decides as long as something is to be decided at this instant."""
        problem = self.decisions
        while problem.pending():
            problem.act(self.choose(problem.observe(), problem.mask()))

    def choose(self, observation: Any, mask: NDArray[np.bool_]) -> int:
        """The action for one observation: the most probable one, or drawn where `sample` says so."""
        (probability,) = self.probabilities(map_arrays(lambda array: array[None], observation), mask[None])
        return int(draw(probability[None], self._draws)[0] if self.sample else np.argmax(probability))

    # ---- in training

    def begin_training(self, problem: DecisionProblem, platform: Platform, seed: int) -> None:
        """Builds everything for a problem on a platform.

        Args:
            problem: What is decided and seen; the agent keeps it for its replays.
            platform: The platform.
            seed: Seed of initial weights and exploration.
        """
        import torch

        self._take(problem)
        self.shapes = TensorShapes.of(problem, platform)
        torch.manual_seed(seed)
        self.build(self.shapes)
        self.rng = np.random.default_rng(seed)
        if self.start is not None:
            self.load_start(str(self.start))

    def load_start(self, path: str) -> None:
        """Takes the weights of a checkpoint to go on learning with.

        Raises:
            ConfigError: It is of another algorithm, or its networks are of other sizes.
        """
        where = "agent.start"
        tree = checkpoint.load(path, where)
        author, own = tree.get("agent"), type(self).__name__
        if author != own and author not in self.starts_from:
            allowed = " or ".join((own, *self.starts_from))
            raise ConfigError(f"expected a checkpoint of {allowed}, '{path}' is {_author(tree)}", where=where)
        with checkpoint.usable(path, where):
            for name, kept in tree["weights"].items():
                _require_finite(name, kept)
                if author == own:
                    self._restore(name, kept)
                else:
                    self.policy_network().load_state_dict(_with_tensors(kept))

    def policy_network(self) -> torch.nn.Module:
        """The network that scores the actions; for agents that name others in `starts_from`."""
        raise NotImplementedError

    def attach(self, environments: Sequence[Any], evaluation: Any) -> None:
        """Called before training, for agents that learn from more than observations.

        Args:
            environments: The environments (:class:`hdsim.envs.scheduling.SchedulingEnv`).
            evaluation: Replays windows under an agent (:class:`hdsim.learning.training.evaluation.Evaluation`).
        """

    @property
    def torch_device(self) -> torch.device:
        """Where the networks are.

        Raises:
            ConfigError: There is no such device.
        """
        import torch

        name = ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device
        try:
            return torch.zeros(1, device=name).device
        except (RuntimeError, AssertionError, TypeError) as error:
            raise ConfigError(f"expected auto, cpu or a GPU's name: {error}", where="agent.device") from None

    def tensors(self, arrays: Any) -> Any:
        """The same on the agent's device: an array, or arrays by name; numbers in single precision."""
        import torch

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            made = torch.from_numpy(np.ascontiguousarray(array))
            return made.to(self.torch_device, torch.float32 if made.is_floating_point() else None)

        return map_arrays(tensor, arrays)

    # ---- checkpoints

    def settings(self) -> dict[str, Any]:
        """The algorithm's settings by name, without those that say how it is used."""
        used = {field.name for field in fields(LearningAgent)} - {"num_envs"}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in used}

    def n_parameters(self) -> int:
        """Numbers that are learned."""
        return sum(
            parameter.numel()
            for name in self.weights
            if hasattr(getattr(self, name), "parameters")
            for parameter in getattr(self, name).parameters()
        )

    def trained(self) -> dict[str, Any]:
        """All that a replay needs, as a tree for :mod:`hdsim.learning.checkpoint`."""
        observation = self.shapes.observation
        return {
            "agent": type(self).__name__,
            "settings": self.settings(),
            "task": self.decisions.settings,
            "observation": observation if isinstance(observation, dict) else list(observation),
            "actions": self.shapes.actions,
            "weights": {name: _kept(getattr(self, name)) for name in self.weights},
        }

    def state(self) -> dict[str, Any]:
        """All that going on with the training needs besides."""
        return {name: _kept(getattr(self, name)) for name in (*self.weights, *self.progress, "rng")}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what `state` gave; `begin_training` comes first."""
        for name, kept in state.items():
            self._restore(name, kept)

    def _take(self, problem: DecisionProblem) -> None:
        self.decisions = problem
        self.core_policy = problem.core_policy
        self.fixed_policy = problem.fixed_policy
        self.core_policies = problem.core_policies

    def _open(self, path: str) -> None:
        where = "agent.checkpoint"
        tree = checkpoint.load(path, where)
        if tree.get("agent") != type(self).__name__:
            raise ConfigError(
                f"expected a checkpoint of {type(self).__name__}, '{path}' is {_author(tree)}", where=where
            )
        with checkpoint.usable(path, where):
            known = {setting.name: setting for setting in fields(self)}
            for name, value in tree["settings"].items():
                setattr(self, name, checked(known[name], value))
            self._take(DecisionProblem(**tree["task"]))
            self.shapes = TensorShapes.read(tree["observation"], tree["actions"])
            self.build(self.shapes)
            for name in self.weights:
                _require_finite(name, tree["weights"][name])
                self._restore(name, tree["weights"][name])

    def _restore(self, name: str, kept: Any) -> None:
        import torch

        current = getattr(self, name)
        if isinstance(current, torch.nn.Module | torch.optim.Optimizer):
            current.load_state_dict(_with_tensors(kept))
        elif isinstance(current, np.random.Generator):
            current.bit_generator.state = kept
        elif hasattr(current, "load_state_dict"):
            current.load_state_dict(kept)
        else:
            setattr(self, name, kept)


def _require_finite(name: str, kept: Any) -> None:
    """Checks the arrays of a tree.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    if isinstance(kept, Mapping):
        for key, child in kept.items():
            _require_finite(f"{name}.{key}", child)
    elif isinstance(kept, np.ndarray) and (wrong := np.count_nonzero(~np.isfinite(kept))):
        raise ValueError(f"{wrong} of {kept.size} numbers of {name} are NaN or infinite")


def map_arrays(function: Callable[[Any], Any], arrays: Any) -> Any:
    """Applies a function to an array, or to each of several by name."""
    if isinstance(arrays, Mapping):
        return {name: function(array) for name, array in arrays.items()}
    return function(arrays)


def row(arrays: Any, index: int) -> Any:
    """One row of an array, or of each of several by name; a copy."""
    return map_arrays(lambda array: array[index].copy(), arrays)


def stacked(observations: Sequence[Any]) -> Any:
    """Joins single observations along a new first axis."""
    return _joined(np.stack, observations)


def concatenated(observations: Sequence[Any]) -> Any:
    """Joins batches of observations along their first axis."""
    return _joined(np.concatenate, observations)


def _joined(join: Callable[[Sequence[Any]], Any], observations: Sequence[Any]) -> Any:
    first = observations[0]
    if isinstance(first, Mapping):
        return {name: join([observation[name] for observation in observations]) for name in first}
    return join(observations)


def draw(probabilities: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """(E,) one action from each row of probabilities (E, A); never one of probability 0."""
    cumulated = probabilities.cumsum(axis=1)
    total = cumulated[:, -1:]
    drawn = np.minimum(rng.random((len(probabilities), 1)) * total, np.nextafter(total, 0.0))
    actions: NDArray[np.int64] = (cumulated <= drawn).sum(axis=1)
    return actions


def _author(tree: Mapping[str, Any]) -> str:
    """Whose checkpoint a tree is."""
    name = tree.get("agent")
    return f"of {name}" if isinstance(name, str) else "what resume=true goes on from, best or final.safetensors replays"


def _kept(value: Any) -> Any:
    """A value as :mod:`hdsim.learning.checkpoint` takes it."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    return value.state_dict() if hasattr(value, "state_dict") else value


def _with_tensors(kept: Any) -> Any:
    """A tree with tensors in place of its arrays."""
    import torch

    if isinstance(kept, Mapping):
        return {key: _with_tensors(value) for key, value in kept.items()}
    if isinstance(kept, list):
        return [_with_tensors(value) for value in kept]
    return torch.from_numpy(kept) if isinstance(kept, np.ndarray) else kept
