"""`app.stats()`: what there is now, counted up to a cap, and what was done lately, added up from the
workers' roll-ups. The cost does not grow with the jobs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.duration import Duration, seconds
from holdfast.engine import Engine, QueueInfo
from holdfast.errors import InvalidInput
from holdfast.job import Status
from holdfast.metrics import KEPT, Figures, Point, Total, figures, since, whole_series

CAP = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Numbers that are cheap at any size: `jobs` and the depths of `queues` are counted up to `cap`.
    Figures are those of the last minutes, the running one included; workers write them every five
    seconds."""

    jobs: dict[Status, int]
    queues: list[QueueInfo]
    workers: int  #: not declared dead
    cap: int = CAP
    oldest_pending: float | None = None  #: seconds that the longest waiting job has been due
    waiting: dict[str, float]  #: the same for each queue in which something waits
    window: float  #: seconds that the figures are about
    figures: Figures  #: of everything
    by_task: dict[str, Figures]  #: every task that is registered here, or ended a run
    by_queue: dict[str, Figures]
    series: list[Point]  #: a point for each minute of the window


def read_stats(engine: Engine, window: Duration, tasks: Iterable[str] = ()) -> Stats:
    """`tasks`: those that are told of even if nothing was done."""
    length = seconds(window, what="window")
    if not 60 <= length <= KEPT:
        raise InvalidInput(f"window={window!r}: give a duration from 1m to 24h")
    now = engine.now()
    start = since(now, length)
    totals = engine.totals(start)
    queues = engine.queues(cap=CAP)
    waiting = waits(engine, now)
    names = {queue.name for queue in queues} | set(waiting)
    return Stats(
        jobs=engine.counts(cap=CAP),
        queues=queues,
        workers=sum(worker.died_at is None for worker in engine.workers()),
        oldest_pending=max(waiting.values(), default=None),
        waiting=waiting,
        window=length,
        figures=figures(totals, length),
        by_task=_grouped(totals, lambda total: total.type, tasks, length),
        by_queue=_grouped(totals, lambda total: total.queue, names, length),
        series=whole_series(engine.series(start), start, now),
    )


def waits(engine: Engine, now: datetime) -> dict[str, float]:
    """How long the longest waiting job of each queue has been due."""
    found: dict[str, float] = {}
    overdue = engine.overdue()
    for queue, _, due in [*engine.backlog(), *([] if overdue is None else [overdue])]:
        age = max(0.0, (now - due).total_seconds())
        found[queue] = max(age, found.get(queue, 0.0))
    return dict(sorted(found.items()))


def _grouped(
    totals: Sequence[Total], name: Callable[[Total], str], known: Iterable[str], window: float
) -> dict[str, Figures]:
    groups: dict[str, list[Total]] = {one: [] for one in known}
    for total in totals:
        groups.setdefault(name(total), []).append(total)
    return {one: figures(groups[one], window) for one in sorted(groups)}
