"""The programs of Slurm and of emulated clusters, and the libraries of the extra ``slurm``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from hdsim.errors import ConfigError, install_hint
from hdsim.slurm.client import NoAnswer

#: Programs by name, each with its Debian package.
PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmstepd": "slurmd",
    "sbatch": "slurm-client",
    "scancel": "slurm-client",
    "scontrol": "slurm-client",
    "sdiag": "slurm-client",
    "sinfo": "slurm-client",
    "squeue": "slurm-client",
    "slurmrestd": "slurmrestd",
    "faketime": "faketime",
    "sacctmgr": "slurm-client",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
#: Programs of an emulated cluster, and further ones with accounting.
CLUSTER = ("slurmctld", "slurmd", "slurmstepd", "slurmrestd", "sinfo", "scontrol", "faketime")
ACCOUNTING = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db")
#: Programs of a client that schedules by the command line.
COMMANDS = ("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue")


def require_libraries() -> None:
    """Raises ConfigError if libraries are missing."""
    missing = [name for name in ("ClusterShell", "aiohttp", "psutil") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"expected the libraries {', '.join(missing)}{install_hint('ClusterShell')}")


def find_programs(names: Iterable[str], where: str | None = None) -> dict[str, str]:
    """Returns the paths of programs, also of those in folders of administrators; `where` is the place in errors.

    Raises:
        ConfigError: Programs are missing; the message names the packages of Debian.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"])
    found = {name: shutil.which(name, path=path) for name in names}
    missing = [name for name, place in found.items() if place is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        raise ConfigError(
            f"expected {', '.join(missing)} on the PATH; Debian has them by `apt-get install {packages}`", where=where
        )
    # Slurm's daemons look at the name that they are started by: a link stays one.
    return {name: str(Path(place).absolute()) for name, place in found.items() if place is not None}


def finished(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, with a text as its input.

    Raises:
        NoAnswer: It has not ended within a time in seconds.
    """
    try:
        return subprocess.run(
            command,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{Path(command[0]).name} has not ended within {seconds:.3g} s") from None
