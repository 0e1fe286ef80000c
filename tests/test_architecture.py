"""Imports point one way, the drawing in docs/architecture.md shows them, and heavy packages stay out of the core."""

from __future__ import annotations

import ast
import graphlib
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hdsim"

# Lowest first. A package imports only from itself and from packages of lower layers.
LAYERS = (
    ("errors", "kernels"),
    ("util",),
    ("platform",),
    ("failures", "network", "workload"),
    ("gangs",),
    ("contention", "cluster"),
    ("scheduling", "results"),
    ("decisions", "simulation", "report"),
    ("kubernetes",),
    ("backends", "envs"),
    ("learning",),
    ("config",),
    ("studies",),
