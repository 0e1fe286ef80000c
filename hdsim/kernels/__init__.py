"""Compiled loops over flat arrays: the inner part of replays, schedulers, models and environments.

A kernel is a plain function of numbers, arrays and named tuples of arrays, marked with
:func:`hdsim.kernels.compiling.kernel`. It neither knows nor makes objects of hdsim.
"""
