from __future__ import annotations

import json
import os

import numpy as np
import pytest
from lxml import etree

from hdsim.platform.load import load_platform

FAULTY = {
    "clusters": [{"id": "a", "nodes": [{"type": "n", "number": 0}, {"type": "m", "number": 1}]}],
    "types": {
        "node": {"n": {"processors": [{"type": "p", "number": 1}]}},
        "processor": {"p": {"cores": 2, "clock_rate": -1, "dpflops_per_cycle": 1, "power": 1}},
    },
}


def test_show_sums_up_a_platform(hdsim):
    done = hdsim("platform", "show", "gaia")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("gaia (")
    assert lines[1] == "1 cluster, 153 nodes, 342 processors, 2,280 cores"
    assert "11.72 GFLOP/s on average" in lines[2]
    watts = 2 * (60 + 2 + 10) * 45 + 16 * 97.5 + 4 * 71.25 + 5 * 2 * 71.25 + 72 * 2 * 71.25 + 8 * 97.5 + 16 * 71.25
    assert f"{watts / 1000:.4g} kW with all cores computing, {watts / 20000:.4g} kW with all idle" in done.stdout
    row = next(line.split() for line in lines if line.startswith("Xeon E7-8880 v2"))
    assert row == ["Xeon", "E7-8880", "v2", "CPU", "8", "120", "15", "20", "6.5", "85", "GB/s"]


def test_show_of_an_unlimited_platform(hdsim):
    assert "memory     unlimited" in hdsim("platform", "show", "homogeneous_256").stdout


@pytest.mark.ci
def test_validate_accepts_what_is_shipped(hdsim, root):
    for path in (root / "platforms").glob("*.json"):
        done = hdsim("platform", "validate", path)
        assert (done.returncode, done.stdout) == (0, f"{path}: valid\n")


def test_validate_lists_all_faults_at_once(hdsim, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(FAULTY))
    done = hdsim("platform", "validate", "x.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "hdsim: error: x.json: types.processor.p.clock_rate: expected a number above 0 (GHz), got -1",
        "x.json: clusters[0].nodes[0].number: expected a whole number of at least 1, got 0",
        "x.json: clusters[0].nodes[1].type: expected one of 'n', got 'm'",
    ]


@pytest.mark.parametrize("command", ["show", "convert"])
def test_other_commands_refuse_a_faulty_file_and_write_nothing(hdsim, tmp_path, command):
    (tmp_path / "x.json").write_text(json.dumps(FAULTY))
    options = ["-o", "x.xml"] if command == "convert" else []
    done = hdsim("platform", command, "x.json", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("command", ["show", "validate", "convert"])
def test_a_file_that_does_not_exist(hdsim, command):
    done = hdsim("platform", command, "gaya")
    assert done.returncode == 2
    assert "'gaya' (did you mean 'gaia'?)" in done.stderr
    assert "Traceback" not in done.stderr


def test_convert_to_simgrid(hdsim, tmp_path):
    to_stdout = hdsim("platform", "convert", "learning")
    assert to_stdout.returncode == 0
    assert len(etree.fromstring(to_stdout.stdout.encode()).findall(".//host")) == 5
    to_file = hdsim("platform", "convert", "learning", "-o", "learning.xml", "--to", "simgrid")
    assert (to_file.returncode, to_file.stdout) == (0, "")
    assert (tmp_path / "learning.xml").read_text() == to_stdout.stdout
    assert len(list(tmp_path.iterdir())) == 1


def test_convert_to_json_makes_one_complete_file(hdsim, tmp_path, shared_data):
    source = shared_data / "hdeeprm" / "platforms" / "mc2.json"
    assert hdsim("platform", "convert", source, "--to", "json", "-o", "mc2.json").returncode == 0
    ours, theirs = load_platform(tmp_path / "mc2.json"), load_platform(source)
    np.testing.assert_array_equal(ours.core_processor, theirs.core_processor)
    np.testing.assert_array_equal(ours.gflops, theirs.gflops)


def test_convert_takes_types_from_a_folder(hdsim, shared_data):
    folder = shared_data / "hdeeprm"
    done = hdsim("platform", "show", folder / "platforms" / "das2.json", "--types", folder / "types")
    assert "144 cores" in done.stdout


def test_convert_does_not_replace_a_device(hdsim):
    done = hdsim("platform", "convert", "learning", "-o", os.devnull)
    assert done.returncode == 0
    with open(os.devnull, "rb") as device:  # noqa: PTH123
        assert device.read() == b""


def test_convert_into_a_folder_that_does_not_exist(hdsim):
    done = hdsim("platform", "convert", "learning", "-o", "none/x.xml")
    assert done.returncode == 2
    assert "none/x.xml" in done.stderr
    assert "Traceback" not in done.stderr


def test_convert_refuses_an_unknown_format(hdsim):
    done = hdsim("platform", "convert", "learning", "--to", "yaml")
    assert done.returncode == 2
    assert "simgrid" in done.stderr
