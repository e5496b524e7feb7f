"""A reference model of the queue as a dictionary, without SQL, which both engines must agree with.

No index, no lock, no transaction: only the rules. If it and an engine differ, one of them is wrong.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.core.clock import FakeClock
from holdfast.jobs.job import FINISHED, TRANSITIONS, NewJob, Status
from holdfast.jobs.outcome import WEEK, Applied, Finish, Outcome

GIVEN_BACK = (Outcome.SNOOZED, Outcome.RELEASED, Outcome.UNREADABLE, Outcome.CRASHED)


@dataclass
class Row:
    new: NewJob
    status: Status
    run_at: datetime
    payload: str
    priority: int
    attempts: int = 0
    claim_no: int = 0
    finish_no: int = 0
    worker: str | None = None
    error: str | None = None
    result: str | None = None
    completed_at: datetime | None = None
    keep_until: datetime | None = None
    rerun_at: datetime | None = None
    cancel_requested: bool = False
    crashes: int = 0
    deaths: int = 0
    suspect: bool = False
    verdict: str | None = None
    unreadable_since: datetime | None = None
    progress: float | None = None
    message: str | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def level(self) -> int:
        """The isolation level: 0 shares a process with any job."""
        return min(max(self.deaths, 1), 3) if self.suspect else 0

    def seen(self) -> tuple[object, ...]:
        """What a reader can see of the row."""
        return (
            self.status,
            self.run_at,
            self.payload,
            self.priority,
            self.attempts,
            self.claim_no,
            self.worker,
            self.error,
            self.result,
            self.completed_at,
            self.keep_until,
            self.cancel_requested,
            self.crashes,
            self.deaths,
            self.verdict,
            self.unreadable_since,
            self.progress,
            self.message,
        )


class Model:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.rows: dict[str, Row] = {}
        self.dead: set[str] = set()
        self.alive: set[str] = set()
        self.left: set[str] = set()
        self.supervised: set[str] = set()  # by a supervisor that would see their death
        self.paused: set[str] = set()
        self.edges: dict[tuple[str, str], tuple[str, str | None]] = {}  # policy and outcome
        self.flows: dict[str, str] = {}  # the status of each workflow

    def _due(self, job: NewJob) -> datetime:
        return job.run_at or self.clock.now() + timedelta(seconds=job.delay)

    def _waiting_status(self, run_at: datetime) -> Status:
        return Status.SCHEDULED if run_at > self.clock.now() else Status.PENDING

    def _holder(self, job: NewJob) -> tuple[str, Row] | None:
        for id, row in self.rows.items():
            same = (row.new.type, row.new.key) == (job.type, job.key)
            if job.key is not None and same and row.status not in FINISHED:
                return id, row
        return None

    def insert(self, job: NewJob) -> tuple[str, bool] | None:
        """The job's id and whether it was created; None: refused."""
        for id, row in self.rows.items():
            same = (row.new.type, row.new.idempotency_key) == (job.type, job.idempotency_key)
            if job.idempotency_key is not None and same:
                return id, False
        held = self._holder(job)
        if held is None:
            due = self._due(job)
            status = Status.BLOCKED if job.waits else self._waiting_status(due)
            self.rows[job.id] = Row(job, status, due, job.payload, job.priority)
            self.edges |= {(job.id, parent): (policy, None) for parent, policy in job.after}
            return job.id, True
        id, row = held
        if job.on_conflict == "raise":
            return None
        if job.on_conflict != "existing":
            self._replace(row, job)
        return id, False

    def _replace(self, row: Row, job: NewJob) -> None:
        moves = job.on_conflict == "debounce"
        row.payload, row.priority = job.payload, job.priority
        if row.status is Status.RUNNING:
            row.rerun_at = self._due(job) if moves else self.clock.now()
            return
        row.attempts, row.verdict, row.unreadable_since = 0, None, None
        if moves:
            row.run_at = self._due(job)
            row.status = self._waiting_status(row.run_at)

    def beat(self, worker: str) -> bool:
        if worker not in self.dead:
            self.alive.add(worker)
        return worker not in self.dead

    def claim(self, queue: str, limit: int, worker: str, types: Sequence[str]) -> list[str]:
        return self._claim([queue], limit, worker, types, {0})

    def claim_suspects(
        self,
        queues: Sequence[str],
        limit: int,
        level: int | None,
        worker: str,
        types: Sequence[str],
    ) -> list[str]:
        levels = {1, 2, 3} if level is None else {level}
        return self._claim(queues, limit, worker, types, levels)

    def _claim(
        self,
        queues: Sequence[str],
        limit: int,
        worker: str,
        types: Sequence[str],
        levels: set[int],
    ) -> list[str]:
        if worker not in self.alive or worker in self.dead:
            return []
        fit = [
            (-row.priority, row.run_at, id)
            for id, row in self.rows.items()
            if row.status is Status.PENDING
            and row.level in levels
            and row.new.queue in set(queues) - self.paused
            and row.new.type in types
        ]
        taken = [id for _, _, id in sorted(fit)[:limit]]
        for id in taken:
            row = self.rows[id]
            row.status, row.worker = Status.RUNNING, worker
            row.claim_no += 1
            row.attempts += 1
            row.progress = row.message = None
        return taken

    def suspects(self) -> set[tuple[str, str, int, int]]:
        found = Counter(
            (row.new.queue, row.new.type, row.level)
            for row in self.rows.values()
            if row.suspect and row.status is Status.PENDING and row.new.queue not in self.paused
        )
        return {(*group, number) for group, number in found.items()}

    def held(self, id: str, claim_no: int) -> Row | None:
        """The row, while this claim holds."""
        row = self.rows.get(id)
        holds = row is not None and (row.status, row.claim_no) == (Status.RUNNING, claim_no)
        return row if holds else None

    def finish(self, finish: Finish) -> Applied:
        row = self.rows.get(finish.id)
        if row is None:
            return Applied.LOST
        if row.status is not Status.RUNNING or row.claim_no != finish.claim_no:
            return Applied.APPLIED if row.finish_no == finish.claim_no else Applied.LOST
        if finish.error is not None and finish.outcome is not Outcome.UNREADABLE:
            row.failures.append(finish.error)
        row.finish_no = row.claim_no
        since = row.unreadable_since or self.clock.now()
        unread = finish.outcome is Outcome.UNREADABLE and row.rerun_at is None
        row.unreadable_since = since if unread else None
        row.verdict = None
        row.crashes += finish.outcome is Outcome.CRASHED and finish.own
        row.deaths += finish.outcome is Outcome.CRASHED
        others = (Outcome.CRASHED, Outcome.RELEASED, Outcome.UNREADABLE)
        if finish.outcome not in others:  # it ended by itself
            row.suspect, row.deaths = False, 0
        target = TRANSITIONS[finish.outcome].target
        assert target is not None
        if finish.outcome not in others and target not in FINISHED:
            row.crashes = 0
        self._end(row, finish, target)
        for job in finish.enqueue:
            self.insert(job)
        return Applied.APPLIED

    def _end(self, row: Row, finish: Finish, target: Status) -> None:
        now = self.clock.now()
        row.error = None if target is Status.COMPLETED else finish.error or row.error
        if self._rerun(row):
            return
        if finish.outcome in GIVEN_BACK:
            row.attempts -= 1
        if target in (Status.RETRYING, Status.SCHEDULED):
            row.run_at = now + timedelta(seconds=finish.delay)
        if target not in FINISHED:
            row.worker = None
            if row.cancel_requested:
                target = Status.CANCELLED
        row.status = target
        if target in FINISHED:
            row.completed_at = now
            row.keep_until = now + timedelta(seconds=finish.keep)
        if target is Status.COMPLETED:
            row.result = finish.result

    def _rerun(self, row: Row) -> bool:
        if row.rerun_at is None:
            return False
        row.run_at, row.rerun_at = row.rerun_at, None
        row.status = self._waiting_status(row.run_at)
        row.attempts, row.worker, row.cancel_requested = 0, None, False
        return True

    def promote(self, limit: int) -> int:
        due = sorted(
            (row.run_at, id)
            for id, row in self.rows.items()
            if row.status in TRANSITIONS["promote"].sources and row.run_at <= self.clock.now()
        )[:limit]
        for _, id in due:
            self.rows[id].status = Status.PENDING
        return len(due)

    def bury(self, worker: str, begun: set[str] | None, crash: str | None, *, silent: bool) -> None:
        """`begun`: the ids of started jobs. `silent`: the end of its process was not observed."""
        if worker in self.alive - self.dead:
            self.dead.add(worker)
            if worker not in self.left and not (silent and worker in self.supervised):
                self._suspect(worker, begun, crash)
        now = self.clock.now()
        for id, row in self.rows.items():
            if row.status is Status.RUNNING and row.worker in self.dead:
                if row.verdict is None:
                    row.failures.append(self._lost(id, row, worker, begun))
                row.unreadable_since = None
                if self._rerun(row):
                    row.verdict = None
                    continue
                row.attempts -= 1
                row.worker = None
                row.status = Status.CANCELLED if row.cancel_requested else Status.PENDING
                if row.cancel_requested:
                    row.completed_at, row.keep_until = now, now + timedelta(seconds=WEEK)

    def _lost(self, id: str, row: Row, worker: str, begun: set[str] | None) -> str:
        if row.worker in self.left:
            return "the worker left before this had ended"
        if row.worker == worker and begun is not None and id not in begun:
            return "the worker was lost before this had begun"
        return "the worker was lost while it ran this"

    def _suspect(self, worker: str, begun: set[str] | None, crash: str | None) -> None:
        rows = self.rows.items()
        held = {id for id, row in rows if (row.worker, row.status) == (worker, Status.RUNNING)}
        if begun is None:
            begun = held
        for id in held & begun:
            row = self.rows[id]
            row.suspect = True
            row.deaths += 1
            if crash is not None and len(begun) == 1:
                row.crashes += 1
                row.error = crash

    def leave(self, worker: str) -> None:
        if worker in self.alive - self.dead:
            self.left.add(worker)

    def cancel(self, id: str, keep: float) -> bool:
        row = self.rows.get(id)
        if row is None or row.status in FINISHED:
            return False
        row.cancel_requested, row.rerun_at = True, None
        if row.status is not Status.RUNNING:
            now = self.clock.now()
            row.status, row.completed_at = Status.CANCELLED, now
            row.keep_until = now + timedelta(seconds=keep)
        return True

    def retry(self, id: str) -> bool:
        row = self.rows.get(id)
        if row is None or row.status not in TRANSITIONS["retry"].sources:
            return False
        held = self._holder(row.new)
        if held is not None and held[0] != id:
            return False
        row.status, row.attempts, row.run_at = Status.PENDING, 0, self.clock.now()
        row.error = row.result = row.worker = row.completed_at = row.keep_until = None
        row.cancel_requested = row.suspect = False
        row.deaths = 0
        row.crashes, row.verdict, row.progress, row.message = 0, None, None, None
        row.unreadable_since = None
        return True

    def prune(self) -> int:
        gone = [
            id
            for id, row in self.rows.items()
            if row.status in FINISHED
            and row.keep_until
            and row.keep_until <= self.clock.now()
            and self.flows.get(row.new.workflow_id or "") != "running"
        ]
        for id in gone:
            self.delete(id)
        return len(gone)

    def delete(self, id: str) -> bool:
        self.edges = {edge: how for edge, how in self.edges.items() if edge[0] != id}
        return self.rows.pop(id, None) is not None

    # workflows

    def advance(self) -> None:
        """What follows from all that has ended, or is gone."""
        while self._settle() or self._free():
            continue
        for flow in self.flows:
            self._conclude(flow)

    def _settle(self) -> bool:
        """Edges that need not be waited for; who waited for one that failed, is cancelled."""
        changed = False
        for (child, parent), (policy, outcome) in list(self.edges.items()):
            row = self.rows.get(parent)
            ended = "gone" if row is None else row.status if row.status in FINISHED else None
            waits = self.rows[child].status is Status.BLOCKED
            if outcome is not None or ended is None or (row is None and not waits):
                continue
            if ended == Status.COMPLETED or policy != "hold":
                self.edges[child, parent] = policy, ended
                changed = True
                if policy == "cancel" and ended != Status.COMPLETED and waits:
                    self._drop(self.rows[child])
        return changed

    def _drop(self, row: Row) -> None:
        now = self.clock.now()
        row.status, row.completed_at = Status.CANCELLED, now
        row.keep_until = now + timedelta(seconds=WEEK)
        row.error = "dropped"

    def _free(self) -> bool:
        changed = False
        for id, row in self.rows.items():
            waits = any(
                child == id and outcome is None for (child, _), (_, outcome) in self.edges.items()
            )
            node = row.new.node or ""
            if row.status is Status.BLOCKED and not waits and not node.startswith("@"):
                self._go(row)
                changed = True
        return changed

    def _go(self, row: Row) -> None:
        row.status = self._waiting_status(row.run_at)
        row.run_at = max(row.run_at, self.clock.now())

    def _members(self, flow: str, *, callbacks: bool) -> list[Row]:
        return [
            row
            for row in self.rows.values()
            if row.new.workflow_id == flow and (row.new.node or "").startswith("@") == callbacks
        ]

    def _conclude(self, flow: str) -> None:
        found = [row.status for row in self._members(flow, callbacks=False)]
        unfinished = any(status not in FINISHED for status in found)
        if unfinished:
            self.flows[flow] = "running"
        elif self.flows[flow] == "running":
            ends = [end for end in ("failed", "cancelled") if end in found]
            self.flows[flow] = (ends or ["completed"])[0]
        for row in self._members(flow, callbacks=True):
            if row.status is not Status.BLOCKED:
                continue
            wanted = {
                "@failed": Status.FAILED in found,
                "@finished": not unfinished,
                "@completed": set(found) <= {Status.COMPLETED},
            }[str(row.new.node)]
            if wanted:
                self._go(row)
            elif not unfinished:
                self._drop(row)

    def retry_flow(self, flow: str) -> int:
        """Do again what failed or was cancelled."""
        again = [
            (id, row)
            for id, row in self.rows.items()
            if row.new.workflow_id == flow and row.status in (Status.FAILED, Status.CANCELLED)
        ]
        for id, row in again:
            waits = str(row.new.node).startswith("@") or any(one == id for one, _ in self.edges)
            row.status = Status.BLOCKED if waits else Status.PENDING
            row.attempts = row.crashes = row.deaths = 0
            row.error = row.worker = row.completed_at = row.keep_until = row.rerun_at = None
            row.suspect = row.cancel_requested = False
            row.verdict = row.progress = row.message = row.unreadable_since = None
            for edge, (policy, _) in self.edges.items():
                if edge[1] == id:
                    self.edges[edge] = policy, None
        return len(again)
