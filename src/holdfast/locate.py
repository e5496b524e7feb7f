"""Where an application is: `MODULE:APP`, as the command and worker processes are told."""

import importlib
import os
import sys
from types import ModuleType

from holdfast.app import Holdfast
from holdfast.errors import InvalidInput


def load(location: str) -> Holdfast:
    """The application at MODULE:APP, the current folder importable; MODULE alone means `app`."""
    found = find(location)
    if not isinstance(found, Holdfast):
        raise InvalidInput(
            f"{location!r} is a {type(found).__name__}, not a Holdfast application"
            f"{_hint(location.partition(':')[0])}"
        )
    return found


def find(location: str) -> object:
    """Whatever is at MODULE:NAME."""
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
            raise  # the module is there, but one that it imports is not: its author needs the trace
        raise InvalidInput(
            f"{location!r}: {problem}; it is looked for in {folder!r} and where Python finds its "
            "packages"
        ) from problem


def _hint(module_name: str) -> str:
    """The applications that the module does have."""
    names = [
        f"{module_name}:{name}"
        for name, found in vars(sys.modules[module_name]).items()
        if isinstance(found, Holdfast)
    ]
    return f"; it has {', '.join(names)}" if names else ""
