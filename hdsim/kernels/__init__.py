"""Compilation of kernels, which are loops over flat arrays, and kernels of no topic: heaps, intervals, sums.

A kernel is a plain function of numbers, arrays and named tuples of arrays, marked with
:func:`hdsim.kernels.compiling.kernel`. It neither knows nor makes objects of hdsim. Kernels of a topic lie in its
package; their modules import only modules with kernels, so that no other change compiles them again.
"""
