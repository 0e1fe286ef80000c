"""Files that are written whole, row by row, or not at all."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hdsim.learning.training.records import Records
from hdsim.learning.training.run import _write_evaluation
from hdsim.util.files import csv_fields, csv_text, replacing


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def step(records: Records, **losses: float) -> None:
    records.step(np.array([0, 1]), np.array([1.0, 2.0]), losses)


def test_a_row_of_a_training_costs_one_line(tmp_path: Path) -> None:
    records = Records(tmp_path, ["a", 'b,"c"'], tensorboard=False)
    path = tmp_path / "progress.csv"
    step(records)
    records.row(0)
    step(records, loss=0.5)
    records.row(2)
    file = path.stat().st_ino
    for number in range(2, 200):
        step(records, loss=0.5)
        records.row(2 * number)
    assert path.stat().st_ino == file, "the file is written anew for a row"
    records.add(398, validation=3.0)
    assert path.stat().st_ino != file, "a new column stands in the header"
    file = path.stat().st_ino
    step(records, loss=0.25)
    records.row(400)
    records.add(400, validation=4.0)
    assert path.stat().st_ino == file
    rows = read(path)
    assert [row["step"] for row in rows] == [str(2 * number) for number in range(201)]
    assert (rows[0]["loss"], rows[1]["loss"], rows[-1]["loss"]) == ("", "0.5", "0.25")
    assert [row["validation"] for row in rows[-3:]] == ["", "3", "4"]
    assert read(tmp_path / "actions.csv")[-1] == {"step": "400", "a": "0.5", 'b,"c"': "0.5"}


def test_a_resumed_training_leaves_no_row_twice(tmp_path: Path) -> None:
    records = Records(tmp_path, ["a", "b"], tensorboard=False)
    for number in range(3):
        step(records)
        records.row(number)
        if number == 1:
            state = {**records.state_dict(), "rows": list(records.rows), "shares": list(records._shares)}
    resumed = Records(tmp_path, ["a", "b"], tensorboard=False)
    resumed.load_state_dict(state)
    step(resumed)
    resumed.row(7)
    assert [row["step"] for row in read(tmp_path / "progress.csv")] == ["0", "1", "7"]
    assert [row["step"] for row in read(tmp_path / "actions.csv")] == ["0", "1", "7"]


def test_a_metric_that_some_episodes_and_windows_do_not_define_counts_in_those_that_do(tmp_path: Path) -> None:
    records = Records(tmp_path, ["a", "b"], tensorboard=False)
    step(records)
    for metrics in ({"missed": 2.0, "wait": 1.0}, {"wait": 3.0}, {"missed": math.nan, "wait": 5.0}):
        records.episode(-1.0, 4, metrics)
    row = records.row(0)
    assert (row["episode_missed"], row["episode_wait"], row["episode_return"]) == (2.0, 3.0, -1.0)
    windows = [
        SimpleNamespace(metrics={"missed": 2.0, "wait": 1.0}),
        SimpleNamespace(metrics={"wait": 3.0, "new": 4.0}),
    ]
    _write_evaluation(tmp_path / "evaluation.csv", {"fcfs": windows})
    assert read(tmp_path / "evaluation.csv") == [
        {"agent": "fcfs", "window": "0", "missed": "2", "wait": "1", "new": "nan"},
        {"agent": "fcfs", "window": "1", "missed": "nan", "wait": "3", "new": "4"},
    ]


def test_a_write_that_fails_keeps_the_old_file_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left") as caught, replacing(path), Path("/dev/full").open("w") as full:
        full.write("x" * 100_000)
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize("text", ["plain", "a,b", 'a"b', "a\nb", "", " "])
def test_formats_and_the_csv_module_quote_alike(text: str) -> None:
    assert ",".join(csv_fields(["x", text])) + "\n" == csv_text([["x", text]])
