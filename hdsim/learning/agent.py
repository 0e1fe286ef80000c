"""Base class of learning agents, for training and for replays on every backend.

The module does not import torch before an agent is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions import DecisionProblem
from hdsim.errors import ConfigError
from hdsim.gangs.lookahead import Lookahead
from hdsim.learning import checkpoint
from hdsim.learning.settings import checked, integer
from hdsim.scheduling.agent import Agent
from hdsim.util.arrays import Flags, Floats, Ints

if TYPE_CHECKING:
    import torch

    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform

#: Observations of E environments: an array (E, ...), or several by name.
Observations = NDArray[Any] | dict[str, NDArray[Any]]
#: Actions that are legal in each of E environments, (E, A).
Masks = Flags

#: Jobs of a cluster, or the CPU shares of a gang.
Problem = DecisionProblem | Lookahead

#: Limit on each dimension in a checkpoint: more is a mistake that takes all memory.
_LARGEST = 1_000_000


@dataclass(frozen=True)
class TensorShapes:
    """Shapes of a decision problem on a platform, which networks are built for.

    Attributes:
        observation: Shape of the observation's array, or of each of its arrays by name.
        actions: A, the number of actions.
    """

    observation: tuple[int, ...] | dict[str, tuple[int, ...]]
    actions: int

    @classmethod
    def of(cls, problem: Problem, platform: Any) -> TensorShapes:
        """Shapes of a decision problem on a platform; None for a gang."""
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
    def array(self) -> tuple[int, ...]:
        """Shape of an observation that is one array.

        Raises:
            ConfigError: It is several.
        """
        if isinstance(self.observation, dict):
            raise ConfigError(
                "expected an observation of one array such as minimal or jobs for this agent, got several",
                where="env.observation",
            )
        return self.observation

    @property
    def row_per_action(self) -> bool:
        """Whether an observation has a row for each action, but for one that takes none of them: jobs or nodes."""
        observation = self.observation
        return isinstance(observation, tuple) and len(observation) == 2 and self.actions - observation[0] in (0, 1)


@dataclass(frozen=True)
class Transitions:
    """One step of E environments.

    Attributes:
        observations: (E, ...) observations before the actions.
        masks: (E, A) legal actions.
        actions: (E,) actions.
        rewards: (E,) rewards, divided by `scale`.
        next_observations: (E, ...) observations after the actions; at the end of an episode the last of that episode.
        next_masks: (E, A) legal actions after the actions.
        terminated: (E,) the episode ended.
        truncated: (E,) the episode was cut off before its end.
        scale: Divisor of the rewards, which changes from step to step; 1 where they are not scaled.
    """

    observations: Observations
    masks: Masks
    actions: Ints
    rewards: Floats
    next_observations: Observations
    next_masks: Masks
    terminated: Flags
    truncated: Flags
    scale: float = 1.0


@dataclass(eq=False, kw_only=True)
class LearningAgent(Agent):
    """Base class of learning agents: settings are fields, and four methods are the algorithm.

    An object is either trained, after `begin_training`, or replayed as any other agent; it does not learn in a replay.
    Its actions and observations are those of a :class:`hdsim.decisions.DecisionProblem`, so it works on every backend.

    Attributes:
        weights: Names of the attributes that `probabilities` needs: networks, normalisers. A checkpoint consists of
            them.
        progress: Names of further attributes of a training: optimisers, buffers, counters. Values are objects with
            ``state_dict``, NumPy generators, arrays, numbers, or lists and dicts of those.
        starts_from: Names of other agents whose `network` can be the start of `policy_network`.
        any_size: The weights fit every number of jobs or nodes.
        trainable: The agent has weights to learn.

    Args:
        checkpoint: Checkpoint of a trained agent; its settings replace those given here, except the next two.
        sample: Draw actions from the policy instead of taking the most probable one.
        device: ``auto`` (a GPU if available), ``cpu``, ``cuda`` ...
        num_envs: Environments that are stepped together in training.
        start: Checkpoint with the initial weights of a training: of the same algorithm, or of imitation.
        task: Settings of the :class:`hdsim.decisions.DecisionProblem` of an agent without a checkpoint.
    """

    weights: ClassVar[tuple[str, ...]] = ("network",)
    progress: ClassVar[tuple[str, ...]] = ("optimizer",)
    starts_from: ClassVar[tuple[str, ...]] = ()
    trainable: ClassVar[bool] = True
    any_size = False
    observes_nodes = True

    checkpoint: str | None = None
    sample: bool = False
    device: str = "auto"
    num_envs: int = integer(1)
    start: str | None = None
    task: Mapping[str, Any] | None = None

    # ---- defined by the algorithm

    @abstractmethod
    def build(self, shapes: TensorShapes) -> None:
        """Creates networks, optimisers and storage; the generator of PyTorch is seeded."""

    @abstractmethod
    def probabilities(self, observations: Observations, masks: Masks) -> Floats:
        """(E, A) probability of each action under the present policy, without exploration."""

    @abstractmethod
    def explore(self, observations: Observations, masks: Masks) -> Ints:
        """(E,) actions for training, with exploration."""

    @abstractmethod
    def learn(self, step: Transitions) -> dict[str, float]:
        """Processes the step after the latest `explore`; returns losses by name after an update of the networks."""

    # ---- in a replay

    def __post_init__(self) -> None:
        """Checks the settings and loads the checkpoint, if one is given."""
        for setting in fields(self):
            setattr(self, setting.name, checked(setting, getattr(self, setting.name)))
        if self.checkpoint is not None:
            self._load_checkpoint(str(self.checkpoint))
        elif self.task is not None:
            self._set_problem(_problem(self.task))

    def begin(self, cluster: Cluster) -> None:
        """Called once before the first event of a replay.

        Raises:
            ConfigError: The agent is not trained, or its networks do not fit this number of nodes or jobs.
        """
        if not hasattr(self, "problem"):
            raise ConfigError(
                "expected agent.checkpoint=FILE of a trained agent; `hdsim train` makes one", where="agent.checkpoint"
            )
        if not isinstance(self.problem, DecisionProblem):
            raise ConfigError(
                "expected an agent that schedules jobs, got one that controls the shares of a gang; "
                "`hdsim bsp run controller=learned` takes it",
                where="agent.checkpoint",
            )
        shapes = TensorShapes.of(self.problem, cluster.platform)
        if self.trainable and shapes != self.shapes and not self.any_size:
            raise ConfigError(
                f"expected a platform like the one it was trained on, with observations of {self.shapes.observation} "
                f"and {self.shapes.actions} actions; here they are {shapes.observation} and {shapes.actions}",
                where="agent.checkpoint",
            )
        self._draws = cluster.rng
        self.training_mode(False)
        self.problem.begin(cluster)

    def decide(self, cluster: Cluster) -> None:
        """Carries out all decisions that are pending at this instant."""
        problem = self.problem
        assert isinstance(problem, DecisionProblem)
        while problem.pending():
            problem.act(self.choose(problem.observe(), problem.mask()))

    def choose(self, observation: Any, mask: Flags) -> int:
        """The action for one observation: the most probable one, or a drawn one with `sample`."""
        (probability,) = self.probabilities(map_arrays(lambda array: array[None], observation), mask[None])
        return int(draw(probability[None], self._draws)[0] if self.sample else np.argmax(probability))

    # ---- in training

    def training_mode(self, on: bool) -> None:
        """Sets the mode of all networks, such as those with dropout or batch normalization: training or evaluation.

        A replay sets the mode of evaluation, a training that of training at its begin and after each evaluation.
        """
        for name in (*self.weights, *self.progress):
            part: Any = getattr(self, name, None)
            if hasattr(part, "train") and hasattr(part, "eval"):
                part.train(on)

    def begin_training(self, problem: Problem, platform: Platform | None, seed: int, steps: int = 100_000) -> None:
        """Builds the agent for a decision problem on a platform.

        Args:
            problem: Actions and observations; the agent keeps it for its replays.
            platform: The platform; None for a gang.
            seed: Seed of initial weights and exploration.
            steps: Steps of all environments in the training.
        """
        import torch

        from hdsim.learning.training.reproducible import reproducible

        self._set_problem(problem)
        self.shapes, self.training_steps = TensorShapes.of(problem, platform), steps
        torch.manual_seed(seed)
        # The decompositions that initial weights come from differ by the number of threads.
        with reproducible():
            self.build(self.shapes)
        self.rng = np.random.default_rng(seed)
        if self.start is not None:
            self.load_start(str(self.start))
        self.training_mode(True)

    def load_start(self, path: str) -> None:
        """Loads initial weights from a checkpoint.

        Raises:
            ConfigError: The checkpoint is of another algorithm, or its networks have other sizes.
        """
        where = "agent.start"
        tree = checkpoint.load(path, where)
        author, own = str(tree.get("agent")), type(self).__name__
        if author != own and author not in self.starts_from:
            allowed = " or ".join((own, *self.starts_from))
            raise ConfigError(f"expected a checkpoint of {allowed}, '{path}' is {_author(tree)}", where=where)
        with checkpoint.usable(path, where):
            for name, kept in tree["weights"].items():
                _require_finite(name, kept)
                if author == own:
                    self._restore(name, kept)
                else:
                    self.policy_network().load_state_dict(with_tensors(kept))

    def policy_network(self) -> torch.nn.Module:
        """The network that scores the actions, whose weights may be those of an agent in `starts_from`."""
        return vars(self)["network"]

    @property
    def reads_environments(self) -> bool:
        """Whether training uses the state of the environments, which then lie in the process that trains."""
        return type(self).attach is not LearningAgent.attach

    def attach(self, environments: Sequence[Any], evaluation: Any) -> None:
        """Called before training, for agents that use more than observations.

        Args:
            environments: The environments (:class:`hdsim.envs.scheduling.SchedulingEnv`); one like them where the agent
                does not read their state.
            evaluation: Replays windows under an agent (:class:`hdsim.learning.training.evaluation.Evaluation`).
        """

    @cached_property
    def torch_device(self) -> torch.device:
        """Device of the networks.

        Raises:
            ConfigError: The device does not exist.
        """
        import torch

        name = ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device
        try:
            return torch.zeros(1, device=name).device
        except (RuntimeError, AssertionError, TypeError) as error:
            raise ConfigError(f"expected auto, cpu or a GPU's name: {error}", where="agent.device") from None

    def tensors(self, arrays: Any) -> Any:
        """Converts an array, or arrays by name, to tensors on the agent's device, in single precision."""
        import torch

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            made = torch.from_numpy(np.ascontiguousarray(array))
            return made.to(self.torch_device, torch.float32 if made.is_floating_point() else None)

        return map_arrays(tensor, arrays)

    # ---- checkpoints

    def settings(self) -> dict[str, Any]:
        """Settings of the algorithm by name, without those of its use."""
        used = {field.name for field in fields(LearningAgent)} - {"num_envs"}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in used}

    def n_parameters(self) -> int:
        """Number of learned parameters."""
        return sum(
            parameter.numel()
            for name in self.weights
            if hasattr(getattr(self, name), "parameters")
            for parameter in getattr(self, name).parameters()
        )

    def trained(self) -> dict[str, Any]:
        """Contents of a checkpoint for replays, as a tree for :mod:`hdsim.learning.checkpoint`."""
        observation = self.shapes.observation
        return {
            "agent": type(self).__name__,
            "settings": self.settings(),
            "task": self.problem.settings,
            "observation": observation if isinstance(observation, dict) else list(observation),
            "actions": self.shapes.actions,
            "weights": {name: _state_of(getattr(self, name)) for name in self.weights},
        }

    def state(self) -> dict[str, Any]:
        """Contents of a checkpoint for resuming a training."""
        return {name: _state_of(getattr(self, name)) for name in (*self.weights, *self.progress, "rng")}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state`; `begin_training` must be called first."""
        for name, kept in state.items():
            self._restore(name, kept)

    def _set_problem(self, problem: Problem) -> None:
        self.problem = problem
        if isinstance(problem, Lookahead):
            return
        self.core_policy = problem.core_policy
        self.fixed_policy = problem.fixed_policy
        self.core_policies = problem.core_policies

    def _load_checkpoint(self, path: str) -> None:
        where = "agent.checkpoint"
        tree = checkpoint.load(path, where)
        if str(tree.get("agent")) != type(self).__name__:
            raise ConfigError(
                f"expected a checkpoint of {type(self).__name__}, '{path}' is {_author(tree)}", where=where
            )
        with checkpoint.usable(path, where):
            known = {setting.name: setting for setting in fields(self)}
            for name, value in tree["settings"].items():
                setattr(self, name, checked(known[name], value))
            self._set_problem(_problem(tree["task"]))
            self.shapes = TensorShapes.read(tree["observation"], tree["actions"])
            self.build(self.shapes)
            for name in self.weights:
                _require_finite(name, tree["weights"][name])
                self._restore(name, tree["weights"][name])

    def _restore(self, name: str, kept: Any) -> None:
        import torch

        current = getattr(self, name)
        if isinstance(current, torch.nn.Module | torch.optim.Optimizer):
            current.load_state_dict(with_tensors(kept))
        elif isinstance(current, np.random.Generator):
            current.bit_generator.state = kept
        elif hasattr(current, "load_state_dict"):
            current.load_state_dict(kept)
        else:
            setattr(self, name, kept)


def _problem(task: Mapping[str, Any]) -> Problem:
    return Lookahead(**task["gang"]) if "gang" in task else DecisionProblem(**task)


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


def set_row(arrays: Any, index: int, values: Any) -> None:
    """Writes one row of an array, or of each of several by name."""
    if isinstance(arrays, Mapping):
        for name, array in arrays.items():
            array[index] = values[name]
    else:
        arrays[index] = values


def stacked(observations: Sequence[Any]) -> Any:
    """Stacks single observations along a new first axis."""
    return _joined(np.stack, observations)


def concatenated(observations: Sequence[Any]) -> Any:
    """Concatenates batches of observations along their first axis."""
    return _joined(np.concatenate, observations)


def _joined(join: Callable[[Sequence[Any]], Any], observations: Sequence[Any]) -> Any:
    first = observations[0]
    if isinstance(first, Mapping):
        return {name: join([observation[name] for observation in observations]) for name in first}
    return join(observations)


def one_hot(chosen: Ints, size: int) -> Floats:
    """Returns (E, size) rows with 1 at the (E,) chosen places."""
    return (chosen[:, None] == np.arange(size)).astype(np.float64)


def draw(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """(E,) one action from each row of probabilities (E, A); never one of probability 0."""
    cumulated = probabilities.cumsum(axis=1)
    total = cumulated[:, -1:]
    drawn = np.minimum(rng.random((len(probabilities), 1)) * total, np.nextafter(total, 0.0))
    return (cumulated <= drawn).sum(axis=1)


def _author(tree: Mapping[str, Any]) -> str:
    """Description of the origin of a checkpoint, for messages."""
    name = tree.get("agent")
    return f"of {name}" if isinstance(name, str) else "what resume=true goes on from, best or final.safetensors replays"


def _state_of(value: Any) -> Any:
    """Converts a value for :mod:`hdsim.learning.checkpoint`."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    return value.state_dict() if hasattr(value, "state_dict") else value


def with_tensors(kept: Any) -> Any:
    """Converts the arrays of a tree to tensors."""
    import torch

    if isinstance(kept, Mapping):
        return {key: with_tensors(value) for key, value in kept.items()}
    if isinstance(kept, list):
        return [with_tensors(value) for value in kept]
    return torch.from_numpy(kept) if isinstance(kept, np.ndarray) else kept
