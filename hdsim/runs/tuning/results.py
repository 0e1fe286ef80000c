"""Results of a search: the table of its trials, the best one as an experiment, its course as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from omegaconf import DictConfig, OmegaConf
from optuna.trial import TrialState

from hdsim.config.composer import Composer
from hdsim.config.paths import with_absolute_paths
from hdsim.results.metrics import Direction, direction, unit
from hdsim.runs.tuning.study import TuningStudy
from hdsim.util.files import replacing, shown, write_csv

EXPERIMENT = Path("experiment/best.yaml")
#: Complete trials that importances need.
_FEWEST = 4
#: Width of a trial in the figure.
_DASH = 0.8


def write_trials(study: TuningStudy) -> None:
    """Writes tune.csv: a row for each trial that has ended."""
    keys = list(study.space.distributions)
    rows = [
        [
            trial.number,
            trial.state.name.lower(),
            "" if trial.value is None else repr(trial.value),
            *(trial.params[key] for key in keys),
            trial.user_attrs.get("error", ""),
        ]
        for trial in study.trials
    ]
    write_csv(study.directory / "tune.csv", ["trial", "state", study.goal.metric, *keys, "error"], rows)


def write_best(study: TuningStudy, composer: Composer) -> None:
    """Writes the best trial as an experiment: options of groups, and the values that differ from theirs."""
    assert study.best is not None
    runs, directory = study.runs(study.best), study.directory
    verb = "train" if study.goal.trains else "run"
    first = runs[0]
    varied = {key: list(dict.fromkeys(run.varied[key] for run in runs)) for key in first.varied}
    usual = composer.compose_run([]).hydra.hydra.runtime.choices
    chosen = {
        str(group): choice
        for group, choice in first.composed.hydra.runtime.choices.items()
        if not str(group).startswith("hydra/") and group != "experiment" and choice != usual.get(group)
    }
    options = composer.options([f"{group}={'null' if name is None else name}" for group, name in chosen.items()])
    values = OmegaConf.create(_differing(with_absolute_paths(first.config), options))
    for key in varied:
        _remove(values, key)
    content: dict[str, Any] = {
        "defaults": [
            *({f"override /{group}": name} for group, name in chosen.items() if group not in varied),
            "_self_",
        ],
        **cast(dict[str, Any], OmegaConf.to_container(values)),
    }
    if varied:
        params = {key: ",".join(texts) for key, texts in varied.items()}
        content["hydra"] = {"mode": "MULTIRUN", "sweeper": {"params": params}}
    path = directory / EXPERIMENT
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        file.write(f"# @package _global_\n# hdsim {verb} --config-dir {shown(directory)} experiment=best\n")
        file.write(f"# Trial {study.best.number} of hdsim tune: {study.goal.metric} {study.best.value!r}.\n")
        file.write(OmegaConf.to_yaml(OmegaConf.create(content)))


def write_course(study: TuningStudy) -> None:
    """Writes history.png: the values of the trials, and the best so far."""
    from hdsim.report.charts import Axis, Line, Lines
    from hdsim.report.colors import BLUE, ORANGE
    from hdsim.report.figures import write_chart

    complete = [trial for trial in study.trials if trial.state is TrialState.COMPLETE]
    numbers = np.array([trial.number for trial in complete], dtype=float)
    values = np.array([trial.value for trial in complete], dtype=float)
    metric = study.goal.metric
    best = (np.maximum if direction(metric) is Direction.HIGHER else np.minimum).accumulate(values)
    # Step curves: a value holds for most of the way to the next trial.
    dashes = np.stack([numbers, numbers + _DASH], axis=1).ravel()
    held = np.stack([values, np.full_like(values, np.nan)], axis=1).ravel()
    label = f"{metric} ({unit(metric)})" if unit(metric) else metric
    lines = (
        Line("best so far", np.append(numbers, numbers[-1] + _DASH), np.append(best, best[-1]), BLUE),
        Line("trial", dashes, held, ORANGE),
    )
    write_chart(
        "Trials",
        Lines(Axis("Trial", "count"), Axis(label, high=1.05 * values.max()), lines),
        study.directory / "history.png",
    )


def importances(study: TuningStudy) -> Mapping[str, float]:
    """Share of each setting in the variation among the better trials (PED-ANOVA); empty for few trials."""
    # Loads scikit-learn where it is installed.
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    complete = [trial for trial in study.trials if trial.state is TrialState.COMPLETE]
    if len(complete) < _FEWEST or len({trial.value for trial in complete}) == 1:
        return {}
    return get_param_importances(study.study, evaluator=PedAnovaImportanceEvaluator())


def _differing(config: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration that differ from another one's."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        other = base.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            if inner := _differing(value, other):
                found[key] = inner
        elif key not in base or value != other:
            found[key] = value
    return found


def _remove(values: DictConfig, key: str) -> None:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(values, parent) if parent else values
    if isinstance(node, DictConfig):
        node.pop(name, None)
