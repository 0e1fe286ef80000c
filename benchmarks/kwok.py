"""Pods per second of hdsim and of kube-scheduler on one Kwok cluster, in turns.

python benchmarks/kwok.py                     # 1,000 nodes, 5,000 pods: some minutes
python benchmarks/kwok.py --nodes 100 --pods 500 --only kube-scheduler least_allocated

Nodes of three sizes, a tenth of them tainted; pods of several sizes with selectors and tolerations, created by another
process at the same time, and some that fit nowhere. Rates are from the first creation to the last binding, as a watch
of a third process sees them. Afterwards a client of its own compares all pods with the nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kube import Api, wait_for

from hdsim.kubernetes.connection import Connection
from hdsim.kubernetes.control_plane import ControlPlane

SIZES = ((32, 128), (64, 256), (96, 512))  # CPU, GiB
TAINT = {"key": "dedicated", "value": "team", "effect": "NoSchedule"}
INFEASIBLE = 20
BASELINE, GNN = "kube-scheduler", "gnn_dqn agent.checkpoint=kubernetes_gnn"
IN_FLIGHT = 48
_GIB = 2**30


def node(number: int) -> dict[str, Any]:
    """The manifest of a fake node."""
    cpu, memory = SIZES[number % 3]
    amounts = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"node-{number:04d}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"size": str(number % 3), "disk": "ssd" if number % 2 else "hdd"},
        },
        "spec": {"taints": [TAINT]} if number % 10 == 9 else {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pods(number: int, scheduler: str, seed: int) -> Iterator[dict[str, Any]]:
    """The manifests of the pods: a third with a selector, a tenth that tolerates the taint, a few that fit nowhere."""
    rng = random.Random(seed)
    for index in range(number + INFEASIBLE):
        spec: dict[str, Any] = {"schedulerName": scheduler, "restartPolicy": "Never"}
        cpu, memory = rng.choice((1, 2, 4)), rng.choice((2, 4, 8))
        selector = rng.random()
        if index >= number:
            spec["nodeSelector"] = {"size": "none"}
        elif selector < 1 / 6:
            spec["nodeSelector"] = {"size": str(rng.randrange(3))}
        elif selector < 1 / 3:
            spec["nodeSelector"] = {"disk": rng.choice(("ssd", "hdd"))}
        if rng.random() < 0.1:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        requests = {"cpu": str(cpu), "memory": f"{memory}Gi"}
        spec["containers"] = [{"name": "main", "image": "none", "resources": {"requests": requests}}]
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{index:05d}"}, "spec": spec}


async def send(connection: Connection, method: str, requests: Iterable[tuple[str, Any]]) -> None:
    """Sends requests, each a path and a body, many at the same time."""
    left = iter(requests)

    async def worker() -> None:
        for path, body in left:
            status, answer = await connection.send(method, path, body)
            assert status in (200, 201), answer

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


def create(kubeconfig: Path, namespace: str, number: int, scheduler: str) -> None:
    """The process that creates the pods."""
    with Connection(kubeconfig) as connection:
        path = f"/api/v1/namespaces/{namespace}/pods"
        bodies = list(pods(number, scheduler, seed=1))
        connection.call(send(connection, "POST", ((path, body) for body in bodies)))


def delete(kubeconfig: Path, namespace: str) -> None:
    """Deletes the pods: more of them on the API server slow every scheduler down."""
    with Connection(kubeconfig) as connection:
        path = f"/api/v1/namespaces/{namespace}/pods"
        names = [pod["metadata"]["name"] for pod in connection.get(path)["items"]]
        connection.call(send(connection, "DELETE", ((f"{path}/{name}", {"gracePeriodSeconds": 0}) for name in names)))


def observe(kubeconfig: Path, namespace: str, number: int, output: Path) -> None:
    """The process that watches: time of creation and binding of every pod, and how often its node has changed."""
    api, created, bound, nodes = Api(kubeconfig), {}, {}, defaultdict(set)
    version = "0"
    print("ready", flush=True)
    while len(bound) < number:
        # The server ends watches now and then, above all in its first seconds.
        with contextlib.suppress(http.client.HTTPException, OSError):
            for event in api.watch(f"/api/v1/namespaces/{namespace}/pods", version):
                now, metadata = time.time(), event["object"]["metadata"]
                if event["type"] == "ERROR":
                    break
                version, name = metadata["resourceVersion"], metadata["name"]
                created.setdefault(name, now)
                chosen = event["object"]["spec"].get("nodeName")
                if chosen:
                    bound.setdefault(name, now)
                    nodes[name].add(chosen)
                if len(bound) == number:
                    break
    times = sorted(bound.values())
    first, last = min(created.values()), times[-1]
    tenth = len(times) // 10
    middle = (len(times) - 2 * tenth) / (times[-tenth - 1] - times[tenth])
    moved = sum(len(chosen) > 1 for chosen in nodes.values())
    facts = {
        "rate": number / (last - first),
        "middle": middle,
        "moved": moved,
        "created": max(created.values()) - first,
    }
    output.write_text(json.dumps(facts))


def check(api: Api, namespace: str) -> Counter[str]:
    """Compares pods with nodes as the API server has them; returns the numbers of faults."""
    faults: Counter[str] = Counter()
    nodes = {found["metadata"]["name"]: found for found in api.items("/api/v1/nodes")}
    events = api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    told = {event["regarding"]["name"] for event in events if event["reason"] == "FailedScheduling"}
    used: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for pod in api.items("/api/v1/pods"):
        spec = pod["spec"]
        feasible = spec.get("nodeSelector", {}).get("size") != "none"
        if "nodeName" not in spec:
            here = pod["metadata"]["namespace"] == namespace
            faults["not bound"] += here and feasible
            faults["infeasible without an event"] += here and not feasible and pod["metadata"]["name"] not in told
            continue
        faults["infeasible but bound"] += not feasible
        chosen = nodes[spec["nodeName"]]
        labels = chosen["metadata"]["labels"]
        faults["selector"] += any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items())
        tolerated = any(each["key"] == "dedicated" for each in spec.get("tolerations", ()))
        faults["taint"] += bool(chosen["spec"].get("taints")) and not tolerated
        requests = spec["containers"][0]["resources"]["requests"]
        for index, amount in enumerate((int(requests["cpu"]), int(requests["memory"].removesuffix("Gi")), 1)):
            used[spec["nodeName"]][index] += amount
    for name, amounts in used.items():
        has = nodes[name]["status"]["allocatable"]
        limits = (int(has["cpu"]), int(has["memory"].removesuffix("Gi")), int(has["pods"]))
        faults["overcommitted"] += any(amount > limit for amount, limit in zip(amounts, limits, strict=True))
    return +faults


@contextlib.contextmanager
def scheduler(case: str, kubeconfig: Path, folder: Path, api: Api) -> Iterator[Path | None]:
    """Runs a scheduler for the pods of name ``hdsim``; kube-scheduler runs all the time."""
    if case == BASELINE:
        yield None
        return
    directory = folder / case.replace("/", "-")
    agent = case.split()
    command = [
        sys.executable,
        "-m",
        "hdsim",
        "run",
        "backend=kwok",
        f"backend.kubeconfig={kubeconfig}",
        "workload=cluster",
    ]
    command += [f"agent={agent[0]}", *agent[1:], "backend.stop_when_idle=null", f"hydra.run.dir={directory}"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        held = lambda: any(  # noqa: E731
            each["metadata"]["name"].startswith("hdsim") and each["spec"].get("holderIdentity")
            for each in api.items(leases)
        )
        wait_for(lambda: process.poll() is not None or held(), "the scheduler")
        assert process.poll() is None, (folder / "log").read_text()
        yield directory
    finally:
        process.terminate()
        process.wait()


def measure(case: str, kubeconfig: Path, folder: Path, options: argparse.Namespace, rates: dict[str, float]) -> str:
    """Measures one scheduler; returns a line of the table. `rates` keeps the first rate of kube-scheduler."""
    api = Api(kubeconfig)
    namespace = f"bench-{case.split()[0].replace('_', '-')}"
    api("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for(lambda: api.request("GET", account)[0] == 200, "the account of pods")
    name = "default-scheduler" if case == BASELINE else "hdsim"
    output = folder / f"{namespace}.json"
    itself = [
        sys.executable,
        __file__,
        "--kubeconfig",
        str(kubeconfig),
        "--pods",
        str(options.pods),
        "--namespace",
        namespace,
    ]
    with scheduler(case, kubeconfig, folder, api) as directory:
        with subprocess.Popen([*itself, "--observe", str(output)], stdout=subprocess.PIPE) as observer:
            assert observer.stdout is not None
            observer.stdout.readline()
            subprocess.run([*itself, "--create", name], check=True)
            assert observer.wait() == 0
        # Events come after the bindings.
        time.sleep(3)
    faults = check(api, namespace)
    seen = json.loads(output.read_text())
    told = ""
    if directory is not None:
        facts = json.loads((directory / "manifest.json").read_text())["backend"]
        delay, binding = facts["decision_latency_seconds"], facts["binding_latency_seconds"]
        told = (
            f"; decisions after {delay['p50']:.3f} s (99 %: {delay['p99']:.3f} s), bindings "
            f"{binding['p50']:.3f} s later; {facts['api_calls_per_pod']:.3f} API calls a pod"
        )
    delete(kubeconfig, namespace)
    faults["moved"] += seen["moved"]
    baseline = rates.setdefault(BASELINE, seen["rate"]) if case == BASELINE else rates.get(BASELINE, math.nan)
    return (
        f"{case.split()[0]:16} {seen['rate']:5.0f} pods/s = {seen['rate'] / baseline:.2f} of kube-scheduler's, "
        f"{seen['middle']:.0f} in the middle; created in {seen['created']:.1f} s; {dict(+faults) or 'no fault'}{told}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--only", nargs="+", default=[BASELINE, "least_allocated", GNN])
    for hidden in ("--create", "--observe", "--kubeconfig", "--namespace"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.create:
        create(Path(options.kubeconfig), options.namespace, options.pods, options.create)
    elif options.observe:
        observe(Path(options.kubeconfig), options.namespace, options.pods, Path(options.observe))
    else:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            kubeconfig, plane = folder / "kubeconfig", ControlPlane("bench", folder)
            plane.up(kubeconfig, default_scheduler=True)
            try:
                with Connection(kubeconfig) as connection:
                    bodies = [node(number) for number in range(options.nodes)]
                    connection.call(send(connection, "POST", (("/api/v1/nodes", body) for body in bodies)))
                ready = lambda found: not any("not-ready" in each["key"] for each in found["spec"].get("taints", ()))  # noqa: E731
                api = Api(kubeconfig)
                wait_for(lambda: all(map(ready, api.items("/api/v1/nodes"))), "the nodes")
                rates: dict[str, float] = {}
                for case in options.only:
                    print(measure(case, kubeconfig, folder, options, rates), flush=True)
            finally:
                plane.remove()


if __name__ == "__main__":
    main()
