"""``hdsim tune``: a search for settings."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import click

from hdsim.cli.launch import stoppable
from hdsim.errors import ConfigError, install_hint
from hdsim.util.files import shown
from hdsim.util.text import format_number, format_table

if TYPE_CHECKING:
    from pathlib import Path

    from optuna.trial import FrozenTrial

    from hdsim.runs.tuning.study import TuningStudy


@click.command()
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-cd", "--config-dir", help="A folder laid out like conf/ with options of your own.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Number of processes.")
def tune(overrides: tuple[str, ...], config_dir: str | None, jobs: int) -> None:
    """Searches for the settings of an agent, or any others, with the best metric.

    \b
    hdsim tune agent=classic 'tune.space.agent.job_policy=fcfs,sjf,saf' tune.trials=10 seed=1,2,3 workload=lublin
    hdsim tune agent=ppo tune=ppo train.steps=20000 tune.trials=50 --jobs 2
    hdsim tune agent.path=mine.py 'tune.space.agent.guard=log(60,86400)' hydra.run.dir=runs/guard

    A trial trains an agent that learns and has no checkpoint, and is judged by its best validation score; with any
    other agent it is a replay, or the mean of several: overrides with several values make replications. The same
    command with the same hydra.run.dir continues the search. All keys are in docs/training.md.
    """  # noqa: D301 - click reads the backspace character
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError(f"expected the package optuna{install_hint('optuna')}")
    from hdsim.results.run_directory.lock import Lock
    from hdsim.runs.table import write_table
    from hdsim.runs.tuning import results
    from hdsim.runs.tuning.setup import Search
    from hdsim.runs.tuning.study import TuningStudy, storage_errors

    search = Search.of(overrides, config_dir)
    directory = search.directory
    lock = Lock.of(directory)
    with storage_errors(directory):
        study = TuningStudy(search)
    total = search.trials
    click.echo(f"{total} trials of {', '.join(search.space.distributions)} in {shown(directory)}")
    if study.trials:
        click.echo(f"{len(study.trials)} trials finished before")

    def ended(trial: FrozenTrial) -> None:
        results.write_trials(study)
        click.echo(_line(study, trial, total))

    again = f"; the same command with hydra.run.dir={shown(directory)} goes on where it stopped"
    with storage_errors(directory), stoppable(again):
        study.search(jobs, ended)
    if study.best is None:
        raise ConfigError(
            f"expected a trial that ends with a metric, all {len(study.trials)} have failed; see tune.csv",
            where=str(directory),
        )
    results.write_best(study, search.composer)
    results.write_course(study)
    _report(study, write_table(directory))
    lock.release()


def _line(study: TuningStudy, trial: FrozenTrial, total: int) -> str:
    values = " ".join(f"{key}={_short(value)}" for key, value in trial.params.items())
    told = trial.user_attrs.get("error") or trial.state.name.lower()
    if trial.value is not None and trial.state.name == "COMPLETE":
        told = f"{study.goal.metric} {format_number(trial.value)}"
    return f"[{len(study.trials)}/{total}] trial {trial.number}: {told}  {values}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _report(study: TuningStudy, runs: Path) -> None:
    """Prints the importance of the settings and where the best trial and the table of the runs are."""
    from hdsim.runs.tuning import results

    assert study.best is not None
    best, directory = study.best, shown(study.directory)
    verb = "train" if study.goal.trains else "run"
    importance = results.importances(study)
    rows = [["setting", "best", *(["importance"] if importance else [])]]
    for key, value in best.params.items():
        rows.append([key, _short(value), *([f"{importance[key]:.1%}"] if importance else [])])
    value = format_number(best.value or 0.0)
    click.echo(f"\ntrial {best.number} is the best of {len(study.trials)}: {study.goal.metric} {value}\n")
    click.echo(format_table(rows))
    click.echo(f"\ntrials         {directory}/tune.csv, {directory}/history.png")
    click.echo(f"runs           {shown(runs)}")
    click.echo(f"best           hdsim {verb} --config-dir {directory} experiment=best")
