"""The picture that `holdfast demo` draws: which jobs run, which have just ended, and the throughput."""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from holdfast.cli.output import age, clean, percent
from holdfast.cli.progress_bars import bar, counts_line
from holdfast.events.event import Event
from holdfast.jobs.job import EventKind, Job
from holdfast.monitoring.stats import Stats

SIDE_BY_SIDE = 110  # columns, from which on there is room for two panels in a row
KEPT = 60  # ends that are remembered, and seconds that the throughput goes back
_MARKS = {  # in Unicode, in ASCII, and the style
    EventKind.COMPLETED: ("✔", "+", "green"),
    EventKind.RETRYING: ("↻", "~", "yellow"),
    EventKind.FAILED: ("✘", "x", "red"),
}
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"


@dataclass
class Record:
    """The events of the demo's jobs. They come from the worker's threads."""

    began: float = field(default_factory=time.monotonic)
    #: How the last runs ended, the newest first, with the seconds that each took.
    ends: deque[tuple[Event, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    totals: Counter[tuple[str, EventKind]] = field(default_factory=Counter)
    _finished: Counter[int] = field(default_factory=Counter)  # jobs, by the second
    _started: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, event: Event) -> None:
        """Record an event."""
        now, job = time.monotonic(), event.job
        with self._lock:
            if event.kind is EventKind.STARTED:
                self._started[job.id] = now
            elif event.kind in _MARKS:
                self.totals[job.type, event.kind] += 1
                self.ends.appendleft((event, now - self._started.pop(job.id, now)))
                self._finished[int(now)] += event.kind is not EventKind.RETRYING

    def newest(self, number: int) -> list[tuple[Event, float]]:
        with self._lock:
            return list(self.ends)[:number]

    def per_second(self, seconds: int) -> list[int]:
        """Return how many jobs ended in each of the last full seconds, the oldest first."""
        now = int(time.monotonic())
        first = max(int(self.began) + 1, now - seconds)
        return [self._finished[second] for second in range(first, now)]

    @property
    def rate(self) -> float:
        """How many jobs ended in a second, over the last ten."""
        recent = self.per_second(10)
        return sum(recent) / len(recent) if recent else 0.0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def clock(self) -> str:
        return f"{int(self.elapsed) // 60:02d}:{int(self.elapsed) % 60:02d}"

    def total(self, kind: EventKind) -> int:
        return sum(number for (_, other), number in self.totals.items() if other is kind)


def _note(event: Event) -> str:
    if event.kind is EventKind.RETRYING:
        return f"again in {event.retry_in or 0:.1f} s: {event.error}"
    if event.error is not None:
        return event.error
    result = json.loads(event.result or "null")
    if result is None:
        return ""
    return result if isinstance(result, str) else json.dumps(result)


class Board:
    """Draws the picture; without a terminal, a line stands for it."""

    def __init__(self, out: Console, url: str, record: Record, notes: Sequence[str] = ()) -> None:
        self._out = out
        self._url = url
        self._notes = notes  #: lines about the dashboard
        self._record = record
        self._unicode = "utf" in out.encoding.lower()

    def picture(self, stats: Stats, running: Sequence[Job], now: datetime) -> RenderableType:
        head, counts = self._head(), self._counts(stats)
        above = self._out.render_lines(Group(head, counts), pad=False)
        room = max(6, self._out.height - len(above) - 1)
        wide = self._out.width >= SIDE_BY_SIDE
        height = room if wide else max(4, room // 2)
        left = _panel("running", _running(running[: height - 2], now), height=height)
        right = _panel("just ended", self._ended(height - 2), height=height)
        body: RenderableType = Group(left, right)
        if wide:
            body = Table.grid(Column(ratio=1), Column(ratio=1), expand=True)
            body.add_row(left, right)
        return Group(head, counts, body, Text("  Ctrl-C ends it", style="dim"))

    def line(self, stats: Stats) -> str:
        """Return the counts and the throughput as a line."""
        counts = "  ".join(f"{status} {number}" for status, number in stats.jobs.items() if number)
        return f"{self._record.clock}  {self._record.rate:.1f} jobs/s  {counts}"

    def _head(self) -> Panel:
        lines = Text.assemble(
            (self._url, "bold"),
            ("\n$ ", "dim"),
            f"holdfast jobs list --url {self._url}",
            *(f"\n{line}" for line in self._notes),
            overflow="fold",
        )
        title = Text("Holdfast demo", style="bold")
        return _panel(title, lines, subtitle=self._record.clock, subtitle_align="left")

    def _counts(self, stats: Stats) -> RenderableType:
        numbers = self._record.per_second(min(KEPT, max(10, self._out.width - 24)))
        blocks = _BLOCKS if self._unicode else _ASCII_BLOCKS
        step = (len(blocks) - 1) / max([*numbers, 1])
        line = Text.assemble((f"{self._record.rate:.1f}", "bold"), (" jobs/s  ", "dim"))
        line.append("".join(blocks[round(number * step)] for number in numbers), style="green")
        grid = _grid(Column(width=1), Column(ratio=1))
        grid.add_row("", counts_line(stats.jobs, stats.cap))
        grid.add_row("", line)
        return grid

    def _ended(self, rows: int) -> RenderableType:
        table = _grid(
            Column(no_wrap=True, width=1),
            Column(no_wrap=True, width=16),
            Column(no_wrap=True, overflow="ellipsis", ratio=1),
            Column(no_wrap=True, justify="right", width=4),
        )
        for event, seconds in self._record.newest(rows):
            mark, plain, style = _MARKS[event.kind]
            table.add_row(
                Text(mark if self._unicode else plain, style=style),
                Text(event.job.type),
                Text(clean(_note(event)), style="dim" if style == "green" else style),
                Text(f"{seconds:.1f}s", style="dim"),
            )
        return table


def _running(jobs: Sequence[Job], now: datetime) -> RenderableType:
    table = _grid(
        Column(no_wrap=True, width=16),
        Column(ratio=3),
        Column(no_wrap=True, justify="right", width=4),
        Column(no_wrap=True, overflow="ellipsis", ratio=3, style="dim"),
        Column(no_wrap=True, justify="right", width=3, style="dim"),
    )
    for job in jobs:
        ran = age((now - (job.started_at or now)).total_seconds())
        table.add_row(Text(job.type), bar(job), percent(job), Text(clean(job.message or "")), ran)
    return table


def _grid(*columns: Column) -> Table:
    return Table.grid(*columns, padding=(0, 1), expand=True)


def _panel(title: str | Text, content: RenderableType, **more: Any) -> Panel:
    return Panel(content, title=title, title_align="left", box=box.ROUNDED, padding=(0, 1), **more)
