"""Why pending jobs do not start, in Slurm's words (squeue's REASON)."""

from __future__ import annotations

from hdsim.errors import ConfigError
from hdsim.site.kernels.quotas import LICENSES, NONE, NOT_AVAILABLE, PRIORITY, RESERVATION, RESOURCES

#: Words of the codes that the passes give; those of limits follow, see :func:`code_of`.
_WORDS = {
    NONE: "None",
    RESOURCES: "Resources",
    PRIORITY: "Priority",
    LICENSES: "Licenses",
    NOT_AVAILABLE: "ReqNodeNotAvail",
    RESERVATION: "Reservation",
}
#: Names of TRES in the words for limits: of groups, for each job, user and account.
_TRES = {
    "cpu": ("CpuLimit", "CpuPerJobLimit", "CpuPerUserLimit", "CpuPerAccount"),
    "mem": ("MemLimit", "MemoryPerJob", "MemoryPerUser", "MemoryPerAccount"),
    "node": ("NodeLimit", "NodePerJobLimit", "NodePerUserLimit", "NodePerAccount"),
    "gres": ("GRES", "GRESPerJob", "GRESPerUser", "GRESPerAccount"),
    "license": ("License", "LicensePerJob", "LicensePerUser", "LicensePerAccount"),
    "billing": ("Billing", "BillingPerJob", "BillingPerUser", "BillingPerAccount"),
}
_MINUTES = {
    "cpu": "CPUMinutesLimit",
    "mem": "MemMinutes",
    "node": "NodeMinutes",
    "gres": "GRESMinutes",
    "license": "LicenseMinutes",
    "billing": "BillingMinutes",
}


class Reasons:
    """Numbers of reasons."""

    def __init__(self) -> None:
        self.words = [_WORDS[code] for code in range(len(_WORDS))]

    def code_of(self, word: str) -> int:
        """Returns the number of a reason."""
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)


def unknown_tres(tres: str) -> ConfigError:
    """Returns the error of a limit of a TRES that is not simulated."""
    return ConfigError(
        f"expected limits of cpu, mem, node, billing, gres/gpu or a licence of the site, got '{tres}'",
        where="site: limits",
    )


def _kind(tres: str) -> str:
    kind = tres.split("/")[0]
    if kind not in _TRES:
        raise unknown_tres(tres)
    return kind


def group_limit(holder: str, tres: str) -> str:
    """Returns the word for a limit of all jobs of a QOS (``QOS``) or an association (``Assoc``)."""
    return f"{holder}Grp{_TRES[_kind(tres)][0]}"


def minutes_limit(holder: str, tres: str) -> str:
    """Returns the word for a limit of what the jobs of a QOS or an association have used."""
    name = "MemoryMinutes" if (holder, tres) == ("QOS", "mem") else _MINUTES[_kind(tres)]
    return f"{holder}Grp{name}"


def run_minutes_limit(holder: str, tres: str) -> str:
    """Returns the word for a limit of what is left to the running jobs of a QOS or an association."""
    return minutes_limit(holder, tres).replace("Minutes", "RunMinutes")


def job_minutes_limit(holder: str, tres: str) -> str:
    """Returns the word for a limit of what each job of a QOS or an association may use."""
    return f"{holder}Max{_short(holder, tres)}MinutesPerJob{'Limit' if tres == 'cpu' else ''}"


def node_limit(holder: str, tres: str) -> str:
    """Returns the word for a limit of what each job of a QOS or an association takes of a node."""
    return f"{holder}Max{_short(holder, tres)}PerNode"


def _short(holder: str, tres: str) -> str:
    """The name of a TRES in words for limits of each job."""
    return ("Mem" if holder == "Assoc" else "Memory") if tres == "mem" else _TRES[_kind(tres)][0].removesuffix("Limit")


def job_limit(holder: str, tres: str) -> str:
    """Returns the word for a limit of each job of a QOS or an association."""
    name = "MemPerJob" if (holder, tres) == ("Assoc", "mem") else _TRES[_kind(tres)][1]
    return f"{holder}Max{name}"


def user_limit(tres: str) -> str:
    """Returns the word for a limit of the jobs of a user in a QOS."""
    return f"QOSMax{_TRES[_kind(tres)][2]}"


def account_limit(tres: str) -> str:
    """Returns the word for a limit of the jobs of an account in a QOS."""
    return f"Max{_TRES[_kind(tres)][3]}"


def least_limit(tres: str) -> str:
    """Returns the word for the least that a job of a QOS has to ask for."""
    return "QOSMinCpuNotSatisfied" if tres == "cpu" else f"QOSMin{_TRES[_kind(tres)][0].removesuffix('Limit')}"
