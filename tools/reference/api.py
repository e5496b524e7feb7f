"""The Python API: every public name, with its signature and its docstring, read from the source."""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import holdfast
import holdfast.testing
import holdfast.web
from holdfast.app import Holdfast
from holdfast.engine.records import Parent, WorkflowInfo
from holdfast.errors import HoldfastError
from holdfast.events.event import JobEvent
from holdfast.events.feed import AsyncEvents, Events
from holdfast.jobs.changes import Changed
from holdfast.jobs.client import Jobs
from holdfast.jobs.error_groups import ErrorGroup, ErrorGroups
from holdfast.jobs.job import EventKind
from holdfast.jobs.queues import Queues
from holdfast.limits.client import Limits
from holdfast.monitoring.health_checks import Check
from holdfast.monitoring.metrics import Point, Times
from holdfast.pytest_plugin import holdfast_app, holdfast_clock
from holdfast.schedules.client import Schedules
from holdfast.tasks.options import Options
from holdfast.tasks.using import Call, Using
from holdfast.web.options import WebOptions
from holdfast.web.security.permissions import READING, ROLES, Permission
from holdfast.worker.worker import Worker
from holdfast.workflows.builder import Node, Running, Workflow
from holdfast.workflows.client import Workflows
from holdfast.workflows.rules import Settled
from tools.reference.markdown import block, code, heading, plain, prose, sentence, table
from tools.reference.source import Field, Method, Source, source_of

# Methods and attributes that only our own modules use.
INNER: Mapping[str, frozenset[str]] = {
    "Holdfast": frozenset({"insert", "ainsert", "detached"}),
    "Task": frozenset({"new_job", "follow", "following"}),
    "Using": frozenset({"new_job", "follow", "recurring"}),
    "Call": frozenset({"follow"}),
    "Context": frozenset({"stop", "clean", "next_at", "enqueued", "saw_stop", "completion"}),
    "Jobs": frozenset({"on", "close"}),
    "Schedules": frozenset({"put", "aput"}),
    "Workflows": frozenset({"on", "start", "astart"}),
    "Worker": frozenset({"info", "executions", "idle_since", "pids"}),
    "Changed": frozenset({"plus"}),
    "Job": frozenset({"claim", "body"}),
    "FakeClock": frozenset({"rules_the_database"}),
}


@dataclass(frozen=True)
class Entry:
    """A class of the reference, and what its object is called there."""

    thing: Any
    spoken: str  #: the object of its methods in signatures: "app.jobs"
    made: bool = False  #: users make objects of it
    words: str = ""  #: text after its docstring

    @property
    def name(self) -> str:
        return str(self.thing.__name__)


APPLICATION = (
    Entry(Holdfast, "app", made=True),
    Entry(Jobs, "app.jobs"),
    Entry(Queues, "app.queues"),
    Entry(Limits, "app.limits"),
    Entry(Schedules, "app.schedules"),
    Entry(Workflows, "app.workflows"),
    Entry(Workflow, "flow"),
    Entry(Events, "events"),
    Entry(AsyncEvents, "events"),
    Entry(Worker, "worker"),
)
TASKS = (
    Entry(holdfast.Task, "task"),
    Entry(Using, "using", words="Below, `using` is what `task.using(...)` gave."),
    Entry(Call, "call"),
    Entry(holdfast.Context, "ctx"),
    Entry(Running, "ctx.workflow"),
    Entry(holdfast.RunEnd, "end"),
    Entry(holdfast.Retry, "error", made=True),
    Entry(holdfast.Snooze, "error", made=True),
    Entry(holdfast.Discard, "error", made=True),
    Entry(holdfast.Backoff, "backoff", made=True),
    Entry(holdfast.Limit, "limit", made=True),
    Entry(holdfast.Middleware, "middleware", made=True),
)
VALUES = (
    *(holdfast.Job, holdfast.Status, holdfast.Attempt, holdfast.LogLine),
    *(holdfast.Event, JobEvent, EventKind),
    *(holdfast.Stats, holdfast.Figures, Times, Point, holdfast.Health, Check),
    *(holdfast.QueueInfo, holdfast.LimitInfo, Changed, ErrorGroups, ErrorGroup),
    *(WorkflowInfo, Node, Parent, Settled),
)
WEB_VALUES = (holdfast.web.Identity, holdfast.web.Permission)


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, HoldfastError)


def exceptions() -> list[type[HoldfastError]]:
    """Return the public exceptions, the root first."""
    public = [getattr(holdfast, name) for name in holdfast.__all__]
    found = [thing for thing in public if _is_error(thing)]
    return sorted(found, key=lambda one: (len(one.__mro__), one.__name__))


#: The names in signatures that have no page of their own.
TYPES = {
    "Duration": 'seconds, a `timedelta`, or text such as `"90s"` or `"1h 30m"`',
    "BackoffLike": "a [`Backoff`](#Backoff), one duration, or a function of the attempts so far",
    "Errors": "an exception class, or a tuple of them",
    "Hook": "a function, `def` or `async def`, that takes a `RunEnd`, or a `Job` for `on_prune`",
    "Then": "a function of the job and its result that returns a `Call`, several, or None",
    "Missed": '`"once"`, `"skip"` or `"all"`: see [recurring jobs](../guides/recurring.md)',
    "OnConflict": '`"existing"`, `"replace"`, `"debounce"` or `"raise"`',
    "OnParentFailure": '`"cancel"`, `"continue"` or `"hold"`',
    "tx": "your open transaction: [its types](../guides/enqueueing.md#in-your-own-transaction)",
    "...": "as a default: not given, so that the task or the application decides",
}


# one class


def of_class(entry: Entry) -> str:
    source = source_of(entry.thing)
    fields = list(own_fields(entry.thing))
    parts = [heading(2, code(entry.name), entry.name)]
    if entry.made:
        parts.append(block(constructor(entry, source, fields)))
    parts += [prose(source.words), prose(entry.words) if entry.words else ""]
    init = source.find("__init__")
    if init is not None and entry.made:
        method = source.method(init)
        parts += [prose(method.words), parameters(method.fields)]
    parts.append(attributes(entry, fields))
    parts += list(methods(entry))
    return "".join(parts)


def constructor(entry: Entry, source: Source, fields: list[Field]) -> str:
    init = next((found for one in lineage(entry.thing) if (found := one.find("__init__"))), None)
    if init is not None:
        return entry.name + source.method(init).signature
    if not fields:
        return f"{entry.name}()"
    given = [one.name + (f"={one.default}" if one.default else "") for one in fields]
    return f"{entry.name}({', '.join(given)})"


def parameters(fields: Iterable[Field]) -> str:
    """Return a table of the parameters that the code describes."""
    described = [one for one in fields if one.words]
    return table(("parameter", "type", "default", "meaning"), (row(one) for one in described))


def row(one: Field) -> list[str]:
    default = "required" if one.default is None else code(one.default)
    return [code(one.name), code(one.type), default, sentence(plain(one.words))]


def lineage(thing: type) -> Iterator[Source]:
    """Yield the sources of a class and of its bases in this package."""
    for one in inspect.getmro(thing):
        if one.__module__.startswith("holdfast") and not getattr(one, "_is_protocol", False):
            yield source_of(one)


def own_fields(thing: type) -> Iterator[Field]:
    for source in lineage(thing):
        yield from source.fields()
        init = source.find("__init__")
        for node in ast.walk(init) if init else ():
            match node:
                case (
                    ast.Assign(targets=[ast.Attribute(ast.Name("self"), name)])
                    | ast.AnnAssign(target=ast.Attribute(ast.Name("self"), name))
                ) if words := source.comment(node.lineno, node.end_lineno):
                    kind = node.annotation if isinstance(node, ast.AnnAssign) else None
                    yield Field(name, ast.unparse(kind) if kind else "", None, words)


def attributes(entry: Entry, fields: list[Field]) -> str:
    """Return a table of the fields and properties of a class."""
    inner = INNER.get(entry.name, frozenset())
    rows = [
        [code(one.name), code(one.type or one.default or ""), sentence(plain(one.words))]
        for one in fields
        if one.name not in inner
    ]
    seen = {one.name for one in fields}
    rows += [
        [code(method.name), code(method.returns), sentence(plain(method.words))]
        for method in all_methods(entry.thing)
        if method.is_property and method.name not in inner | seen
    ]
    return table(("attribute", "type", "meaning"), rows)


def all_methods(thing: type) -> list[Method]:
    found: dict[str, Method] = {}
    for source in lineage(thing):
        for method in source.methods():
            found.setdefault(method.name, method)
    return list(found.values())


def methods(entry: Entry) -> Iterator[str]:
    """Yield the section of each method, which names its async twin."""
    inner = INNER.get(entry.name, frozenset())
    found = {one.name: one for one in all_methods(entry.thing) if not one.is_property}
    twins = {twin: name for name in found if (twin := twin_of(name, found)) is not None}
    for name, method in found.items():
        if name in inner or name in twins:
            continue
        yield heading(3, code(f"{entry.spoken}.{name}()"), f"{entry.name}.{name}")
        yield block(f"{entry.spoken}.{name}{method.signature}")
        yield prose(method.words)
        yield parameters(method.fields)
        if (twin := twin_of(name, found)) is not None:
            yield _twin(entry.spoken, found[twin])


def twin_of(name: str, found: Mapping[str, Method]) -> str | None:
    twin = "async_" if name == "sync" else f"a{name}"
    return twin if twin in found else None


def _twin(spoken: str, twin: Method) -> str:
    words = twin.words.removeprefix("The same").lstrip("; ").rstrip(".") if twin.words else ""
    call = f"{'await ' if twin.is_async else ''}{spoken}.{twin.name}(...)"
    return f"Async: `{call}`{f' ({plain(words)})' if words else ''}.\n\n"


# the pages


def application() -> str:
    intro = (
        "# The application\n\n`Holdfast` and what hangs on it. Every verb has an async twin, named "
        "with an `a` in front. [Names in signatures](tasks.md#words), such as `Duration`.\n\n"
    )
    return intro + "".join(of_class(entry) for entry in APPLICATION)


def tasks() -> str:
    intro = "# Tasks\n\nTasks, their options, and what handlers and hooks use.\n"
    return (
        intro
        + heading(2, code("@app.task"), "app.task")
        + 'Alone, or with options: `@app.task(queue="media", timeout="10m")`.\n'
        + parameters(task_options())
        + heading(2, code("task.using"), "task.using")
        + prose(source_of(Options).words)
        + parameters(using_options())
        + "".join(of_class(entry) for entry in TASKS)
        + heading(2, "Names in signatures", "words")
        + table(("name", "meaning"), ([code(name), words] for name, words in TYPES.items()))
    )


def task_options() -> list[Field]:
    source = source_of(Holdfast)
    node = source.find("task", overload=True)
    assert node is not None
    return list(source.parameters(node))


def using_options() -> list[Field]:
    return [one for one in source_of(Options).fields() if one.name != "aging"]


def values() -> str:
    intro = "# Values\n\nWhat methods return. Do not change these objects.\n"
    return intro + "".join(of_class(Entry(thing, _spoken(thing))) for thing in VALUES)


def _spoken(thing: type) -> str:
    return thing.__name__.lower()


def errors() -> str:
    parts = [
        "# Exceptions\n\nA call that raises one of these has changed nothing. A message names the "
        "thing, the rule and the remedy.\n"
    ]
    rows = []
    for one in exceptions():
        kinds = [base.__name__ for base in one.__bases__ if base is not Exception]
        rows.append([code(one.__name__), ", ".join(map(code, kinds)), plain(one.__doc__ or "")])
    return "".join(parts) + table(("exception", "base class", "meaning"), rows)


def testing() -> str:
    parts = [
        "# holdfast.testing\n\nRun jobs without a worker, and check what was enqueued: "
        "[Testing](../guides/testing.md) shows how.\n"
    ]
    for name in holdfast.testing.__all__:
        thing = getattr(holdfast.testing, name)
        if isinstance(thing, type) and _is_error(thing):
            parts.append(heading(2, code(name), name) + "See [exceptions](errors.md).\n")
        elif isinstance(thing, type):
            parts.append(of_class(Entry(thing, _spoken(thing), made=True)))
        else:
            parts.append(of_function(thing, name))
    parts.append(heading(2, "pytest fixtures", "fixtures"))
    fixtures = [holdfast_app, holdfast_clock]
    rows = [[code(one.__name__), plain(inspect.getdoc(one) or "")] for one in fixtures]
    return "".join(parts) + table(("fixture", "gives"), rows)


def of_function(thing: Any, name: str) -> str:
    source = source_of(inspect.unwrap(thing))
    assert not isinstance(source.node, ast.ClassDef)
    method = source.method(source.node, bound=False)
    wait = "await " if method.is_async else ""
    signature = method.signature.replace("Iterator[Holdfast]", "ContextManager[Holdfast]")
    return (
        heading(2, code(name), name)
        + block(f"{wait}{name}{signature}")
        + prose(method.words)
        + parameters(method.fields)
    )


def web() -> str:
    parts = [
        "# holdfast.web\n\nThe dashboard and the API as an ASGI application: "
        "[The web](../guides/web.md) shows how to mount it. Needs `pip install 'holdfast[web]'`.\n"
    ]
    for name in ("dashboard", "follow_link", "make_link"):
        parts.append(of_function(getattr(holdfast.web, name), name))
        if name == "dashboard":
            parts.append(parameters(source_of(WebOptions).fields()))
    parts += [of_class(Entry(thing, _spoken(thing))) for thing in WEB_VALUES]
    parts.append(heading(3, "Roles", "roles"))
    head = ("permission", *map(code, ROLES), "with `read_only`")
    rows = [
        [code(one.value), *("yes" if one in may else "" for may in (*ROLES.values(), READING))]
        for one in Permission
    ]
    parts += [table(head, rows), heading(2, code("REDACTED"), "REDACTED")]
    parts.append("Patterns of keys whose values are not shown, unless `redact=` gives others:\n\n")
    parts.append(", ".join(map(code, holdfast.web.REDACTED)) + "\n")
    return "".join(parts)


def index(pages: Mapping[str, str]) -> str:
    """Return the page that links every public name to its section."""
    parts = ["# Python API\n\nWhat `import` promises. Anything else may change without notice.\n"]
    for module in (holdfast, holdfast.testing, holdfast.web):
        parts.append(heading(2, code(module.__name__), module.__name__.replace(".", "-")))
        rows = []
        for name in module.__all__:
            page = place(name, pages, module.__name__)
            words = inspect.getdoc(getattr(module, name)) or ""
            if isinstance(getattr(module, name), tuple):
                words = "Patterns of keys whose values are not shown."
            rows.append([f"[{code(name)}]({page})", plain(words.split("\n\n")[0])])
        parts.append(table(("name", "what it is"), rows))
    return "".join(parts)


def place(name: str, pages: Mapping[str, str], module: str) -> str:
    own = {"holdfast.testing": "testing.md", "holdfast.web": "web.md"}.get(module)
    for page, text in pages.items():
        if own in (None, page) and f"{{ #{name} }}" in text:
            return f"{page}#{name}"
    if any(name == one.__name__ for one in exceptions()):
        return "errors.md"
    raise LookupError(f"{module}.{name} is on no page: add it to tools/reference/api.py")


def pages() -> dict[str, str]:
    found = {
        "application.md": application(),
        "tasks.md": tasks(),
        "values.md": values(),
        "errors.md": errors(),
        "testing.md": testing(),
        "web.md": web(),
    }
    return {"api.md": index(found), **found}
