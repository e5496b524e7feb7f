"""Imports the application that `MODULE:APP` names, for the command and for worker processes."""

import importlib
import os
import sys
from types import ModuleType

from holdfast.app import Holdfast
from holdfast.errors import InvalidInput


def load(location: str) -> Holdfast:
    """Return the application at MODULE:APP; MODULE alone means `app`. Modules of the current folder can
    be imported. Raises InvalidInput."""
    found = find(location)
    if not isinstance(found, Holdfast):
        raise InvalidInput(
            f"{location!r} is a {type(found).__name__}, not a Holdfast application"
            f"{_hint(location.partition(':')[0])}"
        )
    return found


def find(location: str) -> object:
    """Return the object at MODULE:NAME. Raises InvalidInput."""
    module_name, _, name = location.partition(":")
    name = name or "app"
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidInput(
            f"{location!r} is not MODULE:APP: write it as Python imports it, e.g. 'shop.jobs:app' "
            "for 'app' in shop/jobs.py"
        )
    found: object = _import(module_name, location)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidInput(
                f"{location!r}: module {module_name!r} has no {name!r}{_hint(module_name)}"
            )
        found = getattr(found, part)
    return found


def _import(name: str, location: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        missing = problem.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise  # the module exists, but imports a missing one: its author needs the traceback
        raise InvalidInput(
            f"{location!r}: {problem}; it is looked for in {folder!r} and where Python finds its "
            "packages"
        ) from problem


def _hint(module_name: str) -> str:
    """Return the end of an error: the applications that the module has."""
    names = [
        f"{module_name}:{name}"
        for name, found in vars(sys.modules[module_name]).items()
        if isinstance(found, Holdfast)
    ]
    return f"; it has {', '.join(names)}" if names else ""
