"""Scripts by which a worker claims jobs: find the first jobs in the order of running, and make them
running. Under limits, count the running jobs in between (docs/decisions/0013)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.core.clock import to_microseconds
from holdfast.engine.dialect import Dialect
from holdfast.engine.script import Row, Run, Script
from holdfast.events.outbox import emit
from holdfast.jobs.job import EventKind, Job
from holdfast.jobs.rows import CLAIMED, claimed_to_job, order_of_running
from holdfast.limits.admission import Admitted, Candidate, Capacity, Place, admit
from holdfast.limits.keys import KeyNotMade
from holdfast.limits.limit import QUEUE, Rule, UnreadableArguments
from holdfast.limits.scripts import capacities, declare, make_capacity, spend, turn, unpark

_STARTED = CLAIMED.count(",") + 1  # the column with the start, if one statement claims
FAIR = 100  # the fewest jobs to look at if keys take turns
_SUSPECTS = 20  # jobs to look at beyond those wanted: limits may hold some back

Wanted = Sequence[Mapping[str, Any]]  #: types, each with its limit and fields of the engine


class Limited(NamedTuple):
    """The result of a claim under limits."""

    jobs: list[Job]
    parked: int
    full: set[str]  #: keys for which jobs were parked, and whose capacity is used up
    more: bool
    due: float | None  #: seconds until a rate lets more start
    has_queue_limit: bool  #: the queue has a limit of its own


def claim(
    dialect: Dialect, queue: str, limit: int, worker: str, wanted: Wanted
) -> Script[list[Job]]:
    """Claim jobs that have no limits."""
    if not wanted:
        return []
    params: dict[str, Any] = {
        "now": dialect.now(),
        "queue": queue,
        "limit": limit,
        "worker": worker,
    }
    if not dialect.locks_rows:
        rows = yield from _look(params, wanted, "unlimited")
        return (yield from _take(dialect, rows, params))
    params["types"] = json.dumps(wanted)
    reply = yield (Run("claim", params) if len(wanted) == 1 else Run("claim_types", params))
    jobs = [
        claimed_to_job(dialect, row, worker, dialect.moment(row[_STARTED]), bump=0)
        for row in reply.rows
    ]
    jobs.sort(key=order_of_running)  # RETURNING promises no order
    yield from emit(dialect, EventKind.STARTED, [job.id for job in jobs])
    return jobs


def _look(params: Mapping[str, Any], wanted: Wanted, *options: str) -> Script[list[Row]]:
    named = {**params, "type": wanted[0]["type"], "types": json.dumps(wanted)}
    named["guard"] = "yes" if "unlimited" in options else ""
    number = "one" if len(wanted) == 1 else "several"
    return (yield Run("look", named, options=frozenset({number, *options}))).rows


def _take(dialect: Dialect, rows: Sequence[Row], params: Mapping[str, Any]) -> Script[list[Job]]:
    """Make the jobs of these rows running."""
    if not rows:
        return []
    ids = json.dumps([row[0] for row in rows])
    reply = yield Run("take", {"now": params["now"], "worker": params["worker"], "ids": ids})
    started = dialect.moment(reply.rows[0][1] if reply.rows else params["now"])
    yield from emit(dialect, EventKind.STARTED, [row[0] for row in rows])
    return [claimed_to_job(dialect, row, params["worker"], started, bump=1) for row in rows]


def claim_limited(
    dialect: Dialect,
    queue: str,
    free: int,
    worker: str,
    wanted: Wanted,
    rules: Mapping[str, Rule],
    *,
    scan: int,
    has_queue_limit: bool,
) -> Script[Limited]:
    """Claim jobs that may have limits. `scan`: how many jobs to look at of a type whose limit has keys.
    `has_queue_limit`: the queue may have a limit of its own. Without this, a queue that has one gives
    no job."""
    whole = yield from _whole(dialect, [queue] if has_queue_limit else [], rules)
    queue_limit = whole.get(QUEUE + queue)
    allowed = []
    for one in wanted:
        rule = rules.get(one["type"])
        most = min(
            [free, *(capacity.left for capacity in _capacities_of(rule, queue_limit, whole))]
        )
        if most:
            is_keyed = rule is not None and rule.keyed is not None
            looked = max(most, scan, FAIR if rule and rule.fair else 0) if is_keyed else most
            allowed.append({**one, "limit": looked})
    params = {"now": dialect.now(), "queue": queue, "worker": worker}
    most = max([free, *(one["limit"] for one in allowed)])
    guard = () if has_queue_limit else ("unlimited",)
    rows = yield from _look_at_each(dialect, params, allowed, most, guard)
    candidates, named, faults = _candidates(rows, rules)
    keyed = yield from _keyed(dialect, named, rules)
    admitted = admit(candidates, free, whole, queue_limit, keyed)
    # A rate counts starts by `started_at`, which is not before the moment at which it had capacity.
    jobs = yield from _take_all(
        dialect, admitted.take, {**params, "now": dialect.now()}, queue_limit
    )
    _note_starts(jobs, [*whole.values(), *keyed.values()])
    yield from _park(dialect, admitted)
    parked = {candidate.key for candidate in admitted.park if candidate.key is not None}
    yield from spend(dialect, whole.values(), keyed.values(), parked)
    waits = [capacity.until_next() for capacity in whole.values() if capacity.waits_for_rate]
    return Limited(
        jobs=[replace(j, verdict=j.verdict or faults[j.id]) if j.id in faults else j for j in jobs],
        parked=len(admitted.park),
        full={key for key in parked if keyed[key].is_full},
        more=bool(admitted.park or admitted.turned) or len(jobs) >= free,
        due=min(waits, default=None),
        has_queue_limit=queue_limit is not None,
    )


class Prospect(NamedTuple):
    """The result of `look_ahead`: whether a claim under limits may find jobs."""

    is_open: bool  #: some job may be allowed to run; False: none is
    due: float | None  #: seconds until a rate lets more start


def look_ahead(dialect: Dialect, queue: str, rules: Mapping[str, Rule]) -> Script[Prospect]:
    """Read the capacities of these types' limits without locks, and return whether any of their jobs
    may run. Only then is it worth while to lock the limits and claim."""
    names = sorted({name for rule in rules.values() for name in rule.whole})
    lists = {"types": json.dumps(sorted(rules)), "keys": json.dumps(names)}
    reply = yield Run("claimable_types", {"now": dialect.now(), "queue": queue, **lists})
    claimable = [row[0] for row in reply.rows if row[8] is None]
    whole = [make_capacity(row) for row in reply.rows if row[8] is not None]
    wanted = {name for type in claimable for name in rules[type].whole}
    full = {capacity.key for capacity in whole if not capacity.left}
    waits = [
        capacity.until_next()
        for capacity in whole
        if capacity.waits_for_rate and capacity.key in wanted
    ]
    # After the clock was set back, a claim has to write the starts again.
    is_open = any(full.isdisjoint(rules[type].whole) for type in claimable) or any(
        capacity.stepped_back for capacity in whole
    )
    return Prospect(is_open, min(waits, default=None))


def _whole(
    dialect: Dialect, queues: Sequence[str], rules: Mapping[str, Rule]
) -> Script[dict[str, Capacity]]:
    """Lock limits without keys, and return their capacities; add a limit that is not in the table yet.
    A limit whose keys take turns is locked too: a claim that skips rows which another claim has locked
    would let a key start out of turn."""
    names = {name for rule in rules.values() for name in rule.whole}
    if dialect.locks_rows:
        names |= {rule.keyed for rule in rules.values() if rule.fair and rule.keyed is not None}
    found = yield from capacities(dialect, names | {QUEUE + queue for queue in queues}, "whole")
    if names - found.keys():
        yield from declare(dialect, [row for rule in rules.values() for row in rule.declared])
        found = yield from capacities(dialect, names | {QUEUE + queue for queue in queues}, "whole")
    return found


def _capacities_of(
    rule: Rule | None, queue_limit: Capacity | None, whole: Mapping[str, Capacity]
) -> list[Capacity]:
    own = [] if rule is None else [whole[name] for name in rule.whole if name in whole]
    return own if queue_limit is None else [*own, queue_limit]


def _look_at_each(
    dialect: Dialect, params: Mapping[str, Any], wanted: Wanted, limit: int, guard: Sequence[str]
) -> Script[list[Row]]:
    """Return pending jobs of these types, each type up to its own limit, in the order of running."""
    if not wanted:
        return []
    if dialect.locks_rows:
        return (yield from _look({**params, "limit": limit}, wanted, *guard))
    rows: list[Row] = []
    for one in wanted:
        rows += yield from _look({**params, "limit": one["limit"]}, [one], *guard)
    rows.sort(key=lambda row: (row[4], row[14], row[0]))
    return rows[:limit]


def _candidates(
    rows: Sequence[Row], rules: Mapping[str, Rule]
) -> tuple[list[Candidate[Row]], dict[str, str], dict[str, str]]:
    """Return the jobs that may be admitted; the keys of their limits, with the limits' names; and the
    reasons of jobs whose key cannot be made."""
    candidates: list[Candidate[Row]] = []
    named: dict[str, str] = {}
    faults: dict[str, str] = {}
    for row in rows:
        rule, key = rules.get(row[1]), None
        if rule is None:
            candidates.append(Candidate(row, None, None))
            continue
        if rule.key_of is not None and rule.keyed is not None:
            try:
                key = rule.key_of(row[-1])
                named[key] = rule.keyed
            except KeyNotMade:
                continue  # the job stays pending until its key is made, outside of this transaction
            except UnreadableArguments:
                pass  # the job is claimed without a key, and given back: newer code may read it
            except Exception as problem:  # fails the job: recorded when the job is claimed
                faults[row[0]] = f"its limit {rule.keyed!r} has no key for it: {problem!r}"[:1000]
        candidates.append(Candidate(row, rule, key, Place(row[0], row[2], row[3])))
    return candidates, named, faults


def _keyed(
    dialect: Dialect, named: Mapping[str, str], rules: Mapping[str, Rule]
) -> Script[dict[str, Capacity]]:
    """Lock keys in one statement, and return their capacities: two claims that lock keys in different
    orders would wait for each other."""
    keyed = yield from capacities(dialect, named, "keyed")
    if missing := named.keys() - keyed.keys():
        yield Run("add_keys", {}, [{"key": key, "name": named[key]} for key in sorted(missing)])
        keyed = yield from capacities(dialect, named, "keyed")
    if named.keys() - keyed.keys():  # their limit is not in the table yet
        yield from declare(dialect, [one for rule in rules.values() for one in rule.declared])
        keyed = yield from capacities(dialect, named, "keyed")
    return keyed


def _take_all(
    dialect: Dialect,
    taken: Sequence[Candidate[Row]],
    params: Mapping[str, Any],
    queue_limit: Capacity | None,
) -> Script[list[Job]]:
    """Make the admitted jobs running, and return them in the order of running."""
    if queue_limit is not None or all(one.rule is not None for one in taken):
        return (yield from _take_limited(dialect, taken, params, queue_limit))
    jobs = yield from _take(dialect, [one.row for one in taken if one.rule is None], params)
    limited = [one for one in taken if one.rule is not None]
    if limited:
        jobs += yield from _take_limited(dialect, limited, params, queue_limit)
        jobs.sort(key=order_of_running)
    return jobs


def _note_starts(jobs: Sequence[Job], capacities: Sequence[Capacity]) -> None:
    starts = [to_microseconds(job.started_at) for job in jobs if job.started_at is not None]
    for capacity in capacities if starts else ():
        capacity.begun(max(starts))


def _take_limited(
    dialect: Dialect,
    taken: Sequence[Candidate[Row]],
    params: Mapping[str, Any],
    queue_limit: Capacity | None,
) -> Script[list[Job]]:
    if not taken:
        return []
    batch = [
        {
            "id": row[0],
            "limit_name": None if rule is None else rule.slots,
            "limit_key": key,
            "limit_queue": None if queue_limit is None else queue_limit.key,
        }
        for row, rule, key, _ in taken
    ]
    given = {"now": params["now"], "worker": params["worker"]}
    reply = yield Run("take_limited", given, batch, tell="id")
    started = dialect.moment(reply.rows[0][1] if dialect.locks_rows else params["now"])
    has_queue_limit = queue_limit is not None
    yield from emit(dialect, EventKind.STARTED, [one.row[0] for one in taken])
    return [
        claimed_to_job(
            dialect,
            row,
            params["worker"],
            started,
            bump=1,
            limit=(key, has_queue_limit or rule is not None),
        )
        for row, rule, key, _ in taken
    ]


def _park(dialect: Dialect, admitted: Admitted[Row]) -> Script[None]:
    now = dialect.now()
    if admitted.park:
        batch = [{"id": row[0], "limit_key": key} for row, _, key, _ in admitted.park]
        yield Run("park", {"now": now}, batch, tell="id")
    yield from turn(admitted.turns)
    if admitted.turned:
        yield from unpark(dialect, dict.fromkeys(admitted.turned, 1))


def claim_suspects(
    dialect: Dialect,
    queues: Sequence[str],
    limit: int,
    level: int | None,
    worker: str,
    types: Sequence[str],
    rules: Mapping[str, Rule],
) -> Script[list[Job]]:
    """Claim jobs with deaths on record (docs/decisions/0021), as far as their limits allow. A job that
    a limit holds back stays pending: a parked job would return to the queue as an ordinary one."""
    if limit < 1:
        return []
    lists = {"queues": json.dumps(list(queues)), "types": json.dumps(list(types))}
    params = {"now": dialect.now(), "worker": worker, "level": level, **lists}
    rows = (yield Run("look_suspects", {**params, "limit": limit + _SUSPECTS})).rows
    if not rows:
        return []
    whole = yield from _whole(dialect, queues, rules)
    candidates, named, faults = _candidates(rows, rules)
    keyed = yield from _keyed(dialect, named, rules)
    taken: dict[str, list[Candidate[Row]]] = {}
    free = limit
    for candidate in (one._replace(place=None) for one in candidates):  # these need no turn
        queue = candidate.row[2]
        admitted = admit([candidate], free, whole, whole.get(QUEUE + queue), keyed)
        if admitted.take:
            taken.setdefault(queue, []).append(candidate)
            free -= 1
    if not taken:
        return []
    jobs: list[Job] = []
    given = {**params, "now": dialect.now()}
    for queue, some in taken.items():
        jobs += yield from _take_limited(dialect, some, given, whole.get(QUEUE + queue))
    _note_starts(jobs, [*whole.values(), *keyed.values()])
    yield from spend(dialect, whole.values(), keyed.values(), ())
    deaths = {row[0]: row[-2] for row in rows}
    known = [replace(j, deaths=deaths[j.id], verdict=j.verdict or faults.get(j.id)) for j in jobs]
    return sorted(known, key=order_of_running)
