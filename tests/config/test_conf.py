"""The tree in conf/: every option composes, names something that exists and is documented; mistakes are explained."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

import hdsim
from hdsim.backends.base import make_backend
from hdsim.config.catalog import listed
from hdsim.config.composer import Composer
from hdsim.config.descriptions import DESCRIPTIONS, description
from hdsim.config.inputs import read_platform, read_workload
from hdsim.config.keys import FORECAST_RULES, GANG_RULES, REAL_RUN_RULES, RULES, TRAINING_RULES, unknown_key
from hdsim.errors import ConfigError
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.setup import make_model
from hdsim.util import plugins
from hdsim.util.resources import bundled, folder, resolve
from hdsim.util.rules import Rule

ROOT = Path(__file__).resolve().parents[2]


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (folder("conf") / group).glob("*.yaml"))


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def compose(composer: Composer, *overrides: str) -> dict:
    return composer.compose(composer.overrides(overrides))


def test_defaults_are_a_heterogeneous_platform_and_a_bundled_trace(composer: Composer) -> None:
    config = compose(composer)
    assert resolve("platforms", config["platform"]["path"]).is_file()
    assert resolve("workloads", config["workload"]["path"]).is_file()
    assert config["agent"]["job_policy"] == "first"


@pytest.mark.parametrize("name", [name for name in options("platform") if name != "cluster"])
def test_every_platform_option_names_a_platform(composer: Composer, name: str) -> None:
    config = compose(composer, f"platform={name}")
    assert hdsim.load_platform(resolve("platforms", config["platform"]["path"])).n_cores > 0


def test_every_bundled_platform_is_an_option() -> None:
    assert {*bundled("platforms"), "cluster"} == set(options("platform"))


@pytest.mark.parametrize("name", [name for name in options("workload") if name != "cluster"])
def test_every_workload_option_names_a_workload(composer: Composer, name: str) -> None:
    log = ["workload.path=lublin_4000"] if name == "like" else []
    config = compose(composer, f"workload={name}", *log)
    assert len(read_workload(config, read_platform(config))) > 0


@pytest.mark.ci
def test_the_name_of_a_bundled_trace_is_an_option(composer: Composer) -> None:
    for name in bundled("workloads"):
        assert compose(composer, f"workload={name}")["workload"]["path"] == name
    runs = composer.sweep(["workload=even_1000,default"])
    assert [run.config["workload"]["path"] for run in runs] == ["even_1000", "lublin_4000"]


def test_what_only_a_cluster_has_is_refused_elsewhere(composer: Composer) -> None:
    sim = make_backend("sim")
    config = compose(composer, "workload=cluster")
    with pytest.raises(ConfigError, match=r"workload\.path: expected a workload, backend sim has no cluster to read"):
        read_workload(config, read_platform(config), backend=sim)
    with pytest.raises(ConfigError, match=r"platform\.path: expected a platform file, backend sim has no cluster"):
        read_platform(compose(composer, "platform=cluster"), sim)
    config = compose(composer, "workload=cluster", "workload.jobs=10")
    with pytest.raises(ConfigError, match=r"workload\.jobs: expected none with workload=cluster"):
        read_workload(config, read_platform(config), backend=sim)
    with pytest.raises(ConfigError, match="expected backend=kwok, whose cluster has schedulers"):
        config = compose(composer, "agent=kube_scheduler", "workload.jobs=10")
        platform = read_platform(config)
        hdsim.simulate(platform, read_workload(config, platform), config["agent"])


def test_the_backend_kwok_means_the_nodes_of_its_cluster(composer: Composer) -> None:
    assert compose(composer, "backend=kwok")["platform"]["path"] is None
    assert compose(composer, "backend=kwok", "platform=teaching")["platform"]["path"] == "teaching"


@pytest.mark.parametrize("name", [name for name in options("failures") if name != "custom"])
def test_every_option_of_failures_can_be_made(composer: Composer, tmp_path: Path, name: str) -> None:
    from hdsim import Platform

    trace = tmp_path / "outages.csv"
    trace.write_text("node,down,up\n")
    more = [f"failures.file={trace}"] if name == "trace" else []
    model = make_model("failures", compose(composer, f"failures={name}", *more)["failures"], Platform.homogeneous(2, 4))
    assert (model is None) == (name == "none")


@pytest.mark.parametrize("name", [name for name in options("power") if name != "custom"])
def test_every_option_of_power_can_be_made(composer: Composer, name: str) -> None:
    states = {"off": {"watts": 1}, "booting": {"watts": 2, "seconds": 60}}
    points = [{"ghz": 5.0, "static_watts": 1, "dynamic_watts": 4}, {"ghz": 10.0, "static_watts": 1, "dynamic_watts": 9}]
    platform = hdsim.Platform.homogeneous(2, 4, states=states, frequencies=points)
    more = ["power.frequency=5.0"] if name == "frequency" else []
    model = make_model("power", compose(composer, f"power={name}", *more)["power"], platform)
    assert (model is None) == (name == "none")


@pytest.mark.parametrize("name", [name for name in options("contention") if name != "custom"])
def test_every_contention_option_can_be_made(composer: Composer, name: str) -> None:
    from hdsim import Platform

    model = make_model("contention", compose(composer, f"contention={name}")["contention"], Platform.homogeneous(2, 4))
    assert (model is None) == (name == "none")


@pytest.mark.parametrize(
    "name",
    [
        *("classic", "fcfs", "lcfs", "sjf", "ljf", "smallest", "largest", "saf", "laf", "wfp3", "unicef"),
        *("f1", "f2", "f3", "f4", "tetris", "drf", "void", "random", "easy", "conservative", "easy-sjf", "easy-saf"),
        *(
            "easy++",
            "multifactor",
            "greedy-multifactor",
            "conservative-sjf",
            "shortest-high_gflops",
            "low_mem_bw-low_power",
            "easy-sjf-low_power",
        ),
    ],
)
def test_every_shorthand_is_an_agent(composer: Composer, name: str) -> None:
    make_agent(compose(composer, f"agent={name}")["agent"])


def test_a_shorthand_takes_the_keys_of_a_classic_agent(composer: Composer) -> None:
    agent = compose(composer, "agent=easy-sjf", "agent.core_policy=low_power")["agent"]
    assert (agent["job_policy"], agent["backfill"], agent["core_policy"]) == ("sjf", "easy", "low_power")


def test_an_own_agent_needs_no_plus_for_its_settings(composer: Composer) -> None:
    agent = compose(composer, "agent.path=my_agent.py", "agent.patience=3")["agent"]
    assert agent == {"path": "my_agent.py", "_target_": None, "patience": 3}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.stem,
            marks={"consolidation": (), "baselines": pytest.mark.nightly}.get(path.stem, pytest.mark.ci),
        )
        for path in sorted((folder("conf") / "experiment").glob("*.yaml"))
    ],
)
def test_every_experiment_composes_and_begins_with_its_command(path: Path) -> None:
    first, second = path.read_text().splitlines()[:2]
    assert first == "# @package _global_"
    (primary,) = (
        name
        for command, name in (("run", "config"), ("train", "train"), ("bsp share", "bsp_share"))
        if second.startswith(f"# hdsim {command} experiment={path.stem}")
    )
    composer = Composer(config_name=primary)
    runs = composer.sweep(composer.overrides([f"experiment={path.stem}"]))
    assert runs[0].directory.parts[0] == "runs"
    assert runs


TRAINED = [
    path.stem
    for path in sorted((folder("conf") / "experiment").glob("*.yaml"))
    if path.read_text().splitlines()[1].startswith("# hdsim train")
]


@pytest.mark.parametrize(
    "experiment",
    [pytest.param(name, marks=pytest.mark.ci if name == "rlscheduler" else pytest.mark.nightly) for name in TRAINED],
)
def test_every_agent_fits_every_experiment(experiment: str) -> None:
    composer = Composer(config_name="train")
    for agent in options("agent"):
        alone = compose(composer, f"agent={agent}")["agent"]
        inside = compose(composer, f"experiment={experiment}", f"agent={agent}")["agent"]
        tuned = folder("conf") / "experiment" / experiment / f"{agent}.yaml"
        assert inside.keys() == alone.keys()
        assert (inside != alone) == tuned.is_file()


def keys(rules: dict[str, Any] = RULES, parent: str = "") -> list[str]:
    return [
        key
        for name, rule in rules.items()
        for key in ([parent + name] if isinstance(rule, Rule) else keys(rule, f"{parent}{name}."))
    ]


def test_every_key_of_runs_and_trainings_has_a_description() -> None:
    assert not [key for key in [*keys(), *keys(TRAINING_RULES)] if not description(key)]
    known = listed("keys")
    others = {"resume", "agent.multifactor", "hydra.run.dir", "hydra.sweep.dir"}
    assert not [key for key in DESCRIPTIONS if key not in others | known.keys() and not key.endswith("._target_")]
    assert known["workload.path"].summary.endswith("plain or gzipped (workload.md)")


@pytest.mark.parametrize("rules", [GANG_RULES | REAL_RUN_RULES, FORECAST_RULES], ids=["gangs", "forecasts"])
def test_every_key_of_gangs_and_forecasts_is_documented(rules: dict[str, Any]) -> None:
    words = set(
        re.split(r"[\s`]+", "".join((ROOT / f"docs/{page}.md").read_text() for page in ("bsp_gangs", "bsp_real")))
    )
    assert not [key for key in keys(rules) if key not in words]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("workload.bsp.superteps=3", "workload.bsp.superteps: unknown key (did you mean 'supersteps'?)"),
        ("+workload.bsp.more=3", "workload.bsp.more: unknown key; allowed: supersteps, communication"),
        ("workload.bsp.latency=-1", "workload.bsp.latency: expected a number"),
        ("workload.bsp=3", "workload.bsp: expected the keys"),
        ("agent=fcsf", "agent: expected an agent such as fcfs"),
        ("agent=dqm", "(did you mean 'dqn'?)"),
        ("agent=fcsf", "(did you mean 'fcfs'?)"),
        ("network.sharing=rounds", "network.sharing: unknown key; allowed: _target_; a key of network=fluid"),
        ("failures=trace", "failures.file: expected a value, which has no default"),
        ("agnt=fcfs", "agnt: unknown key (did you mean 'agent'?); allowed: "),
        ("platform=gaya", "got 'gaya' (did you mean 'gaia'?)"),
        ("platform=gaia,pik", "several values need -m"),
        ("workload=even_100", "got 'even_100' (did you mean 'even_1000'?)"),
        ("workload=3", "workload: expected the name of an option, got 3; a key of it is given as workload.KEY=VALUE"),
        ("platform=[1]", "platform: expected the name of an option, got [1]; a key of it is given as"),
        ("agent={a: 1}", "agent: expected the name of an option, got {a: 1}; a key of it is given as"),
        ("sed=1", "sed: unknown key (did you mean 'seed'?)"),
        ("+sed=1", "sed: unknown key (did you mean 'seed'?)"),
        ("workload.jbos=3", "workload.jbos: unknown key (did you mean 'jobs'?); allowed: path, jobs, start,"),
        ("+workload.jbos=3", "workload.jbos: unknown key (did you mean 'jobs'?)"),
        ("workload.jobs=abc", "workload.jobs: expected a whole number >= 1 or null, got 'abc'"),
        ("workload.jobs=-1", "workload.jobs: expected a whole number >= 1 or null, got -1"),
        ("workload.jobs=2.5", "workload.jobs: expected a whole number >= 1 or null, got 2.5"),
        ("workload.arrival_factor=nan", "workload.arrival_factor: expected a number > 0, got nan"),
        ("workload.arrival_factor=0", "workload.arrival_factor: expected a number > 0, got 0"),
        ("agent._target_=[]", "agent._target_: expected a text or null, got []"),
        ("network._target_=3", "network._target_: expected a text or null, got 3"),
        ("failures._target_=false", "failures._target_: expected a text or null, got False"),
        ("workload.strict=3", "workload.strict: expected true or false, got 3"),
        ("seed=null", "seed: expected a whole number from 0 to 2^63 - 1, got null"),
        ("seed=true", "seed: expected a whole number from 0 to 2^63 - 1, got True"),
        ("seed.x=1", "seed.x: unknown key; seed takes a value and has no keys"),
        ("seed=${nope}", "seed: Interpolation key 'nope' not found"),
        ("platform.path=???", "platform.path: "),
        ("platform=./mine.json", "got './mine.json'; a file is given as platform.path=FILE"),
        (
            "backend=batsm",
            "backend: expected one of batsim, custom, kwok, sim, slurm, got 'batsm' (did you mean 'batsim'?)",
        ),
        ("agent.job_polcy=sjf", "agent.job_polcy: unknown key (did you mean 'job_policy'?)"),
        ("hydra.run.dri=x", "hydra.run.dri: unknown key (did you mean 'dir'?)"),
        ("hydra.run.dir=${x}", "hydra.run.dir: Interpolation key 'x' not found"),
        ("fcfs", "expected KEY=VALUE, got 'fcfs'"),
        ("=5", "expected KEY=VALUE, got '=5'"),
        ("+@a=5", "expected KEY=VALUE, got '+@a=5'"),
        ("platform=", "platform: expected one of accelerated, "),
        ("workload.path=a${b}", r"workload.path: Interpolation key 'b' not found; a literal ${ is written \${"),
        ("experiment=gaia", "train: expected all settings of a training, as of hdsim train, got none for"),
        ("experiment=gangs", "gangs: expected all settings of gangs, as of hdsim bsp share"),
        ("~agent", "agent: "),
    ],
)
def test_a_mistake_is_one_line(composer: Composer, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(composer, override)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("init_epsi", "start_e"),
        ("epsi_decay", "decay_e"),
        ("hidden_layers", "kernel"),
        ("replay_buffer_size", "buffer_size"),
        ("update_frequency", "train_frequency"),
        ("target_update_frequency", "target_network_frequency"),
        ("use_heuristic", "heuristic_exploration"),
    ],
)
def test_settings_of_earlier_schedulers_are_told_by_their_names_here(name: str, meant: str) -> None:
    settings = yaml.safe_load((ROOT / "conf/agent/dqn.yaml").read_text())
    assert f"(did you mean '{meant}'?)" in unknown_key(f"agent.{name}", settings).message


def test_all_wrong_values_are_listed_at_once(composer: Composer) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(composer, "seed=x", "workload.jobs=0", "+platform.sped=1")
    assert len(caught.value.errors) == 3


def test_a_whole_number_may_be_written_as_a_float(composer: Composer) -> None:
    jobs = compose(composer, "workload.jobs=1e3")["workload"]["jobs"]
    assert jobs == 1000 and isinstance(jobs, int)


def test_a_sweep_expands_every_list(composer: Composer) -> None:
    runs = composer.sweep(composer.overrides(["agent=fcfs,easy-saf", "seed=range(1,4)", "workload.jobs=10"]))
    assert len(runs) == 6
    assert compose(composer, "agent=easy-saf", "seed=3", "workload.jobs=10") in [run.config for run in runs]


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ("platform.path=plät.json", "platform.path='plät.json'"),
        ("workload.path=my log.swf", "workload.path='my log.swf'"),
        ("workload.path=a.swf,my log.swf", "workload.path=a.swf,'my log.swf'"),
        ("workload.path=it's.swf", "workload.path='it\\'s.swf'"),
        ("workload.path=ends in \\", "workload.path='ends in \\\\'"),
        ("workload.path=a=b.swf", "workload.path='a=b.swf'"),
        ("workload.path='my log.swf'", "workload.path='my log.swf'"),
        ('workload.path="my log.swf"', 'workload.path="my log.swf"'),
        ("workload.path=a.swf,b.swf", "workload.path=a.swf,b.swf"),
        ("workload.path=choice(a.swf,b.swf)", "workload.path=choice(a.swf,b.swf)"),
        ("hydra.run.dir=runs/${now:%Y}", "hydra.run.dir=runs/${now:%Y}"),
        ("train.traces=[a.swf,b.swf]", "train.traces=[a.swf,b.swf]"),
    ],
)
def test_paths_need_no_quotes(composer: Composer, given: str, prepared: str) -> None:
    assert composer.overrides([given]) == [prepared]
    key, _, value = given.partition("=")
    if value[0] not in "'\"[" and not value.startswith(("a.swf", "choice", "runs")):
        parsed = OverridesParser.create().parse_override(prepared).value()
        assert str(getattr(parsed, "text", parsed)) == value, key


def test_a_path_may_begin_at_home(composer: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jürg")
    given = ["agent.path=~/a b.py,~/c.py", "hydra.run.dir=~/runs"]
    prepared = ["++agent.path='/home/jürg/a b.py','/home/jürg/c.py'", "hydra.run.dir='/home/jürg/runs'"]
    assert composer.overrides(given) == ["agent=custom", *prepared]


def test_a_file_named_with_a_comma_is_one_value(composer: Composer, tmp_path: Path) -> None:
    (tmp_path / "a, b.swf").touch()
    assert composer.overrides([f"workload.path={tmp_path}/a, b.swf"]) == [f"workload.path='{tmp_path}/a, b.swf'"]


def test_callbacks_are_called_around_jobs_and_after_sweeps(tmp_path: Path, hdsim: Callable) -> None:
    """The last one is told of an end first; an error of one is a warning."""
    (tmp_path / "own/experiment").mkdir(parents=True)
    (tmp_path / "told.py").write_text(
        "from hydra.experimental.callback import Callback\n"
        "class Told(Callback):\n"
        "    def __init__(self, name): self.name = name\n"
        "    def on_job_start(self, config, task_function, **others): print(self.name, 'begins', config.seed)\n"
        "    def on_job_end(self, config, job_return, **others): print(self.name, job_return.status.name)\n"
        "    def on_multirun_end(self, config, **others): 1 / 0 if self.name == 'a' else print(self.name, 'is over')\n"
    )
    each = ", ".join(f"{name}: {{_target_: told.Told, name: {name}}}" for name in "ab")
    (tmp_path / "own/experiment/own.yaml").write_text(f"# @package _global_\nhydra: {{callbacks: {{{each}}}}}\n")
    done = hdsim("run", "-m", "--config-dir", "own", "experiment=own", "workload.jobs=5", "seed=7")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line[:2] in ("a ", "b ")]
    assert told == ["a begins 7", "b begins 7", "b COMPLETED", "a COMPLETED", "b is over"]
    assert "Callback Told.on_multirun_end raised ZeroDivisionError: division by zero" in done.stderr


def test_callbacks_that_hydra_refuses_are_one_line(tmp_path: Path, hdsim: Callable) -> None:
    (tmp_path / "own/experiment").mkdir(parents=True)
    callbacks = "hydra: {callbacks: {first: {_target_: os.system, command: 'true'}}}"
    (tmp_path / "own/experiment/night.yaml").write_text(f"# @package _global_\n{callbacks}\n")
    done = hdsim("run", "--config-dir", "own", "platform=teaching", "workload.jobs=5", "experiment=night", cwd=tmp_path)
    assert done.returncode == 2
    assert "hdsim: error: hydra.callbacks: Target 'os.system' is blocklisted" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_extra_folder_adds_options(tmp_path: Path) -> None:
    (tmp_path / "platform").mkdir()
    (tmp_path / "platform/mine.yaml").write_text("path: mine.json\ntypes: null\n")
    assert compose(Composer(config_dir=str(tmp_path)), "platform=mine")["platform"]["path"] == "mine.json"


def test_a_missing_extra_folder_is_named() -> None:
    with pytest.raises(ConfigError, match="--config-dir: expected a directory, got 'nowhere'"):
        Composer(config_dir="nowhere")


def test_an_installed_package_adds_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guest.py").write_text(
        "import hdsim\n"
        "class Guest(hdsim.Agent):\n"
        "    def __init__(self, patience=1):\n"
        "        self.patience = patience\n"
    )
    metadata = tmp_path / "guest-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[hdsim.agents]\nguest = guest:Guest\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._registered.cache_clear()
    agent = make_agent(compose(Composer(), "agent=guest", "agent.patience=7")["agent"])
    plugins._registered.cache_clear()
    assert agent.patience == 7  # type: ignore[attr-defined]
