"""Names of the core policies; the choice itself is in :mod:`hdsim.cluster.selection`."""

#: Scores of nodes as in kube-scheduler, with u = share of what a node has that is requested after the pod is placed.
SCORES = ("least_allocated", "most_allocated", "balanced_allocation", "requested_to_capacity_ratio")
#: Core policies with the core that each chooses: the six of HDeepRM, two that consider the nodes of a job, and those of
#: kube-scheduler.
CORE_POLICIES = {
    "random": "any core",
    "high_gflops": "the fastest processor",
    "high_cores": "the processor with the most idle cores",
    "high_mem": "the node with the most free memory",
    "high_mem_bw": "the processor with the most free memory bandwidth",
    "low_power": "the processor with the lowest power a core",
    "spread": "the node with the most idle cores, and on it the processor with the most",
    "pack": "as few nodes as can be: those with the most room, then the fullest that holds the rest",
    **dict(
        zip(
            SCORES,
            (
                "the node with the highest mean of 100 (1 - u), as kube-scheduler",
                "the node with the highest mean of 100 u, as kube-scheduler",
                "the node whose shares of CPU and memory the pod evens out most, as kube-scheduler",
                "the node with the highest mean of u on the line from 0 to 100, as kube-scheduler",
            ),
            strict=True,
        )
    ),
}
