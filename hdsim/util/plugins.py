"""User-defined classes, loaded from ``package.Class`` or from a file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from hdsim.errors import ConfigError, install_hint, nearest, not_one_of, unloadable
from hdsim.util.resources import near_file


def short_name(spec: Mapping[str, Any]) -> str:
    """Returns the short name of the class that a configuration group selects: ``fair_share`` for ``...FairShare``."""
    if spec.get("path"):
        return Path(str(spec["path"])).stem
    return snake_case(str(spec.get("_target_") or "none").rpartition(".")[2])


def snake_case(name: str) -> str:
    """Returns the name of a class as in configurations: ``fair_share`` for ``FairShare``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


#: Entry points of installed packages; a look through their folders takes hundredths of a second.
_registered = lru_cache(maxsize=1)(entry_points)


def installed(group: str) -> EntryPoints:
    """Entry points of installed packages for a group of the configuration, those of ``hdsim.agents`` for ``agent``."""
    plural = f"{group[:-1]}ies" if group.endswith("y") else f"{group.removesuffix('s')}s"
    return _registered().select(group=f"hdsim.{plural}")


def optional(package: str) -> Any:
    """Imports a package of an extra; ConfigError if it is not installed."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import '{package}': {error}{install_hint(error.name)}") from None


def imported(name: str, *, where: str) -> ModuleType:
    """Imports a module that the key `where` names; ConfigError if that is not possible."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if unloadable(error):
            raise
        raise ConfigError(f"cannot import '{name}': {error}{install_hint(error.name)}", where=where) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit in a plug-in ends no program of hdsim
        raise ConfigError(f"cannot import '{name}': {type(error).__name__}: {error}", where=where) from error


def loaded(path: Path, name: str, *, where: str) -> ModuleType:
    """Loads a Python file as a module of a name; ConfigError if that is not possible."""
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ConfigError(f"expected a Python file (.py), got '{path}'", where=where)
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit in a plug-in ends no program of hdsim
        if unloadable(error):
            raise
        raise ConfigError(f"'{path}' cannot be loaded: {type(error).__name__}: {error}", where=where) from error
    return module


def _attribute(target: str, where: str) -> Any:
    """Imports the class or function ``package.name``, which the key `where` names; ConfigError if there is none."""
    module_name, _, attribute = target.rpartition(".")
    # A relative name has no package that it could be relative to.
    if not module_name or module_name.startswith("."):
        raise ConfigError(f"expected 'package.Class', got '{target}'", where=where)
    module = imported(module_name, where=where)
    if not hasattr(module, attribute):
        names = [name for name, value in vars(module).items() if inspect.isclass(value) or inspect.isfunction(value)]
        raise ConfigError(f"'{module_name}' has no '{attribute}'{nearest(attribute, names)}", where=where)
    return getattr(module, attribute)


def fault_of_call(function: Callable[..., Any]) -> str:
    """Describes a function that does nothing when it is called, empty for one that does."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "expected def, got async def, whose body does not run when it is called"
    if inspect.isgeneratorfunction(function):
        return "expected a function without yield, whose body does not run when it is called"
    return ""


@cache
def _fault_of_methods(made: type) -> str:
    """Describes a method that a class lacks, or whose parameters are not those of its abstract base class."""
    if missing := sorted(getattr(made, "__abstractmethods__", ())):
        members = [(name, getattr(made, name)) for name in missing]
        texts = [
            f"{name}({', '.join(inspect.signature(each).parameters)})" if callable(each) else name
            for name, each in members
        ]
        return f"{made.__name__}: expected a definition of {', '.join(texts)}"
    for base in made.__mro__[1:]:
        for name, abstract in vars(base).items():
            own = getattr(made, name)
            if not (getattr(abstract, "__isabstractmethod__", False) and inspect.isfunction(own)):
                continue
            if fault := fault_of_call(own):
                return f"{made.__name__}.{name}: {fault}"
            expected, got = inspect.signature(abstract).parameters, inspect.signature(own)
            by_name = {each.name: each for each in expected.values() if each.kind is each.KEYWORD_ONLY}
            try:
                got.bind(*(each for each in expected if each not in by_name), **by_name)
            except TypeError:
                return f"{made.__name__}.{name}: expected ({', '.join(expected)}), got ({', '.join(got.parameters)})"
    return ""


def _keywords(made: type) -> tuple[list[str], bool]:
    """Returns the names of the arguments of a class, and whether it takes others.

    A class with ``**settings`` takes what the class takes that it is derived from.
    """
    found: list[str] = []
    is_open = False
    for each in made.__mro__[:-1]:
        if "__init__" in vars(each):
            given = list(inspect.signature(vars(each)["__init__"]).parameters.values())[1:]
            names = [one.name for one in given if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
            found += [name for name in names if name not in found]
            is_open = any(one.kind == one.VAR_KEYWORD for one in given)
            if not is_open:
                break
    return found, is_open


@dataclass(frozen=True)
class PluginType:
    """A type of plug-in class."""

    group: str  # configuration group that selects the class
    base: type  # required base class
    base_name: str  # name of the base class as users import it
    of_function: Callable[[Any], type] | None = field(default=None, kw_only=True)  # class of the one function of a file

    @property
    def where(self) -> str:
        """Key that names the class, for error messages."""
        return self.group

    def make(self, spec: Mapping[str, Any], *arguments: Any, default: str | None = None) -> Any:
        """Creates an object from a configuration group.

        Args:
            spec: ``path`` (a Python file with one class of this type) or ``_target_`` (``package.Class``); all
                other keys are passed to the constructor.
            arguments: Positional arguments of the constructor.
            default: ``_target_`` if both keys are absent.

        Raises:
            ConfigError: The class is not found, is not of this type or does not accept the settings.
        """
        settings = dict(spec)
        path, target = settings.pop("path", None), settings.pop("_target_", None)
        if path:
            return self.construct(self.in_file(Path(str(path))), str(path), *arguments, **settings)
        target = target or default
        if not target:
            raise ConfigError(f"expected {self.group}.path or {self.group}._target_, got neither", where=self.group)
        return self.construct(self.by_target(str(target)), str(target), *arguments, **settings)

    def construct(self, made: Any, name: str, /, *arguments: Any, **settings: Any) -> Any:
        """Creates an object of a class; `name` is the user's name of the class.

        Raises:
            ConfigError: The class is not of this type or does not accept the settings.
        """
        self.checked(made, name)
        try:
            return made(*arguments, **settings)
        except TypeError:
            fault, (keys, is_open) = "", _keywords(made)
            allowed = keys[len(arguments) :]
            try:
                inspect.signature(made).bind(*arguments, **settings)
            except TypeError as error:
                fault = str(error)
            if not is_open and (unknown := next((key for key in settings if key not in allowed), None)):
                fault = f"got an unexpected keyword argument '{unknown}'{nearest(unknown, allowed)}"
            if not fault:
                raise
            raise ConfigError(
                f"{self.group} '{name}': {fault}; allowed keys: {', '.join(allowed) or 'none'}", where=self.where
            ) from None

    def checked(self, made: Any, name: str, /) -> Any:
        """Returns a class of the user's name `name` if it is one of this type, else raises ConfigError."""
        where = f"{self.where} '{name}'"
        is_plugin = inspect.isclass(made) and issubclass(made, self.base)
        if not is_plugin:
            raise ConfigError(
                f"expected a subclass of {self.base_name}, got {getattr(made, '__name__', made)}", where=where
            )
        if fault := _fault_of_methods(made):
            raise ConfigError(fault, where=where)
        return made

    def by_target(self, target: str, where: str | None = None) -> Any:
        """Imports ``package.Class``, which the key `where` names; ConfigError without such a module or class."""
        return _attribute(target, where or f"{self.group}._target_")

    def in_file(self, path: Path, where: str | None = None) -> Any:
        """Loads the one class of this type that a Python file, which the key `where` names, defines.

        A file without a class may have one function, whose name does not begin with ``_``, if the type allows it.

        Raises:
            ConfigError: The file does not exist, cannot be loaded, or does not define exactly one such class.
        """
        where, base = where or f"{self.group}.path", self.base.__name__
        function = " or one function" if self.of_function else ""
        if not path.is_file():
            raise ConfigError(
                f"expected a Python file with one subclass of {base}{function}, found no file '{path}'"
                f"{near_file(path, ('.py',))}",
                where=where,
            )
        module = self._module(path, where)
        values = {id(value): value for value in vars(module).values()}  # a second name of a class is no second class
        own = [value for value in values.values() if getattr(value, "__module__", None) == module.__name__]
        found = [value for value in own if inspect.isclass(value) and issubclass(value, self.base)]
        if not found and self.of_function:
            functions = [value for value in own if inspect.isfunction(value) and not value.__name__.startswith("_")]
            found = [self.of_function(value) for value in functions]
        if len(found) != 1:
            names = ", ".join(value.__name__ for value in found) or "none"
            raise ConfigError(f"expected exactly one {base} subclass{function} in '{path}', found {names}", where=where)
        return found[0]

    def _module(self, path: Path, where: str) -> ModuleType:
        return loaded(path, f"hdsim_{self.group}_{path.stem}", where=where)


#: Modules of files by path, name and time of the last change: each is executed once.
_modules: dict[tuple[Path, str, int], ModuleType] = {}


@dataclass(frozen=True)
class NamedType(PluginType):
    """A type of plug-in class that one key names, beside keys of which some are the settings of the class.

    The name is that of a class of hdsim, that of an installed package's entry point, a Python file with one class of
    this type (``.py``), or ``package.Class``.
    """

    key: str  # the key
    bundled: Mapping[str, str]  # classes of hdsim by name, as ``package.Class``

    @property
    def where(self) -> str:
        """Key that names the class, for error messages."""
        return self.key

    def names(self) -> list[str]:
        """Names of the classes of hdsim and of installed packages."""
        return _names(self)

    def find(self, name: Any) -> Any:
        """Returns the class of a name; ConfigError without one of this type."""
        if isinstance(name, str) and name in self.bundled:
            return self.by_target(self.bundled[name])
        in_file, what = partial(self.in_file, where=self.key), f"subclass of {self.base_name}"
        return self.checked(_named(self, name, in_file, what), name)

    def classes(self) -> dict[str, Any]:
        """Returns the classes of hdsim by name."""
        return {name: self.by_target(target) for name, target in self.bundled.items()}

    def _module(self, path: Path, where: str) -> ModuleType:
        return _loaded_once(path, self.group, where)


@dataclass(frozen=True)
class NamedFunction:
    """A type of plug-in function that keys name.

    The name is one of hdsim, that of an installed package's entry point, a Python file with one function (``.py``;
    functions that begin with ``_`` may stand beside it), or ``package.function``.
    """

    group: str  # group of entry points
    key: str  # the key, for error messages
    bundled: Collection[str]  # names of hdsim
    parameters: tuple[int, ...]  # how many positional arguments it may take
    form: str  # the function as users write it

    def names(self) -> list[str]:
        """Names of hdsim and of installed packages."""
        return _names(self)

    def find(self, name: Any) -> tuple[Callable[..., Any], int]:
        """Returns the function of a name that is none of hdsim's, and how many arguments it takes.

        Raises:
            ConfigError: There is no such function, or it takes other arguments.
        """
        function = _named(self, name, self._in_file, f"function {self.form}")
        where = f"{self.key} '{name}'"
        if not callable(function) or inspect.isclass(function):
            raise ConfigError(f"expected a function {self.form}, got {function!r}", where=where)
        try:
            signature = inspect.signature(function)
        except ValueError:  # of some functions that are compiled
            raise ConfigError(f"expected a Python function {self.form}, got {function!r}", where=where) from None
        for count in self.parameters:
            with suppress(TypeError):
                signature.bind(*range(count))
                return function, count
        called = getattr(function, "__name__", repr(function))
        raise ConfigError(f"expected {self.form}, got {called}{signature}", where=where)

    def _in_file(self, path: Path) -> Any:
        if not path.is_file():
            raise ConfigError(
                f"expected a Python file with one function {self.form}, found no file '{path}'"
                f"{near_file(path, ('.py',))}",
                where=self.key,
            )
        module = _loaded_once(path, self.group, self.key)
        own = {
            name: value
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
        }
        if len(own) != 1:
            found = ", ".join(own) or "none"
            raise ConfigError(f"expected one function {self.form} in '{path}', found {found}", where=self.key)
        return next(iter(own.values()))


def _names(kind: NamedType | NamedFunction) -> list[str]:
    return list(dict.fromkeys([*kind.bundled, *(entry.name for entry in installed(kind.group))]))


def _named(kind: NamedType | NamedFunction, name: Any, in_file: Callable[[Path], Any], what: str) -> Any:
    """Returns what an installed package, a file or a module has under a name; ConfigError if it is none of these."""
    entry = next((entry for entry in installed(kind.group) if entry.name == name), None)
    if entry is not None:
        return _attribute(entry.value.replace(":", "."), kind.key)
    if isinstance(name, str) and name.endswith(".py"):
        return in_file(Path(name))
    if isinstance(name, str) and "." in name:
        return _attribute(name, kind.key)
    raise ConfigError(f"{not_one_of(name, kind.names())}; or a Python file with one {what}", where=kind.key)


def _loaded_once(path: Path, group: str, where: str) -> ModuleType:
    """Loads a file of a group that the key `where` names, unless it is loaded and has not changed."""
    version = path.resolve(), group, path.stat().st_mtime_ns
    if version not in _modules:
        _modules[version] = loaded(path, f"hdsim_{group}_{path.stem}", where=where)
    return _modules[version]
