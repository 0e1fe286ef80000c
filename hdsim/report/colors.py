"""Colours of pages and figures: one table, from which the style sheet of a page takes its variables.

A page with :func:`sheet` in its style is light or dark as the reader prefers, and light in print. Styles and plots name
a colour as ``var(--blue)``: a browser resolves it, and :func:`light` does so for static figures.
"""

from __future__ import annotations

import re

#: Colour in light and in dark pages, by name. Text has a contrast of 4.5 at least and curves one of 3.
COLORS = {
    "paper": ("#ffffff", "#12171d"),
    "wash": ("#f5f7f9", "#1b222a"),
    "raised": ("#ffffff", "#212a33"),
    "ink": ("#1c2733", "#e3e9ef"),
    "soft": ("#586675", "#a3b1be"),
    "line": ("#dde3e9", "#303b46"),
    "rule": ("#7d8a97", "#76848f"),
    "accent": ("#2f6690", "#7cb3dc"),
    "on-accent": ("#ffffff", "#10161c"),
    "caution": ("#fdf3e7", "#35260f"),
    "blue": ("#2f6690", "#6fabdb"),
    "orange": ("#c96a10", "#eb9a45"),
    "green": ("#458438", "#7cbf6b"),
    "red": ("#c0392b", "#ee7c70"),
    "purple": ("#7a5195", "#b893d3"),
    "grey": ("#74808c", "#9aa6b1"),
    "black": ("#3b4048", "#d3d9df"),
    "brown": ("#9c6f22", "#cda052"),
    "rose": ("#c8615a", "#e28d88"),
    "job-0": ("#4e79a7", "#4e79a7"),
    "job-1": ("#3f97c6", "#3f97c6"),
    "job-2": ("#d97b1e", "#d97b1e"),
    "job-3": ("#5b9a3c", "#5b9a3c"),
    "job-4": ("#9d5f93", "#9d5f93"),
    "job-5": ("#3d9490", "#3d9490"),
    "job-6": ("#c0719f", "#c0719f"),
    "job-7": ("#8f6a54", "#8f6a54"),
    "job-8": ("#a88913", "#a88913"),
    "job-9": ("#6b86d6", "#6b86d6"),
    "wait-0": ("#4a9cae", "#2a7f8f"),
    "wait-1": ("#3b78c2", "#4f8fdc"),
    "wait-2": ("#5a49b0", "#ae9cf6"),
    "wait-3": ("#8a1a7c", "#f6a8e6"),
    "wait-4": ("#420038", "#fff0c2"),
    "on-bright": ("#000000", "#000000"),
    "on-dark": ("#ffffff", "#ffffff"),
    "heat-0": ("#f1f5f9", "#1b242d"),
    "heat-1": ("#cfe0ee", "#1c3d5a"),
    "heat-2": ("#8fbcdb", "#215f8d"),
    "heat-3": ("#4a8ebf", "#3a8bc2"),
    "heat-4": ("#1f5f96", "#83bfe8"),
    "heat-5": ("#0b2f55", "#e2f1fc"),
}
#: Background of reservations.
RESERVED = "var(--line)"
BLUE, ORANGE, GREEN, RED, PURPLE, GREY, BLACK, BROWN, ROSE = (
    f"var(--{name})" for name in ("blue", "orange", "green", "red", "purple", "grey", "black", "brown", "rose")
)
#: Colours of tasks and curves in turn.
JOB_COLORS = tuple(f"var(--{name})" for name in COLORS if name.startswith("job-"))
#: Colours of jobs by waiting time, from none to the longest; their lightness keeps the order without hues.
WAITS = tuple(f"var(--{name})" for name in COLORS if name.startswith("wait-"))
#: Colour scale of heat maps from 0 to 1.
HEAT = tuple(f"var(--{name})" for name in COLORS if name.startswith("heat-"))


def sheet() -> str:
    """Returns the rule of a style sheet that defines the variables."""
    return ":root{" + "".join(f"--{name}:light-dark({light},{dark});" for name, (light, dark) in COLORS.items()) + "}"


def light(color: str) -> str:
    """Returns a colour of light pages with its variables resolved."""
    return re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: COLORS[found[1]][0], color)
