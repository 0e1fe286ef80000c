"""Speed and memory of `hdsim site import` on a generated dump of sacct.

The dump has three rows a job (the job, .batch, .extern), array tasks, jobs with many nodes and GPUs, requeued and
cancelled ones, and commands of submission, as ``sacct -D --parsable2`` prints them.

python benchmarks/sites.py
python benchmarks/sites.py --rows 100000 --zone Europe/Berlin
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from hdsim.site.sacct import COMMAND

CONF = """ClusterName=bench
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
NodeName=n[0001-0900] CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=256000 Feature=old
NodeName=g[001-100] CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=512000 Gres=gpu:a100:4 Feature=new
PartitionName=main Nodes=n[0001-0900] Default=YES MaxTime=3-00:00:00
PartitionName=gpu Nodes=g[001-100] MaxTime=2-00:00:00
PartitionName=long Nodes=n[0001-0300] MaxTime=14-00:00:00
"""
HEADER = COMMAND.partition("--format=")[2].replace(",", "|")
#: States and their shares.
STATES = {"COMPLETED": 0.8, "FAILED": 0.08, "TIMEOUT": 0.04, "CANCELLED by 1005": 0.07, "REQUEUED": 0.01}


def write_dump(path: Path, rows: int, zone: str, seed: int = 1) -> int:
    """Writes a dump; returns its number of rows."""
    rng = np.random.default_rng(seed)
    count = rows // 3
    begin = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    submit = begin + np.sort(rng.uniform(0, 365 * 86_400, count)).astype(int)
    wait, elapsed = rng.exponential(3600, count).astype(int), rng.lognormal(6, 2, count).astype(int)
    nodes = rng.choice([1, 1, 1, 1, 2, 4, 16], count)
    cpus = rng.choice([1, 4, 16, 64], count) * nodes
    state = rng.choice(list(STATES), count, p=list(STATES.values()))
    user, first = rng.integers(0, 400, count), rng.integers(1, 880, count)
    gpu, array, limit = rng.random(count) < 0.1, rng.random(count) < 0.2, rng.choice([60, 240, 1440, 4320], count)
    local = ZoneInfo(zone)

    def date(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, local).strftime("%Y-%m-%dT%H:%M:%S")

    written = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{HEADER}\n")
        for row in range(count):
            number = 1000 + row
            job = f"{number}_{row % 50}" if array[row] else str(number)
            on = f"n[{first[row]:04}-{first[row] + nodes[row] - 1:04}]" if nodes[row] > 1 else f"n{first[row]:04}"
            if gpu[row]:
                on = f"g{first[row] % 100 + 1:03}"
            began, last = submit[row] + wait[row], submit[row] + wait[row] + elapsed[row]
            wanted = f"billing={cpus[row]},cpu={cpus[row]},mem={2 * cpus[row]}G,node={nodes[row]}"
            got = wanted
            if gpu[row]:
                wanted, got = f"{wanted},gres/gpu=1", f"{got},gres/gpu:a100=1,gres/gpu=1"
            times = "|".join(map(date, (submit[row], submit[row], began, last)))
            partition = "gpu" if gpu[row] else "main"
            line = f"sbatch -c {cpus[row] // nodes[row]} --nice=5 run{row % 5000}.sh" if row % 3 else "sbatch job.sh"
            owner = f"user{user[row]}|acct{user[row] % 60}|{partition}|normal"
            size = f"{nodes[row]}|{cpus[row]}|{cpus[row]}|{2 * cpus[row]}G|{nodes[row]}"
            spent = f"{elapsed[row]}|{limit[row]}|00:00:00|{state[row]}"
            head = f"{job}|{number}|job {row % 3000}|{owner}|{times}|{spent}|{size}"
            file.write(f"{head}|{wanted}|{got}|{on}|{1000 + row % 500}|Priority|||{line}\n")
            written += 1
            for step in ("batch", "extern"):
                head = f"{job}.{step}|{number}.{step}|{step}||acct{user[row] % 60}|||{times}"
                spent = f"{elapsed[row]}||00:00:00|COMPLETED|{nodes[row]}|{cpus[row]}|{cpus[row]}||1"
                file.write(f"{head}|{spent}||{got}|{on}|||||\n")
                written += 1
    return written


def bench(rows: int, zone: str) -> None:
    """Prints time and memory of an import."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "slurm.conf").write_text(CONF)
        written = write_dump(folder / "sacct.txt", rows, zone)
        size = (folder / "sacct.txt").stat().st_size / 1e6
        command = [sys.executable, "-m", "hdsim", "site", "import", str(folder), "-o", str(folder / "site")]
        begin = time.perf_counter()
        process = subprocess.Popen([*command, "--timezone", zone], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        if status:
            raise SystemExit(f"the import has failed: {status}")
        print(told)
        cpu = used.ru_utime + used.ru_stime
        print(
            f"{written:,} rows, {size:,.0f} MB: {wall:.1f} s, {cpu:.1f} s of CPU, {used.ru_maxrss / 1e6:.2f} GB at most"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--zone", default="Europe/Berlin")
    given = parser.parse_args()
    bench(given.rows, given.zone)
