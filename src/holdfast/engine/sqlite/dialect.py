"""How SQLite says times."""

from datetime import datetime
from typing import Any

from holdfast.core.clock import Clock, from_microseconds, to_microseconds
from holdfast.events.audience import Audience


class SqliteDialect:
    """Times are integers: microseconds since 1970. All processes share the machine's clock."""

    bodies_apart = True
    claims_in_one = False
    hints_by_the_way = False
    seeks_rows = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.audience = Audience(clock)

    def now(self) -> int:
        return to_microseconds(self._clock.now())

    def time(self, moment: datetime) -> int:
        return to_microseconds(moment)

    def moment(self, value: Any) -> datetime:
        return from_microseconds(value)
