"""Evaluations of agents on benchmarks: submissions, their verification, and tables of them (docs/compare.md)."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.report.statistics import Floats, Interval, against
from hdsim.results.claims import shortfall
from hdsim.results.run_directory.formats import write_json
from hdsim.results.run_directory.inputs import file_digest
from hdsim.results.run_directory.manifest import git_commit
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.benchmarks import Benchmark, BenchmarkCase, BenchmarkWindow, read_benchmark
from hdsim.simulation.windows import metric_of
from hdsim.studies.measures.windows import TAIL, WAITS, Contender, contenders
from hdsim.util.inputs import parse_json, read_bytes
from hdsim.util.resources import bundled
from hdsim.util.rules import INTEGERS, NOT_NEGATIVE, TEXT, Rule, integers_from, is_finite, require
from hdsim.util.version import __version__

#: Version of the format of submissions.
FORMAT = 1
Told = Callable[[str], None]

_ANY_TEXT = Rule("a text", lambda value: isinstance(value, str))
_DIGESTS = Rule(
    "a mapping from files to their sha256",
    lambda value: isinstance(value, dict) and all(map(_ANY_TEXT.accepts, value.values())),
)
_INTERVAL = Rule(
    "a list of a number, or of a number and its interval",
    lambda value: isinstance(value, list) and len(value) in (1, 3) and all(map(is_finite, value)),
)
_WAITS = Rule(
    f"numbers by {', '.join(WAITS)}",
    lambda value: isinstance(value, dict) and set(value) == set(WAITS) and all(map(is_finite, value.values())),
)
#: Values of a submission, and of its cases.
_RULES = dict.fromkeys(("id", "agent"), TEXT)
_RULES |= dict.fromkeys(("definition", "hdsim", "name", "digest", "remark", "commit"), _ANY_TEXT)
_RULES |= {"files": _DIGESTS, "traces": integers_from(1)}
_CASE_RULES = dict.fromkeys(("workload", "baseline", "scores"), _ANY_TEXT)
_CASE_RULES |= dict.fromkeys(("score", "baseline_score", "p95_ratio", "worst_ratio"), NOT_NEGATIVE)
_CASE_RULES |= {"seeds": INTEGERS, "ratio": _INTERVAL, "geometric": _INTERVAL, "waits": _WAITS}


@dataclass(frozen=True)
class CaseResult:
    """Results of an agent on the test windows of a case; intervals are [value, low, high] at 95 %.

    Attributes:
        workload: The sha256 of all windows.
        seeds: Seeds of the traces.
        baseline: The plain scheduler that is best on the validation windows.
        score: Mean of the metric.
        baseline_score: That of the baseline on the same windows.
        ratio: Ratio of these means.
        geometric: Geometric mean of the ratios of the windows.
        p95_ratio, worst_ratio: 95th percentile, and maximum, of the ratios of the windows.
        waits: Mean, 95th percentile and maximum of the waiting times of the jobs of all windows together, in seconds.
        scores: The sha256 of the scores of every window in full precision.
    """

    workload: str
    seeds: list[int]
    baseline: str
    score: float
    baseline_score: float
    ratio: list[float]
    geometric: list[float]
    p95_ratio: float
    worst_ratio: float
    waits: dict[str, float]
    scores: str


@dataclass(frozen=True)
class Submission:
    """An evaluation of an agent.

    Attributes:
        format: :data:`FORMAT`.
        id: Name of the benchmark.
        definition: Digest of its file, see :class:`hdsim.simulation.benchmarks.Benchmark`.
        hdsim: Version of hdsim.
        name: Name of the agent in tables.
        agent: The agent as on the command line.
        files: Its files with their sha256.
        digest: Digest of the agent, of which the test seeds are made, see :func:`agent_digest`.
        traces: Test windows of each case.
        cases: Results by case.
        remark: Why the windows are not enough for a claim, or empty.
        commit: Commit of hdsim, where it is known.
    """

    format: int
    id: str
    definition: str
    hdsim: str
    name: str
    agent: str
    files: dict[str, str]
    digest: str
    traces: int
    cases: dict[str, CaseResult]
    remark: str
    commit: str


def agent_of(text: str) -> tuple[Contender, dict[str, str]]:
    """Makes the agent of a text, as ``AGENT KEY=VALUE ...``; a Python file stands for ``custom path=FILE``.

    Returns:
        The agent, and its files with their sha256: those among the settings, and the Python files beside them that they
        import.

    Raises:
        ConfigError: There is no such agent.
    """
    first, _, rest = text.strip().partition(" ")
    line = f"agent: custom path={first} {rest}" if first.endswith(".py") else f"agent: {text.strip()}"
    before = set(sys.modules)
    (contender,) = contenders(line)
    given = [value for settings in contender.settings for value in settings.values() if isinstance(value, str)]
    known = bundled("checkpoints")
    files = {value: file for value in given if value and (file := Path(known.get(value, value))).is_file()}
    sources = [path.resolve() for path in files.values() if path.suffix == ".py"]
    folders = {path.parent for path in sources}
    # Those that an earlier agent has loaded, or that are not loaded yet, are found by import statements.
    loaded = (getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - before)
    beside = {path for file in loaded if file and (path := Path(file).resolve()).parent in folders and path.is_file()}
    unread = [*sources, *beside]
    while unread:
        found = _imported_beside(unread.pop(), folders) - beside - set(sources)
        beside |= found
        unread += found
    for path in sorted(beside):
        files.setdefault(next((each for each in files if Path(each).name == path.name), path.name), path)
    return contender, {name: file_digest(path) for name, path in sorted(files.items())}


def _imported_beside(source: Path, folders: Collection[Path]) -> set[Path]:
    """Returns the Python files in folders that the import statements of a file name."""
    names = set()
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    names -= set(sys.stdlib_module_names)
    return {path for name in names for folder in folders if (path := folder / f"{name}.py").is_file()}


def agent_digest(text: str, contender: Contender, files: Mapping[str, str]) -> str:
    """Returns the sha256 of an agent: of its settings, with files as their sha256, all files, and hdsim's version."""
    settings = [{key: files.get(str(value), value) for key, value in each.items()} for each in contender.settings]
    told = {"agent": settings or text, "files": sorted(files.values()), "hdsim": __version__}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def submit(
    benchmark: Benchmark, agent: str, name: str = "", traces: int | None = None, tell: Told = print
) -> Submission:
    """Evaluates an agent on the test windows that follow from its digest.

    Args:
        benchmark: The benchmark.
        agent: See :func:`agent_of`.
        name: Name of the agent in tables, by default the text.
        traces: Fewer test windows of each case, to try an agent; None: those of the benchmark.
        tell: Called with a line for each case.

    Raises:
        ConfigError: There is no such agent, it leaves jobs waiting, or it takes more time than the benchmark allows.
    """
    contender, files = agent_of(agent)
    digest, count = agent_digest(agent, contender, files), benchmark.test if traces is None else traces
    cases = {}
    for case in benchmark.cases:
        cases[case.name] = _evaluated(benchmark, case, contender, digest, count)
        tell(_line(benchmark, case, cases[case.name]))
    return Submission(
        FORMAT,
        benchmark.id,
        benchmark.sha256,
        __version__,
        name or agent,
        agent,
        files,
        digest,
        count,
        cases,
        shortfall(count, count),
        str(git_commit() or ""),
    )


def _evaluated(benchmark: Benchmark, case: BenchmarkCase, contender: Contender, digest: str, count: int) -> CaseResult:
    held = benchmark.windows(case, "test", count, digest)
    begin = time.process_time()
    played = [_scores(benchmark, held, agent) for agent in contender.agents]
    seconds = time.process_time() - begin
    if seconds > benchmark.seconds:
        raise ConfigError(
            f"expected at most {benchmark.seconds:g} CPU seconds for the windows of {case.name}, got {seconds:.0f}",
            where=benchmark.id,
        )
    baseline = _scores(benchmark, held, make_agent(case.baseline))[0]
    scores, waits = np.stack([each for each, _ in played]), np.concatenate([each for _, each in played])
    if not ((scores > 0).all() and (baseline > 0).all()):
        raise ConfigError(f"expected scores above 0 in {case.name}, got 0", where=benchmark.id)
    compared, ratios = against(scores, baseline, np.arange(count)), scores / baseline
    return CaseResult(
        workload=_digest([window.digest for window in held]),
        seeds=benchmark.seeds("test", case.name, count, digest),
        baseline=case.baseline,
        score=float(scores.mean()),
        baseline_score=float(baseline.mean()),
        ratio=_numbers(compared.ratio),
        geometric=_numbers(compared.geometric),
        p95_ratio=float(TAIL["95th percentile of ratios"](ratios)),
        worst_ratio=float(TAIL["worst ratio"](ratios)),
        waits={name: metric_of(name, waits, waits) for name in WAITS},
        scores=_digest([scores.tolist(), baseline.tolist(), waits.tolist()]),
    )


def _scores(benchmark: Benchmark, held: Sequence[BenchmarkWindow], agent: Any) -> tuple[Floats, Floats]:
    """(W,) scores of W windows, and the waiting times of the jobs of all."""
    found = [window.score(agent, benchmark.metric) for window in held]
    return np.array([score for score, _ in found]), np.concatenate([waits for _, waits in found])


def _numbers(interval: Interval) -> list[float]:
    # JSON has no NaN; a single window has no interval.
    return [value for value in interval.numbers if not math.isnan(value)]


def _digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _line(benchmark: Benchmark, case: BenchmarkCase, found: CaseResult) -> str:
    return (
        f"{case.name}: {benchmark.metric} {found.score:.4g}, {found.baseline} {found.baseline_score:.4g}, ratio "
        f"{_interval(found.ratio)}; seeds {found.seeds[0]} ... {found.seeds[-1]}"
    )


def write_submission(submission: Submission, path: Path) -> None:
    """Writes a submission as JSON."""
    write_json(path, asdict(submission))


def read_submission(path: Path) -> Submission:
    """Reads a submission.

    Raises:
        ConfigError: The file is no submission of this format.
    """
    where = str(path)
    document = parse_json(read_bytes(path, ConfigError, "submission file")[0], path, ConfigError)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"expected a submission of `hdsim bench` (format {FORMAT})", where=where)
    names = [each.name for each in fields(Submission)]
    if set(document) != set(names):
        wrong = sorted(set(document) ^ set(names))
        raise ConfigError(f"expected the keys {', '.join(names)}; wrong or missing: {', '.join(wrong)}", where=where)
    faults = [fault for key, rule in _RULES.items() if (fault := rule.fault(document[key], f"{where}: {key}"))]
    if faults:
        raise ConfigError.many(faults)
    cases = {}
    try:
        for name, found in document["cases"].items():
            cases[name] = CaseResult(**found)
            require(f"{where}: cases.{name}", _CASE_RULES, found)
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"expected results by case: {error}", where=f"{where}: cases") from None
    return Submission(**{**document, "cases": cases})


def verify(path: Path, tell: Told = print) -> Submission:
    """Evaluates the agent of a submission again, and compares everything in it.

    The agent's files are found as the submission names them, from the working directory.

    Raises:
        ConfigError: Something differs; the error lists what.
    """
    claimed = read_submission(path)
    benchmark, where = read_benchmark(claimed.id), str(path)
    if claimed.hdsim != __version__:
        raise ConfigError(f"expected hdsim {claimed.hdsim}, which made the submission, got {__version__}", where=where)
    if claimed.definition != benchmark.sha256:
        raise ConfigError(
            f"expected the sha256 {benchmark.sha256} of {benchmark.id}, got {claimed.definition}",
            where=f"{where}: definition",
        )
    _, files = agent_of(claimed.agent)
    if files != claimed.files:
        wrong = sorted(name for name in {*files, *claimed.files} if files.get(name) != claimed.files.get(name))
        raise ConfigError(f"expected the files of the submission, others are {', '.join(wrong)}", where=where)
    found = submit(benchmark, claimed.agent, claimed.name, claimed.traces, tell)
    one, other = (_flat({**asdict(each), "commit": ""}) for each in (claimed, found))
    wrong = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    if wrong:
        faults = [
            ConfigError(f"expected {other.get(key)}, got {one.get(key)}", where=f"{where}: {key}") for key in wrong[:5]
        ]
        raise ConfigError.many(faults)
    return claimed


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {place: value}
    return {
        key: found for name, each in value.items() for key, found in _flat(each, f"{place}.{name}"[not place :]).items()
    }


def chosen(benchmark: Benchmark, case: BenchmarkCase, tell: Told = print) -> tuple[str, dict[str, float]]:
    """Returns the plain scheduler that is best on the validation windows of a case, and the mean of each."""
    held = benchmark.windows(case, "validation", benchmark.validation)
    means = {name: float(_scores(benchmark, held, make_agent(name))[0].mean()) for name in benchmark.plain}
    best = min(means, key=means.__getitem__)
    tell(f"{benchmark.id} {case.name}: {best} {means[best]:.4g}")
    return best, means


def baselines(benchmark: Benchmark, traces: int | None = None, tell: Told = print) -> list[Submission]:
    """Evaluates every plain scheduler of a benchmark and the agents that its file names for the table."""
    found = []
    for agent in (*benchmark.plain, *benchmark.agents):
        tell(f"{benchmark.id} {agent}")
        found.append(submit(benchmark, agent, traces=traces, tell=tell))
    return found


#: Columns of the table.
_COLUMNS = (
    *("agent", "case", "score", "baseline", "ratio of means", "geometric mean of ratios", "p95 ratio", "worst ratio"),
    *("mean wait, s", "p95 wait, s", "max wait, s"),
)


def table(submissions: Sequence[Submission]) -> list[str]:
    """Returns lines of Markdown: a table for each benchmark, a row for each agent and case."""
    lines: list[str] = []
    for name in dict.fromkeys(each.id for each in submissions):
        lines += [f"**{name}**", "", f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
        for each in submissions:
            if each.id != name:
                continue
            for case, found in each.cases.items():
                cells = (
                    *(_cell(each.name) + (" (few windows)" if each.remark else ""), _cell(case), f"{found.score:.4g}"),
                    *(f"{_cell(found.baseline)} {found.baseline_score:.4g}", _interval(found.ratio)),
                    *(_interval(found.geometric), f"{found.p95_ratio:.3g}", f"{found.worst_ratio:.3g}"),
                    *(f"{found.waits[name]:,.0f}" for name in WAITS),
                )
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return lines


def _cell(text: str) -> str:
    """A text in a cell of a table of Markdown."""
    return " ".join(text.split()).replace("|", "\\|")


def _interval(values: Sequence[float]) -> str:
    return f"{values[0]:.3f}" + (f" [{values[1]:.3f}, {values[2]:.3f}]" if len(values) == 3 else "")
