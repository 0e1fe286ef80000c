"""Usage of accounts and users, its decay, and fair shares as Slurm's priority/multifactor computes them.

Sources: "Fair Tree Fairshare Algorithm" and "Classic Fairshare Algorithm" of Slurm's documentation, and the behaviour
of slurmctld 22.05, which was recorded: tied accounts are not merged, but taken one after the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.references import by_reference
from hdsim.site.kernels.placing import Flags, Floats, Ints
from hdsim.site.kernels.quotas import Quotas, rate

#: Level of an account that uses the shares of its parent, and the level before the first one.
PARENT_LEVEL = 4294967294.0


class ShareTree(NamedTuple):
    """Associations: row 0 is root, and each comes after the one above it. All are (A,) unless it says otherwise.

    Attributes:
        above: Association above, -1 for that of root.
        sharing: The association whose shares it divides: the nearest one above that has shares of its own.
        user: Whether it is of a user.
        own: Shares, -1 for those of the association above.
        among: Shares of all that divide the same association.
        shares: Normalised shares.
        first: (A + 1,) first place in `child` of those that divide its shares.
        child: (A - 1,) associations that divide the shares of another one.
    """

    above: Ints
    sharing: Ints
    user: Flags
    own: Ints
    among: Ints
    shares: Floats
    first: Ints
    child: Ints


class Shares(NamedTuple):
    """Usage and fair shares, (A,) each.

    Attributes:
        usage: Usage in billing-seconds.
        normal: Usage relative to that of root.
        effective: Effective usage.
        level: Fair share among siblings (Fair Tree).
        factor: Fair-share factor of users, from 0 to 1.
        order: (A - 1,) `ShareTree.child` in order of levels.
        stack: (4, A) space.
        before: (A,) space.
    """

    usage: Floats
    normal: Floats
    effective: Floats
    level: Floats
    factor: Floats
    order: Ints
    stack: Ints
    before: Floats


class Billing(NamedTuple):
    """The bill of running jobs, (J,) each.

    Attributes:
        start: Start in seconds.
        rate: Billing-seconds in a second.
        factor: Seconds that a second counts for (UsageFactor of the QOS).
        cpus: CPUs.
        nodes: Nodes.
        association: Association, -1 for none.
    """

    start: Floats
    rate: Floats
    factor: Floats
    cpus: Floats
    nodes: Floats
    association: Ints


class Book(NamedTuple):
    """The accounts, their usage, and the bills of the jobs that add to it.

    Attributes:
        tree: Associations; their shares are normalised among siblings (Fair Tree) or to those of root (classic).
        shares: Their usage and fair shares.
        quotas: Limits of what was used.
        billing: Bills of jobs.
    """

    tree: ShareTree
    shares: Shares
    quotas: Quotas
    billing: Billing


class Period(NamedTuple):
    """The time since the last calculation.

    Attributes:
        begin: Time of the last calculation in seconds.
        end: Present time in seconds.
        decay: Factor of usage that is a second old.
    """

    begin: float
    end: float
    decay: float


@part_of_kernel
def _bill(book: Book, job: int, period: Period) -> None:
    """Adds the usage of a job in a period to its association, to those above it and to what limits count."""
    tree, shares, quotas, billing = book
    length = period.end - max(period.begin, billing.start[job])
    if length > 0.0:
        seconds = length * period.decay**length * billing.factor[job]
        row = billing.association[job]
        while row >= 0:
            shares.usage[row] += seconds * billing.rate[job]
            row = tree.above[row]
        entry = quotas.entry[job]
        for k in range(quotas.first_spent[entry], quotas.first_spent[entry + 1]):
            meter = quotas.meter[k]
            if quotas.uses[meter]:
                whole = length * billing.factor[job] if quotas.lasting[meter] else seconds
                quotas.spent[meter] += whole * rate(quotas, k, billing.cpus[job], billing.nodes[job])


@part_of_kernel
def _run_off(book: Book, job: int, time: float, sign: int) -> None:
    """Takes (-1) what a running job has used of its time limit until a time from what is left, or gives it back (1)."""
    quotas, billing = book.quotas, book.billing
    elapsed = billing.factor[job] * max(time - billing.start[job], 0.0)
    entry = quotas.entry[job]
    for k in range(quotas.first_spent[entry], quotas.first_spent[entry + 1]):
        seconds = min(quotas.charged[k], elapsed)
        quotas.left[quotas.meter[k]] += sign * seconds * rate(quotas, k, billing.cpus[job], billing.nodes[job])


@part_of_kernel
def _decay(book: Book, period: Period) -> None:
    """Lets what was used decay for a period."""
    shares, quotas = book.shares, book.quotas
    factor = period.decay ** (period.end - period.begin)
    for row in range(len(shares.usage)):
        shares.usage[row] *= factor
    for meter in range(len(quotas.spent)):
        if not quotas.lasting[meter]:
            quotas.spent[meter] *= factor


@lean_kernel
def bill(book: Book, job: int, period: Period) -> None:
    """Adds the usage of an ended job since the last calculation, after which as much is left to it as at its start.

    Args:
        book: Takes the usage.
        job: The job.
        period: Its end is that of the job.
    """
    _bill(book, job, period)
    _run_off(book, job, period.begin, 1)


@lean_kernel
def run_off(book: Book, job: int, time: float) -> None:
    """Takes what a job has used of its time limit until a time in seconds from what is left to it."""
    _run_off(book, job, time, -1)


@part_of_kernel
def _bill_running(book: Book, job: int, period: Period) -> None:
    """Adds the usage of a running job in a period, and takes it from what is left to it."""
    _bill(book, job, period)
    _run_off(book, job, period.begin, 1)
    _run_off(book, job, period.end, -1)


@lean_kernel
def bill_running(book: Book, running: Ints, period: Period) -> None:
    """Lets usage decay, then adds that of (R,) running jobs since the last calculation; see `bill`."""
    _decay(book, period)
    for job in running:
        _bill_running(book, job, period)


@part_of_kernel
def _normalise(shares: Shares, row: int) -> None:
    whole = shares.usage[0]
    shares.normal[row] = min(shares.usage[row] / whole, 1.0) if whole > 0.0 else 0.0


@part_of_kernel
def _level(tree: ShareTree, shares: Shares, row: int) -> None:
    """Sets usage and level of an association among its siblings."""
    used = shares.usage[tree.sharing[row]]
    shares.effective[row] = shares.usage[row] / used if used > 0.0 else 0.0
    _normalise(shares, row)
    if tree.own[row] < 0:
        shares.level[row] = math.inf if tree.user[row] else PARENT_LEVEL
    elif tree.shares[row] == 0.0:
        shares.level[row] = 0.0
    else:
        shares.level[row] = tree.shares[row] / shares.effective[row] if shares.effective[row] > 0.0 else math.inf


@part_of_kernel
def _sort(tree: ShareTree, shares: Shares, begin: int, end: int) -> None:
    """Copies the siblings of a part of `child` to `order`, by descending level, users before accounts."""
    for place in range(begin, end):
        row = tree.child[place]
        _level(tree, shares, row)
        before = place
        while before > begin:
            other = shares.order[before - 1]
            tied = shares.level[row] == shares.level[other]
            if not (shares.level[row] > shares.level[other] or (tied and tree.user[row] and not tree.user[other])):
                break
            shares.order[before] = other
            before -= 1
        shares.order[before] = row


@lean_kernel
def fair_tree(tree: ShareTree, shares: Shares) -> None:
    """Sets the factor of each user: its rank among all users, in the order of the tree, relative to their number.

    Args:
        tree: Associations; shares are normalised among siblings.
        shares: Their usage; takes all else.
    """
    shares = by_reference(shares)
    rank = 0
    for row in range(len(tree.user)):
        rank += tree.user[row]
    users, following = rank, rank
    place, begin, end, tied_above, before = (
        shares.stack[0],
        shares.stack[1],
        shares.stack[2],
        shares.stack[3],
        shares.before,
    )
    place[0], begin[0], end[0], tied_above[0], before[0] = tree.first[0], tree.first[0], tree.first[1], 0, PARENT_LEVEL
    _sort(tree, shares, tree.first[0], tree.first[1])
    shares.normal[0], shares.effective[0] = 1.0, 1.0
    depth = 0
    while depth >= 0:
        if place[depth] == end[depth]:
            depth -= 1
            continue
        row = shares.order[place[depth]]
        tied = before[depth] == shares.level[row]
        if place[depth] == begin[depth] and tied_above[depth]:
            tied = True
        before[depth] = shares.level[row]
        place[depth] += 1
        if tree.user[row]:
            if not tied:
                rank = following
            shares.factor[row] = rank / users
            following -= 1
        else:
            depth += 1
            place[depth], begin[depth], end[depth] = tree.first[row], tree.first[row], tree.first[row + 1]
            tied_above[depth], before[depth] = tied, PARENT_LEVEL
            _sort(tree, shares, tree.first[row], tree.first[row + 1])


@part_of_kernel
def _effective(tree: ShareTree, shares: Shares, row: int) -> None:
    """Sets the effective usage of an association below one whose effective usage is set."""
    _normalise(shares, row)
    above = tree.sharing[row]
    if above == 0:
        shares.effective[row] = shares.normal[row]
    elif tree.own[row] < 0 or tree.among[row] == 0:
        shares.effective[row] = shares.effective[above]
    else:
        part = tree.own[row] / tree.among[row]
        shares.effective[row] = shares.normal[row] + (shares.effective[above] - shares.normal[row]) * part


@part_of_kernel
def _classic_factor(tree: ShareTree, shares: Shares, row: int, dampening: float) -> float:
    """Returns the factor of a user, whose effective usage is computed when it is needed first."""
    own = tree.sharing[row] if tree.own[row] < 0 and row > 0 else row
    if math.isnan(shares.effective[own]):
        _effective(tree, shares, own)
    part = tree.shares[own]
    return 2.0 ** -(shares.effective[own] / part / dampening) if part > 0.0 else 0.0


@lean_kernel
def classic_factors(tree: ShareTree, shares: Shares, rows: Ints, dampening: float) -> None:
    """Sets the factor of some associations: 2 to the power of -effective usage / shares / `dampening`."""
    for row in rows:
        shares.factor[row] = _classic_factor(tree, shares, row, dampening)


@lean_kernel
def classic(book: Book, running: Ints, pending: Ints, period: Period) -> None:
    """Sets the effective usage of accounts, lets usage decay and adds that of running jobs since the last calculation.

    The effective usage of a user is that at its first pending job in the order of all jobs, when that of the running
    jobs before it has been added; that of a user without pending jobs is computed when it is needed.

    Args:
        book: Takes the usage.
        running: (R,) running jobs, ascending.
        pending: (Q,) pending jobs, ascending.
        period: The time since the last calculation.
    """
    tree, shares, billing = book.tree, book.shares, book.billing
    shares.normal[0], shares.effective[0] = 1.0, 1.0
    for row in range(1, len(tree.user)):
        shares.effective[row] = math.nan
        if not tree.user[row]:
            _effective(tree, shares, row)
    _decay(book, period)
    place = 0
    for job in pending:
        while place < len(running) and running[place] < job:
            _bill_running(book, running[place], period)
            place += 1
        row = billing.association[job]
        if row >= 0 and math.isnan(shares.effective[row]):
            _effective(tree, shares, row)
    while place < len(running):
        _bill_running(book, running[place], period)
        place += 1
