"""Types and options that several commands have."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hdsim.util.files import writable


class _Output(click.Path):
    """Paths of files to write, whose folder is looked for before the work that fills them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path.

        Raises:
            ConfigError: Its folder is missing or cannot be written.
        """
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        folder = path.parent
        if not folder.is_dir():
            number = errno.ENOTDIR if folder.exists() else errno.ENOENT
        elif not os.access(folder, os.W_OK):
            number = errno.EACCES
        else:
            return path
        with writable("a place", path):
            raise OSError(number, os.strerror(number), str(path))


#: Paths of files and folders, of files, and of folders, which need not exist, and of files to write.
PATH = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
OUTPUT = _Output(dir_okay=False, path_type=Path)


class Parsed(click.ParamType):
    """A value that a function makes of a text.

    Args:
        name: Name of such values in the help.
        parse: Makes the value, or raises a ValueError.
        expected: Texts that are expected, in words, for error messages.
    """

    def __init__(self, name: str, parse: Callable[[str], Any], expected: str) -> None:
        self.name, self._parse, self._expected = name, parse, expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the value; a default may be one already."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError:
            self.fail(f"expected {self._expected}, got '{value}'", param, ctx)


def list_of(name: str, parse: Callable[[str], Any], expected: str) -> Parsed:
    """Returns the type of values separated by commas; see :class:`Parsed`."""
    return Parsed(name, lambda text: [parse(word) for word in text.split(",")], expected)


def figure_format(*names: str) -> Callable[[Any], Any]:
    """Returns the option of the format of figures; names are those of :func:`click.option`."""
    formats = click.Choice(["png", "pdf", "svg"])
    text = "Format of the figures; fonts are part of the files."
    return click.option(*names, type=formats, default="png", show_default=True, help=text)
