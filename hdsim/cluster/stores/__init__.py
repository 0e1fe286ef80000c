"""Stores of idle cores with the methods `pick`, `allocate` and `release`.

`OrderedCores` serves platforms on which all core policies in use have one static order of cores. `NodeCores` serves all
other cases: memory of nodes, bandwidth of processors, GPUs, dynamic scores. `FailingCores` adds node failures,
`SleepingCores` nodes that are switched off.
"""
