"""Structured fuzzing of the ``hdsim`` command: no input may bring a traceback, a hang or more than 1 GB of memory.

``python -m fuzz --seed 1 --cases 2000`` (with ``tests`` on the path) runs cases; tests/README.md explains the rest.
"""
