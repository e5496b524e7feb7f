"""The settings of an application: from `Holdfast(...)`, else the environment, else the defaults. An
invalid value raises InvalidInput, which names the setting."""

import os
import tempfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from holdfast.core import validation
from holdfast.core.duration import Duration, positive, seconds, timeout_seconds
from holdfast.core.records import value
from holdfast.errors import InvalidInput
from holdfast.jobs.backoff import Backoff, BackoffLike, backoff
from holdfast.jobs.job import FINISHED, Status
from holdfast.monitoring.metrics import length_of
from holdfast.tasks.options import UNSET, Unset

RETENTION: Mapping[str, Duration] = {"completed": "7d", "failed": "30d", "cancelled": "7d"}
HEALTH: Mapping[str, Any] = {
    "max_age": "1h",
    "stall": "10m",
    "failure_rate": 0.05,
    "window": "1h",
    "expected_workers": None,
    "spread": 0.25,
}


@value
class Thresholds:
    """The thresholds of `app.health()`."""

    max_age: float | None  #: the most seconds that a job may have been due; None: any
    stall: float | None  #: while jobs wait, a job must end within so many seconds; None: any
    failure_rate: float  #: the largest share of finished jobs that may have failed
    window: float  #: seconds over which rates and shares are counted
    expected_workers: int | None  #: how many workers must be alive; None: one, if there is work
    spread: float  #: the part of an equal share of its queue's jobs that each worker must do


class Settings:
    """The settings of an application: as given, else from the environment, else the defaults."""

    def __init__(
        self,
        *,
        max_attempts: int | None = None,
        timeout: Duration | Unset | None = UNSET,
        backoff: BackoffLike | None = None,
        retention: Mapping[str, Duration] | None = None,
        poll_interval: Duration | None = None,
        heartbeat: Duration | None = None,
        workdir: str | Path | None = None,
        aging: Duration | None = None,
        health: Mapping[str, Any] | None = None,
        app_version: str | None = None,
        database_timeout: Duration | None = None,
        archive: str | Path | None = None,
        unreadable_for: Duration | None = None,
        database: str = "",
    ) -> None:
        """`database` names the database: others may have the same `workdir`."""
        self.max_attempts = _max_attempts(max_attempts)
        self.timeout = _timeout(timeout)  #: seconds of one attempt; None: no limit
        self.backoff = _backoff(backoff)
        self.retention = keep_times(retention or {}, _default_retention())
        self.poll_interval = _positive("poll_interval", poll_interval, 1.0)
        self.heartbeat = _positive("heartbeat", heartbeat, 5.0)
        self.workdir = _workdir(workdir, database)
        aging = _chosen("aging", aging)
        #: seconds of waiting that count as much as one step of priority
        self.aging = None if aging is None else positive(aging, what="aging")
        self.health = thresholds(health or {})
        self.app_version = app_version or _variable("app_version")  #: of the application's code
        #: seconds that a call waits for the database
        self.database_timeout = _positive("database_timeout", database_timeout, 30.0)
        #: a folder for finished jobs, before they are deleted
        self.archive = _folder(archive or _variable("archive"))
        #: seconds until a job that no worker can read fails; 0: at once
        self.unreadable_for = seconds(
            _chosen("unreadable_for", unreadable_for, "1h"), what="unreadable_for"
        )


def place_of(url: str, schema: str) -> str:
    """Return a name of a URL's database that does not depend on the user and the options of the URL."""
    if several := _several_hosts(url):
        return f"{several}#{schema}"
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return str(Path(parts.path[1:]).absolute())
    try:
        return f"{parts.hostname}:{parts.port}{parts.path}#{schema}"
    except ValueError:  # not a port: the engine refuses it, with the reason
        return f"{parts.netloc}{parts.path}#{schema}"


def _several_hosts(url: str) -> str:
    """Return the hosts and the path of a libpq URL that names several hosts, else an empty text."""
    address, _, query = url.partition("://")[2].partition("?")
    server, slash, path = address.partition("/")
    hosts, asked = server.rpartition("@")[2], dict(parse_qsl(query))
    if "," in asked.get("host", ""):
        hosts = f"{asked['host']}:{asked.get('port')}"
    several = url.startswith("postgres") and "," in hosts
    return f"{hosts.lower()}{slash}{path}" if several else ""


def _workdir(given: str | Path | None, database: str) -> Path:
    default = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    folder = Path(given or _variable("workdir") or default).absolute()
    return folder / sha256(database.encode()).hexdigest()[:12] if database else folder


def _folder(given: str | Path | None) -> Path | None:
    if given is None:
        return None
    path = Path(given).absolute()
    if path.exists() and not path.is_dir():
        raise InvalidInput(
            f"archive={str(given)!r} is a file: give a folder, which may not exist yet"
        )
    return path


def thresholds(given: Mapping[str, Any], base: Thresholds | None = None) -> Thresholds:
    """Return the given thresholds; the others come from `base`, the environment or the defaults."""
    if unknown := set(given) - set(HEALTH):
        raise InvalidInput(
            f"health={dict(given)!r}: {', '.join(sorted(map(str, unknown)))} is no threshold; there "
            f"are {', '.join(HEALTH)}"
        )

    def chosen(name: str) -> Any:
        if name in given:
            return given[name]
        if base is not None:
            return getattr(base, name)
        found = _chosen(f"health_{name}", None, HEALTH[name])
        return None if found == "none" else found

    workers = chosen("expected_workers")
    if isinstance(workers, float) and workers.is_integer():
        workers = int(workers)  # from the environment
    return Thresholds(
        max_age=_optional(chosen("max_age"), "max_age"),
        stall=_optional(chosen("stall"), "stall"),
        failure_rate=_part(chosen("failure_rate"), "failure_rate"),
        window=length_of(chosen("window")),
        expected_workers=(
            None
            if workers is None
            else validation.integer(workers, "expected_workers", 0, 2**31 - 1)
        ),
        spread=_part(chosen("spread"), "spread"),
    )


def _optional(given: Any, name: str) -> float | None:
    return None if given is None else seconds(given, what=name)


def _part(given: Any, name: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise InvalidInput(f"{name}={given!r}: give a number from 0 to 1")
    return float(given)


def _variable(name: str) -> str | None:
    """Return the text of a variable of the environment; an empty one counts as unset."""
    return os.environ.get(f"HOLDFAST_{name.upper()}") or None


def _chosen(name: str, given: Any, default: Any = None) -> Any:
    """Return what was given, else the variable of the environment, else the default. A text that is a
    number is returned as a number."""
    found = (_variable(name) or default) if given is None else given
    try:
        return float(found) if isinstance(found, str) else found
    except ValueError:
        return found


def _positive(name: str, given: Duration | None, default: float) -> float:
    return positive(_chosen(name, given, default), what=name)


def _max_attempts(given: int | None) -> int:
    if given is None and (text := _variable("max_attempts")):
        try:
            given = int(text)
        except ValueError:
            raise InvalidInput(f"HOLDFAST_MAX_ATTEMPTS={text!r}: give an integer") from None
    return validation.integer(3 if given is None else given, "max_attempts", 1, 2**31 - 1)


def _timeout(given: Duration | Unset | None) -> float | None:
    if given is None:
        return None
    found = _chosen("timeout", None if given is UNSET else given, 300.0)
    return None if given is UNSET and found == "none" else timeout_seconds(found)


def _backoff(given: BackoffLike | None) -> Callable[[int], float]:
    if given is not None:
        return backoff(given)
    parts = ("delay", "multiplier", "cap", "jitter")
    found = {part: _chosen(f"backoff_{part}", None) for part in parts}
    return Backoff(**{part: value for part, value in found.items() if value is not None}).after


def _default_retention() -> dict[Status, float]:
    """Return the retention of the environment or the defaults."""
    return {
        Status(status): seconds(
            _chosen(f"retention_{status}", None, age), what=f"retention of {status}"
        )
        for status, age in RETENTION.items()
    }


def keep_times(
    given: Mapping[str, Duration], defaults: Mapping[Status, float]
) -> dict[Status, float]:
    """Return how many seconds finished jobs are kept, by status. Raises InvalidInput."""
    finished = {status.value for status in FINISHED}
    if unknown := set(given) - finished:
        raise InvalidInput(
            f"retention={dict(given)!r}: {', '.join(sorted(map(str, unknown)))} is no final status; "
            f"give ages for {', '.join(sorted(finished))}"
        )
    ages = {Status(key): seconds(age, what=f"retention of {key}") for key, age in given.items()}
    return {**defaults, **ages}
