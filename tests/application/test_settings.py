"""Settings: as given in code, else from the environment, else the defaults."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import Backoff, Holdfast, InvalidInput, Status
from holdfast.settings import Settings

DAY = 86400.0


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_") and not name.startswith("HOLDFAST_TEST"):
            monkeypatch.delenv(name)


def found(settings: Settings, name: str) -> Any:
    """Return a setting by its name in the environment."""
    if name.startswith("RETENTION_"):
        return settings.retention[Status(name.removeprefix("RETENTION_").lower())]
    if name.startswith("BACKOFF_"):
        return [settings.backoff(attempts) for attempts in (1, 2, 30)]
    return getattr(settings, name.lower())


def test_the_defaults() -> None:
    settings = Settings()
    assert (settings.max_attempts, settings.timeout) == (3, 300.0)
    assert (settings.poll_interval, settings.heartbeat) == (1.0, 5.0)
    assert settings.retention == {
        Status.COMPLETED: 7 * DAY,
        Status.FAILED: 30 * DAY,
        Status.CANCELLED: 7 * DAY,
    }
    assert 5.0 <= settings.backoff(1) <= 5.5
    folder = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    assert settings.workdir == folder.absolute()


EXACT = {"HOLDFAST_BACKOFF_JITTER": "0"}  # to tell the other parts apart

TOLD: list[tuple[str, str, Any]] = [
    ("MAX_ATTEMPTS", "7", 7),
    ("TIMEOUT", "90", 90.0),
    ("TIMEOUT", "2m", 120.0),
    ("TIMEOUT", "none", None),
    ("POLL_INTERVAL", "0.25", 0.25),
    ("POLL_INTERVAL", "250ms", 0.25),
    ("HEARTBEAT", "1s", 1.0),
    ("RETENTION_COMPLETED", "1h", 3600.0),
    ("RETENTION_FAILED", "60", 60.0),
    ("RETENTION_CANCELLED", "0", 0.0),
    ("BACKOFF_DELAY", "2s", [2.0, 4.0, 3600.0]),
    ("BACKOFF_DELAY", "2", [2.0, 4.0, 3600.0]),
    ("BACKOFF_MULTIPLIER", "3", [5.0, 15.0, 3600.0]),
    ("BACKOFF_CAP", "1m", [5.0, 10.0, 60.0]),
    ("BACKOFF_JITTER", "0", [5.0, 10.0, 3600.0]),
    ("WORKDIR", "/somewhere/else", Path("/somewhere/else")),
]


@pytest.mark.parametrize(("name", "text", "expected"), TOLD)
def test_settings_are_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, expected: Any
) -> None:
    for variable, value in (EXACT | {f"HOLDFAST_{name}": text}).items():
        monkeypatch.setenv(variable, value)
    assert found(Settings(), name) == expected
    of_app = found(Holdfast("sqlite:///x.db").settings, name)
    assert (of_app.parent if name == "WORKDIR" else of_app) == expected  # one folder a database


@pytest.mark.parametrize("name", sorted({name for name, _, _ in TOLD}))
def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("HOLDFAST_BACKOFF_JITTER", "0")
    expected = found(Settings(), name)
    monkeypatch.setenv(f"HOLDFAST_{name}", "")
    if name != "BACKOFF_JITTER":
        assert found(Settings(), name) == expected


@pytest.mark.parametrize(
    ("option", "value", "name", "text", "expected"),
    [
        ("max_attempts", 2, "MAX_ATTEMPTS", "7", 2),
        ("timeout", "1m", "TIMEOUT", "7", 60.0),
        ("timeout", None, "TIMEOUT", "7", None),
        ("poll_interval", 2, "POLL_INTERVAL", "7", 2.0),
        ("heartbeat", 2, "HEARTBEAT", "7", 2.0),
        ("retention", {"failed": 2}, "RETENTION_FAILED", "7", 2.0),
        ("retention", {"failed": 2}, "RETENTION_COMPLETED", "7", 7.0),
        ("backoff", Backoff(delay=1, jitter=0), "BACKOFF_DELAY", "7", [1.0, 2.0, 3600.0]),
        ("backoff", 4, "BACKOFF_CAP", "1", [4.0] * 3),
        ("workdir", "/given", "WORKDIR", "/told", Path("/given")),
        ("workdir", Path("/given"), "WORKDIR", "/told", Path("/given")),
    ],
)
def test_arguments_override_the_environment(
    monkeypatch: pytest.MonkeyPatch, option: str, value: Any, name: str, text: str, expected: Any
) -> None:
    monkeypatch.setenv(f"HOLDFAST_{name}", text)
    assert found(Settings(**{option: value}), name) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("MAX_ATTEMPTS", "many", "HOLDFAST_MAX_ATTEMPTS='many': give an integer"),
        ("MAX_ATTEMPTS", "2.5", "HOLDFAST_MAX_ATTEMPTS='2.5'"),
        ("MAX_ATTEMPTS", "0", "max_attempts=0: give an integer from 1"),
        ("TIMEOUT", "soon", "timeout='soon': give seconds"),
        ("TIMEOUT", "0", "timeout=0: give a positive duration, or None"),
        ("TIMEOUT", "-3", "timeout=-3"),
        ("TIMEOUT", "nan", "timeout=nan"),
        ("POLL_INTERVAL", "often", "poll_interval='often'"),
        ("POLL_INTERVAL", "0", "poll_interval=0: give a positive"),
        ("HEARTBEAT", "0s", "heartbeat=0: give a positive"),
        ("HEARTBEAT", "inf", "heartbeat=inf"),
        ("RETENTION_COMPLETED", "ever", "retention of completed='ever'"),
        ("RETENTION_FAILED", "-1", "retention of failed=-1"),
        ("RETENTION_CANCELLED", "200000d", "retention of cancelled='200000d'"),
        ("BACKOFF_DELAY", "soon", "backoff delay='soon'"),
        ("BACKOFF_CAP", "high", "backoff cap='high'"),
        ("BACKOFF_MULTIPLIER", "two", "backoff multiplier='two': give a number"),
        ("BACKOFF_MULTIPLIER", "0", "backoff multiplier=0"),
        ("BACKOFF_JITTER", "2", "backoff jitter=2.0: from 0 to 1"),
    ],
)
def test_an_error_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str
) -> None:
    monkeypatch.setenv(f"HOLDFAST_{name}", text)
    with pytest.raises(InvalidInput, match=message):
        Settings()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"max_attempts": True}, "max_attempts=True"),
        ({"timeout": 0}, "timeout=0"),
        ({"poll_interval": 0}, "poll_interval=0"),
        ({"heartbeat": -1}, "heartbeat=-1"),
        ({"backoff": "soon"}, "backoff='soon'"),
        ({"retention": {"failed": "x"}}, "retention of failed='x'"),
        ({"retention": {"running": 1}}, "running is no final status"),
    ],
)
def test_arguments_are_validated_like_the_environment(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        Settings(**options)


def test_a_relative_folder_becomes_absolute_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler may change the working directory later."""
    assert Settings(workdir="scratch").workdir == Path.cwd() / "scratch"


def test_tasks_inherit_the_applications_settings() -> None:
    app = Holdfast("sqlite:///x.db", max_attempts=9, timeout="20s", retention={"failed": "1h"})

    @app.task
    def plain() -> None: ...

    @app.task(max_attempts=2, timeout=None, retention={"completed": 5})
    def own() -> None: ...

    assert (plain.defaults.max_attempts, plain.conduct.timeout) == (9, 20.0)
    assert (own.defaults.max_attempts, own.conduct.timeout) == (2, None)
    assert plain.policy.keep[Status.FAILED] == own.policy.keep[Status.FAILED] == 3600.0
    assert own.policy.keep[Status.COMPLETED] == 5.0
