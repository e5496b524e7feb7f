"""Makes a task from a function: checks its options and reads its signature."""

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
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
from holdfast.tasks.using import BaseTask, Host

P = ParamSpec("P")
R = TypeVar("R")
Errors = type[BaseException] | tuple[type[BaseException], ...]
_DEFAULTS = ("queue", "priority", "max_attempts", "timeout", "expires")
_SCHEDULE = ("every", "cron", "timezone", "missed", "jitter")


class Decorator(Protocol):
    """The type of `@app.task(...)`: a Context in front is not one of the task's arguments."""

    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


@cache
def option_names(decorator: Callable[..., Any]) -> list[str]:
    """Return the names of the options of `@app.task(...)`, from the signature of its last overload."""
    signature = inspect.signature(typing.get_overloads(decorator)[-1])
    return sorted(set(signature.parameters) - {"self", "name"})


def check_options(given: Iterable[str], decorator: Callable[..., Any]) -> None:
    """Raise InvalidInput for a name that is no option of `@app.task(...)`."""
    known = option_names(decorator)
    if unknown := set(given) - set(known):
        raise InvalidInput(
            f"@app.task: unknown option {', '.join(sorted(unknown))}: there are name, "
            f"{', '.join(known)}"
        )


def make_task(
    handler: Callable[..., Any],
    name: str | None,
    options: Mapping[str, Any],
    settings: Settings,
    host: Host,
) -> Task[Any, Any]:
    """Return the task of a function. Raises InvalidInput for an option that breaks a rule."""
    if not callable(handler):
        raise InvalidInput(f"@app.task was given {handler!r}: it decorates a function")
    known = {key: value for key, value in options.items() if value is not None or key == "timeout"}
    if known.get("timeout", UNSET) is UNSET:
        known["timeout"] = settings.timeout
    known.setdefault("max_attempts", settings.max_attempts)
    title = name or handler.__name__
    defaults = Options(**_some(known, _DEFAULTS), aging=settings.aging)
    plan = _some(known, _SCHEDULE)
    task: Task[Any, Any] = Task(
        title,
        handler,
        host=host,
        defaults=defaults,
        conduct=_conduct(title, handler, known, defaults, settings),
        limits=_limits(known),
        schedule=make_schedule(**plan) if plan else None,
    )
    if plan and not (task.schedule and (task.schedule.every or task.schedule.cron)):
        raise InvalidInput(f"task {title!r}: {', '.join(sorted(plan))} needs every= or cron=")
    if plan:
        _check_takes_no_arguments(task)
    return task


def _some(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _check_takes_no_arguments(task: Task[Any, Any]) -> None:
    """Raise InvalidInput if the task, which has a schedule of its own, needs arguments."""
    try:
        task.arguments.encode((), {})
    except InvalidArguments as problem:
        raise InvalidInput(
            f"task {task.name!r}: a schedule at the task calls it without arguments ({problem}); for "
            "others use task.using(key=..., every=...).schedule(...)"
        ) from None


def _limits(options: Mapping[str, Any]) -> list[Limit]:
    """Return the limits of `concurrency=` (a number, a Limit or several) and `rate=` (a text or a
    Limit)."""
    given = options.get("concurrency", ())
    several = given if isinstance(given, list | tuple) else (given,)
    found = [one if isinstance(one, Limit) else Limit(one) for one in several]
    if "rate" in options:
        rate = options["rate"]
        found.append(rate if isinstance(rate, Limit) else Limit(rate=rate))
    return found


def _conduct(
    name: str,
    handler: Callable[..., Any],
    options: Mapping[str, Any],
    defaults: Options,
    settings: Settings,
) -> Conduct:
    hooks = {hook: options.get(hook) for hook in ("on_success", "on_failure", "on_prune")}
    for option, hook in hooks.items():
        if hook is not None and not callable(hook):
            raise InvalidInput(f"task {name!r}: {option}={hook!r}: give a function")
    then, on_lost = options.get("then"), options.get("on_lost", "strict")
    if then is not None and not isinstance(then, BaseTask) and not callable(then):
        raise InvalidInput(
            f"task {name!r}: then={then!r}: give a task, task.using(...), or a function of the job "
            "and its result"
        )
    if on_lost not in ("strict", "relaxed"):
        raise InvalidInput(f"task {name!r}: on_lost={on_lost!r}: choose 'strict' or 'relaxed'")
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
        timeout=defaults.new_job(name, "{}", defaults, "").timeout or None,
        strict=on_lost == "strict",
        then=then,
        **hooks,
    )


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


def takes_context(handler: Callable[..., Any]) -> bool:
    """Return whether the first parameter of a handler is annotated `Context`."""
    first = next(iter(inspect.signature(handler).parameters.values()), None)
    if first is None or not isinstance(first.annotation, str):
        return first is not None and first.annotation is Context
    try:
        return typing.get_type_hints(handler).get(first.name) is Context
    except NameError:
        return False  # the codec refuses it, and says why
