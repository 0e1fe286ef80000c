from __future__ import annotations

import copy
import dataclasses
import gzip
import hashlib
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.errors import PlatformError
from hdsim.platform.load import load_platform, validate_platform
from hdsim.platform.model import Platform
from hdsim.platform.schema import MAX_CORES

SIZES = {  # cores, processors, nodes, clusters, processor types
    "learning": (4, 2, 1, 1, 2),
    "das2": (144, 72, 72, 1, 1),
    "gaia": (2280, 342, 153, 1, 7),
    "pik": (2560, 640, 320, 1, 1),
    "ricc": (8192, 2048, 1024, 1, 1),
    "mc2": (10002, 1548, 641, 32, 31),
    "homogeneous_256": (256, 64, 64, 1, 1),
    "teaching": (16, 4, 2, 1, 2),
    "eight_nodes": (64, 8, 8, 1, 1),
    "twelve_nodes": (96, 12, 12, 1, 3),
    "sixteen_nodes": (256, 32, 16, 1, 1),
    "accelerated": (312, 42, 9, 1, 2),
    "ten_nodes": (640, 10, 10, 1, 1),
    "one_node": (128, 2, 1, 1, 1),
}
HDEEPRM = ("learning", "das2", "gaia", "pik", "ricc", "mc2")

SMALL = {
    "clusters": [
        {
            "id": "main",
            "nodes": [{"type": "thin", "number": 2}, {"type": "fat", "number": 1}],
            "local_links": {"type": "10G", "latency": "5us"},
        },
        {"id": "old", "nodes": [{"type": "thin", "number": 1}]},
    ],
    "global_links": {"type": "10G", "latency": "50us"},
    "types": {
        "network": {"10G": {"bandwidth": "10Gbps"}},
        "node": {
            "thin": {"processors": [{"type": "slow", "number": 1}], "memory": {"type": "DDR", "capacity": 16}},
            "fat": {"processors": [{"type": "slow", "number": 1}, {"type": "fast", "number": 2}]},
        },
        "processor": {
            "slow": {"cores": 2, "clock_rate": 2.0, "dpflops_per_cycle": 4, "mem_bw": 24, "power": 30},
            "fast": {"cores": 3, "clock_rate": 2.5, "dpflops_per_cycle": 8, "power": 90, "type": "GPU", "c": [0.5]},
        },
        "memory": {"DDR": {"latency": "100ns"}},
    },
}


def arrays(platform):
    found = {f.name: getattr(platform, f.name) for f in dataclasses.fields(platform)}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def assert_same_arrays(one, other):
    for name, array in arrays(one).items():
        np.testing.assert_array_equal(array, getattr(other, name), err_msg=name)
        assert array.dtype == getattr(other, name).dtype


def changed(path, value):
    """SMALL with the value at a path replaced, or removed where `value` is Ellipsis."""
    document = copy.deepcopy(SMALL)
    *parents, last = path
    holder = document
    for key in parents:
        holder = holder[key]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return document


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_cores_are_numbered_by_cluster_node_processor():
    platform = Platform.from_dict(SMALL)
    assert (platform.n_clusters, platform.n_nodes, platform.n_processors, platform.n_cores) == (2, 4, 6, 14)
    assert platform.core_processor.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5]
    assert platform.processor_first_core.tolist() == [0, 2, 4, 6, 9, 12, 14]
    assert platform.cores_per_processor.tolist() == [2, 2, 2, 3, 3, 2]
    assert platform.processor_node.tolist() == [0, 1, 2, 2, 2, 3]
    assert platform.node_first_processor.tolist() == [0, 1, 2, 5, 6]
    assert platform.node_first_core.tolist() == [0, 2, 4, 12, 14]
    assert platform.node_cluster.tolist() == [0, 0, 0, 1]
    assert platform.cluster_first_node.tolist() == [0, 3, 4]
    assert platform.processor_type.tolist() == [0, 0, 0, 1, 1, 0]
    assert platform.node_type.tolist() == [0, 0, 1, 0]
    assert platform.processor_type_names == ("slow", "fast")
    assert platform.node_type_names == ("thin", "fat")


def test_quantities_have_the_units_of_the_documentation():
    platform = Platform.from_dict(SMALL)
    assert platform.gflops.tolist() == [8, 8, 8, 20, 20, 8]
    assert platform.power.tolist() == [15, 15, 15, 30, 30, 15]
    assert platform.mem_bw.tolist() == [24, 24, 24, math.inf, math.inf, 24]
    assert platform.memory.tolist() == [16_000, 16_000, math.inf, 16_000]
    assert platform.local_bandwidth.tolist() == [1.25e9, math.inf]
    assert platform.local_latency.tolist() == [5e-6, 0]
    assert platform.global_bandwidth.tolist() == [1.25e9, 1.25e9]
    assert platform.global_latency.tolist() == [5e-5, 5e-5]
    assert platform.reference_gflops == 8  # the GPUs do not count
    assert platform.core_gflops().tolist() == [8] * 6 + [20] * 6 + [8] * 2
    assert platform.homogeneous_speed


def test_extra_keys_of_a_processor_type_are_kept():
    platform = Platform.from_dict(SMALL)
    assert platform.processor_kind == ("CPU", "GPU")
    assert platform.processor_type_specs[1]["c"] == [0.5]


def test_homogeneous():
    platform = Platform.homogeneous(
        3, 4, 0.1, processors_per_node=2, memory_gb_per_node=8, mem_bw=20, power_per_core=5, bandwidth="1GBps"
    )
    assert (platform.n_clusters, platform.n_nodes, platform.n_processors, platform.n_cores) == (1, 3, 6, 12)
    assert platform.reference_gflops == 0.1
    assert platform.homogeneous_speed
    assert set(platform.power) == {5.0}
    assert set(platform.memory) == {8000.0}
    assert set(platform.mem_bw) == {20.0}
    assert platform.local_bandwidth.tolist() == [1e9]


def test_homogeneous_is_unlimited_unless_said_otherwise():
    platform = Platform.homogeneous(nodes=25_000, cores_per_node=4)
    assert platform.n_cores == 100_000
    for limit in (platform.memory, platform.mem_bw, platform.local_bandwidth, platform.global_bandwidth):
        assert np.isinf(limit).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0}, "number: expected a whole number of at least 1, got 0"),
        ({"nodes": 2.0}, "number: expected a whole number of at least 1, got 2.0"),
        ({"cores_per_node": 0}, "<homogeneous>: cores_per_node: expected a whole number of at least 1, got 0"),
        ({"cores_per_node": True}, "cores_per_node: expected a whole number of at least 1, got True"),
        ({"processors_per_node": 3}, "cores_per_node: expected a multiple of processors_per_node (3), got 4"),
        ({"gflops_per_core": -1.0}, "clock_rate: expected a number above 0 (GHz), got -1.0"),
        ({"gflops_per_core": math.nan}, "clock_rate: expected a finite number, got NaN"),
        ({"power_per_core": "much"}, 'power: expected a number of at least 0 (W), got "much"'),
        ({"memory_gb_per_node": 0}, "capacity: expected a number above 0 (GB), got 0"),
        ({"mem_bw": -5}, "mem_bw: expected a number above 0 (GB/s), got -5"),
        ({"bandwidth": "fast"}, "bandwidth: expected a bandwidth such as '10Gbps', got 'fast'"),
    ],
)
def test_homogeneous_refuses_what_is_out_of_range(arguments, message):
    with pytest.raises(PlatformError) as caught:
        Platform.homogeneous(**{"nodes": 2, "cores_per_node": 4, **arguments})
    assert message in str(caught.value)


def test_arrays_are_read_only_even_after_pickling():
    platform = Platform.from_dict(SMALL)
    for copied in (platform, pickle.loads(pickle.dumps(platform)), copy.deepcopy(platform)):
        for array in [*arrays(copied).values(), copied.cores_per_processor]:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            copied.name = "other"


# Files


@pytest.mark.parametrize("name", SIZES)
def test_shipped_platforms_have_the_documented_size(root, name):
    path = root / "platforms" / f"{name}.json"
    assert validate_platform(path) == []
    platform = load_platform(path)
    sizes = (platform.n_cores, platform.n_processors, platform.n_nodes, platform.n_clusters)
    assert (*sizes, len(platform.processor_type_names)) == SIZES[name]
    assert platform.name == name
    assert platform.source == str(path)
    assert platform.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    row = f"| `{name}.json` | " + " | ".join(f"{size:,}" for size in sizes)
    assert row in (root / "platforms" / "README.md").read_text()


def test_every_shipped_platform_is_tested(root):
    assert {path.stem for path in (root / "platforms").glob("*.json")} == set(SIZES)


@pytest.mark.parametrize("name", HDEEPRM)
def test_shipped_platforms_equal_those_of_hdeeprm(root, shared_data, name):
    theirs = load_platform(shared_data / "hdeeprm" / "platforms" / f"{name}.json")
    assert_same_arrays(theirs, load_platform(root / "platforms" / f"{name}.json"))
    assert theirs.processor_kind == ("CPU",) * SIZES[name][4]
    assert len(theirs.type_files) == 4


def test_homogeneous_256_equals_the_one_made_in_python(root):
    file = load_platform(root / "platforms" / "homogeneous_256.json")
    assert_same_arrays(file, Platform.homogeneous(nodes=64, cores_per_node=4, gflops_per_core=10.0))


def write_libraries(folder, skip=()):
    for section, content in SMALL["types"].items():
        if section not in skip:
            write(folder / f"{section}_types.json", {"_doc": {"0": "a comment"}, **content})


@pytest.mark.parametrize("folder", [".", "types", "../types"])
def test_types_are_found_around_the_file(tmp_path, folder):
    write_libraries(tmp_path / "platforms" / folder)
    path = write(tmp_path / "platforms" / "x.json", changed(["types"], ...))
    assert_same_arrays(load_platform(path), Platform.from_dict(SMALL))
    assert len(load_platform(path).type_files) == 4


def test_a_folder_of_types_wins_over_inline_types(tmp_path):
    write_libraries(tmp_path / "lib")
    path = write(tmp_path / "x.json", changed(["types", "processor", "slow", "cores"], 64))
    assert load_platform(path, types=tmp_path / "lib").n_cores == 14
    assert load_platform(path).n_cores > 14


def test_a_platform_without_links_and_memory_types_needs_no_libraries_of_them(tmp_path):
    document = changed(["types"], ...)
    del document["global_links"], document["clusters"][0]["local_links"]
    write_libraries(tmp_path, skip=("network", "node", "memory"))
    thin = {"processors": [{"type": "slow", "number": 1}]}
    write(tmp_path / "node_types.json", {"thin": thin, "fat": thin})
    assert load_platform(write(tmp_path / "x.json", document)).n_cores == 8


def test_a_missing_type_file_says_where_it_was_sought(tmp_path):
    path = write(tmp_path / "x.json", changed(["types"], ...))
    message = str(PlatformError.many(validate_platform(path)))
    for section in ("node", "processor"):
        assert f"expected types inline (key 'types') or a file {section}_types.json in {tmp_path}" in message
    assert "clusters[0].local_links.type: expected one of nothing, as no type is defined, got '10G'" in message


def test_faults_of_a_library_name_the_library(tmp_path):
    write_libraries(tmp_path)
    library = write(
        tmp_path / "processor_types.json", {"slow": {"cores": 0}, "fast": SMALL["types"]["processor"]["fast"]}
    )
    path = write(tmp_path / "x.json", changed(["types"], ...))
    faults = [str(fault) for fault in validate_platform(path)]
    assert f"{library}: slow.cores: expected a whole number of at least 1, got 0" in faults
    assert f"{library}: slow.power: expected a value, got none" in faults


def test_gzipped_files_are_read(tmp_path):
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(json.dumps(SMALL).encode()))
    platform = load_platform(tmp_path / "x.json.gz")
    assert platform.name == "x"
    assert_same_arrays(platform, Platform.from_dict(SMALL))


def test_comments_are_allowed_everywhere():
    document = copy.deepcopy(SMALL)
    types = document["types"]
    for holder in (
        document,
        document["clusters"][0],
        types,
        types["node"],
        types["node"]["thin"],
        types["memory"]["DDR"],
    ):
        holder["_note"] = ["anything"]
    platform = Platform.from_dict(document)
    assert_same_arrays(platform, Platform.from_dict(SMALL))
    assert "_note" not in json.dumps(platform.to_dict())


# Faults


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (["clusters"], ..., "clusters: expected a value, got none"),
        (["clusters"], [], "clusters: expected a list [...] of at least one element, got []"),
        (["clusters"], {}, "clusters: expected a list [...] of at least one element, got {}"),
        (["clusters", 0], 3, "clusters[0]: expected an object {...}, got 3"),
        (["clusters", 0, "id"], 3, "clusters[0].id: expected a text, got 3"),
        (["clusters", 1, "id"], "main", "clusters[1].id: expected a name of its own, got 'main' a second time"),
        (["clusters", 0, "nodes"], [], "clusters[0].nodes: expected a list [...] of at least one element"),
        (["clusters", 0, "nodez"], [], "clusters[0].nodez: unknown key (did you mean 'nodes'?); allowed: id, nodes"),
        (["clusters", 0, "nodes", 1, "number"], 0, "nodes[1].number: expected a whole number of at least 1, got 0"),
        (["clusters", 0, "nodes", 1, "number"], -2, "nodes[1].number: expected a whole number of at least 1, got -2"),
        (["clusters", 0, "nodes", 1, "number"], 1.5, "nodes[1].number: expected a whole number of at least 1, got 1.5"),
        (["clusters", 0, "nodes", 1, "number"], True, "number: expected a whole number of at least 1, got true"),
        (["clusters", 0, "nodes", 1, "number"], MAX_CORES, f"clusters: expected at most {MAX_CORES} cores, got"),
        (
            ["clusters", 0, "nodes", 1, "type"],
            "fet",
            "nodes[1].type: expected one of 'thin', 'fat', got 'fet' (did you",
        ),
        (["clusters", 0, "local_links"], "10G", 'clusters[0].local_links: expected an object {...}, got "10G"'),
        (
            ["clusters", 0, "local_links", "latency"],
            "5",
            "latency: expected a latency such as '100us', got '5' without",
        ),
        (["clusters", 0, "local_links", "latency"], 5, "latency: expected a latency such as '100us', got 5"),
        (["global_links", "type"], "1G", "global_links.type: expected one of '10G', got '1G'"),
        (["global_link"], {}, "global_link: unknown key (did you mean 'global_links'?)"),
        (["types"], None, "types: expected an object {...} of types, got none"),
        (["types", "gpu"], {}, "types.gpu: unknown key"),
        (
            ["types", "node"],
            None,
            "clusters[0].nodes[0].type: expected one of nothing, as no type is defined, got 'thin'",
        ),
        (["types", "memory"], None, "types.node.thin.memory.type: expected one of nothing, as no type is defined"),
        (["types", "node"], [], "types.node: expected an object {...} of types, got []"),
        (["types", "network", "10G", "bandwidth"], "10", "types.network.10G.bandwidth: expected a bandwidth such as"),
        (["types", "network", "10G", "bandwidth"], ..., "types.network.10G.bandwidth: expected a value, got none"),
        (["types", "node", "thin", "processors"], [], "types.node.thin.processors: expected a list [...] of at least"),
        (["types", "node", "thin", "processors", 0, "type"], "x", "processors[0].type: expected one of 'slow', 'fast'"),
        (["types", "node", "thin", "memory", "type"], "DDR9", "memory.type: expected one of 'DDR', got 'DDR9'"),
        (["types", "node", "thin", "memory", "capacity"], "16Gb", "capacity: expected an amount of memory such as"),
        (["types", "node", "thin", "memory", "capacity"], "0GB", "capacity: expected more than 0, got '0GB'"),
        (["types", "node", "thin", "memory", "capacity"], False, "capacity: expected a number above 0 (GB), got false"),
        (["types", "processor", "slow", "cores"], "2", "types.processor.slow.cores: expected a whole number of at"),
        (["types", "processor", "slow", "clock_rate"], math.nan, "slow.clock_rate: expected a finite number, got NaN"),
        (
            ["types", "processor", "slow", "clock_rate"],
            -math.inf,
            "clock_rate: expected a finite number, got -Infinity",
        ),
        (["types", "processor", "slow", "clock_rate"], 0, "clock_rate: expected a number above 0 (GHz), got 0"),
        (["types", "processor", "slow", "clock_rate"], 1e308, "slow: expected a speed clock_rate * dpflops_per_cycle"),
        (
            ["types", "processor", "slow", "clock_rate"],
            10**400,
            "expected a finite number, got 1000000000",
        ),
        (["types", "processor", "slow", "power"], -1, "slow.power: expected a number of at least 0 (W), got -1"),
        (["types", "processor", "slow", "power"], ..., "slow.power: expected a value, got none"),
        (["types", "processor", "slow", "mem_bw"], "24", 'slow.mem_bw: expected a number above 0 (GB/s), got "24"'),
        (["types", "processor", "fast", "memory_bw"], 24, "fast.memory_bw: unknown key (did you mean 'mem_bw'?)"),
        (["types", "processor", "fast", "c"], [math.nan], "fast.c[0]: expected a finite number, got NaN"),
        (["types", "processor", "slow core"], {}, "types.processor['slow core'].cores: expected a value, got none"),
        (["types", "memory", "DDR", "latency"], "100", "types.memory.DDR.latency: expected a latency such as '100us'"),
        (["name"], "", 'name: expected a text, got ""'),
    ],
)
def test_a_fault_is_reported_with_its_place(path, value, fault):
    with pytest.raises(PlatformError) as caught:
        Platform.from_dict(changed(path, value), where="x.json")
    assert any(fault in str(error) for error in caught.value.errors)
    assert all(error.where.startswith("x.json") for error in caught.value.errors)


def test_all_faults_are_reported_at_once(tmp_path):
    document = changed(["clusters", 0, "nodes", 0, "number"], 0)
    document["clusters"][1]["nodes"][0]["type"] = "none"
    document["types"]["network"]["10G"]["bandwidth"] = "10G"
    document["types"]["processor"]["slow"]["cores"] = None
    path = write(tmp_path / "x.json", document)
    errors = validate_platform(path)
    assert [error.where.removeprefix(f"{path}: ") for error in errors] == [
        "types.processor.slow.cores",
        "types.network.10G.bandwidth",
        "clusters[0].nodes[0].number",
        "clusters[1].nodes[0].type",
    ]
    with pytest.raises(PlatformError) as caught:
        load_platform(path)
    assert list(map(str, caught.value.errors)) == list(map(str, errors))
    assert str(caught.value).splitlines() == list(map(str, errors))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ":1:1: expected JSON: Expecting value"),
        (b'{"clusters": [\n  {"id": "a",}\n]}', ":2:14: expected JSON: "),
        (b"[1, 2]", ": expected an object {...}, got [1, 2]"),
        (b"null", ": expected an object {...}, got nothing"),
        (b'{"name": "\xff"}', ": expected text in UTF-8, got the byte 0xff at offset 10"),
        (b'{"clusters": 1, "name": "a", "name": "b"}', ": name: expected each key once, got it twice"),
        (b'{"types": {"node": {"a": {"x": 1, "x": 2}}}}', ": types.node.a.x: expected each key once, got it twice"),
        (b"[" * 100_000, ": expected JSON, got lists and objects nested too deeply"),
        (b'{"clusters": ' + b"9" * 5000 + b"}", ": expected JSON: "),
    ],
)
def test_what_is_no_platform_file_is_refused(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert f"{path}{message}" in str(PlatformError.many(validate_platform(path)))


def test_unreadable_files_are_refused(tmp_path):
    assert "expected a readable platform file: No such file" in str(validate_platform(tmp_path / "none.json")[0])
    assert "expected a readable platform file: Is a directory" in str(validate_platform(tmp_path)[0])
    broken = tmp_path / "x.json.gz"
    broken.write_bytes(b"{}")
    assert f"{broken}: expected gzip data" in str(validate_platform(broken)[0])
    broken.write_bytes(gzip.compress(json.dumps(SMALL).encode())[:-20])
    assert f"{broken}: expected a complete gzip file" in str(validate_platform(broken)[0])


# Properties

positive = st.floats(1e-3, 1e6) | st.integers(1, 10**6)


@st.composite
def documents(draw):
    """Small valid documents of any make-up."""

    def some(name, values):
        return draw(st.dictionaries(st.text(min_size=1).map(lambda s: name + s), values, min_size=1, max_size=3))

    bandwidth = st.builds("{!r}{}".format, st.floats(1e-3, 1e3), st.sampled_from(["Gbps", "MBps"]))
    network = some("net", st.fixed_dictionaries({"bandwidth": bandwidth}))
    memory = some("mem", st.fixed_dictionaries({}, optional={"latency": st.just("100ns")}))
    processor = some(
        "cpu",
        st.fixed_dictionaries(
            {"cores": st.integers(1, 4), "clock_rate": positive, "dpflops_per_cycle": positive, "power": positive},
            optional={"mem_bw": st.none() | positive, "type": st.sampled_from(["CPU", "FPGA"]), "b": st.floats(-1, 0)},
        ),
    )
    parts = st.fixed_dictionaries({"type": st.sampled_from(sorted(processor)), "number": st.integers(1, 3)})
    room = st.fixed_dictionaries({}, optional={"type": st.sampled_from(sorted(memory)), "capacity": positive})
    node = some(
        "node",
        st.fixed_dictionaries(
            {"processors": st.lists(parts, min_size=1, max_size=3)}, optional={"memory": st.none() | room}
        ),
    )
    link = st.fixed_dictionaries({"type": st.sampled_from(sorted(network))}, optional={"latency": st.just("7us")})
    groups = st.fixed_dictionaries({"type": st.sampled_from(sorted(node)), "number": st.integers(1, 3)})
    cluster = st.fixed_dictionaries(
        {"nodes": st.lists(groups, min_size=1, max_size=3)}, optional={"local_links": link | st.none()}
    )
    clusters = [{"id": f"c{k}", **one} for k, one in enumerate(draw(st.lists(cluster, min_size=1, max_size=3)))]
    types = {"network": network, "memory": memory, "processor": processor, "node": node}
    return {"clusters": clusters, "global_links": draw(st.none() | link), "types": types}


@given(documents())
def test_a_platform_survives_a_round_trip(document):
    platform = Platform.from_dict(document)
    text = json.dumps(platform.to_dict())
    again = Platform.from_dict(json.loads(text))
    assert_same_arrays(platform, again)
    assert again.to_dict() == platform.to_dict()
    for name in ("cluster_names", "node_type_names", "processor_type_names", "processor_kind", "processor_type_specs"):
        assert getattr(platform, name) == getattr(again, name)
    assert set(platform.to_dict()["types"]["processor"]) == set(platform.processor_type_names)


@given(documents())
def test_the_arrays_are_those_of_a_walk_through_the_document(document):
    platform = Platform.from_dict(document)
    core = processor = node = 0
    for k, cluster in enumerate(document["clusters"]):
        assert platform.cluster_first_node[k] == node
        for group in cluster["nodes"]:
            for _ in range(group["number"]):
                spec = document["types"]["node"][group["type"]]
                assert platform.node_cluster[node] == k
                assert platform.node_type_names[platform.node_type[node]] == group["type"]
                assert platform.node_first_processor[node] == processor
                assert platform.node_first_core[node] == core
                capacity = (spec.get("memory") or {}).get("capacity", math.inf)
                assert platform.memory[node] == capacity * 1000
                for part in spec["processors"]:
                    kind = document["types"]["processor"][part["type"]]
                    for _ in range(part["number"]):
                        assert platform.processor_node[processor] == node
                        assert platform.processor_type_names[platform.processor_type[processor]] == part["type"]
                        assert platform.processor_first_core[processor] == core
                        assert platform.gflops[processor] == kind["clock_rate"] * kind["dpflops_per_cycle"]
                        assert platform.power[processor] == kind["power"] / kind["cores"]
                        assert platform.mem_bw[processor] == (kind.get("mem_bw") or math.inf)
                        for _ in range(kind["cores"]):
                            assert platform.core_processor[core] == processor
                            core += 1
                        processor += 1
                node += 1
    assert (platform.n_cores, platform.n_processors, platform.n_nodes) == (core, processor, node)
    ends = (platform.processor_first_core, platform.node_first_core, platform.node_first_processor)
    assert [int(offsets[-1]) for offsets in ends] == [core, core, processor]
    assert platform.cluster_first_node[-1] == node
    assert platform.reference_gflops == pytest.approx(platform.core_gflops().mean())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


@given(st.sampled_from([path for path in places(SMALL) if path]), json_values)
def test_a_document_with_anything_in_any_place_is_read_or_refused(path, value):
    try:
        platform = Platform.from_dict(changed(path, value), where="x.json")
    except PlatformError as error:
        assert all(fault.where.startswith("x.json") for fault in error.errors)
        return
    assert platform.n_cores > 0
    assert (platform.gflops > 0).all() and np.isfinite(platform.gflops).all()
    assert (platform.power >= 0).all() and (platform.mem_bw > 0).all() and (platform.memory > 0).all()
