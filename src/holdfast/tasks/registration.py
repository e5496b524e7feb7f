"""Makes a task from a function: checks its options and reads its signature."""

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from holdfast.errors import InvalidArguments, InvalidInput
from holdfast.jobs.backoff import backoff
from holdfast.jobs.outcome import Policy
from holdfast.limits.limit import Limit
from holdfast.schedules.next_run import make_schedule
from holdfast.settings import Settings, keep_times
from holdfast.tasks.context import Context
from holdfast.tasks.options import UNSET, Options
from holdfast.tasks.task import Conduct, Kind, Task
from holdfast.tasks.using import Host, Using

OPTIONS = frozenset(
    {
        "queue",
        "priority",
        "max_attempts",
        "timeout",
        "backoff",
        "retry_on",
        "discard_on",
        "on_success",
        "on_failure",
        "on_prune",
        "on_lost",
        "then",
        "process",
        "retention",
        "concurrency",
        "rate",
        "expires",
        "every",
        "cron",
        "timezone",
        "missed",
        "jitter",
    }
)
P = ParamSpec("P")
R = TypeVar("R")
Errors = type[BaseException] | tuple[type[BaseException], ...]
_SCHEDULE = ("every", "cron", "timezone", "missed", "jitter")


class Decorator(Protocol):
    """The type of `@app.task(...)`: a Context in front is not one of the task's arguments."""

    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


def make_task(
    handler: Callable[..., Any],
    name: str | None,
    options: Mapping[str, Any],
    settings: Settings,
    host: Host,
) -> Task[Any, Any]:
    if not callable(handler):
        raise InvalidInput(f"@app.task was given {handler!r}: it decorates a function")
    if unknown := set(options) - OPTIONS:
        raise InvalidInput(
            f"@app.task: unknown option {', '.join(sorted(unknown))}: there are name, "
            f"{', '.join(sorted(OPTIONS))}"
        )
    known = {key: value for key, value in options.items() if value is not None or key == "timeout"}
    if known.get("timeout", UNSET) is UNSET:
        known["timeout"] = settings.timeout
    known.setdefault("max_attempts", settings.max_attempts)
    title = name or handler.__name__
    defaults = Options(
        **{
            key: known[key]
            for key in ("queue", "priority", "max_attempts", "timeout", "expires")
            if key in known
        },
        aging=settings.aging,
    )
    plan = {key: known[key] for key in _SCHEDULE if key in known}
    task: Task[Any, Any] = Task(
        title,
        handler,
        host=host,
        defaults=defaults,
        conduct=_conduct(title, handler, known, defaults, settings),
        limits=_limits(title, known),
        schedule=make_schedule(**plan) if plan else None,
    )
    if plan and not (task.schedule and (task.schedule.every or task.schedule.cron)):
        raise InvalidInput(f"task {title!r}: {', '.join(sorted(plan))} needs every= or cron=")
    if plan:
        _check_alone(task)
    return task


def _check_alone(task: Task[Any, Any]) -> None:
    """Raise InvalidInput if the task, which has a schedule of its own, needs arguments."""
    try:
        task.arguments.encode((), {})
    except InvalidArguments as problem:
        raise InvalidInput(
            f"task {task.name!r}: a schedule at the task calls it without arguments ({problem}); for "
            "others use task.using(key=..., every=...).schedule(...)"
        ) from None


def _limits(name: str, options: Mapping[str, Any]) -> list[Limit]:
    """Return the limits of `concurrency=` (a number, a Limit or several) and `rate=` (a text or a
    Limit)."""
    given = options.get("concurrency", ())
    several = given if isinstance(given, list | tuple) else (given,)
    found = [one if isinstance(one, Limit) else Limit(one) for one in several]
    rate = options.get("rate")
    if rate is not None:
        found.append(rate if isinstance(rate, Limit) else Limit(rate=rate))
    return found


def _conduct(
    name: str,
    handler: Callable[..., Any],
    options: Mapping[str, Any],
    defaults: Options,
    settings: Settings,
) -> Conduct:
    on_lost = options.get("on_lost", "strict")
    if on_lost not in ("strict", "relaxed"):
        raise InvalidInput(f"task {name!r}: on_lost={on_lost!r}: choose 'strict' or 'relaxed'")
    timeout = defaults.new_job(name, "{}", defaults, "").timeout
    return Conduct(
        policy=Policy(
            backoff=backoff(options["backoff"]) if "backoff" in options else settings.backoff,
            own_backoff="backoff" in options,
            keep=keep_times(options.get("retention", {}), settings.retention),
            discard_on=_errors(name, "discard_on", options) or (),
            retry_on=_errors(name, "retry_on", options),
            unreadable_for=settings.unreadable_for,
        ),
        kind=_kind(name, handler, bool(options.get("process", False))),
        takes_context=takes_context(handler),
        timeout=timeout or None,
        strict=on_lost == "strict",
        on_success=_hook(name, "on_success", options),
        on_failure=_hook(name, "on_failure", options),
        then=_then(name, options.get("then")),
        on_prune=_hook(name, "on_prune", options),
    )


def _then(name: str, given: Any) -> Any:
    if given is not None and not isinstance(given, Task | Using) and not callable(given):
        raise InvalidInput(
            f"task {name!r}: then={given!r}: give a task, task.using(...), or a function of the job "
            "and its result"
        )
    return given


def _kind(name: str, handler: Callable[..., Any], process: bool) -> Kind:
    is_async = inspect.iscoroutinefunction(handler)
    if process and is_async:
        raise InvalidInput(f"task {name!r}: process=True is for 'def' handlers; this one is async")
    return "process" if process else "async" if is_async else "thread"


def _errors(
    name: str, option: str, options: Mapping[str, Any]
) -> tuple[type[BaseException], ...] | None:
    given = options.get(option)
    if given is None:
        return None
    kinds = given if isinstance(given, tuple | list) else (given,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise InvalidInput(f"task {name!r}: {option}={given!r}: give exception classes")
    return tuple(kinds)


def _hook(name: str, option: str, options: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    given = options.get(option)
    if given is not None and not callable(given):
        raise InvalidInput(f"task {name!r}: {option}={given!r}: give a function")
    return given


def takes_context(handler: Callable[..., Any]) -> bool:
    """Return whether the first parameter of a handler is annotated `Context`."""
    first = next(iter(inspect.signature(handler).parameters.values()), None)
    if first is None or first.annotation is first.empty:
        return False
    if isinstance(first.annotation, str):
        try:
            return typing.get_type_hints(handler).get(first.name) is Context
        except NameError:
            return False  # the codec refuses it, and says why
    return first.annotation is Context
