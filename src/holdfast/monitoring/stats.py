"""`app.stats()`: the present state, counted up to a cap, and recent work, summed over the workers'
roll-ups. The cost does not grow with the jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.core.duration import Duration
from holdfast.engine.records import QueueInfo
from holdfast.jobs.job import Status
from holdfast.monitoring import metrics
from holdfast.monitoring.metrics import Figures, Point, Total
from holdfast.monitoring.snapshot import CAP, Snapshot
from holdfast.monitoring.worker_status import GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Statistics that are cheap at any size: `jobs` and the depths of `queues` are counted up to `cap`.
    Figures include the present minute; workers write them every five seconds."""

    jobs: dict[Status, int]
    queues: list[QueueInfo]
    workers: int  #: workers that have neither left nor been declared dead
    cap: int = CAP
    oldest_pending: float | None = None  #: seconds that the longest waiting job has been due
    waiting: dict[str, float]  #: the same for each queue in which something waits
    window: float  #: seconds that the figures cover
    figures: Figures  #: of all jobs
    by_task: dict[str, Figures]  #: every task that is registered here or ended a run
    by_queue: dict[str, Figures]
    series: list[Point]  #: a point for each minute of the window


def read_stats(snapshot: Snapshot, window: Duration, tasks: Iterable[str] = ()) -> Stats:
    """Read the statistics. `tasks` are listed even if none of their runs ended."""
    length = metrics.length_of(window)
    engine, now, queues = snapshot.engine, snapshot.now, snapshot.queues
    start = metrics.since(now, length)
    totals = engine.totals(start)
    waiting = snapshot.longest
    names = {queue.name for queue in queues} | set(waiting)
    return Stats(
        jobs=snapshot.jobs,
        queues=queues,
        workers=sum(worker.state not in GONE for worker in snapshot.workers),
        oldest_pending=max(waiting.values(), default=None),
        waiting=waiting,
        window=length,
        figures=metrics.figures(totals, length),
        by_task=grouped(totals, "type", tasks, length),
        by_queue=grouped(totals, "queue", names, length),
        series=metrics.whole_series(engine.series(start), start, now),
    )


def grouped(
    totals: Sequence[Total], by: Literal["type", "queue"], known: Iterable[str], window: float
) -> dict[str, Figures]:
    """Return the figures of each task or queue; those that are `known`, even if no run ended."""
    groups: dict[str, list[Total]] = {name: [] for name in known}
    for total in totals:
        groups.setdefault(getattr(total, by), []).append(total)
    return {name: metrics.figures(groups[name], window) for name in sorted(groups)}
