"""Scores of kube-scheduler by their definitions, one node at a time: the reference of the core policies."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

#: What kube-scheduler assumes for a pod without a request: CPU in cores, memory in bytes.
ASSUMED = (Fraction(1, 10), Fraction(200 * 2**20))


def score(
    policy: str,
    capacity: Sequence[Fraction | None],
    requested: Sequence[Fraction],
    without: Sequence[int],
    pod: Sequence[Fraction],
) -> float:
    """Score of a node for one more pod; all arguments are (CPU, memory).

    Args:
        policy: The core policy.
        capacity: Of the node, None = unlimited.
        requested: Sum of the requests of its pods.
        without: Its pods without a request.
        pod: Requests of the pod.
    """
    before, after, points = [], [], []
    for kind in range(2):
        most = capacity[kind]
        if not most:
            continue
        before.append(min(requested[kind] / most, Fraction(1)))
        after.append(min((requested[kind] + pod[kind]) / most, Fraction(1)))
        total = requested[kind] + without[kind] * ASSUMED[kind] + (pod[kind] or ASSUMED[kind])
        if policy == "least_allocated":
            points.append(Fraction(0) if total > most else (most - total) * 100 / most)
        else:
            points.append(Fraction(100) if total > most else total * 100 / most)
    if policy == "balanced_allocation":
        distances = [abs(shares[0] - shares[1]) if len(shares) == 2 else Fraction(0) for shares in (before, after)]
        balance = [100 * (1 - distance / 2) for distance in distances]
        found = 50 + (50 + balance[1] - balance[0]) / 2
    else:
        if policy == "requested_to_capacity_ratio":
            points = [point for point in points if point > 0]
        found = sum(points, Fraction(0)) / max(len(points), 1)
    return round(float(found), 9)
