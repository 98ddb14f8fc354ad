"""The user's own Python: read beside the pipeline file on the driver, and imported from its text on workers.

A worker of a cluster has not the folder of the pipeline file, and one that Spark keeps for another run must
not go on with what it imported before. So the text of the modules travels with the plan, and what was
imported is known by the digest of all of it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from lakefeed.errors import TableError
from lakefeed.figures import readable_size
from lakefeed.text import did_you_mean

Function = Callable[[pa.RecordBatch], Any]

_LARGEST = 8 * 2**20
"""Bytes of modules that travel: each task gets them."""
_MOST_KEPT = 8
"""How many versions of modules a process remembers: one that runs pipelines for days meets many."""
_FOREIGN = {*sys.stdlib_module_names, "lakefeed", "pyarrow", "pyspark", "numpy"}
"""Modules that stay what they are, whatever lies beside the pipeline file."""


@dataclass(frozen=True)
class ModuleText:
    """One module that travels; `file` is where it was read, which errors name."""

    name: str
    file: str
    is_package: bool
    text: bytes = field(repr=False)


@dataclass(frozen=True)
class UserCode:
    """The modules beside a pipeline file that its functions need."""

    modules: tuple[ModuleText, ...] = ()

    @cached_property
    def digest(self) -> str:
        """What stands for exactly these modules."""
        found = hashlib.sha256()
        for one in self.modules:
            for part in (one.name.encode(), one.file.encode(), one.text):
                found.update(len(part).to_bytes(8) + part)
        return found.hexdigest()


@dataclass(frozen=True)
class UserFunction:
    """A function of the user's: its name as in the file, `module:function`, and the modules for it."""

    name: str
    code: UserCode = field(default_factory=UserCode, repr=False)

    def load(self) -> Function:
        """Import it in this process. Raises TableError with what is wrong."""
        module, _, function = self.name.partition(":")
        with _lock:
            kept = _functions.get((self.code.digest, self.name))
            if kept is None:
                kept = _checked(_imported(module, self.code), self.name, function)
                _functions[self.code.digest, self.name] = kept
                while len(_functions) > _MOST_KEPT:
                    del _functions[next(iter(_functions))]
        return kept

    def line_of(self, error: BaseException) -> str:
        """` (clean.py, line 7)`: the last line of the user's that an error came through; empty if none."""
        own = {one.file for one in self.code.modules}
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename in own:
                return f" ({Path(frame.filename).name}, line {frame.lineno})"
        return ""


def collect(functions: Iterable[str], folder: Path) -> UserCode:
    """The modules beside a pipeline file that these functions need, with all that they import from there.

    What is not there is installed, on the workers too. Raises TableError where there is too much.
    """
    found: dict[str, ModuleText] = {}
    waiting = [name.partition(":")[0].partition(".")[0] for name in functions]
    seen: set[str] = set()
    while waiting:
        top = waiting.pop()
        if top not in seen:
            seen.add(top)
            for one in _beside(top, folder):
                found[one.name] = one
                waiting += _imports(one)
    size = sum(len(one.text) for one in found.values())
    if size > _LARGEST:
        raise TableError(
            f"the Python modules beside the pipeline file have {readable_size(size)}, more than "
            f"{readable_size(_LARGEST)}.\nInstall them as a package instead, on every machine."
        )
    return UserCode(tuple(found[name] for name in sorted(found)))


def _beside(top: str, folder: Path) -> Iterator[ModuleText]:
    """The module of this name in the folder, or the package with all that is in it."""
    if top in _FOREIGN or not top.isidentifier():
        return
    package, file = folder / top, folder / f"{top}.py"
    if (package / "__init__.py").is_file() or (not file.is_file() and _is_plain_folder(package, top)):
        for path in sorted(package.rglob("*.py")):
            parts = [top, *path.relative_to(package).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            parts = parts[:-1] if is_package else parts
            if all(part.isidentifier() for part in parts):
                yield ModuleText(".".join(parts), str(path), is_package, path.read_bytes())
    elif file.is_file():
        yield ModuleText(top, str(file), False, file.read_bytes())


def _is_plain_folder(package: Path, top: str) -> bool:
    """Whether a folder without `__init__.py` is what Python would import by this name."""
    if not package.is_dir() or next(package.glob("*.py"), None) is None:
        return False
    installed = PathFinder.find_spec(top)
    return installed is None or installed.loader is None


def _imports(module: ModuleText) -> Iterator[str]:
    """The first name of everything that a module imports, inside of functions too."""
    try:
        tree = ast.parse(module.text)
    except (SyntaxError, ValueError):
        # Importing it tells what is wrong.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


_lock = threading.RLock()
_functions: dict[tuple[str, str], Function] = {}


class _Finder(MetaPathFinder, InspectLoader):
    """Imports modules from their texts. One is installed at a time."""

    def __init__(self, code: UserCode) -> None:
        self.digest = code.digest
        self.tops = {name.partition(".")[0] for name in (one.name for one in code.modules)}
        self._modules = {one.name: one for one in code.modules}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module if it is one of the texts, or a folder of such."""
        known = self._modules.get(fullname)
        if known is None:
            if not any(name.startswith(f"{fullname}.") for name in self._modules):
                return None
            # A folder without `__init__.py`.
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = []
            return spec
        spec = ModuleSpec(fullname, self, origin=known.file, is_package=known.is_package)
        spec.has_location = True
        if known.is_package:
            spec.submodule_search_locations = [str(Path(known.file).parent)]
        return spec

    def is_package(self, fullname: str) -> bool:
        """Whether it is an `__init__.py`."""
        return self._modules[fullname].is_package

    def get_source(self, fullname: str) -> str:
        """The text, for those who show lines of it."""
        return self._modules[fullname].text.decode("utf-8", "replace")

    def get_code(self, fullname: str) -> Any:
        """The compiled text, under the name of the file that it was read from."""
        module = self._modules[fullname]
        return compile(module.text, module.file, "exec", dont_inherit=True)


_installed: _Finder | None = None


def _imported(module: str, code: UserCode) -> ModuleType:
    """The module, from its text if it travels, else as it is installed."""
    top = module.partition(".")[0]
    if code.modules:
        _install(code)
    elif _installed is not None and top in _installed.tops:
        _forget()
    try:
        return import_module(module)
    except SyntaxError as error:
        at = f"{Path(error.filename or module).name}, line {error.lineno}"
        raise TableError(f"module '{module}' is no Python: {error.msg} ({at})") from error
    except Exception as error:
        raise TableError(_why_not(module, code, error)) from error


def _why_not(module: str, code: UserCode, error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and (module == missing or module.startswith(f"{missing}.")):
        names, file = {one.name for one in code.modules}, module.replace(".", "/") + ".py"
        return (
            f"there is no module '{module}'{did_you_mean(module, names)}; put {file} beside the "
            "pipeline file, or install it"
        )
    line = UserFunction(f"{module}:", code).line_of(error)
    return f"module '{module}' cannot be imported: {type(error).__name__}: {error}{line}"


def _install(code: UserCode) -> None:
    """Let these modules be imported from now on, and not what was imported under their names before."""
    global _installed
    if _installed is not None and _installed.digest == code.digest:
        return
    _forget()
    _installed = _Finder(code)
    _remove(_installed.tops)
    sys.meta_path.insert(0, _installed)


def _forget() -> None:
    global _installed
    if _installed is not None:
        sys.meta_path.remove(_installed)
        _remove(_installed.tops)
        _installed = None


def _remove(tops: set[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]


def _checked(module: ModuleType, name: str, function: str) -> Function:
    found = getattr(module, function, None)
    where = f"module '{module.__name__}'"
    if found is None:
        own = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        raise TableError(f"{where} has no function '{function}'{did_you_mean(function, own)}")
    if not callable(found):
        raise TableError(f"'{name}' is no function, but {type(found).__name__}")
    try:
        inspect.signature(found).bind(None)
    except ValueError:
        # Written in C: it does not tell.
        pass
    except TypeError:
        raise TableError(
            f"'{name}' must take one argument, the pyarrow.RecordBatch: it is "
            f"{function}{inspect.signature(found)}"
        ) from None
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
        raise TableError(f"'{name}' must return a pyarrow.RecordBatch, and not be async or a generator")
    kept: Function = found
    return kept
