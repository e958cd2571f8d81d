"""Congestion controllers in Python on their way to the workers of a sweep. `_sweep.py` packs them, `_batch.py` unpacks them.

Classes go by value, so that a worker needs no file of the one who sent them, wherever they were written: in a program, a notebook or a
module. What runs depend on is their code, which has a name of its own here: a row of other code is not taken.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import inspect
import os
import pickle
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._controller import Controller


def _pickler() -> Any:
    """cloudpickle, Ray's copy of it if there is no other."""
    try:
        import cloudpickle
    except ImportError:
        try:
            from ray import cloudpickle
        except ImportError as error:
            raise ImportError("controllers of a sweep need cloudpickle: pip install cloudpickle") from error
    return cloudpickle


def pack(controllers: Mapping[str, type]) -> str:
    """The classes, as text."""
    pickler = _pickler()
    modules = {module for of in controllers.values() for module in _modules(of)}
    for module in modules:
        pickler.register_pickle_by_value(module)
    try:
        return base64.b64encode(pickler.dumps(dict(controllers))).decode()
    finally:
        for module in modules:
            pickler.unregister_pickle_by_value(module)


@functools.lru_cache(maxsize=8)
def unpack(text: str) -> dict[str, type]:
    """The classes in a worker; the same ones for each of its batches."""
    _pickler()
    classes: dict[str, type] = pickle.loads(base64.b64decode(text))
    return classes


def of_file(file: str | os.PathLike[str]) -> dict[str, type]:
    """The dict `controllers` of a Python file."""
    path = Path(file)
    name = f"taut_lab_controllers_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise OSError(f"{path} is no Python file")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    found = getattr(sys.modules[name], "controllers", None)
    if not isinstance(found, dict):
        raise ValueError(f"{path}: there is no dict `controllers`, such as controllers = {{\"mine\": Mine}}")
    return found


def _modules(of: type) -> set[types.ModuleType]:
    """The modules of a class and of those that it inherits from, but for this package and what every program has."""
    names = {one.__module__ for one in of.__mro__ if one not in (Controller, object)}
    return {sys.modules[name] for name in names if name in sys.modules and name not in ("__main__", *sys.stdlib_module_names)}


def code(of: type) -> str:
    """A name for a class's code: that of the class, of what it inherits from, and of functions, classes and values that it uses."""
    found: list[str] = []
    _collect(of, found, set())
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def _collect(one: Any, found: list[str], seen: set[int]) -> None:
    if id(one) in seen:
        return
    seen.add(id(one))
    if isinstance(one, type):
        # What is installed with the package, or with Python, has a version of its own.
        is_there = getattr(sys.modules.get(one.__module__), one.__name__, None) is one
        if is_there and one.__module__.partition(".")[0] in ("taut_lab", *sys.stdlib_module_names):
            found.append(f"{one.__module__}.{one.__qualname__}")
            return
        found.append(_source(one))
        for base in one.__bases__:
            _collect(base, found, seen)
        for _, value in sorted(vars(one).items()):
            parts = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
            for part in parts:
                _collect_used(part, found, seen)
    elif isinstance(one, types.FunctionType):
        found.append(_source(one))
        _collect_used(one, found, seen)
    elif isinstance(one, (types.ModuleType, types.BuiltinFunctionType)):
        found.append(f"{one.__name__} {getattr(one, '__version__', '')}")
    elif isinstance(one, (bool, int, float, str, bytes, tuple, list, dict, type(None))):
        found.append(repr(one))


def _collect_used(function: Any, found: list[str], seen: set[int]) -> None:
    """What a function, and those in it, use of its module and of the functions around it."""
    if not isinstance(function, types.FunctionType):
        return
    bodies, names = [function.__code__], set[str]()
    for body in bodies:
        names.update(body.co_names)
        bodies.extend(one for one in body.co_consts if isinstance(one, types.CodeType))
    used = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            used[name] = cell.cell_contents
        except ValueError:
            # It has no value yet.
            pass
    for name, value in sorted(used.items()):
        found.append(name)
        _collect(value, found, seen)


def _source(one: Any) -> str:
    try:
        return inspect.getsource(one)
    except (OSError, TypeError):
        # Typed where no file keeps it: the instructions.
        functions = [value for value in vars(one).values()] if isinstance(one, type) else [one]
        return " ".join(
            f"{function.__qualname__} {function.__code__.co_code.hex()} {function.__code__.co_consts!r}"
            for function in functions
            if isinstance(function, types.FunctionType)
        )
