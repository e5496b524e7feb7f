"""The filters of `jobs list` and of the commands on many jobs; how durations and times are read."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.errors import InvalidInput
from holdfast.jobs.query_language import parse

TypeOption = Annotated[
    str | None, typer.Option("--type", help="A task's name; 'mail*' means all that begin so.")
]
EntityOption = Annotated[
    str | None, typer.Option("--entity", metavar="TYPE:ID", help="What it is about: movie:7")
]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The options that select jobs, as they were written."""

    status: Annotated[
        list[str] | None, typer.Option(help="One, or several with commas or by repeating it.")
    ] = None
    type: TypeOption = None
    queue: Annotated[str | None, typer.Option(help="In this queue.")] = None
    entity: EntityOption = None
    key: Annotated[str | None, typer.Option(help="With this key.")] = None
    since: Annotated[
        str | None, typer.Option(help="Made at or after: a moment (UTC), or an age such as '2h'.")
    ] = None
    until: Annotated[str | None, typer.Option(help="Made before; as --since.")] = None

    def wanted(self) -> dict[str, Any]:
        """Return the filter as `app.jobs` takes it; empty if no option was given."""
        prefix = self.type is not None and self.type.endswith("*")
        found = {
            "status": [one.strip() for text in self.status or [] for one in text.split(",")],
            "type": None if prefix else self.type,
            "prefix": self.type[:-1] if self.type is not None and prefix else None,
            "queue": self.queue,
            "entity": None if self.entity is None else parse_entity(self.entity),
            "key": self.key,
            "since": None if self.since is None else parse_time_or_age(self.since, "--since"),
            "until": None if self.until is None else parse_time_or_age(self.until, "--until"),
        }
        return {name: value for name, value in found.items() if value not in (None, [])}


@dataclass(frozen=True, kw_only=True)
class QueryFilters(Filters):
    """The same options, and a query in the search language."""

    query: Annotated[
        str | None,
        typer.Option(
            help="All at once: 'type:mail error:\"rate limit\" payload.user.id:7 before:1h words'."
        ),
    ] = None

    def wanted(self) -> dict[str, Any]:
        given, asked = super().wanted(), parse(self.query or "")
        if twice := set(asked) & set(given):
            raise InvalidInput(
                f"--query and another option both tell {', '.join(sorted(twice))}: give it once"
            )
        return given | asked


def parse_entity(text: str) -> tuple[str, int | str]:
    return validation.entity_of(text, f"--entity {text!r}")


def parse_duration(text: str, option: str) -> float:
    """Read a duration as seconds; '90' and '90s' are the same."""
    try:
        given: Duration = float(text)
    except ValueError:
        given = text
    return seconds(given, what=option)


def _iso(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def delay_or_time(
    after: str | None, after_option: str, at: str | None, at_option: str
) -> tuple[float | None, datetime | None]:
    """Read a delay in seconds, or a time, or neither. Raises InvalidInput if both were given."""
    if after is not None and at is not None:
        raise InvalidInput(f"{after_option} and {at_option} were both given: give one of them")
    time = None if at is None else _iso(at)
    if at is not None and time is None:
        raise InvalidInput(
            f"{at_option} {at!r}: give a moment such as 2030-01-31T12:00 (UTC, or with an offset); "
            f"{after_option} takes a time from now, such as '10m'"
        )
    return None if after is None else parse_duration(after, after_option), time


def parse_time_or_age(text: str, option: str) -> datetime:
    """Read a time, or an age before now."""
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
