"""Workload models and synthesis of BSP jobs."""
