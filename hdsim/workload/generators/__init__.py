"""Workload models and synthesis of BSP jobs."""

from hdsim.workload.generators.base import Generator

__all__ = ["Generator"]
