"""``python -m fuzz``: runs cases, prints a table of what became of them, and keeps the ones that failed."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz.server import FAULTS, OUTCOMES, Case, kinds_named, work


def main() -> int:
    """Runs the cases; returns 1 if any of them showed a fault of hdsim."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument(
        "--case", type=int, action="append", help="Run this one only, and keep its files; may be repeated."
    )
    parser.add_argument("--kind", action="append", default=[], help="Of this kind only; may be repeated.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"), help="Where failing cases are kept.")
    parser.add_argument("--show", action="store_true", help="Print the last words of every case.")
    options = parser.parse_args()
    kinds = kinds_named(options.kind)
    indices = options.case or list(range(options.cases))
    keep = options.keep.resolve()
    scratch = Path(tempfile.mkdtemp(prefix="hdsim-fuzz-")).resolve()
    begin = time.perf_counter()
    try:
        workers = min(options.workers, len(indices))
        broken = _share(options.seed, indices, kinds, scratch, keep, workers)
        cases = [
            Case(**json.loads(line))
            for path in sorted(scratch.glob("*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _report(options, cases, keep, time.perf_counter() - begin)
    if broken or len(cases) < len(indices):
        print(f"{len(indices) - len(cases)} cases did not run: the fuzzer itself failed", file=sys.stderr)
        return 1
    return int(any(case.outcome in FAULTS for case in cases))


def _share(seed: int, indices: list[int], kinds: list, scratch: Path, keep: Path, workers: int) -> bool:
    """Spreads the cases over processes; whether one of these failed."""
    # PyTorch reads it when it is imported; threads would not survive a fork.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("HDSIM_DEBUG", None)
    pids = []
    for number in range(workers):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                work(seed, indices[number::workers], kinds, scratch / str(number), keep, scratch / f"{number}.jsonl")
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(status)
        pids.append(pid)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return any(statuses)


def _report(options: argparse.Namespace, cases: list[Case], keep: Path, seconds: float) -> None:
    shown = [case for case in cases if case.outcome in FAULTS or options.show]
    for case in sorted(shown, key=lambda case: case.index):
        print(f"\n{options.seed}:{case.index} {case.kind}: {case.outcome.upper()}, {case.cpu:.2f} s, {case.rss:.0f} MB")
        for command in case.commands:
            print(f"  hdsim {shlex.join(command)[:300]}")
        print("  " + case.detail.replace("\n", "\n  "))
        if case.outcome in FAULTS:
            print(f"  files   {keep}/{options.seed}-{case.index}-{case.outcome}")
            print(
                f"  repeat  PYTHONPATH=tests python -m fuzz --seed {options.seed} --case {case.index}"
                + "".join(f" --kind {shlex.quote(kind)}" for kind in options.kind)
            )
    print(
        f"\n{'kind':22}{'cases':>8}"
        + "".join(f"{outcome:>11}" for outcome in OUTCOMES)
        + f"{'ms a case':>11}{'max MB':>8}"
    )
    for kind in [*dict.fromkeys(case.kind for case in sorted(cases, key=lambda case: case.kind)), "all"]:
        own = [case for case in cases if kind in (case.kind, "all")]
        counts = Counter(case.outcome for case in own)
        mean = 1000 * sum(case.cpu for case in own) / max(len(own), 1)
        print(
            f"{kind:22}{len(own):>8}"
            + "".join(f"{counts[outcome]:>11}" for outcome in OUTCOMES)
            + f"{mean:>11.0f}{max(case.rss for case in own):>8.0f}"
        )
    counts = Counter(case.outcome for case in cases)
    told = {"traceback": "tracebacks", "hang": "hangs", "memory": "over 1 GB", "wrong": "wrong", "crash": "crashes"}
    faults = ", ".join(f"{counts[outcome]} {words}" for outcome, words in told.items())
    most = f"max RSS {max(case.rss for case in cases):.0f} MB, max CPU {max(case.cpu for case in cases):.1f} s"
    print(f"\nseed {options.seed}: {len(cases):,} cases, {faults}, {most}; {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
