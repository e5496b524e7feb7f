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

from holdfast.cli.output import age, clean
from holdfast.cli.progress_bars import bar, counts_line
from holdfast.events.event import Event
from holdfast.jobs.job import EventKind, Job
from holdfast.monitoring.stats import Stats

SIDE_BY_SIDE = 110  # columns, from which on there is room for two panels in a row
KEPT = 60  # ends that are remembered, and seconds that the throughput goes back
_ENDS = (EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED)
_MARKS = {  # in Unicode, in ASCII, and the style
    EventKind.COMPLETED: ("✔", "+", "green"),
    EventKind.RETRYING: ("↻", "~", "yellow"),
    EventKind.FAILED: ("✘", "x", "red"),
}
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"


@dataclass(frozen=True)
class End:
    """How a run ended."""

    kind: EventKind
    type: str
    note: str
    seconds: float


@dataclass
class Record:
    """The events of the demo's jobs. They come from the worker's threads."""

    began: float = field(default_factory=time.monotonic)
    ends: deque[End] = field(default_factory=lambda: deque(maxlen=KEPT))
    totals: Counter[tuple[str, EventKind]] = field(default_factory=Counter)
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    _started: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, event: Event) -> None:
        now = time.monotonic()
        with self._lock:
            if event.kind is EventKind.STARTED:
                self._started[event.job.id] = now
                return
            if event.kind not in _MARKS:
                return
            began = self._started.pop(event.job.id, now)
            self.totals[event.job.type, event.kind] += 1
            self.ends.appendleft(End(event.kind, event.job.type, _note(event), now - began))
            if event.kind in _ENDS:
                self._times.append(now)

    def newest(self, number: int) -> list[End]:
        with self._lock:
            return list(self.ends)[:number]

    def per_second(self, seconds: int) -> list[int]:
        """How many ended in each of the last full seconds, the oldest first."""
        now = int(time.monotonic())
        with self._lock:
            ended = Counter(int(moment) for moment in self._times)
        first = max(int(self.began) + 1, now - seconds)
        return [ended[second] for second in range(first, now)]

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
    result = None if event.result is None else json.loads(event.result)
    return "" if result is None else result if isinstance(result, str) else json.dumps(result)


class Board:
    """The picture, and the line that stands for it where there is no terminal."""

    def __init__(self, out: Console, url: str, record: Record, told: Sequence[str] = ()) -> None:
        self._out = out
        self._url = url
        self._told = told  #: lines about the dashboard
        self._record = record
        self._unicode = "utf" in out.encoding.lower()

    def picture(self, stats: Stats, running: Sequence[Job], now: datetime) -> RenderableType:
        head, counts = self._head(), self._counts(stats)
        room = max(6, self._out.height - self._lines(head) - self._lines(counts) - 1)
        wide = self._out.width >= SIDE_BY_SIDE
        height = room if wide else max(4, room // 2)
        left = _panel("running", self._running(running, now, height - 2), height=height)
        right = _panel("just ended", self._ended(height - 2), height=height)
        body: RenderableType = Group(left, right)
        if wide:
            body = Table.grid(Column(ratio=1), Column(ratio=1), expand=True)
            body.add_row(left, right)
        return Group(head, counts, body, Text("  Ctrl-C ends it", style="dim"))

    def _lines(self, text: RenderableType) -> int:
        return len(self._out.render_lines(text, pad=False))

    def _head(self) -> Panel:
        lines = Text.assemble(
            (self._url, "bold"),
            ("\n$ ", "dim"),
            f"holdfast jobs list --url {self._url}",
            *(f"\n{line}" for line in self._told),
            overflow="fold",
        )
        title = Text("Holdfast demo", style="bold")
        return _panel(title, lines, subtitle=self._record.clock, subtitle_align="left")

    def _counts(self, stats: Stats) -> RenderableType:
        room = min(KEPT, max(10, self._out.width - 24))
        line = Text.assemble((f"{self._record.rate:.1f}", "bold"), (" jobs/s  ", "dim"))
        line.append(self._sparkline(self._record.per_second(room)), style="green")
        grid = _grid(Column(width=1), Column(ratio=1))
        grid.add_row("", counts_line(stats.jobs, stats.cap))
        grid.add_row("", line)
        return grid

    def _sparkline(self, numbers: Sequence[int]) -> str:
        blocks = _BLOCKS if self._unicode else _ASCII_BLOCKS
        top = max([*numbers, 1])
        return "".join(blocks[round(number / top * (len(blocks) - 1))] for number in numbers)

    def _running(self, jobs: Sequence[Job], now: datetime, rows: int) -> RenderableType:
        table = _grid(
            Column(no_wrap=True, width=16),
            Column(ratio=3),
            Column(no_wrap=True, justify="right", width=4),
            Column(no_wrap=True, overflow="ellipsis", ratio=3),
            Column(no_wrap=True, justify="right", width=3),
        )
        for job in jobs[:rows]:
            ran = (now - (job.started_at or now)).total_seconds()
            table.add_row(
                Text(job.type),
                bar(job),
                "" if job.progress is None else f"{job.progress:.0f}%",
                Text(clean(job.message or ""), style="dim"),
                Text(age(ran), style="dim"),
            )
        return table

    def _ended(self, rows: int) -> RenderableType:
        table = _grid(
            Column(no_wrap=True, width=1),
            Column(no_wrap=True, width=16),
            Column(no_wrap=True, overflow="ellipsis", ratio=1),
            Column(no_wrap=True, justify="right", width=4),
        )
        for end in self._record.newest(rows):
            mark, plain, style = _MARKS[end.kind]
            table.add_row(
                Text(mark if self._unicode else plain, style=style),
                Text(end.type),
                Text(clean(end.note), style="dim" if end.kind is EventKind.COMPLETED else style),
                Text(f"{end.seconds:.1f}s", style="dim"),
            )
        return table

    def line(self, stats: Stats) -> str:
        """Return the same in a line, for where there is no terminal."""
        counts = "  ".join(f"{status} {number}" for status, number in stats.jobs.items() if number)
        return f"{self._record.clock}  {self._record.rate:.1f} jobs/s  {counts}"


def _grid(*columns: Column) -> Table:
    return Table.grid(*columns, padding=(0, 1), expand=True)


def _panel(title: str | Text, content: RenderableType, **more: Any) -> Panel:
    return Panel(content, title=title, title_align="left", box=box.ROUNDED, padding=(0, 1), **more)
