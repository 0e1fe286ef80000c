"""Families of traces: parameters, splits, and the use in configurations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammainc
from tiers import examples

import hdsim
from hdsim.errors import ConfigError, WorkloadError
from hdsim.results.run_directory.inputs import digest
from hdsim.workload.generators import lublin
from hdsim.workload.generators.base import SPLITS
from hdsim.workload.generators.families import DEFAULTS, FAMILIES, draw_workload


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trace_of_a_family_is_within_its_parameters(family: str) -> None:
    drawn = [draw_workload(family, seed, 1500) for seed in range(3)]
    parameters = {**DEFAULTS, **FAMILIES[family]}
    for trace in drawn:
        sizes = parameters["cores"] if isinstance(parameters["cores"], list) else [parameters["cores"]]
        assert trace.cluster_cores in sizes
        assert trace.requested_cores.max() <= trace.cluster_cores
        assert (trace.requested_time >= trace.runtime).all()
        if parameters["load"]:
            assert parameters["load"][0] * 0.999 <= trace.offered_load <= parameters["load"][1] * 1.001
    assert len({digest(trace) for trace in drawn}) == 3
    assert digest(draw_workload(family, 1, 1500)) == digest(drawn[1])


@given(load=st.floats(0.05, 3.0), seed=st.integers(0, 1000))
@examples(20)
def test_the_offered_load_is_the_one_asked_for(load: float, seed: int) -> None:
    trace = lublin.generate(500, seed, 128, load=load)
    # Submissions are whole seconds.
    assert trace.offered_load == pytest.approx(load, abs=load / float(trace.submission_time[-1]) * 2)


def test_factors_change_only_their_own_quantity() -> None:
    plain = lublin.generate(20_000, 3, 256, typed=False)
    long = lublin.generate(20_000, 3, 256, typed=False, runtime_factor=3.0)
    assert np.array_equal(long.runtime, plain.runtime * 3)
    assert np.array_equal(long.requested_cores, plain.requested_cores)
    assert np.array_equal(long.submission_time, plain.submission_time)
    wide = lublin.generate(20_000, 3, 1024, typed=False, width_factor=0.25)
    fitted = lublin.generate(20_000, 3, 256, typed=False)
    # Sizes for another machine are sizes times a factor, but for the limit of the machine.
    small = fitted.requested_cores < 200
    assert np.array_equal(wide.requested_cores[small], fitted.requested_cores[small])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_share_of_serial_jobs(share: float) -> None:
    sizes = lublin.generate(40_000, 5, 256, typed=False, serial=share).requested_cores
    # A parallel job may be rounded to one core: log2 of its size is uniform from 0.8.
    rounded = lublin.ALL.fitted(256)
    least = (1 - share) * rounded.below_medium * (np.log2(1.5) - rounded.low) / (rounded.medium - rounded.low)
    assert (sizes == 1).mean() == pytest.approx(share + max(least, 0.0), abs=0.01)


def test_burstiness_is_the_spread_of_log_gaps() -> None:
    rng = np.random.default_rng(1)
    for factor in (0.5, 1.0, 1.3):
        job_class = lublin.ALL.spread(factor)
        log_gaps = np.log(lublin.gap_points(job_class, 200_000, rng) * lublin.BUCKET_SECONDS)
        a, b = lublin.ALL.gap
        shape, scale = a * lublin.ALL.gap_factor / factor**2, b * factor**2
        # Moments of a gamma distribution below its limit e^13 s, by the incomplete gamma function.
        below = [gammainc(shape + n, lublin.LONGEST_GAP / scale) for n in range(3)]
        mean = shape * scale * below[1] / below[0]
        square = shape * (shape + 1) * scale**2 * below[2] / below[0]
        assert log_gaps.mean() == pytest.approx(mean, rel=0.01)
        assert log_gaps.std() == pytest.approx(np.sqrt(square - mean**2), rel=0.01)


def test_splits_have_no_common_trace() -> None:
    drawn = {digest(draw_workload("home", seed, 30, split=split)) for split in SPLITS for seed in range(20)}
    assert len(drawn) == 60


def test_a_change_of_one_parameter_changes_no_other() -> None:
    notes = [draw_workload("random", 4, 300, **change).header["Note"] for change in ({}, {"load": 0.5})]
    told = [dict(part.rsplit(" ", 1) for part in note.split(": ", 1)[1].split(", ")) for note in notes]
    assert told[1].pop("load") == "0.5"
    assert told[0].pop("load") != "0.5"
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("wild", {}, "workload.family: expected one of home, .* got 'wild' .did you mean 'wide'"),
        ({"lode": 0.5}, {}, "workload.family.lode: expected one of cores, .*did you mean 'load'"),
        ("home", {"load": [0.9, 0.5]}, r"workload.family.load: expected a number > 0, or \[low, high\] of such"),
        ("home", {"cores": []}, "workload.family.cores: expected a whole number >= 1, or a list of such values"),
        ("home", {"split": "tset"}, "workload.generate.split: expected one of train, validation, test, got 'tset'"),
    ],
)
def test_wrong_parameters(family: str | dict[str, float], changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draw_workload(family, 0, 100, **changes)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"load": 0.0}, "load: expected a number > 0"),
        ({"serial": 1.5}, "serial: expected a share from 0 to 1"),
        ({"load": 0.5, "arrival_factor": 2.0}, "arrival_factor: expected 1 with a load"),
    ],
)
def test_wrong_settings_of_the_model(setting: dict[str, float], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        lublin.generate(10, **setting)


def test_a_family_is_a_generator() -> None:
    platform = hdsim.Platform.homogeneous(nodes=32, cores_per_node=4, gflops_per_core=10.0)
    spec = {"model": "family", "family": "wide", "jobs": 200, "load": 0.6}
    loaded = hdsim.load_workload(spec, platform=platform, seed=5, memory_bandwidth="none")
    drawn = hdsim.draw_workload("wide", 5, 200, load=0.6, cores=128)
    assert digest(loaded) == digest(drawn)
    assert loaded.cluster_cores == 128
    home = hdsim.load_workload("family", seed=5, memory_bandwidth="none")
    assert digest(home) == digest(hdsim.draw_workload("home", 5, 10_000))


def test_traces_with_too_few_long_estimates_are_drawn_anew() -> None:
    # The first draw of this trace needs 4,956 estimates of 11,342 s and has 4,955.
    trace = draw_workload("random", 19, 10_000)
    assert (trace.requested_time >= trace.runtime).all()
