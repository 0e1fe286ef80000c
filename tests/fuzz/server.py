"""A warm fork server: everything is imported once, then each case runs in a forked child with limits."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from fuzz.kinds import KINDS, Command, Finished, Kind, prepare_runs, prepare_trainings

#: Limits of a case: memory in all (resident), CPU time, and wall time for one that waits.
MEMORY = 1_000_000_000
CPU_SECONDS = 15
WALL_SECONDS = 120
#: Outcomes that are faults of hdsim; the last one is a fault of the fuzzer.
FAULTS = ("traceback", "hang", "memory", "wrong", "crash", "broken")
OUTCOMES = ("ok", "refused", "failed", "plug-in", *FAULTS)
#: What commands import when they need it.
_WARM = (
    "hdsim.report.figures",
    "hdsim.report.compare",
    "hdsim.backends.batsim.zeromq",
    "zmq.utils.monitor",
    "hdsim.network.fluid",
    "lxml.etree",
    "plotly.offline",
)
_STATUS = "status.jsonl"
_BROKEN_CASE = 77


@dataclass(frozen=True)
class Case:
    """What became of a case.

    Attributes:
        index: Its number; with the seed it says everything about it.
        kind: Name of its kind.
        outcome: One of OUTCOMES.
        commands: The command lines.
        detail: The last words of the command that decided the outcome.
        cpu: s of CPU time.
        rss: Most resident memory, in MB.
    """

    index: int
    kind: str
    outcome: str
    commands: list[Command]
    detail: str
    cpu: float
    rss: float


def kind_of(seed: int, index: int, kinds: Sequence[Kind]) -> Kind:
    """The kind of a case."""
    return Random(f"{seed}:{index}:kind").choices(kinds, [kind.weight for kind in kinds])[0]


def warm(scratch: Path, *, torch: bool) -> None:
    """Imports what the commands need, and makes what the cases change."""
    import hdsim.cli

    for name in hdsim.cli.SUBCOMMANDS:
        __import__(f"hdsim.cli.{name.replace('-', '_')}")
    for name in _WARM:
        __import__(name)
    scratch.mkdir(parents=True, exist_ok=True)
    if torch:
        import torch as torch_

        torch_.set_num_threads(1)
        prepare_trainings(scratch, _quietly)
    else:
        prepare_runs(scratch, _quietly)
    gc.collect()
    gc.freeze()


def _quietly(command: Command) -> None:
    """Runs a command in this process, which warms what the cases need, Hydra's parsers above all."""
    log = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it must live as long as tqdm may write to it
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        status = _main(command)
    if status:
        raise RuntimeError(f"{' '.join(command)}: exit status {status}")


def _main(command: Command) -> int:
    """What the process of a command line would return."""
    from hdsim.cli import main

    sys.argv = ["hdsim", *command]
    try:
        main(command)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def run_case(seed: int, index: int, kind: Kind, scratch: Path, keep: Path | None = None) -> Case:
    """Runs a case in a forked child.

    Args:
        seed: Seed of the cases.
        index: Number of the case.
        kind: Its kind.
        scratch: Where the folder of the case is made.
        keep: Where the folder goes if the case fails.
    """
    folder = scratch / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pid = os.fork()
    if not pid:
        _child(seed, index, kind, folder)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    waiting = select.poll()
    descriptor = os.pidfd_open(pid)
    waiting.register(descriptor, select.POLLIN)
    late = not waiting.poll(WALL_SECONDS * 1000)
    os.close(descriptor)
    # The child and whatever it has started.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    finished = _finished(folder)
    outcome, detail = _outcome(kind, folder, finished, status, used.ru_maxrss * 1024, late=late)
    commands = [each.command for each in finished] or [[f"case {index}"]]
    case = Case(index, kind.name, outcome, commands, detail, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)
    if keep is not None and outcome in FAULTS:
        kept = keep / f"{seed}-{index}-{outcome}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.move(folder, kept)
    return case


def _child(seed: int, index: int, kind: Kind, folder: Path) -> None:
    """Runs the commands of a case; does not return."""
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        commands = kind.make(Random(f"{seed}:{index}"), folder)
        _limit()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, command in enumerate(commands):
            for stream in (1, 2):
                os.dup2(os.open(f"std{stream}.{number}", os.O_WRONLY | os.O_CREAT, 0o644), stream)
            _note({"command": command})
            _note({"status": _one(command)})
            for output in (sys.stdout, sys.stderr):
                output.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        (folder / "broken").write_text(traceback.format_exc(), encoding="utf-8", errors="replace")
        os._exit(_BROKEN_CASE)
    os._exit(0)


def _note(fact: dict[str, Any]) -> None:
    with Path(_STATUS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(fact) + "\n")


def _one(command: Command) -> int:
    """Runs a command: in this process, or in one that is killed at a set time, or cuts a file."""
    if not command[0].startswith("@"):
        return _main(command)
    way, _, rest = command[0][1:].partition(":")
    if way == "CUT":
        name, _, share = rest.rpartition(":")
        if Path(name).is_file():
            os.truncate(name, int(float(share) * Path(name).stat().st_size))
        return 0
    pid = os.fork()
    if not pid:
        status = _main(command[1:])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    descriptor = os.pidfd_open(pid)
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(float(rest) * 1000):
        os.kill(pid, getattr(signal, f"SIG{way}"))
    os.waitpid(pid, 0)
    return 0


def _limit() -> None:
    """Sets the limits; the one on addresses lies above that on memory, and keeps the machine from swapping."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))


def _finished(folder: Path) -> list[Finished]:
    try:
        facts = [json.loads(line) for line in (folder / _STATUS).read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []
    commands = [fact["command"] for fact in facts if "command" in fact]
    codes = [fact["status"] for fact in facts if "status" in fact]
    codes += [-1] * (len(commands) - len(codes))
    texts = [
        [(folder / f"std{stream}.{number}").read_bytes()[:200_000].decode("utf-8", "replace") for stream in (1, 2)]
        for number in range(len(commands))
    ]
    return [Finished(command, code, *text) for command, code, text in zip(commands, codes, texts, strict=True)]


def _outcome(
    kind: Kind, folder: Path, finished: Sequence[Finished], status: int, rss: int, *, late: bool
) -> tuple[str, str]:
    last = finished[-1] if finished else None
    words = last.err.strip()[-400:] if last else ""
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
        return "hang", words
    if rss > MEMORY:
        return "memory", f"{rss / 1e6:.0f} MB; {words}"
    if os.WIFSIGNALED(status):
        return "crash", f"signal {os.WTERMSIG(status)}; {words}"
    if os.WEXITSTATUS(status) == _BROKEN_CASE:
        return "broken", (folder / "broken").read_text(encoding="utf-8").strip()[-600:]
    for each in finished:
        told = each.err
        # A fault in the user's own file is shown where it is.
        own = kind.name == "plug-ins" and each.status == 1 and 'own.py", line' in told
        if "MemoryError" in told and not own:
            return "memory", told.strip()[-400:]
        if "Traceback (most recent call last)" in told:
            if not own:
                return "traceback", told.strip()[-600:]
        elif each.status == 2 and told.count("hdsim: error:") != 1:
            return "wrong", f"exit status 2 without one message: {told.strip()[-200:]}"
        elif each.status not in (0, 1, 2) and not (kind.name == "plug-ins" and each.status == 3):
            return "wrong", f"exit status {each.status}"
        elif each.status == 1 and not (told.strip() or each.out.strip()):
            return "wrong", "exit status 1 without a word"
    here = Path.cwd()
    os.chdir(folder)
    try:
        wrong = kind.check(finished)
    finally:
        os.chdir(here)
    if wrong:
        return "wrong", wrong
    if kind.name == "plug-ins" and "Traceback" in finished[-1].err:
        return "plug-in", words
    return {0: "ok", 1: "failed"}.get(finished[-1].status, "refused"), words


def work(seed: int, indices: Iterable[int], kinds: Sequence[Kind], scratch: Path, keep: Path, results: Path) -> None:
    """Runs cases and appends what became of them to a file: those without PyTorch first, as it is not imported yet."""
    cases = [(index, kind_of(seed, index, kinds)) for index in indices]
    with results.open("a", encoding="utf-8") as file:
        for torch in (False, True):
            chosen = [(index, kind) for index, kind in cases if kind.torch is torch]
            if chosen:
                warm(scratch, torch=torch)
            for index, kind in chosen:
                file.write(json.dumps(asdict(run_case(seed, index, kind, scratch, keep))) + "\n")
                file.flush()


def has_torch() -> bool:
    """Whether the kinds that need PyTorch can run."""
    import importlib.util

    return all(map(importlib.util.find_spec, ("gymnasium", "safetensors", "tensorboard", "torch")))


def kinds_named(names: Sequence[str]) -> list[Kind]:
    """The kinds of these names, or all that can run here."""
    unknown = set(names) - {kind.name for kind in KINDS}
    if unknown:
        raise SystemExit(f"expected some of {', '.join(kind.name for kind in KINDS)}, got {', '.join(sorted(unknown))}")
    return [kind for kind in KINDS if (kind.name in names or not names) and (not kind.torch or has_torch())]
