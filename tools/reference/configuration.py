"""The page of the settings: the parameter, the environment variable and the default of each.

The variables are found by making the settings in an environment that records the names read from it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from holdfast.app import DEFAULT_URL, Holdfast
from holdfast.jobs.backoff import Backoff
from holdfast.settings import HEALTH, RETENTION, Settings, Thresholds
from holdfast.tasks.options import Options
from holdfast.web.options import WebOptions
from tools.reference.api import parameters, task_options
from tools.reference.command import PREFIX, commands, options, variable
from tools.reference.markdown import code, heading, plain, sentence, table
from tools.reference.source import Field, source_of

#: The parts of parameters that have an environment variable for each part.
PARTS: dict[str, Mapping[str, Any]] = {"retention": RETENTION, "health": HEALTH, "backoff": {}}


class _RecordingEnvironment(dict[str, str]):
    """An empty environment that records the names read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.append(name)
        return default


@contextmanager
def _recording() -> Iterator[list[str]]:
    environment = _RecordingEnvironment()
    with mock.patch.object(os, "environ", environment):
        yield environment.asked


def variables() -> list[str]:
    """Return the environment variables that an application reads."""
    with _recording() as asked:
        Settings()
    return sorted({"HOLDFAST_URL", *(name for name in asked if name.startswith(PREFIX))})


def page() -> str:
    return (
        "# Configuration\n\nEvery setting has a default. A setting of a job wins over its task, the "
        "task over the application, the application over the environment, and the environment over the "
        'default. Durations are seconds, a `timedelta`, or text such as `"1h 30m"`.\n'
        + heading(2, "The application", "application")
        + table(("setting", "in the environment", "default", "also for", "meaning"), _settings())
        + heading(2, "The command and the worker", "command")
        + "The variable of an option is `HOLDFAST_`, the subcommand and the option; [Command "
        "line](cli.md) has all of them. Those that several subcommands share, and those of a worker:\n"
        + table(("variable", "option", "meaning"), _shared())
        + heading(2, "The web", "web")
        + "Of `dashboard(app, ...)`; `holdfast web` has options for them, which `worker --web` and "
        "`dev` read from the environment.\n"
        + parameters(_web_options())
        + table(("variable", "option", "meaning"), _of("holdfast web"))
    )


def _settings() -> Iterator[list[str]]:
    source = source_of(Holdfast)
    init = source.find("__init__")
    assert init is not None
    names = set(variables())
    for one in source.parameters(init):
        if one.name in PARTS:
            yield from _parts(one)
            continue
        name = f"{PREFIX}_{one.name.upper()}"
        yield [
            code(one.name),
            code(name) if name in names else "",
            code(default(one.name)) or "",
            _elsewhere(one.name),
            sentence(plain(one.words)),
        ]


def _parts(one: Field) -> Iterator[list[str]]:
    found = {f.name: f for f in source_of(Backoff).fields()} if one.name == "backoff" else {}
    health = {f.name: f for f in source_of(Thresholds).fields()} if one.name == "health" else {}
    given = found or PARTS[one.name]
    for part in given:
        words = {**found, **health}.get(part)
        told = words.words if words else f"How long {part} jobs are kept"
        value = found[part].default if found else PARTS[one.name][part]
        yield [
            code(f"{one.name}: {part}"),
            code(f"{PREFIX}_{one.name}_{part}".upper()),
            code("none" if value is None else value),
            _elsewhere(one.name),
            sentence(plain(told)),
        ]


def default(name: str) -> str:
    """Return the default of a setting."""
    if name == "url":
        return DEFAULT_URL
    with _recording():
        settings = Settings()
    known = {"timeout", "max_attempts", "poll_interval", "heartbeat", "aging", "app_version"}
    if name in known | {"archive", "database_timeout"}:
        return str(getattr(settings, name)).lower()
    if name == "workdir":
        return "holdfast-UID in the system's temporary folder"
    source = source_of(Holdfast)
    init = source.find("__init__")
    assert init is not None
    return next(one.default or "" for one in source.parameters(init) if one.name == name)


def _elsewhere(name: str) -> str:
    places = []
    if name in {one.name for one in task_options()}:
        places.append("task")
    if name in Options.__dataclass_fields__ and name not in ("aging", "backoff"):
        places.append("job")
    return ", ".join(places)


def _web_options() -> list[Field]:
    return list(source_of(WebOptions).fields())


def _shared() -> list[list[str]]:
    """Return the rows of variables that several subcommands share, and of those of a worker."""
    rows: dict[str, list[str]] = {}
    for name, command in commands().items():
        for one in options(command):
            told = variable(name, one)
            if told and (one.envvar or name == "holdfast worker"):
                rows.setdefault(told, _row(told, one))
    return [rows[name] for name in sorted(rows)]


def _of(name: str) -> Iterator[list[str]]:
    for one in options(commands()[name]):
        told = variable(name, one)
        if told and not one.envvar:
            yield _row(told, one)


def _row(told: str, option: Any) -> list[str]:
    shown = ", ".join(map(code, option.opts))
    return [code(told), shown, sentence(plain(option.help or ""))]
