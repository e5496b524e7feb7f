"""The options of `task.using(...)`, checked, and the job that they describe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Literal, get_args

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds, timeout_seconds
from holdfast.errors import InvalidInput
from holdfast.jobs.backoff import Backoff
from holdfast.jobs.job import NewJob, OnConflict, OnParentFailure
from holdfast.schedules.next_run import Missed, Schedule, make_schedule


class Unset(Enum):
    """The type of UNSET: not given, where None has a meaning of its own."""

    UNSET = "unset"


UNSET: Literal[Unset.UNSET] = Unset.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a job is enqueued: `task.using(...)`. Options that are not given come from the task."""

    queue: str | None = None  #: instead of the task's
    priority: int | None = None  #: a higher number runs first
    delay: Duration | None = None  #: the time until its first run
    run_at: datetime | None = None  #: the moment of its first run, with a timezone
    key: str | None = None  #: at most one unfinished job of the task has this key
    on_conflict: OnConflict = (
        "existing"  #: if a job has the key: existing, replace, debounce, raise
    )
    idempotency_key: str | None = None  #: at most one job of the task ever has it, finished or not
    entity: tuple[str, Any] | None = None  #: the object that it is about: a type and an id
    max_attempts: int | None = None  #: the most runs
    timeout: Duration | Unset | None = UNSET  #: None: no timeout
    expires: Duration | None = None  #: cancel it if it has not begun by then
    after: Sequence[Any] | None = None  #: in a workflow: the jobs that it waits for
    on_parent_failure: OnParentFailure = "cancel"  #: in a workflow: cancel, continue or hold
    node: str | None = None  #: in a workflow: its name
    every: Duration | None = None  #: for schedule(), as the next six: the interval
    cron: str | None = None  #: at these moments: '0 3 * * *', or @daily
    timezone: str | None = None  #: of `cron`; UTC if it is not given
    start: datetime | None = None  #: the first run
    missed: Missed = "once"  #: what to do about moments when no worker ran: once, skip or all
    jitter: Duration = 0  #: the most that is added to each moment, at random
    backoff: Backoff | Duration | None = None  #: after failed runs of a recurring job
    tx: Any = field(default=None, compare=False)  #: your open transaction, which adds the job
    notify: bool = True  #: False: wake no worker; workers find the job by polling
    aging: float | None = None  #: from the application's settings

    def __post_init__(self) -> None:
        if self.delay is not None and self.run_at is not None:
            raise InvalidInput("delay= and run_at= were both given: give one of them")
        if self.on_conflict not in get_args(OnConflict):
            raise InvalidInput(
                f"on_conflict={self.on_conflict!r}: choose one of {', '.join(get_args(OnConflict))}"
            )
        if self.on_conflict != "existing" and self.key is None:
            raise InvalidInput(f"on_conflict={self.on_conflict!r} needs a key=")

    def changed(self, changes: Mapping[str, Any]) -> "Options":
        """Return these options with changes. Raises InvalidInput for a name that is no option."""
        known = self.__dataclass_fields__
        if unknown := set(changes) - set(known):
            raise InvalidInput(
                f"unknown option {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}"
            )
        return replace(self, **changes)

    @property
    def recurs(self) -> bool:
        """Whether an option is given that only recurring jobs have."""
        return any(getattr(self, name) != getattr(_PLAIN, name) for name in RECURRING)

    def check_enqueue(self) -> None:
        """Raise InvalidInput for an option that enqueue() does not take."""
        if self.recurs:
            raise InvalidInput(
                f"{', '.join(RECURRING)} are for schedule(), which makes a recurring job; enqueue() "
                "takes delay= or run_at="
            )
        if self.after is not None or self.node is not None:
            raise InvalidInput(
                "after= and node= are for jobs of a workflow: 'with app.workflow() as flow: "
                "flow.add(task.using(after=[...]), ...)'"
            )

    def schedule(self) -> Schedule:
        names = set(RECURRING) - {"start"}
        return make_schedule(**{name: getattr(self, name) for name in names})

    def new_job(self, type: str, payload: str, defaults: "Options", id: str) -> NewJob:
        """Return the job that these options and a task's defaults describe. Raises InvalidInput."""

        def chosen(name: str, default: Any = None) -> Any:
            own = getattr(self, name)
            found = own if own is not None else getattr(defaults, name)
            return default if found is None else found

        unique, expires = self.idempotency_key, chosen("expires")
        entity = (None, None) if self.entity is None else validation.entity(self.entity)
        return NewJob(
            id=id,
            type=type,
            payload=payload,
            queue=validation.name(chosen("queue", "default"), "queue"),
            priority=validation.integer(chosen("priority") or 0, "priority"),
            key=None if self.key is None else validation.key(self.key),
            on_conflict=self.on_conflict,
            idempotency_key=None if unique is None else validation.key(unique, "idempotency_key"),
            entity_type=entity[0],
            entity_id=entity[1],
            max_attempts=validation.integer(
                chosen("max_attempts", 3), "max_attempts", 1, 2**31 - 1
            ),
            # Stored as None for the task's timeout, and as 0 for none.
            timeout=None if self.timeout is UNSET else timeout_seconds(self.timeout) or 0.0,
            delay=0.0 if self.delay is None else seconds(self.delay, what="delay"),
            run_at=None if self.run_at is None else validation.moment(self.run_at, "run_at"),
            expires=None if expires is None else seconds(expires, what="expires"),
            aging=defaults.aging,
        )


RECURRING = ("every", "cron", "timezone", "start", "missed", "jitter", "backoff")
_PLAIN = Options()
