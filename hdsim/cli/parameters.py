"""Types and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

#: Paths of files and folders, of files, and of folders, which need not exist.
PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def figure_format(*names: str) -> Callable[[Any], Any]:
    """Returns the option of the format of figures; names are those of :func:`click.option`."""
    formats = click.Choice(["png", "pdf", "svg"])
    text = "Format of the figures; fonts are part of the files."
    return click.option(*names, type=formats, default="png", show_default=True, help=text)
