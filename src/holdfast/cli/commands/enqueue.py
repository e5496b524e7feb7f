"""`holdfast enqueue`: add a job by hand or from a script."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.filters import EntityOption, parse_duration, parse_entity
from holdfast.cli.output import clean, print_json
from holdfast.cli.target import Common
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Job
from holdfast.jobs.job_json import job_fields


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options of the new job."""

    priority: Annotated[int | None, typer.Option(help="A higher number runs first.")] = None
    queue: Annotated[str | None, typer.Option(help="Override the task's queue.")] = None
    delay: Annotated[str | None, typer.Option(help="Run it later: '90s', '2h', '7d'.")] = None
    key: Annotated[str | None, typer.Option(help="One live job per key and task.")] = None
    on_conflict: Annotated[
        str, typer.Option(help="When the key is live: existing, replace, debounce or raise.")
    ] = "existing"
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="At most one job of the task has it, finished or not, such as order-7."),
    ] = None
    entity: EntityOption = None
    max_attempts: Annotated[int | None, typer.Option(help="Runs in all.")] = None

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as `app.enqueue` takes them."""
        options = asdict(self)
        if self.delay is not None:
            options["delay"] = parse_duration(self.delay, "--delay")
        if self.entity is not None:
            options["entity"] = parse_entity(self.entity)
        return {name: value for name, value in options.items() if value is not None}


def enqueue(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODULE:APP] TASK KEY=VALUE",
            help="The application, the task's name, and its arguments (KEY:=JSON for JSON).",
        ),
    ],
    payload: Annotated[str | None, typer.Option(help="All arguments, as a JSON object.")] = None,
    *,
    options: JobOptions,
    common: Common,
) -> None:
    """Add a job, and print its id.

    With an application its arguments are checked against the task's type hints; with --url, where the
    code is not at hand, they are taken as they are.
    """
    application, task, arguments = _split(words)
    given = options.given()
    with common.opened(application) as holdfast:
        if common.location(application) is not None:
            holdfast.find_task(task)  # a database alone does not say which tasks there are
        values = _payload(holdfast, task, payload, arguments)
        job = holdfast.enqueue(task, values, **given)
        if common.as_json:
            print_json({**job_fields(holdfast.jobs.get(job.id)), "created": job.created})
            return
        typer.echo(job.id)
        if not job.created:
            typer.echo(f"holdfast: not added: {_reason(job, options.idempotency_key)}", err=True)


def _reason(job: Job, idempotency_key: str | None) -> str:
    if idempotency_key is not None and job.idempotency_key == idempotency_key:
        return f"this job ({job.status}) has the idempotency key {clean(idempotency_key)!r}"
    return f"the key {clean(job.key)!r} is held by this live job"


def _split(words: list[str]) -> tuple[str | None, str, list[str]]:
    """Return the application, the task and the arguments, which are the words with '='."""
    names = [word for word in words if "=" not in word]
    arguments = [word for word in words if "=" in word]
    if len(names) not in (1, 2):
        raise InvalidInput(
            f"{' '.join(words)!r}: write [MODULE:APP] TASK [key=value | key:=JSON ...]; an argument "
            "with spaces needs quotes"
        )
    return names[0] if len(names) == 2 else None, names[-1], arguments


def _payload(
    holdfast: Holdfast, task: str, payload: str | None, arguments: list[str]
) -> dict[str, Any]:
    if payload is not None and arguments:
        raise InvalidInput(f"--payload and {arguments[0]!r} were both given: give one of them")
    if payload is None:
        texts = _texts(holdfast, task)
        return dict(_argument(word, texts) for word in arguments)
    try:
        values = json.loads(payload)
    except ValueError as problem:
        raise InvalidInput(f"--payload is not JSON ({problem}): give an object") from None
    if not isinstance(values, dict):
        raise InvalidInput(f"--payload is {payload[:80]!r}: give a JSON object of the arguments")
    return values


def _argument(word: str, texts: set[str]) -> tuple[str, Any]:
    name, _, text = word.partition("=")
    if name in texts:
        return name, text
    plain = name.removesuffix(":")
    try:
        return plain, json.loads(text)
    except ValueError as problem:
        if plain == name:
            return name, text
        raise InvalidInput(
            f"{word!r}: what follows ':=' is not JSON ({problem}); for a plain text write "
            f"{plain}={text}"
        ) from None


def _texts(holdfast: Holdfast, task: str) -> set[str]:
    """Return the parameters that may be text, by their type hints: for them, 7 stays text."""
    if task not in holdfast.tasks:
        return set()
    try:
        schema = holdfast.tasks[task].arguments.json_schema()
    except Exception:  # a type of the application's that has no JSON schema
        return set()
    definitions = schema.get("$defs", {})
    return {
        name for name, hint in schema.get("properties", {}).items() if _is_text(hint, definitions)
    }


def _is_text(hint: dict[str, Any], definitions: dict[str, Any]) -> bool:
    if "$ref" in hint:
        return _is_text(definitions.get(hint["$ref"].rpartition("/")[2], {}), definitions)
    return hint.get("type") == "string" or any(
        _is_text(one, definitions) for one in hint.get("anyOf", [])
    )
