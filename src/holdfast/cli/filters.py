"""Which jobs: the options that `jobs list` and the verbs on many jobs share."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from holdfast.core import validation
from holdfast.core.duration import seconds
from holdfast.errors import InvalidInput
from holdfast.jobs.query_language import parse

StatusOption = Annotated[
    list[str] | None,
    typer.Option("--status", help="One, or several with commas or by repeating it."),
]
TypeOption = Annotated[
    str | None, typer.Option("--type", help="A task's name; 'mail*' means all that begin so.")
]
QueueOption = Annotated[str | None, typer.Option("--queue", help="In this queue.")]
EntityOption = Annotated[
    str | None, typer.Option("--entity", metavar="TYPE:ID", help="What it is about: movie:7")
]
KeyOption = Annotated[str | None, typer.Option("--key", help="With this key.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Made at or after: a moment (UTC), or an age such as '2h'."),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Made before; as --since.")]
QueryOption = Annotated[
    str | None,
    typer.Option(
        "--query",
        help="All at once: 'type:mail error:\"rate limit\" payload.user.id:7 before:1h words'.",
    ),
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=0, help="At most so many.")]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The options that say which jobs, as texts."""

    status: StatusOption = None
    type: TypeOption = None
    queue: QueueOption = None
    entity: EntityOption = None
    key: KeyOption = None
    since: SinceOption = None
    until: UntilOption = None

    def asked(self) -> dict[str, Any]:
        """What a query adds to the options."""
        return {}

    def wanted(self) -> dict[str, Any]:
        """What `app.jobs` takes; empty if nothing was given."""
        prefix = self.type is not None and self.type.endswith("*")
        found = {
            "status": [one.strip() for text in self.status or [] for one in text.split(",")],
            "type": None if prefix else self.type,
            "prefix": self.type[:-1] if self.type is not None and prefix else None,
            "queue": self.queue,
            "entity": None if self.entity is None else entity(self.entity),
            "key": self.key,
            "since": None if self.since is None else moment(self.since, "--since"),
            "until": None if self.until is None else moment(self.until, "--until"),
        }
        given = {name: value for name, value in found.items() if value not in (None, [])}
        asked = self.asked()
        if twice := set(asked) & set(given):
            raise InvalidInput(
                f"--query and another option both tell {', '.join(sorted(twice))}: give it once"
            )
        return given | asked


@dataclass(frozen=True, kw_only=True)
class QueryFilters(Filters):
    """The same, with a query in the search language."""

    query: QueryOption = None

    def asked(self) -> dict[str, Any]:
        return parse(self.query or "")


def entity(text: str) -> tuple[str, int | str]:
    return validation.entity_of(text, f"--entity {text!r}")


def duration(text: str, option: str) -> float:
    """Seconds; '90' and '90s' are the same."""
    try:
        return seconds(float(text), what=option)
    except ValueError as problem:
        if isinstance(problem, InvalidInput):
            raise
        return seconds(text, what=option)


def _iso(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def instant(text: str, option: str, other: str) -> datetime:
    """A moment to come, maybe; `other` is the option that takes a time from now."""
    found = _iso(text)
    if found is None:
        raise InvalidInput(
            f"{option} {text!r}: give a moment such as 2030-01-31T12:00 (UTC, or with an offset); "
            f"{other} takes a time from now, such as '10m'"
        )
    return found


def moment(text: str, option: str) -> datetime:
    """A moment, or an age."""
    found = _iso(text)
    if found is not None:
        return found
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds(text))
    except InvalidInput:
        raise InvalidInput(
            f"{option} {text!r}: give a moment such as 2030-01-31T12:00 (UTC, or with an offset), or "
            "an age such as '90s', '2h' or '7d'"
        ) from None
