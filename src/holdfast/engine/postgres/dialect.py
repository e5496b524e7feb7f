"""How PostgreSQL says times."""

import re
from datetime import UTC, datetime
from typing import Any

from holdfast.core.clock import Clock
from holdfast.events.audience import Audience

_TIMES = re.compile(r"\b(\w+_at|keep_until|unreadable_since)\b")


def times_as_text(columns: str) -> str:
    """Columns to be read in a caller's transaction, too, whose connection may have its own idea of what
    a time is."""
    return _TIMES.sub(r"\1::text", columns)


class PostgresDialect:
    """Times are the server's, unless a clock rules; as parameters they are ISO text."""

    bodies_apart = False
    claims_in_one = True
    hints_by_the_way = True
    seeks_rows = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.audience = Audience(clock)

    def now(self) -> str | None:
        return self._clock.now().isoformat() if self._clock.rules_the_database else None

    def time(self, moment: datetime) -> str:
        return moment.isoformat()

    def moment(self, value: Any) -> datetime:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
