"""The rule by which jobs are killed at their walltimes."""

from hdsim.kernels.compiling import lean_kernel

#: Rounding of dates that are sums of several parts.
_ROUNDED = 1 + 1e-12


@lean_kernel
def reaches_walltime(date: float, limit: float, ends_in_delay: bool) -> bool:
    """Returns whether a job is killed: a delay as long as the walltime reaches it, a computation completes.

    Args:
        date: End of the job in seconds.
        limit: Date of its walltime in seconds.
        ends_in_delay: See ``Workload.ends_in_delay``.
    """
    return date > limit * _ROUNDED or (date >= limit and ends_in_delay)
