"""Scripts of workflows.

A finish does not look at the jobs that wait for the finished one. The workflow is advanced in a
transaction of its own, which locks the workflow's row: the second of two transactions sees all that the
first has written, so that of two parents that end at the same time one releases their child. If a
process dies between the finish and the advance, a service finds the jobs whose `seen` differs from
their status.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.records import Parent, WorkflowInfo
from holdfast.engine.script import Row, Run, Script
from holdfast.events.outbox import emit
from holdfast.jobs.commands import cancel, insert
from holdfast.jobs.job import CALLBACK, FINISHED, UNFINISHED, EventKind, Job, NewJob, Status
from holdfast.jobs.outcome import WEEK
from holdfast.jobs.read import FIRST_ID
from holdfast.jobs.rows import columns_to_job
from holdfast.workflows import rules as workflow_rules
from holdfast.workflows.rules import Callback, Settled, WorkflowState

BATCH = 1000  # jobs that one statement returns
CAP = 100_000  # the most jobs that are counted for a page of workflows


def start(
    dialect: Dialect, id: str, name: str, jobs: Sequence[NewJob], *, hint: Iterable[str] = ()
) -> Script[list[Job]]:
    """Insert a workflow with its jobs. `hint`: queues whose workers are woken."""
    yield Run("insert_workflow", {"now": dialect.now(), "id": id, "name": name})
    return (yield from insert(dialect, jobs, hint=hint))


def advance(dialect: Dialect, workflows: Collection[str]) -> Script[int]:
    """Release, cancel or hold the jobs of workflows, after other jobs have ended or were added. Returns
    the number of jobs that were released or cancelled."""
    if not workflows:
        return 0
    wanted = {"workflows": json.dumps(sorted(workflows))}
    held = [row[0] for row in (yield Run("lock_workflows", wanted)).rows]
    params = {"workflows": json.dumps(held), "limit": BATCH}
    queues: list[str] = []
    dropped = 0
    while rows := (yield Run("changed_jobs", params)).rows:
        freed, failed = yield from _follow(dialect, rows)
        queues += freed
        dropped += failed
    queues += yield from _conclude(dialect, held)
    yield from wake(queues)
    return len(queues) + dropped


def _follow(dialect: Dialect, rows: Sequence[Row]) -> Script[tuple[list[str], int]]:
    """Release or cancel the jobs that wait for the jobs in `rows`. Returns the queues of released jobs
    and the number of cancelled jobs. (The next call finds the jobs that wait for these.)"""
    ended = [id for id, _, status, _ in rows if status in FINISHED]
    added = [id for id, _, status, node in rows if status == Status.BLOCKED and node[0] != CALLBACK]
    settled = yield from _settle(ended, "ended")
    settled += yield from _settle(added, "added")
    reasons = workflow_rules.to_cancel(settled, {id: node for id, _, _, node in rows})
    if reasons:
        yield from _cancel_waiting(dialect, reasons)
    touched = ({edge.child for edge in settled} | set(added)) - reasons.keys()
    queues = yield from _free(dialect, touched)
    yield Run("mark_followed_up", {}, [{"id": id, "status": status} for id, _, status, _ in rows])
    return queues, len(reasons)


def _settle(ids: Sequence[str], which: str) -> Script[list[Settled]]:
    if not ids:
        return []
    reply = yield Run(
        "record_outcomes", {"ids": json.dumps(sorted(ids))}, options=frozenset({which})
    )
    return [Settled(*row) for row in reply.rows]


def _free(dialect: Dialect, ids: Collection[str]) -> Script[list[str]]:
    """Release the jobs among these that wait for no other job any more; return their queues."""
    if not ids:
        return []
    freed = (yield Run("free", {"now": dialect.now(), "ids": json.dumps(sorted(ids))})).rows
    yield from emit(dialect, EventKind.ENQUEUED, [id for id, _ in freed])
    return [queue for _, queue in freed]


def _cancel_waiting(dialect: Dialect, reasons: Mapping[str, str]) -> Script[None]:
    now, keep = dialect.now(), round(WEEK * MICRO)
    rows = [{"now": now, "id": id, "error": reasons[id], "keep": keep} for id in sorted(reasons)]
    dropped = (yield Run("drop", {"now": now}, rows, tell="id")).rows
    yield from emit(dialect, EventKind.CANCELLED, [row[0] for row in dropped])


def _conclude(dialect: Dialect, workflows: Sequence[str]) -> Script[list[str]]:
    """Write the statuses of workflows, and release or cancel their callbacks. Returns the queues of
    released callbacks."""
    params = {"workflows": json.dumps(list(workflows))}
    now = dialect.now()
    states: dict[str, WorkflowState] = {}
    marks: list[dict[str, Any]] = []
    for id, before, *flags in (yield Run("workflow_states", params)).rows:
        state = states[id] = WorkflowState(*(bool(flag) for flag in flags))
        if state.status != before and (state.unfinished or before == Status.RUNNING):
            finished = not state.unfinished
            marks.append({"now": now, "id": id, "status": state.status, "finished": finished})
    if marks:
        yield Run("mark_workflow", {"now": now}, marks)
    callbacks: dict[Callback, list[str]] = {state: [] for state in Callback}
    for id, workflow, name in (yield Run("callbacks", params)).rows:
        callbacks[workflow_rules.callback(name, states[workflow])].append(id)
    if never := callbacks[Callback.NEVER_RUNS]:
        reason = "Cancelled: its workflow did not come to that"
        yield from _cancel_waiting(dialect, dict.fromkeys(never, reason))
        yield Run("mark_followed_up", {}, [{"id": id, "status": Status.CANCELLED} for id in never])
    return (yield from _free(dialect, callbacks[Callback.RUNS]))


def changed_workflows(limit: int) -> Script[list[str]]:
    """Return workflows that must be advanced."""
    return [row[0] for row in (yield Run("changed_workflows", {"limit": limit})).rows]


def orphans(after: str, limit: int) -> Script[str]:
    """Find jobs that wait for a deleted job (such as one deleted by the application's SQL), and mark
    them to be followed up. A bounded search; returns the id behind which to go on."""
    edge, seen, found = (yield Run("orphans", {"after": after, "limit": limit})).rows[0]
    ids = found if isinstance(found, list) else json.loads(found or "[]")
    if ids:
        yield Run("follow_up_again", {"ids": json.dumps(sorted(set(ids)))})
    return edge if seen == limit else FIRST_ID


def abandoned(dialect: Dialect, after: str, limit: int) -> Script[str]:
    """Advance workflows whose last job was deleted, so that they end. A bounded search; returns the id
    behind which to go on."""
    edge, seen, found = (yield Run("abandoned", {"after": after, "limit": limit})).rows[0]
    ids = found if isinstance(found, list) else json.loads(found or "[]")
    yield from advance(dialect, [str(id) for id in ids])
    return edge if seen == limit else FIRST_ID


# commands of applications and operators


def retry(dialect: Dialect, workflow: str) -> Script[int]:
    """Run again the jobs that failed or were cancelled, and those that waited for them; return their
    number."""
    yield Run("lock_workflows", {"workflows": json.dumps([workflow])})
    params = {"now": dialect.now(), "workflow": workflow}
    reopened = (yield Run("reopen", params)).rows
    if reopened:
        yield Run("clear_outcomes", {"ids": json.dumps([row[0] for row in reopened])})
        yield from emit(dialect, EventKind.ENQUEUED, [row[0] for row in reopened])
        yield from wake(queue for _, queue, status in reopened if status == Status.PENDING)
    yield from advance(dialect, [workflow])
    return len(reopened)


def stop(dialect: Dialect, workflow: str, keep: float) -> Script[int]:
    """Cancel the jobs that are not finished; return their number."""
    yield Run("lock_workflows", {"workflows": json.dumps([workflow])})
    jobs = yield from members(dialect, workflow)
    ids = [job.id for job in jobs if job.status in UNFINISHED and job.node[0] != CALLBACK]  # type: ignore[index]
    done = (yield from cancel(dialect, ids, keep)) if ids else []
    yield from advance(dialect, [workflow])
    return len(done)


def release(dialect: Dialect, job: str, workflow: str) -> Script[bool]:
    """Release a job that is held since a job that it waits for has failed. Returns False if it is not
    held."""
    yield Run("lock_workflows", {"workflows": json.dumps([workflow])})
    released = (yield Run("release_node", {"id": job})).rows
    yield from advance(dialect, [workflow])
    return bool(released)


# reading


def parents(id: str, *, results: bool = False) -> Script[list[Parent]]:
    """Return the jobs that a job waits for or waited for, in the order of `after=`."""
    options = frozenset({"results" if results else "plain"})
    reply = yield Run("parents", {"id": id}, options=options)
    return [Parent(*row) for row in reply.rows]


def listing(dialect: Dialect, before: str, limit: int) -> Script[list[WorkflowInfo]]:
    """Return the workflows older than one of them, the newest first."""
    params = {"before": before, "limit": limit}
    return (yield from _infos(dialect, params, "page"))


def find(dialect: Dialect, ids: Sequence[str]) -> Script[list[WorkflowInfo]]:
    """Return the workflows with these ids."""
    params = {"workflows": json.dumps(list(ids)), "limit": len(ids)}
    return (yield from _infos(dialect, params, "some"))


def _infos(dialect: Dialect, params: Mapping[str, Any], which: str) -> Script[list[WorkflowInfo]]:
    rows = (yield Run("workflows", params, options=frozenset({which}))).rows
    counts: dict[str, dict[Status, int]] = {row[0]: dict.fromkeys(Status, 0) for row in rows}
    if rows:
        wanted = {"workflows": json.dumps(list(counts)), "cap": CAP}
        for id, status, number in (yield Run("workflow_counts", wanted)).rows:
            counts[id][Status(status)] = number
    return [
        WorkflowInfo(
            id=id,
            name=name,
            status=Status(status),
            created_at=dialect.moment(created),
            finished_at=None if finished is None else dialect.moment(finished),
            counts=counts[id],
        )
        for id, name, status, created, finished in rows
    ]


def members(dialect: Dialect, workflow: str) -> Script[list[Job]]:
    """Return the jobs of a workflow, in the order in which they were added."""
    found: list[Job] = []
    params = {"workflow": workflow, "status": "", "after": FIRST_ID, "limit": BATCH}
    while True:
        rows = (yield Run("members", params)).rows
        found += [columns_to_job(dialect, row) for row in rows]
        if len(rows) < BATCH:
            return sorted(found, key=lambda job: job.id)
        params |= {"status": found[-1].status.value, "after": found[-1].id}


def edges(ids: Sequence[str]) -> Script[list[Settled]]:
    """Return the edges of these jobs: the jobs that each waits for or waited for; the outcome is ""
    while it waits."""
    reply = yield Run("edges", {"ids": json.dumps(list(ids))})
    return [Settled(row[0], row[1], row[2], row[3] or "") for row in reply.rows]


def prune(dialect: Dialect, limit: int) -> Script[int]:
    """Delete workflows that ended a week ago and have no job left; return their number."""
    params = {"now": dialect.now(), "keep": round(WEEK * MICRO), "limit": limit}
    return len((yield Run("prune_workflows", params)).rows)
