"""Kernels of bounds: schedules by lists of jobs."""
