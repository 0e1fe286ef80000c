"""What agents see and decide: against a second, slow reading of it, and against the classic policies."""

import math

import numpy as np
import pytest
from decision_kinds import ACTIONS, OBSERVATIONS
from decision_oracle import Oracle, Snapshot, snapshot
from gymnasium.utils import seeding
from schedules import cores_of_jobs
from tiers import ci

import hdsim
from hdsim.cluster import invariants
from hdsim.cluster.state import Cluster
from hdsim.decisions import DecisionProblem
from hdsim.decisions.actions.policy_pair import PAIRS
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError, DecisionError

#: Two clusters, three kinds of processors, memory and bandwidth short enough to matter, and links.
PLATFORM = hdsim.Platform.from_dict(
    {
        "name": "mixed",
        "clusters": [
            {"id": "a", "nodes": [{"type": "dual", "number": 3}], "local_links": {"type": "slow", "latency": "10us"}},
            {
                "id": "b",
                "nodes": [{"type": "fat", "number": 1}, {"type": "thin", "number": 2}],
                "local_links": {"type": "fast", "latency": "5us"},
            },
        ],
        "global_links": {"type": "fast", "latency": "50us"},
        "types": {
            "network": {"slow": {"bandwidth": "1Gbps"}, "fast": {"bandwidth": "10Gbps"}},
            "node": {
                "dual": {"processors": [{"type": "p2", "number": 2}], "memory": {"capacity": 4}},
                "fat": {
                    "processors": [{"type": "p4", "number": 1}, {"type": "p2", "number": 1}],
                    "memory": {"capacity": 16},
                },
                "thin": {"processors": [{"type": "p3", "number": 1}], "memory": {"capacity": 2}},
            },
            "processor": {
                "p2": {"cores": 2, "clock_rate": 2.0, "dpflops_per_cycle": 4, "mem_bw": 20, "power": 30},
                "p3": {"cores": 3, "clock_rate": 3.0, "dpflops_per_cycle": 2, "mem_bw": 16, "power": 90},
                "p4": {"cores": 4, "clock_rate": 2.5, "dpflops_per_cycle": 8, "mem_bw": 50, "power": 140},
            },
        },
    }
)


def workload(seed: int = 0, jobs: int = 40, platform: hdsim.Platform = PLATFORM) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    requested = rng.integers(5, 200, jobs).astype(float)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 15 * jobs, jobs)),
        runtime=np.ceil(requested * rng.uniform(0.1, 1.2, jobs)),
        requested_time=requested,
        requested_cores=rng.integers(1, 9, jobs),
        memory=rng.choice([0, 300, 1000], jobs),
        memory_bandwidth=rng.choice([4, 8, 12], jobs),
    )


def environment(
    action: str, observation: str, trace: hdsim.Workload | None = None, /, **settings: object
) -> SchedulingEnv:
    return SchedulingEnv(PLATFORM, trace or workload(), action, observation, **settings)


class Player:
    """Plays an episode with random legal actions and keeps what the oracle needs."""

    def __init__(self, env: SchedulingEnv, seed: int = 0) -> None:
        self.env = env
        self.rng = np.random.default_rng(seed)
        self.history = []
        self.last_length = 0
        self.over = False
        end_of_pass = env.objective.end_of_pass

        def passed() -> None:
            end_of_pass()
            self.history.append(snapshot(env.cluster))

        env.objective.end_of_pass = passed
        self.observation, info = env.reset(seed=seed)
        self.mask = info["action_mask"]

    def step(self) -> float:
        self.last_length = len(self.env.cluster.queue)
        action = int(self.rng.choice(self.mask.nonzero()[0]))
        self.observation, reward, self.over, truncated, info = self.env.step(action)
        assert not truncated
        assert not info["invalid_action"]
        self.mask = info["action_mask"]
        return reward


def next_job(env: SchedulingEnv, at: Snapshot) -> int | None:
    """The job that is proposed, else the head of the queue."""
    proposed = env.problem.wait_queue.proposed
    return next(iter(at.queue), None) if proposed is None else proposed


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observation", ["normal", "small", "minimal"])
@pytest.mark.parametrize("scale", ["seen", *ci("workload")])
def test_hdeeprm_observations(action: str, observation: str, scale: str) -> None:
    jobs = workload(3)
    player = Player(environment(action, observation, jobs, contention="threshold", scale=scale))
    oracle = Oracle(PLATFORM, jobs)
    while True:
        at = snapshot(player.env.cluster)
        expected = [] if observation == "minimal" else oracle.small(at)
        if observation == "normal":
            expected += oracle.cores(at, player.history)
        until = at.now if scale == "seen" else math.inf
        expected += oracle.queue_numbers(at.queue, player.last_length, until=until)
        assert player.observation.dtype == np.float32
        assert player.observation == pytest.approx(np.array(expected), abs=2e-6)
        if player.over:
            break
        player.step()
    assert len(player.history) > 60


def test_sizes_of_hdeeprm_observations_on_gaia() -> None:
    gaia = hdsim.load_platform("platforms/gaia.json")
    assert [DecisionProblem(observation=name).arrays(gaia).shape for name in ("normal", "small", "minimal")] == [
        (7356,),
        (516,),
        (21,),
    ]


@pytest.mark.parametrize("action", ACTIONS)
def test_jobs_observation(action: str) -> None:
    jobs = workload(4)
    player = Player(environment(action, "jobs", jobs, **({"queue_size": 5} if action != "job" else {"queue_size": 7})))
    oracle = Oracle(PLATFORM, jobs)
    rows = player.observation.shape[0]
    while not player.over:
        at = snapshot(player.env.cluster)
        assert player.observation == pytest.approx(np.array(oracle.job_rows(at, rows)), abs=2e-6)
        if action == "job":
            assert player.mask.tolist() == [bool(row[6]) for row in oracle.job_rows(at, rows)]
        player.step()


@pytest.mark.parametrize(
    ("action", "settings"),
    [
        *((action, {}) for action in ACTIONS),
        ("job", {"commit": True, "backfill": "rlscheduler"}),
        # Delayed once, a job starts without a decision.
        ("accept", {"max_delays": 1, "backfill": "easy"}),
    ],
)
def test_jobs_shadow_observation(action: str, settings: dict[str, object]) -> None:
    jobs = workload(7)
    player = Player(environment(action, "jobs_shadow", jobs, queue_size=7, **settings))
    oracle = Oracle(PLATFORM, jobs)
    waited_for = 0
    while not player.over:
        at = snapshot(player.env.cluster)
        expected = np.array(oracle.shadow_rows(at, 7))
        waited_for += int((expected[:, 8] > 0).sum())
        assert player.observation == pytest.approx(expected, abs=2e-6)
        player.step()
    assert waited_for > 20


def test_jobs_with_one_expected_end_are_told_apart() -> None:
    # Of 8 cores 7 are busy until 100 s; the last 2 of them are idle from 10 s on. At 11 s job 3 needs those of job 0.
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 0, 0, 5, 11],
        runtime=[100, 100, 10, 9, 9],
        requested_time=[100, 100, 100, 9, 9],
        requested_cores=[2, 3, 2, 5, 1],
    )
    platform = hdsim.Platform.homogeneous(nodes=8, cores_per_node=1)
    env = SchedulingEnv(platform, jobs, "job", "jobs_shadow", queue_size=3)
    env.reset()
    for _ in range(3):
        seen, *_ = env.step(0)
    assert env.cluster.now == 11.0
    assert seen[:, 9].tolist() == [0.0, 0.25, 0.0]


def placed_by(player: Player, at: Snapshot) -> tuple[int | None, dict[int, int]]:
    """The next job, and the cores that it has been given on each node so far."""
    partial = player.env.problem.wait_queue.partial
    if partial is None:
        return next_job(player.env, at), {}
    return partial.job, {int(n): int(partial.chosen[n]) for n in partial.chosen.nonzero()[0]}


@pytest.mark.parametrize("action", ACTIONS)
def test_nodes_observation(action: str) -> None:
    jobs = workload(5)
    player = Player(environment(action, "nodes", jobs))
    oracle = Oracle(PLATFORM, jobs)
    half_placed = 0
    while not player.over:
        at = snapshot(player.env.cluster)
        job, chosen = placed_by(player, at)
        half_placed += bool(chosen)
        assert player.observation == pytest.approx(np.array(oracle.node_rows(at, chosen, job)), abs=2e-6)
        if action == "node":
            rooms = [node not in chosen and oracle.room(at, node, job) > 0 for node in range(PLATFORM.n_nodes)]
            assert player.mask.tolist() == rooms
        player.step()
    assert half_placed or action != "node"


@pytest.mark.parametrize("action", ["job", "node"])
def test_nodes_bandwidth_observation(action: str) -> None:
    jobs = workload(6)
    player = Player(environment(action, "nodes_bandwidth", jobs))
    oracle = Oracle(PLATFORM, jobs)
    slowed = 0
    while not player.over:
        at = snapshot(player.env.cluster)
        job, chosen = placed_by(player, at)
        rows = oracle.bandwidth_rows(at, chosen, job)
        assert player.observation == pytest.approx(np.array(rows), abs=2e-6)
        slowed += sum(row[13] < 1 for row in rows)
        player.step()
    assert slowed > 20


@pytest.mark.parametrize("action", ACTIONS)
def test_graph_observation(action: str) -> None:
    jobs = workload(6)
    player = Player(environment(action, "graph", jobs, queue_size=6))
    oracle = Oracle(PLATFORM, jobs)
    nodes, clusters = PLATFORM.n_nodes, PLATFORM.n_clusters
    shared_seen = 0
    while not player.over:
        seen, at = player.observation, snapshot(player.env.cluster)
        assert seen["job"] == pytest.approx(np.array(oracle.job_rows(at, 6)), abs=2e-6)
        job, chosen = placed_by(player, at)
        assert seen["node"][:, :-3] == pytest.approx(np.array(oracle.bandwidth_rows(at, chosen, job)), abs=2e-6)
        nodes_of = {job: {core.node for core in at.cores if core.job == job} for job in oracle.running(at)}
        for n in range(nodes):
            cores = [core for core in at.cores if core.node == n]
            shared = sum(core.job is not None and len(nodes_of[core.job]) > 1 for core in cores)
            k = int(PLATFORM.node_cluster[n])
            row = [
                PLATFORM.local_bandwidth[k] / PLATFORM.local_bandwidth.max(),
                PLATFORM.local_latency[k] / PLATFORM.global_latency.max(),
                shared / len(cores),
            ]
            assert seen["node"][n, -3:] == pytest.approx(row, abs=2e-6)
            shared_seen += shared
        for k in range(clusters):
            cores = [core for core in at.cores if PLATFORM.node_cluster[core.node] == k]
            shared = sum(
                core.job is not None and len({int(PLATFORM.node_cluster[n]) for n in nodes_of[core.job]}) > 1
                for core in cores
            )
            assert seen["cluster"][k] == pytest.approx([1.0, 1.0, shared / len(cores)], abs=2e-6)
        fits = np.zeros((6, nodes))
        for i, waiting in enumerate(at.queue[:6]):
            fits[i] = [oracle.room(at, n, waiting) > 0 for n in range(nodes)]
        assert np.array_equal(seen["fits"], fits)
        assert np.array_equal(seen["node_cluster"], PLATFORM.node_cluster)
        player.step()
    assert shared_seen


@pytest.mark.requires("torch-geometric")
def test_graph_views() -> None:
    from hdsim.decisions.observations.graph import EDGE_TYPES, VERTEX_TYPES, to_data, to_hetero_data

    player = Player(environment("job", "graph", queue_size=6))
    for _ in range(10):
        player.step()
    seen = player.observation
    data, hetero = to_data(seen), to_hetero_data(seen)
    data.validate()
    hetero.validate()
    queued, nodes, clusters = int(seen["job"][:, -1].sum()), PLATFORM.n_nodes, PLATFORM.n_clusters
    assert 0 < queued < 6
    assert data.num_nodes == hetero.num_nodes == queued + nodes + clusters
    fits = int(seen["fits"].sum())
    expected = dict(zip(EDGE_TYPES, (fits, fits, nodes, nodes, clusters * (clusters - 1)), strict=True))
    assert {kind: hetero[kind].num_edges for kind in EDGE_TYPES} == expected
    assert data.num_edges == sum(expected.values())
    for kind in VERTEX_TYPES:
        assert np.array_equal(hetero[kind].x, seen[kind][hetero[kind].vertex.numpy()])
    job, node = hetero["job", "fits", "node"].edge_index.numpy()
    assert set(zip(job, node, strict=True)) == set(zip(*seen["fits"].nonzero(), strict=True))
    node, cluster = hetero["node", "in", "cluster"].edge_index.numpy()
    assert np.array_equal(cluster, PLATFORM.node_cluster[node])


# A constant action is the classic policy


def same(env: SchedulingEnv, result: hdsim.Result) -> None:
    assert env.result is not None
    for name in result.jobs:
        np.testing.assert_array_equal(env.result.jobs[name], result.jobs[name], err_msg=name)
    assert env.result.energy_joules == result.energy_joules


def replay_seed(seed: int) -> int:
    """Seed of the replay in the first episode after ``reset(seed)`` with one trace."""
    rng, _ = seeding.np_random(seed)
    rng.integers(1)
    return int(rng.integers(2**63))


@pytest.mark.parametrize("pair", PAIRS)
def test_a_constant_pair_is_the_classic_agent(pair: str) -> None:
    jobs = workload(7, 60)
    env = environment("policy_pair", "minimal", jobs, contention="threshold", objective="avg_job_completion")
    env.reset(seed=11)
    over = False
    while not over:
        *_, over, _, info = env.step(PAIRS.index(pair))
    result = hdsim.simulate(PLATFORM, jobs, pair, contention="threshold", seed=replay_seed(11))
    same(env, result)
    assert info["metrics"]["makespan"] == result.metrics["makespan"]


@pytest.mark.parametrize("pair", ["shortest-high_gflops", "tetris-low_power", "wfp3-high_mem"])
@pytest.mark.parametrize("decide", ["useful", "queued", "always"])
def test_any_pair_alone(pair: str, decide: str) -> None:
    jobs = workload(8)
    env = environment("policy_pair", "minimal", jobs, pairs=[pair], void=False, decide=decide)
    assert env.action_space.n == 1
    env.reset(seed=1)
    over = False
    while not over:
        *_, over, _, _ = env.step(0)
    same(env, hdsim.simulate(PLATFORM, jobs, pair, seed=replay_seed(1)))


@pytest.mark.parametrize("backfill", ["none", "easy", "rlscheduler"])
@pytest.mark.parametrize("order", ["sjf", "saf", "f1"])
def test_committing_to_the_head_of_an_order_is_the_classic_agent(order: str, backfill: str) -> None:
    from hdsim.scheduling.orders import job_order
    from hdsim.workload.generators.lublin import generate

    platform = hdsim.Platform.homogeneous(nodes=64, cores_per_node=4)
    jobs = generate(300, seed=3, arrival_factor=0.5)
    env = SchedulingEnv(
        platform,
        jobs,
        "job",
        "jobs",
        "bounded_slowdown",
        commit=True,
        backfill=backfill,
        queue_size=300,
        batch_events=False,
    )
    score = job_order(order).score(jobs)
    env.reset(seed=0)
    over, total = False, 0.0
    while not over:
        queue = list(env.cluster.queue)
        _, reward, over, _, info = env.step(min(range(len(queue)), key=lambda i: score[queue[i]]))
        total += reward
    agent = {"job_policy": order, "commit_head": True, "backfill": backfill, "backfill_order": "fcfs"}
    same(env, hdsim.simulate(platform, jobs, agent, batch_events=False))
    assert total == pytest.approx(-info["metrics"]["mean_bounded_slowdown"])


@pytest.mark.parametrize("core_policy", ["high_gflops", "low_power", "high_mem"])
def test_picking_the_head_while_it_fits_is_first_come_first_served(core_policy: str) -> None:
    jobs = workload(9)
    env = environment("job", "minimal", jobs, void=True, core_policy=core_policy, queue_size=50)
    _, info = env.reset(seed=0)
    over = False
    while not over:
        *_, over, _, info = env.step(0 if info["action_mask"][0] else 50)
    same(env, hdsim.simulate(PLATFORM, jobs, f"fcfs-{core_policy}"))


def test_choosing_the_nodes_that_a_classic_agent_chose_gives_its_schedule() -> None:
    kinds = {"p3": {"cores": 3, "power": 90, "clock_rate": 3.0}, "p4": {"cores": 4, "power": 140, "clock_rate": 2.5}}
    platform = hdsim.Platform.from_dict(
        {
            "name": "single",
            "clusters": [{"id": "a", "nodes": [{"type": "p3", "number": 3}, {"type": "p4", "number": 2}]}],
            "types": {
                "node": {kind: {"processors": [{"type": kind, "number": 1}]} for kind in kinds},
                "processor": {kind: {**rest, "dpflops_per_cycle": 4} for kind, rest in kinds.items()},
            },
        }
    )
    jobs = workload(10)
    result = hdsim.simulate(platform, jobs, "fcfs-low_power")
    env = SchedulingEnv(platform, jobs, "node", "nodes", core_policy="low_power")
    env.reset(seed=0)
    node_of = platform.processor_node[platform.core_processor]
    cores = cores_of_jobs(result)
    over = False
    while not over:
        partial = env.problem.wait_queue.partial
        used = node_of[cores[partial.job]]
        wanted = np.bincount(used, minlength=platform.n_nodes) * (partial.chosen == 0)
        # Nodes that the job fills come before the one of which it needs only a part.
        filled = np.flatnonzero((wanted > 0) & (partial.capacity == wanted))
        *_, over, _, _ = env.step(int(filled[0]) if len(filled) else int(wanted.argmax()))
    same(env, result)


# Jobs on several nodes, GPUs


def test_a_job_takes_what_each_chosen_node_can_give() -> None:
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, memory_gb_per_node=2.0)
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[10], requested_cores=[5], memory=[700])
    env = SchedulingEnv(platform, jobs, "node", "nodes")
    _, info = env.reset()
    assert info["action_mask"].all()  # two cores of 700 MB a node
    observation, _, over, _, info = env.step(2)
    assert info["action_mask"].tolist() == [True, True, False, True]
    assert observation[2, 7] == pytest.approx(2 / 5)
    env.step(0)
    *_, over, _, info = env.step(3)
    assert over
    assert env.result.jobs["allocated_resources"][0] == "0-1 8-9 12"


def test_a_half_placed_job_cannot_be_left() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0, 5], runtime=[10, 1], requested_cores=[6, 1])
    env = SchedulingEnv(hdsim.Platform.homogeneous(nodes=2, cores_per_node=4), jobs, "node", "nodes", void=True)
    _, info = env.reset()
    assert info["action_mask"].tolist() == [True, True, True]
    *_, info = env.step(1)
    assert info["action_mask"].tolist() == [True, False, False]


def test_kubernetes_passes_over_a_pod_that_does_not_fit() -> None:
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 0, 0], runtime=[10, 10, 10], requested_cores=[3, 4, 1], memory=0.0
    )
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=4)
    starts = {}
    for skip in (False, True):
        env = SchedulingEnv(platform, jobs, "node", "nodes", skip_blocked=skip)
        env.reset()
        while not env.step(0)[2]:
            pass
        starts[skip] = env.result.starting_time.tolist()
    assert starts == {False: [0, 10, 20], True: [0, 10, 0]}


@pytest.mark.ci
def test_jobs_with_gpus_are_placed_by_node() -> None:
    node = {"processors": [{"type": "cpu", "number": 1}, {"type": "gpu", "number": 1}]}
    platform = hdsim.Platform.from_dict(
        {
            "name": "gpus",
            "clusters": [{"id": "g", "nodes": [{"type": "n", "number": 3}]}],
            "types": {
                "node": {"n": node},
                "processor": {
                    "cpu": {"cores": 4, "clock_rate": 2, "dpflops_per_cycle": 4, "power": 40},
                    "gpu": {"type": "GPU", "cores": 2, "clock_rate": 1, "dpflops_per_cycle": 1000, "power": 400},
                },
            },
        }
    )
    assert platform.n_gpus == 6
    rng = np.random.default_rng(0)
    jobs = hdsim.Workload.from_columns(
        submission_time=np.arange(30) * 3,
        runtime=rng.integers(1, 40, 30),
        requested_cores=rng.choice([2, 4, 8], 30),
        requested_gpus=rng.choice([0, 2, 4], 30),
    )
    for action in ACTIONS:
        for observation in OBSERVATIONS:
            env = SchedulingEnv(platform, jobs, action, observation, "energy_consumption", reward="integrated")
            observed, info = env.reset(seed=1)
            over, total = False, 0.0
            while not over:
                assert env.observation_space.contains(observed)
                invariants.check(env.cluster)
                observed, reward, over, _, info = env.step(int(rng.choice(info["action_mask"].nonzero()[0])))
                assert not info["invalid_action"]
                total += reward
            assert total == pytest.approx(-env.result.energy_joules)


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action": "jobs"}, "env.action: expected one of .*job_suspend, site_job, site_priority, got 'jobs'"),
        ({"observation": "graphs"}, "did you mean 'graph'"),
        ({"queue_size": 3}, "unknown setting of action policy_pair and observation minimal"),
        ({"action": "job", "queue_siz": 3}, "did you mean 'queue_size'"),
        (
            {"action": "node", "observation": "graph", "scale": "seen", "typo": 1, "pairs": ["first-high_mem"]},
            "env.scale: unknown setting of action node and observation graph (one of normal, small, minimal; "
            "~env.scale ~env.pairs on the command line",
        ),
        ({"action": "node", "scale": "seen", "queue_siz": 3}, "env.queue_siz: .*(did you mean 'queue_sensitivity'"),
        ({"action": "job", "queue_size": 0}, "env.queue_size: expected a whole number >= 1"),
        ({"action": "job", "queue_size": 2.5}, "env.queue_size"),
        ({"action": "job", "core_policy": "low_powr"}, "did you mean 'low_power'"),
        ({"action": "job", "backfill": "easy"}, "env.commit=true"),
        ({"action": "job", "commit": True, "backfill": "conservative"}, "env.backfill"),
        ({"action": "job", "commit": True, "void": True}, "env.void=false"),
        ({"action": "node", "job_policy": "shortst"}, "env.job_policy"),
        ({"pairs": []}, "env.pairs: expected at least one"),
        ({"pairs": ["easy-sjf"]}, "env.pairs: expected a policy pair without backfilling"),
        ({"pairs": ["shortest-fastest"]}, "env.pairs"),
        ({"decide": "never"}, "env.decide"),
        ({"queue_sensitivity": 0}, "env.queue_sensitivity"),
        ({"scales": {"memry": 1}}, "env.scales"),
    ],
)
def test_settings_that_cannot_be(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        DecisionProblem(**settings)


def test_settings_make_an_equal_task() -> None:
    problem = DecisionProblem("job", "graph", queue_size=9, commit=True)
    again = DecisionProblem(**problem.settings)
    assert again.settings == problem.settings
    assert again.arrays(PLATFORM) == problem.arrays(PLATFORM)
    assert DecisionProblem("job", "graph").settings["queue_size"] == 128  # both have the action's


def test_an_action_beside_the_mask_is_refused() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0, 0], runtime=[5, 5], requested_cores=[3, 2])
    cluster = Cluster(hdsim.Platform.homogeneous(nodes=1, cores_per_node=4), jobs)
    problem = DecisionProblem("job", "jobs", queue_size=4)
    problem.begin(cluster)
    cluster.submit(0)
    cluster.submit(1)
    assert problem.pending()
    for wrong in (2, -1, 4):
        with pytest.raises(DecisionError, match=r"one of \[0, 1\]"):
            problem.act(wrong)
    problem.act(0)
    assert not problem.pending()
    assert math.isnan(cluster.starting_time[1])
