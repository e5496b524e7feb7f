"""Scripts of limits. Running jobs are counted from rows, while the keys of their limits are locked
(docs/decisions/0013)."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.records import LimitInfo
from holdfast.engine.script import Row, Run, Script
from holdfast.limits.admission import Capacity, Place
from holdfast.limits.limit import QUEUE, Declared, Rate

SCAN = 10_000  #: parked jobs that `is_busy` reads; if there are more, it returns True
IDLE = 30.0  #: seconds that a pending job keeps the turn of its key if no live worker serves it
AT_ONCE = 100  #: jobs of one key that are put back in line at a time


def capacities(dialect: Dialect, keys: Collection[str], kind: str) -> Script[dict[str, Capacity]]:
    """Lock keys until the transaction ends, and return the capacity of each. A key without a row cannot
    be locked and is left out. The count is a separate statement after the lock, so that it includes
    what the last holder of the lock has committed."""
    if dialect.locks_rows and keys:
        held = yield Run("lock_keys", {"keys": json.dumps(sorted(keys))})
        keys = [row[0] for row in held.rows]
    return (yield from peek(dialect, keys, kind)) if keys else {}


def peek(dialect: Dialect, keys: Collection[str], kind: str) -> Script[dict[str, Capacity]]:
    """Return the capacities of keys without locking them, for display."""
    params = {"keys": json.dumps(sorted(keys)), "now": dialect.now()}
    reply = yield Run("capacities", params, options=frozenset({kind}))
    return {row[0]: make_capacity(row) for row in reply.rows}


def make_capacity(row: Row) -> Capacity:
    """Return the capacity that a row of the statement `capacities` describes."""
    key, most, times, period, starts, *place, now, running = row
    return Capacity(
        key=key,
        most=most,
        running=running,
        rate=None if times is None else Rate(times, period / MICRO),
        starts=[] if starts is None else json.loads(starts),
        now=now,
        in_line=None if place[0] is None else Place(*place),
    )


def spend(
    dialect: Dialect, whole: Iterable[Capacity], keyed: Iterable[Capacity], parked: Collection[str]
) -> Script[None]:
    """Store the latest starts under each rate, and, for keys with parked jobs, when their rate has
    capacity again. `parked`: the keys of which this claim parked jobs; earlier claims may have parked
    jobs of others."""
    now = dialect.now()
    spent = {capacity.key: 1 for capacity in keyed if capacity.started and capacity.waits_for_rate}
    if unknown := {key: 1 for key in spent if key not in parked}:
        parked = {*parked, *(yield from keys_with_parked(unknown))}
    rows = []
    for capacity in [*whole, *keyed]:
        is_awaited = capacity.key in parked
        if capacity.rate and (capacity.started or capacity.stepped_back or is_awaited):
            waits = is_awaited and capacity.waits_for_rate
            wait = round(capacity.until_next() * MICRO) if waits else None
            starts = json.dumps(capacity.after())
            rows.append({"now": now, "key": capacity.key, "starts": starts, "wait": wait})
    if rows:
        yield Run("record_starts", {"now": now}, rows)


def unpark(dialect: Dialect, sizes: Mapping[str, int]) -> Script[list[Row]]:
    """Return the first parked jobs of these keys to the queue, `sizes` jobs of each. Returns rows of
    queue, key, whether its keys take turns, and id. If keys take turns, their jobs join the line in the
    order of `sizes`."""
    if not sizes:
        return []
    now = dialect.now()
    rows = [
        {"now": now, "key": key, "size": size, "place": place}
        for place, (key, size) in enumerate(sizes.items())
    ]
    moved = (yield Run("unpark", {"now": now}, rows)).rows
    yield from turn({key: id for _, key, fair, id in moved if fair})
    return moved


def turn(turns: Mapping[str, str | None]) -> Script[None]:
    """Store which job has the turn of each key; None: no job has it."""
    if turns:
        rows = [{"key": key, "turn_id": id} for key, id in sorted(turns.items())]
        yield Run("set_turn", {}, rows)


def release(dialect: Dialect, freed: Mapping[str, int]) -> Script[None]:
    """Return parked jobs to the queue after jobs have ended: as many as ended under each key."""
    if not freed:
        return
    if dialect.locks_rows:  # wait for claims that count now, to see the jobs that they park
        yield Run("lock_keys", {"keys": json.dumps(sorted(freed))})
    moved = yield from unpark(dialect, (yield from keys_with_parked(freed)))
    yield from wake({row[0] for row in moved})


def keys_with_parked(freed: Mapping[str, int]) -> Script[dict[str, int]]:
    """Return the keys of `freed` that have parked jobs (usually none), with their numbers."""
    reply = yield Run("keys_with_parked", {"keys": json.dumps(sorted(freed))})
    return {row[0]: freed[row[0]] for row in reply.rows}


class Repaired(NamedTuple):
    moved: int  #: jobs that were returned to the queue
    after: str  #: the key behind which to go on; "": from the beginning


def is_busy(queues: Collection[str], worker: str, scan: int = SCAN) -> Script[bool]:
    """Return whether a job of these queues is pending or parked for a limit, or the worker holds a job.
    It is one statement, since jobs may change between these statuses at any time."""
    params = {"queues": json.dumps(sorted(queues)), "worker": worker, "scan": scan}
    return bool((yield Run("busy", params)).rows[0][0])


def is_waited_for() -> Script[bool]:
    """Return whether any job is parked for a key. (Usually none is, and no key needs a lock.)"""
    return bool((yield Run("waiting_keys", {"after": "", "limit": 1})).rows)


def repair(dialect: Dialect, after: str, limit: int) -> Script[Repaired]:
    """Return parked jobs to the queue whose key has free capacity, if no finish released them. Looks at
    `limit` keys behind `after`."""
    reply = yield Run("waiting_keys", {"after": after, "limit": limit})
    keys = [row[0] for row in reply.rows]
    found = yield from capacities(dialect, keys, "keyed")
    sizes = {
        key: min(AT_ONCE, found[key].left if key in found else AT_ONCE)
        for key in keys
        if key not in found or found[key].left
    }
    yield from _end_idle_turns(dialect, sizes)
    moved = yield from unpark(dialect, sizes)
    yield from spend(
        dialect, (), [capacity for capacity in found.values() if capacity.waits_for_rate], keys
    )
    yield from wake({row[0] for row in moved})
    return Repaired(len(moved), keys[-1] if len(keys) == limit else "")


def _end_idle_turns(dialect: Dialect, keys: Collection[str]) -> Script[None]:
    """End the turn of jobs whose task or queue no live worker serves, so that another job of the key
    gets it."""
    params = {"now": dialect.now(), "keys": json.dumps(sorted(keys)), "idle": round(IDLE * MICRO)}
    if not keys or not (rows := (yield Run("idle_turns", params)).rows):
        return
    workers = (yield Run("workers", {})).rows
    infos = [
        json.loads(info) for _, info, *_, left_at, died_at in workers if not (left_at or died_at)
    ]

    def is_served(type: str, queue: str) -> bool:
        return any(
            type in info.get("tasks", (type,)) and queue in (info.get("queues") or (queue,))
            for info in infos
        )

    yield from turn({key: None for key, type, queue in rows if not is_served(type, queue)})


def declare(dialect: Dialect, limits: Sequence[Declared]) -> Script[None]:
    """Write the limits of the code. A limit that tasks share names all of them."""
    if not limits:
        return
    now = dialect.now()
    tasks: dict[str, set[str]] = {}
    for limit in limits:
        tasks.setdefault(limit.name, set()).update(limit.tasks)
    by_name = sorted({limit.name: limit for limit in limits}.items())
    rows = [
        {
            "now": now,
            "name": name,
            **_numbers(limit.concurrency, limit.rate),
            "keyed": limit.keyed,
            "fair": limit.fair,
            "tasks": json.dumps(sorted(tasks[name])),
        }
        for name, limit in by_name
    ]
    yield Run("declare_limit", {"now": now}, rows)
    locked = [name for name, limit in by_name if limit.fair or not limit.keyed]
    if locked:
        yield Run("add_keys", {}, [{"key": name, "name": name} for name in locked])


def _numbers(concurrency: int | None, rate: Rate | None) -> dict[str, int | None]:
    """Return the columns of a limit's numbers."""
    period = None if rate is None else round(rate.period * MICRO)
    return {"concurrency": concurrency, "rate": rate and rate.times, "period": period}


def change(dialect: Dialect, name: str, concurrency: int | None, rate: Rate | None) -> Script[bool]:
    """Store an operator's numbers for a limit; None: the code's count. Returns False if it does not
    exist."""
    now = dialect.now()
    params = {"now": now, "name": name, **_numbers(concurrency, rate)}
    if not (yield Run("set_limit", params)).rows:
        return False
    yield Run("wake_keys", {"now": now, "name": name})
    yield from wake(["*"])
    return True


def limit_queue(
    dialect: Dialect, queue: str, concurrency: int | None, rate: Rate | None
) -> Script[None]:
    """Set the limit of a queue; without numbers, remove it. Jobs that run already count under it."""
    name = QUEUE + queue
    if concurrency is None and rate is None:
        yield Run("drop_limit", {"name": name})
    else:
        yield from declare(dialect, [Declared(name, None, None, False, False, ())])
        yield from change(dialect, name, concurrency, rate)
        yield Run("mark_queue_limit", {"name": name, "queue": queue})
    yield from wake(["*"])


def forget(name: str) -> Script[bool]:
    """Delete a limit that the code no longer declares; return False if it does not exist."""
    return bool((yield Run("drop_limit", {"name": name})).rows)


def listing(cap: int) -> Script[list[LimitInfo]]:
    """Return all limits, with their running and parked jobs counted up to a cap."""
    reply = yield Run("limits", {"cap": cap})
    return [_info(row) for row in reply.rows]


def _info(row: Row) -> LimitInfo:
    name, concurrency, rate, period, keyed, fair, tasks, *rest = row
    own_concurrency, own_rate, own_period, running, waiting = rest
    times, during = (rate, period) if own_rate is None else (own_rate, own_period)
    return LimitInfo(
        name=name,
        concurrency=concurrency if own_concurrency is None else own_concurrency,
        rate=None if times is None else str(Rate(times, during / MICRO)),
        keyed=bool(keyed),
        fair=bool(fair),
        tasks=json.loads(tasks),
        running=running,
        waiting=waiting,
        changed=own_concurrency is not None or own_rate is not None,
    )


def prune_keys(after: str, limit: int) -> Script[str]:
    """Delete unused keys. Returns the key behind which to go on; "": from the beginning."""
    edge, seen = (yield Run("keys_edge", {"after": after, "limit": limit})).rows[0]
    yield Run("prune_keys", {"after": after, "limit": limit})
    return edge if seen == limit else ""
