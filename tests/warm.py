"""Runs ``hdsim`` and Python code in forks of a process that has imported everything: no cold start for every command.

A server (``python warm.py serve SOCKET PID [learning]``) waits on a Unix socket until process PID has ended. A request
names the working directory, the environment, the arguments and hands over standard input, output and error; a fork of
the server then runs ``python -m hdsim ARGUMENTS`` or ``python -c CODE`` as a new process would, but for the time of its
imports.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import sys

#: Packages imported before the first request, and those that a server for learning agents imports as well. Threads do
#: not survive a fork; none of these packages starts any when it is imported.
MODULES = (
    "hydra",
    "lxml.etree",
    "matplotlib.pyplot",
    "optuna.importance",
    "plotly.offline",
    "procset",
    "scipy.stats",
    "simpy",
    "yaml",
)
LEARNING = ("gymnasium", "torch", "torch_geometric.nn", "stable_baselines3", "sb3_contrib", "torch.utils.tensorboard")
#: Modules of hdsim that need some of the latter.
NEED_LEARNING = ("hdsim.__main__", "hdsim.agents", "hdsim.envs", "hdsim.learning.training")


def ask(address: str, mode: str, arguments: list[str]) -> int:
    """Has the server run a command with this process's directory, environment and standard streams."""
    request = json.dumps([mode, arguments, os.getcwd(), dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(address)
        fds = array.array("i", [0, 1, 2]).tobytes()
        channel.sendmsg([struct.pack("!I", len(request))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        channel.sendall(request)
        status = channel.recv(4)
    return struct.unpack("!i", status)[0] if len(status) == 4 else 137


def serve(address: str, session: int, learning: bool) -> None:
    """Answers requests until a process has ended."""
    import pkgutil
    import select

    import hdsim

    modules = [*MODULES, *(LEARNING if learning else ())]
    for module in pkgutil.walk_packages(hdsim.__path__, "hdsim.", onerror=lambda name: None):
        if not module.name.startswith("hdsim.__main__" if learning else NEED_LEARNING):
            modules.append(module.name)
    for name in modules:
        try:
            __import__(name)
        except ImportError:
            continue  # an optional component that this machine lacks
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address + ".new")
    listener.listen(16)
    os.rename(address + ".new", address)
    while alive(session):
        if select.select([listener], [], [], 1)[0]:
            channel, _ = listener.accept()
            if os.fork() == 0:
                os.setsid()
                listener.close()
                answer(channel)
            channel.close()
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


def alive(process: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def answer(channel: socket.socket) -> None:
    """Carries out one request in a forked process and ends it."""
    import runpy
    import traceback

    head, fds, _, _ = socket.recv_fds(channel, 4, 3)
    (length,) = struct.unpack("!I", head)
    request = b""
    while len(request) < length:
        request += channel.recv(length - len(request))
    mode, arguments, folder, environment = json.loads(request)
    for target, source in enumerate(fds):
        os.dup2(source, target)
        os.close(source)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # What a new interpreter would have: entries of PYTHONPATH first, and the sitecustomize found there.
    extra = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = ["", *extra, *(entry for entry in sys.path if entry not in {"", own, *extra})]
    status = 0
    try:
        for entry in extra:
            customize = os.path.join(entry, "sitecustomize.py")
            if os.path.exists(customize):
                runpy.run_path(customize)
        if mode == "-c":
            sys.argv = ["-c", *arguments[1:]]
            exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = ["hdsim", *arguments]
            runpy.run_module("hdsim", run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        if isinstance(exit.code, str):
            print(exit.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 1
    channel.sendall(struct.pack("!i", status))
    os._exit(status & 255)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), "learning" in sys.argv[4:])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3], sys.argv[4:]))
