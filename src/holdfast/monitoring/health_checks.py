"""The checks of `app.health()`: each reads a part of the snapshot, and describes problems and their
remedies."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from holdfast.engine.records import QueueInfo
from holdfast.jobs.job import Status
from holdfast.jobs.outcome import CRASHED_IN_A_ROW
from holdfast.monitoring.metrics import rate, since
from holdfast.monitoring.snapshot import Snapshot
from holdfast.monitoring.worker_status import WorkerView
from holdfast.schedules import scripts as schedule_scripts
from holdfast.schedules.next_run import CODE
from holdfast.settings import Thresholds

ENOUGH = 20  # jobs for each worker of a queue, before shares are compared
STALLED = 60.0  # seconds without a write, after which a worker claims no more jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check and its result."""

    name: str
    ok: bool
    detail: str  #: the finding; if it is not ok, also the remedy
    measured: float | None = None  #: None: the check measures no number
    threshold: float | None = None
    warning: bool = False  #: True: if it is not ok, it is a warning and not a problem


Checked = tuple[Check, list[str]]  #: a check, and every problem that it found


def run_checks(snapshot: Snapshot, limits: Thresholds) -> list[Checked]:
    return [
        check_writes(snapshot),
        check_workers(snapshot, limits),
        check_serving(snapshot),
        check_waiting(snapshot, limits),
        check_progress(snapshot, limits),
        check_failures(snapshot, limits),
        check_queues(snapshot, empty=False),
        check_queues(snapshot, empty=True),
        check_schedules(snapshot),
        check_stuck(snapshot),
        check_frozen(snapshot),
        check_silent(snapshot),
        check_unreadable(snapshot),
        check_spread(snapshot, limits),
        check_versions(snapshot),
    ]


def _checked(
    name: str,
    wrong: Iterable[str],
    fine: str,
    measured: float | None = None,
    threshold: float | None = None,
    *,
    warning: bool = False,
) -> Checked:
    sentences = list(wrong)
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    check = Check(
        name=name,
        ok=not sentences,
        detail=sentences[0] + more if sentences else fine,
        measured=measured,
        threshold=threshold,
        warning=warning,
    )
    return check, sentences


def check_writes(snapshot: Snapshot) -> Checked:
    """The database commits what this process and the workers write."""
    wrong = []
    if snapshot.write_problem is not None:
        wrong.append(
            "the database can be read, and does not commit a write: no job can be added, started or "
            f"finished. Free its disk, or let this user write: {snapshot.write_problem}"
        )
    wrong += [
        f"worker {worker.id} could not write to the database for {worker.cannot_write_for:.0f} s, "
        "and claims no more jobs until it can: look at the database's disk and at the worker's log"
        for worker in snapshot.alive
        if (worker.cannot_write_for or 0.0) >= STALLED
    ]
    return _checked("writes", wrong, "the database commits writes", len(wrong), 0)


def check_workers(snapshot: Snapshot, limits: Thresholds) -> Checked:
    """At least as many workers live as expected; without a number, one while there is work."""
    alive = len(snapshot.alive)
    pending, running = snapshot.jobs[Status.PENDING], snapshot.jobs[Status.RUNNING]
    due = len(snapshot.waiting) if not pending else 0  # jobs that no worker has made pending
    expected = limits.expected_workers
    wrong = []
    if not alive and (pending or running or due):
        wrong.append(
            f"no worker lives, while {pending or due} jobs are pending and {running} running: start "
            "one with 'holdfast worker MODULE:APP'"
        )
    elif expected is not None and alive < expected:
        wrong.append(
            f"{alive} workers live, and {expected} are expected: look at the logs of those that are "
            "missing, and start them again"
        )
    least = expected if expected is not None else int(bool(pending or running or due))
    return _checked("workers", wrong, f"{alive} workers live", alive, least)


def check_serving(snapshot: Snapshot) -> Checked:
    """Every pending task is known to a live worker that serves its queue."""
    found = unserved(snapshot.waiting, snapshot.workers) if snapshot.alive else ()
    wrong = list(dict.fromkeys(text for _, text in found))
    return _checked("serving", wrong, "all that waits can be run", len(wrong), 0)


def unserved(
    waiting: Iterable[tuple[str, str, float]], workers: Sequence[WorkerView]
) -> Iterator[tuple[str | None, str]]:
    """Yield a problem for each kind of waiting job that no worker will claim, with the type that no
    worker knows (None if no worker serves the queue)."""
    for queue, type, _ in waiting:
        serving = [worker for worker in workers if worker.serves(queue)]
        if not serving:
            yield None, f"no live worker serves queue {queue!r}: start one with '-q {queue}'"
        elif not any(worker.knows(type) for worker in serving):
            yield (
                type,
                f"no live worker knows task {type!r} (queue {queue!r}): start a worker whose "
                "application registers it, or cancel its jobs",
            )


def check_waiting(snapshot: Snapshot, limits: Thresholds) -> Checked:
    """No due job waits for too long."""
    most = limits.max_age
    oldest: dict[tuple[str, str], float] = {}
    for queue, type, age in snapshot.waiting:
        oldest[queue, type] = max(age, oldest.get((queue, type), 0.0))
    wrong = [
        f"a job of task {type!r} in queue {queue!r} has been due for {age:.0f} s, over the limit "
        f"of {most:g} s: add workers or slots, or look at what holds them up"
        for (queue, type), age in oldest.items()
        if most is not None and age > most
    ]
    longest = max(oldest.values(), default=None)
    fine = "nothing is due" if longest is None else f"the oldest has been due for {longest:.0f} s"
    return _checked("waiting", wrong, fine, longest or 0.0, most)


def check_progress(snapshot: Snapshot, limits: Thresholds) -> Checked:
    """While work waits, a run ends every few minutes."""
    if limits.stall is None:
        return _checked("progress", [], "not checked")
    paused = {queue.name for queue in snapshot.queues if queue.paused_at is not None}
    waits = max((age for queue, _, age in snapshot.waiting if queue not in paused), default=0.0)
    ended = sum(point.ended for point in snapshot.last(limits.stall + 60))
    wrong = []
    if waits > limits.stall and not ended:
        wrong.append(
            f"nothing has ended in the last {_minutes(limits.stall)}, while jobs have been due for "
            f"{waits:.0f} s: look at what the workers run ('holdfast workers'), or allow more with "
            "stall="
        )
    fine = f"{ended} runs have ended in the last {_minutes(limits.stall)}"
    return _checked("progress", wrong, fine, ended, 1 if waits > limits.stall else 0)


def check_failures(snapshot: Snapshot, limits: Thresholds) -> Checked:
    """Few of the jobs that finished in the window failed."""
    points = snapshot.last(limits.window)
    failed = sum(point.failed for point in points)
    finished = sum(point.finished for point in points)
    part = rate(failed, finished)
    fine = f"{failed} of {finished} jobs ({part:.1%}) failed in the last {_minutes(limits.window)}"
    wrong = []
    if failed and part >= limits.failure_rate:
        wrong.append(
            f"{fine}; it should be under {limits.failure_rate:.1%}: 'holdfast jobs list --status "
            "failed' shows them, 'holdfast jobs retry --status failed' runs them again"
        )
    return _checked("failures", wrong, fine, part, limits.failure_rate)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes"


def check_queues(snapshot: Snapshot, *, empty: bool) -> Checked:
    """A paused queue that holds jobs is a problem; one that holds none is a warning."""
    wrong = [
        pause_of(queue, f" with {queue.depth} jobs pending" if queue.depth else "")
        for queue in snapshot.queues
        if queue.paused_at is not None and bool(queue.depth) is not empty
    ]
    name, what = ("pauses", "no queue") if empty else ("paused", "no queue with jobs")
    return _checked(name, wrong, f"{what} is paused", len(wrong), 0, warning=empty)


def pause_of(queue: QueueInfo, more: str) -> str:
    """Describe the pause of a queue."""
    return (
        f"queue {queue.name!r} is paused since {queue.paused_at:%Y-%m-%d %H:%M} UTC{more}: "
        f"'holdfast queues resume {queue.name}' lets it go on"
    )


def check_schedules(snapshot: Snapshot) -> Checked:
    """No recurring job was disabled because its process died under it."""
    wrong = [
        f"the recurring job {_words(type, key)!r} is disabled: {because}; correct it, then 'holdfast "
        f"schedules enable {_words(type, key)}' lets it run ('disable' accepts that it does not)"
        for type, key, because in snapshot.engine.run(schedule_scripts.disabled, write=False)
        if because.startswith(CRASHED_IN_A_ROW)
    ]
    return _checked("schedules", wrong, "no recurring job kills its process", len(wrong), 0)


def _words(type: str, key: str) -> str:
    """Return a recurring job's task and key as `holdfast schedules` takes them."""
    return type if key == CODE else f"{type} {key}"


def check_stuck(snapshot: Snapshot) -> Checked:
    """No job runs past its timeout."""
    wrong = [
        f"job {job.id} ({job.type}) is past its timeout and does not return in worker "
        f"{worker.id}: a thread cannot be killed; run it under 'holdfast worker', or make "
        "it look at ctx.cancelled"
        for worker in snapshot.alive
        for job in worker.jobs
        if job.stuck
    ]
    return _checked("stuck", wrong, "no job is past its timeout", len(wrong), 0)


def check_frozen(snapshot: Snapshot) -> Checked:
    """Every worker process answers its supervisor, and ends jobs that are past their timeout."""
    wrong = []
    for worker in snapshot.alive:
        known = {job.id for job in worker.jobs if job.stuck}  # which check_stuck names
        late = ", ".join(id for id in worker.overdue if id not in known)
        who = f"worker {worker.id} (process {worker.pid})"
        if worker.silent_for is not None:
            wrong.append(
                f"{who} has not answered its supervisor for {worker.silent_for:.0f} s"
                + (f", and job {late} is past its timeout" if late else "")
                + ": a handler holds Python's interpreter lock, or the process is stopped; the "
                "supervisor replaces it 10 s past the timeout of a job: give every task a timeout, "
                "or run what freezes with process=True"
            )
        elif late:
            wrong.append(
                f"job {late} is past its timeout and goes on in {who}: the supervisor replaces the "
                "process if it does not end; let the handler look at ctx.cancelled"
            )
    return _checked("frozen", wrong, "every worker process answers", len(wrong), 0)


def check_silent(snapshot: Snapshot) -> Checked:
    """Every live worker sends heartbeats."""
    wrong = [
        f"worker {worker.id} has been silent for {worker.beat_age:.0f} s: it hangs, was "
        "killed, or cannot reach the database; any other worker gives back what it holds"
        for worker in snapshot.workers
        if worker.state == "silent"
    ]
    return _checked("silent", wrong, "every worker sends heartbeats", len(wrong), 0)


def check_unreadable(snapshot: Snapshot) -> Checked:
    """No worker gets payloads that its code cannot read."""
    wrong = [
        f"worker {worker.id} has been unable to read payloads of task {one.task!r} for "
        f"{one.seconds:.0f} s ({one.error}): replace it by a worker with the code that enqueued them; "
        "until then they are given back, see the guide 'Changing a task'"
        for worker in snapshot.alive
        for one in worker.unreadable
    ]
    seconds = (one.seconds for worker in snapshot.alive for one in worker.unreadable)
    longest = max(seconds, default=0.0)
    return _checked("unreadable", wrong, "workers can read the payloads of their jobs", longest, 0)


def check_spread(snapshot: Snapshot, limits: Thresholds) -> Checked:
    """Workers that serve the same queue, and lived through the whole window, each do their share."""
    start = snapshot.now - timedelta(seconds=limits.window)
    steady = {w.id: w for w in snapshot.workers if w.state == "live" and w.started_at <= start}
    done: dict[str, dict[str, int]] = {}
    for share in snapshot.engine.shares(since(snapshot.now, limits.window)):
        if share.worker_id in steady:
            done.setdefault(share.queue, {})[share.worker_id] = share.finished
    wrong, lowest = [], 1.0
    for queue, by in done.items():
        serving = [worker for worker in steady.values() if worker.serves(queue)]
        slots, total = sum(worker.slots or 1 for worker in serving), sum(by.values())
        if len(serving) < 2 or total < ENOUGH * len(serving):
            continue
        for worker in serving:
            equal = total * (worker.slots or 1) / slots
            part = by.get(worker.id, 0) / equal
            lowest = min(lowest, part)
            if part < limits.spread:
                wrong.append(
                    f"worker {worker.id} finished {by.get(worker.id, 0)} of {total} jobs of queue "
                    f"{queue!r} in the last {_minutes(limits.window)}; {equal:.0f} would be its share"
                )
    fine = "the workers share their jobs"
    return _checked("spread", wrong, fine, lowest, limits.spread, warning=True)


def check_versions(snapshot: Snapshot) -> Checked:
    """All workers run the same code, as far as they report it."""
    wrong, most = [], 1
    for what, field in (("of Holdfast", "version"), ("of the application", "app_version")):
        versions = {getattr(worker, field) for worker in snapshot.alive}
        known = sorted(version for version in versions if version is not None)
        most = max(most, len(known))
        if len(known) > 1:
            wrong.append(
                f"workers run several versions {what}: {', '.join(known)}; restart the older ones"
            )
    return _checked("versions", wrong, "all workers run the same code", most, 1, warning=True)
