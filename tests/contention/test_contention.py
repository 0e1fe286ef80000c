"""Contention models against closed forms and scalar transcriptions of their formulas, and replays under them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import cores_of_jobs

from hdsim import Platform, Workload, simulate
from hdsim.contention import CoreContention
from hdsim.contention.fair_share import FairShare
from hdsim.contention.smoothstep import CONSTANTS, Smoothstep
from hdsim.contention.threshold import Threshold
from hdsim.errors import ConfigError, PlatformError
from hdsim.results.result import Result
from hdsim.simulation.setup import make_model

# GB/s, of the size of IRMaSim's own.
CURVE = {"b": -0.02, "c": 32.0, "da": 6.0, "db": 3.0, "dc": 45.0, "dd": 3.0}


def machine(cores: int = 8, processors: int = 1, mem_bw: float | None = 32.0, **constants: object) -> Platform:
    """Processors of some cores, with constants of smoothstep if any are given."""
    platform = Platform.homogeneous(
        nodes=1, cores_per_node=cores * processors, processors_per_node=processors, mem_bw=mem_bw, name="m"
    )
    if not constants:
        return platform
    document = platform.to_dict()
    document["types"]["processor"]["m"]["smoothstep"] = constants
    return Platform.from_dict(document, where="m.json")


def ask(model: CoreContention, *demands: Sequence[float]) -> list[list[float]]:
    """Speeds of the busy cores of processors 0, 1, ... with these demands."""
    first = np.cumsum([0, *map(len, demands)])
    speeds = model.core_speeds(
        np.arange(len(demands), dtype=np.int32), first, np.array(list(itertools.chain(*demands)), float)
    )
    return [part.tolist() for part in np.split(speeds, first[1:-1])]


# smoothstep


def perf(x: float, y: float, n: int, b: float, c: float, da: float, db: float, dc: float, dd: float) -> float:
    """The curve, one core at a time."""

    def smooth(u: float) -> float:
        if u < 0:
            return 1.0
        return 0.0 if u > 1 else 1 - u**3 * (u * (6 * u - 15) + 10)

    d = smooth((y - (da - n * db)) / (dc - n * dd)) * (0.6 * n / (1 + 0.6 * n)) + 1 / (1 + 0.6 * n)
    if x < c:
        return 1.0
    return d if x > (d + b * c - 1) / b else b * (x - c) + 1


@pytest.mark.parametrize(
    ("x", "y", "n", "expected"),
    [
        (31.9, 15, 3, 1.0),
        (32.0, 15, 3, 1.0),
        (40.0, 15, 3, 0.84),
        (48.0, 15, 3, 0.68),
        # u = (15 + 3) / 36 = 1/2, S = 1/2, D = 1/2 x 1.8/2.8 + 1/2.8
        (48.2, 15, 3, 0.678571429),
        (60.0, 15, 3, 0.678571429),
        # u = (3 + 3) / 36 = 1/6, S = 0.964506173, D = 0.977182540
        (60.0, 3, 3, 0.977182540),
        # u > 1: S = 0, D = 1 / 2.8
        (90.0, 34, 3, 0.357142857),
        # u = (6 - 6) / 45 = 0: S = 1, nothing is lost
        (36.0, 6, 0, 1.0),
        # alone: r = 0 and D = 1
        (50.0, 50, 0, 1.0),
    ],
)
def test_smoothstep_by_hand(x: float, y: float, n: int, expected: float) -> None:
    model = Smoothstep(machine(**CURVE))
    rest = [(x - y) / n] * n if n else []
    if n == 0:
        x = y
    assert perf(x, y, n, **CURVE) == pytest.approx(expected, abs=5e-10)
    assert ask(model, [y, *rest])[0][0] == pytest.approx(expected, abs=1e-12)


def test_smoothstep_agrees_with_its_formula_everywhere() -> None:
    model = Smoothstep(machine(**CURVE), digits=None)
    seen = set()
    for y, other, n in itertools.product(np.linspace(0, 60, 41), np.linspace(0, 30, 31), range(8)):
        x = float(np.sum([y, *[other] * n]))
        expected = perf(x, y, n, **CURVE)
        assert ask(model, [y, *[other] * n])[0][0] == pytest.approx(expected, rel=1e-12)
        seen.add("full" if expected == 1 else "line" if expected == CURVE["b"] * (x - CURVE["c"]) + 1 else "floor")
    assert seen == {"full", "line", "floor"}


def test_smoothstep_rounds_as_asked() -> None:
    demands = [15.0, 17.0, 3.0, 11.1]
    exact = ask(Smoothstep(machine(**CURVE), digits=None), demands)[0]
    assert ask(Smoothstep(machine(**CURVE)), demands)[0] == [round(speed, 9) for speed in exact]
    assert ask(Smoothstep(machine(**CURVE), digits=2), demands)[0] == [round(speed, 2) for speed in exact]


def test_irmasim_writes_the_lower_bound_as_a_multiple() -> None:
    """Its code has (da - n) db with da = 1.75 and MB/s: the same curve with da db in the place of da."""
    n, y, rest = 3, 9_000.0, 11_000.0
    u = (y - (1.75 - n) * 3500) / (45000 - n * 3000)
    floor = (1 - u**3 * (u * (6 * u - 15) + 10)) * 1.8 / 2.8 + 1 / 2.8
    theirs = {"b": -1.85e-5, "c": 32000, "da": 1.75 * 3500, "db": 3500, "dc": 45000, "dd": 3000, "unit": "MB/s"}
    model = Smoothstep(machine(**theirs))
    assert ask(model, [y / 1e3, *[rest / 1e3] * n])[0][0] == round(max(floor, 1 - 1.85e-5 * (y + n * rest - 32000)), 9)


demand = st.floats(0, 60, allow_subnormal=False)
step = st.floats(0.01, 20)


@given(st.lists(demand, min_size=1, max_size=8), step)
def test_smoothstep_is_full_speed_below_the_threshold_and_falls_with_every_demand(
    demands: list[float], more: float
) -> None:
    model = Smoothstep(machine(**CURVE))
    speeds = ask(model, demands)[0]
    assert all(1 / (1 + 0.6 * (len(demands) - 1)) - 1e-9 <= speed <= 1 for speed in speeds)
    if sum(demands) < CURVE["c"] - 1e-9:
        assert speeds == [1.0] * len(demands)
    # A core's own demand and that of another, the total being the same or larger.
    for changed in range(len(demands)):
        raised = ask(model, [d + more * (i == changed) for i, d in enumerate(demands)])[0]
        assert all(after <= before + 1e-9 for after, before in zip(raised, speeds, strict=True))
    if len(demands) < 8:
        joined = ask(model, [*demands, more])[0]
        assert all(after <= before + 1e-9 for after, before in zip(joined, speeds, strict=False))


def test_units_of_the_constants() -> None:
    demands = [15.0, 17.0, 3.0, 11.1]
    expected = ask(Smoothstep(machine(**CURVE)), demands)
    for unit, size in (("GB/s", 1.0), ("MB/s", 1e3), ("B/s", 1e9), ("mem_bw", 1 / 32)):
        scaled = {key: CURVE[key] * size for key in CONSTANTS[1:]} | {"b": CURVE["b"] / size, "unit": unit}
        assert ask(Smoothstep(machine(**scaled)), demands)[0] == pytest.approx(expected[0], abs=2e-9)


def test_constants_of_types_without_their_own() -> None:
    demands = [15.0, 17.0, 3.0, 11.1]
    own = Smoothstep(machine(**CURVE))
    assert ask(Smoothstep(machine(), constants=CURVE), demands) == ask(own, demands)
    # A platform's own constants go first.
    assert ask(Smoothstep(machine(**CURVE), constants={**CURVE, "c": 1.0}), demands) == ask(own, demands)
    # Shares of an unlimited bandwidth are never reached.
    unlimited = Smoothstep(machine(mem_bw=None), constants={**CURVE, "unit": "mem_bw"})
    assert ask(unlimited, [1e6, 0.0]) == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"b": -1}, "m.json: types.processor.m.smoothstep: expected the constants b, c, .* none for c, da, db, dc, dd"),
        ({**CURVE, "b": 0.02}, "b: expected a number below 0, got 0.02"),
        ({**CURVE, "c": -1}, "c: expected a number of at least 0, got -1"),
        ({**CURVE, "da": "6"}, "da: expected a finite number, got '6'"),
        ({**CURVE, "dd": 8}, "above 0 for n from 0 to 7 on a processor of 8 cores, got -11 for n = 7"),
        ({**CURVE, "dv": 8}, r"unknown key 'dv' \(did you mean 'd.'\?\); allowed: b, c, da, db, dc, dd, unit"),
        ({**CURVE, "unit": "GiB/s"}, "unit: expected one of GB/s, MB/s, B/s, mem_bw, got 'GiB/s'"),
        ({**CURVE, "b": 1, "c": -1}, "b: expected.*\n.*c: expected"),
    ],
)
def test_wrong_constants_are_named(constants: dict[str, object], message: str) -> None:
    with pytest.raises(PlatformError, match=message):
        Smoothstep(machine(**constants))
    with pytest.raises(ConfigError, match=r"contention\.constants: "):
        Smoothstep(machine(), constants=constants)


def test_missing_constants_name_the_type() -> None:
    with pytest.raises(PlatformError, match=r"types\.processor\.m\.smoothstep: expected the constants .* got none"):
        Smoothstep(machine(), constants=None)
    with pytest.raises(ConfigError, match=r"contention\.digits: expected a whole number from 1 to 15 or null"):
        Smoothstep(machine(**CURVE), digits=0.5)  # type: ignore[arg-type]


# fair_share


@pytest.mark.parametrize("n", range(1, 33))
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_fair_share_of_equal_demands(n: int, fraction: float) -> None:
    """n cores that ask for y get B / n each once n y > B."""
    bandwidth, y = 32.0, 5.0
    got = min(y, bandwidth / n)
    expected = got / y if fraction == 1 else 1 / ((1 - fraction) + fraction * y / got)
    speeds = ask(FairShare(machine(32, mem_bw=bandwidth), fraction), [y] * n)[0]
    assert speeds == pytest.approx([expected] * n, rel=1e-12)
    if n * y <= bandwidth:
        assert speeds == [1.0] * n


@pytest.mark.parametrize("small", range(5))
@pytest.mark.parametrize("large", range(1, 6))
def test_fair_share_of_two_demands(small: int, large: int) -> None:
    """The modest are served in full, unless even an equal part is less than they ask for."""
    bandwidth, modest, greedy = 30.0, 4.0, 14.0
    equal = bandwidth / (small + large)
    modest_part = min(modest, equal)
    greedy_part = min(greedy, (bandwidth - small * modest_part) / large)
    speeds = ask(FairShare(machine(16, mem_bw=bandwidth)), [greedy] * large + [modest] * small)[0]
    expected = [greedy_part / greedy] * large + [modest_part / modest] * small
    assert speeds == pytest.approx(expected, rel=1e-12)


def test_fair_share_of_unequal_demands_by_hand() -> None:
    model = FairShare(machine(mem_bw=24.0, processors=3))
    # 2 and 5 are served, the other two share 24 - 7; nobody is served; there is enough.
    speeds = ask(model, [20, 2, 10, 5], [30, 12, 9], [8, 0, 16])
    assert speeds == [pytest.approx(part, rel=1e-12) for part in ([8.5 / 20, 1, 0.85, 1], [8 / 30, 8 / 12, 8 / 9])] + [
        [1, 1, 1]
    ]


@given(st.lists(st.lists(st.floats(0, 50, allow_subnormal=False), min_size=1, max_size=8), min_size=1, max_size=4))
def test_fair_share_is_max_min(demands: list[list[float]]) -> None:
    bandwidth = 40.0
    model = FairShare(machine(mem_bw=bandwidth, processors=4))
    for asked, speeds in zip(demands, ask(model, *demands), strict=True):
        got = np.array(asked) * speeds
        assert got.sum() == pytest.approx(min(bandwidth, sum(asked)), rel=1e-9)
        assert all(0 < speed <= 1 for speed in speeds)
        # Whoever gets less than it asks for gets as much as anyone: none can gain except from one who has less.
        short = np.array(speeds) < 1 - 1e-9
        assert np.allclose(got[short], got.max(), rtol=1e-9)
        # Other processors of the same call have no say.
        assert ask(model, asked)[0] == pytest.approx(speeds, rel=1e-9)


def test_fair_share_never_slows_a_job_that_is_not_bound_by_memory() -> None:
    model = FairShare(machine(), 0.0)
    workload = Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1], memory_bandwidth=[90])
    assert not model.applies(workload) and FairShare(machine(), 0.1).applies(workload)
    assert not FairShare(machine(mem_bw=None)).applies(workload)
    assert ask(model, [50, 60]) == [[1, 1]]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), "half", True, None])
def test_a_fraction_is_a_number_from_0_to_1(fraction: object) -> None:
    with pytest.raises(ConfigError, match=r"contention.memory_bound_fraction: expected a number from 0 to 1, got"):
        FairShare(machine(), fraction)  # type: ignore[arg-type]


# Replays


def test_fair_share_replay_by_hand() -> None:
    """Two processors of 24 GB/s; a wide job is held to its slower half."""
    platform = machine(2, processors=2, mem_bw=24.0)
    workload = Workload.from_columns(
        submission_time=[0, 0, 6], runtime=[12, 10, 10], requested_cores=[1, 2, 1], memory_bandwidth=[20, 16, 4]
    )
    result = simulate(platform, workload, "fcfs", contention="fair_share", check=True)
    assert result.jobs["allocated_resources"].tolist() == ["0", "1-2", "3"]
    # Processor 0: both get 12, so job 0 runs at 0.6 and job 1 at 0.75, although its core on processor 1 has all it
    # asks for, also after job 2 has come: 16 + 4 < 24. Job 1 ends at 10 / 0.75 = 13.333; job 0 has done 8 and goes on
    # alone.
    end = 10 / 0.75
    assert result.finish_time.tolist() == pytest.approx([end + 4, end, 16], rel=1e-12)
    processors, starts, ends = result.oversubscribed
    assert (processors.tolist(), starts.tolist(), ends.tolist()) == ([0], [0.0], [pytest.approx(end)])
    # 10 W a core computing, 2.5 W idle beside one that does, 0.5 W in an idle processor.
    total = end + 4
    watts = [
        (end, 20 + 0),
        (4, 12.5),  # processor 0: both, then one
        (6, 12.5),
        (end - 6, 20),
        (16 - end, 12.5),
        (total - 16, 1.0),  # processor 1
    ]
    assert result.energy_joules == pytest.approx(sum(seconds * power for seconds, power in watts))
    assert result.jobs["consumed_energy"].tolist() == pytest.approx([10 * total, 20 * end, 100])


def test_fixed_durations_take_bandwidth_and_lose_no_time() -> None:
    workload = Workload.from_columns(
        submission_time=[0, 0],
        runtime=[10, 10],
        requested_cores=[1, 1],
        memory_bandwidth=[32, 32],
        fixed_duration=[True, False],
    )
    result = simulate(machine(), workload, "fcfs", contention="fair_share", check=True)
    assert result.finish_time.tolist() == [10, 15]


def fill(bandwidth: float, demands: Sequence[float]) -> list[float]:
    """Max-min fair parts by raising a common level until the bandwidth is used up."""
    parts = [0.0] * len(demands)
    hungry = [i for i, y in enumerate(demands) if y > 0]
    while hungry and bandwidth > 1e-12:
        rise = min(bandwidth / len(hungry), *(demands[i] - parts[i] for i in hungry))
        for i in hungry:
            parts[i] += rise
        bandwidth -= rise * len(hungry)
        hungry = [i for i in hungry if demands[i] - parts[i] > 1e-12]
    return parts


def fair(bandwidth: float, demands: Sequence[float]) -> list[float]:
    return [1 / (0.5 + 0.5 * y / a) if a > 0 else 1.0 for y, a in zip(demands, fill(bandwidth, demands), strict=True)]


def smooth(bandwidth: float, demands: Sequence[float]) -> list[float]:
    return [perf(sum(demands), y, len(demands) - 1, **CURVE) for y in demands]


def work_done(result: Result, model: Callable[[float, Sequence[float]], Sequence[float]]) -> list[float]:
    """Seconds at reference speed that every job has done, from the schedule alone."""
    platform, workload = result.platform, result.workload
    dates = np.unique(np.concatenate([result.starting_time, result.finish_time]))
    done = [0.0] * len(workload)
    for begin, end in itertools.pairwise(dates.tolist()):
        running = np.flatnonzero((result.starting_time <= begin) & (result.finish_time >= end)).tolist()
        busy = {core: job for job in running for core in cores_of(result, job)}
        speed: dict[int, float] = dict.fromkeys(running, np.inf)
        for processor in range(platform.n_processors):
            cores = [core for core in busy if platform.core_processor[core] == processor]
            demands = [float(workload.memory_bandwidth[busy[core]]) for core in cores]
            peak = platform.gflops[processor] / platform.reference_gflops
            for core, relative in zip(cores, model(platform.mem_bw[processor], demands) if cores else [], strict=True):
                speed[busy[core]] = min(speed[busy[core]], peak * relative)
        for job in running:
            done[job] += speed[job] * (end - begin)
    return done


def cores_of(result: Result, job: int) -> list[int]:
    cores: list[int] = cores_of_jobs(result)[job].tolist()
    return cores


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(1, 10), st.sampled_from([0, 3, 8, 13, 24])),
            min_size=1,
            max_size=14,
        )
    )
    submission, runtime, cores, bandwidth = zip(*rows, strict=True)
    return Workload.from_columns(
        submission_time=sorted(submission), runtime=runtime, requested_cores=cores, memory_bandwidth=bandwidth
    )


def two_speeds() -> Platform:
    document = machine(3, processors=2, mem_bw=20.0, **CURVE).to_dict()
    processors = document["types"]["processor"]
    processors["fast"] = {**processors["m"], "clock_rate": 20.0, "cores": 4, "mem_bw": 30}
    document["types"]["node"]["fast"] = {"processors": [{"type": "fast", "number": 1}]}
    document["clusters"][0]["nodes"].append({"type": "fast", "number": 1})
    return Platform.from_dict(document)


@pytest.mark.parametrize(
    ("contention", "model"),
    [
        ({"_target_": "hdsim.contention.fair_share.FairShare", "memory_bound_fraction": 0.5}, fair),
        ({"_target_": "hdsim.contention.smoothstep.Smoothstep", "digits": None}, smooth),
    ],
    ids=["fair_share", "smoothstep"],
)
@given(workload=workloads(), agent=st.sampled_from(["fcfs", "first-random", "easy", "smallest-high_cores"]))
def test_every_job_does_its_work_at_the_speed_of_its_slowest_core(
    contention: dict[str, object],
    model: Callable[[float, Sequence[float]], Sequence[float]],
    workload: Workload,
    agent: str,
) -> None:
    result = simulate(two_speeds(), workload, agent, contention=contention, check=True)
    assert work_done(result, model) == pytest.approx(workload.runtime.tolist(), rel=1e-9, abs=1e-7)


class ByCore(CoreContention):
    """The threshold model, asked core by core."""

    def core_speeds(self, processors, first, demands):
        speeds = Threshold(self.platform).speeds(processors, np.add.reduceat(demands, first[:-1]))
        return np.repeat(speeds, np.diff(first))


def test_cores_of_one_model_do_as_processors_of_the_other() -> None:
    rng = np.random.default_rng(3)
    workload = Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 500, 200)),
        runtime=rng.integers(1, 60, 200),
        requested_cores=rng.integers(1, 10, 200),
        memory_bandwidth=rng.choice([0, 4, 8, 16], 200),
    )
    by_core = simulate(two_speeds(), workload, "easy", contention={"_target_": f"{__name__}.ByCore"})
    by_processor = simulate(two_speeds(), workload, "easy", contention="threshold")
    assert by_core.finish_time == pytest.approx(by_processor.finish_time, rel=1e-9)
    assert list(by_core.jobs["allocated_resources"]) == list(by_processor.jobs["allocated_resources"])


class Counting(FairShare):
    """Counts what the engine asks."""

    asked = 0

    def core_speeds(self, processors, first, demands):
        Counting.asked += len(demands)
        return super().core_speeds(processors, first, demands)


@pytest.mark.parametrize("processors", [25, 250])
def test_an_event_asks_for_the_processors_it_touches_only(processors: int) -> None:
    """Jobs of one core on full processors of four: at most four cores at a start and at an end, however many run."""
    jobs = processors * 8
    rng = np.random.default_rng(1)
    workload = Workload.from_columns(
        submission_time=np.zeros(jobs),
        runtime=rng.uniform(1, 9, jobs),
        requested_cores=[1] * jobs,
        memory_bandwidth=[12] * jobs,
    )
    platform = machine(4, processors=processors, mem_bw=24.0)
    Counting.asked = 0
    result = simulate(platform, workload, "fcfs", contention={"_target_": f"{__name__}.Counting"})
    assert result.metrics["jobs_completed"] == jobs
    assert Counting.asked <= 4 * 2 * jobs


# A model of one's own

OWN = """
import numpy as np
from hdsim.contention import ProcessorContention


class Crowd(ProcessorContention):
    def __init__(self, platform, loss=0.5):
        super().__init__(platform)
        self.loss = loss

    def speeds(self, processors, demands):
        return np.where(demands > 10, 1 - self.loss, 1.0)
"""


@pytest.fixture
def two_jobs() -> Workload:
    return Workload.from_columns(
        submission_time=[0, 0], runtime=[8, 8], requested_cores=[1, 1], memory_bandwidth=[8, 8]
    )


def test_a_file_of_ones_own(tmp_path: Path, two_jobs: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "crowd_model.py"
    path.write_text(OWN)
    result = simulate(machine(), two_jobs, contention={"path": str(path)}, check=True)
    assert result.finish_time.tolist() == [16, 16]
    result = simulate(machine(), two_jobs, contention={"path": str(path), "loss": 0.2})
    assert result.finish_time.tolist() == [10, 10]
    monkeypatch.syspath_prepend(str(tmp_path))
    result = simulate(machine(), two_jobs, contention={"_target_": "crowd_model.Crowd", "loss": 0.75})
    assert result.finish_time.tolist() == [32, 32]


@pytest.mark.ci
def test_a_file_and_a_yaml_make_an_option(tmp_path: Path, hdsim: Callable) -> None:
    (tmp_path / "crowd_model.py").write_text(OWN)
    (tmp_path / "my_conf/contention").mkdir(parents=True)
    (tmp_path / "my_conf/contention/crowd.yaml").write_text("path: crowd_model.py\nloss: 0.25\n")
    common = ("run", "platform=teaching", "workload.jobs=50", "workload.memory_bandwidth=8")
    for name, *overrides in (
        ("none",),
        ("yaml", "--config-dir=my_conf", "contention=crowd"),
        ("key", "--config-dir=my_conf", "contention=crowd", "contention.loss=0.5"),
        ("path", "contention.path=crowd_model.py", "contention.loss=0.25"),
    ):
        done = hdsim(*common, *overrides, f"hydra.run.dir={name}")
        assert done.returncode == 0, done.stderr
    jobs = {name: (tmp_path / name / "jobs.csv").read_bytes() for name in ("none", "yaml", "key", "path")}
    assert jobs["yaml"] == jobs["path"]
    assert len({*jobs.values()}) == 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fair_shair", "contention: expected one of .*did you mean 'fair_share'"),
        ({"path": None, "_target_": None}, "expected contention.path or contention._target_, got neither"),
        ({"path": "missing.py"}, "contention.path: .*found no file 'missing.py'"),
        ({"_target_": "hdsim.contention.threshold.Treshold"}, "contention._target_: .*did you mean 'Threshold'"),
        ({"_target_": "collections.OrderedDict"}, "a subclass of hdsim.contention.Contention, got OrderedDict"),
        (
            {"_target_": "hdsim.contention.fair_share.FairShare", "memory_bound": 1},
            "did you mean 'memory_bound_fraction'.*allowed keys: memory_bound_fraction",
        ),
    ],
)
def test_mistakes_name_the_key(spec: str | dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_model("contention", spec, machine())


@pytest.mark.parametrize("speed", ["0.0", "-1.0", "float('nan')"])
def test_a_model_that_stops_a_job_is_told(tmp_path: Path, two_jobs: Workload, speed: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(OWN.replace("1 - self.loss", speed))
    with pytest.raises(ConfigError, match="contention: expected speeds above 0 from Crowd, got"):
        simulate(machine(), two_jobs, contention={"path": str(path)})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def speeds(", "def speed(", r"Crowd: expected a definition of speeds\(self, processors, demands\)"),
        (
            "self, processors, demands",
            "self, demands",
            r"Crowd.speeds: expected \(self, processors, demands\), got \(self, demands\)",
        ),
    ],
)
def test_methods_of_a_model_are_checked_before_the_replay(
    tmp_path: Path, two_jobs: Workload, old: str, new: str, message: str
) -> None:
    path = tmp_path / "model.py"
    assert old in OWN
    path.write_text(OWN.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        simulate(machine(), two_jobs, contention={"path": str(path)})


def test_a_model_of_neither_kind_is_told(tmp_path: Path, two_jobs: Workload) -> None:
    path = tmp_path / "model.py"
    path.write_text(OWN.replace("ProcessorContention", "Contention"))
    with pytest.raises(ConfigError, match="expected a ProcessorContention or a CoreContention, got Crowd"):
        simulate(machine(), two_jobs, contention={"path": str(path)})
