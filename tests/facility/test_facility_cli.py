"""The group ``facility`` on the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PRICES = "time,price\n2026-03-02T00:00,100\n2026-03-02T06:00,-20\n2026-06-02T00:00,90\n"


def test_files_settings_and_faults(tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    (tmp_path / "my prices.csv").write_text(PRICES)
    run = ["run", "platform=teaching", "workload=even_1000", "workload.jobs=50", "agent=easy", "hydra.run.dir=out"]
    dated = ["facility.begin=2026-03-02T00:00", "facility.timezone=Europe/Berlin"]
    done = hdsim(*run, *dated, "facility.price={path: my prices.csv, unit: EUR/MWh}", "facility.carbon=100")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert metrics["carbon_grams"] == pytest.approx(100 * metrics["facility_energy_kwh"])
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert "facility.price" in [one["kind"] for one in manifest["inputs"]]
    assert {"costs_by_hour.csv", "costs_by_job.csv", "costs_by_owner.csv"} <= set(manifest["results"])
    quoted = hdsim(*run, *dated, "facility.price=my prices.csv")
    assert quoted.returncode == 0, quoted.stderr
    assert quoted.stderr.count("the mean price is 70 EUR/kWh") == 1
    plain = hdsim(*run)
    assert plain.returncode == 0 and not list((tmp_path / "out").glob("costs_*"))
    assert "facility" not in json.loads((tmp_path / "out/manifest.json").read_text())["config"]
    for given, told in (
        (["facility.price=my prices.csv"], "facility.begin: expected the date of the first submission"),
        ([dated[0], "facility.price=0.1"], "facility.begin: expected facility.timezone"),
        (["facility.prise=1"], "did you mean 'price'"),
        ([*dated, "facility.carbon=-1"], "facility.carbon: expected a number >= 0 gCO2/kWh, got -1"),
    ):
        wrong = hdsim(*run, *given)
        assert wrong.returncode == 2 and told in wrong.stderr, wrong.stderr
        assert "Traceback" not in wrong.stderr
