"""Scripts that prune: they delete finished jobs whose retention is over, directly, or by a lease if a
hook or an archive comes first. worker/housekeeping/pruning.py runs them at intervals."""

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.records import Lease, PutOff, Retention
from holdfast.engine.script import Run, Script
from holdfast.jobs.job import Status

LEASE = 300.0  # seconds after which another pruner may lease the job
_SCAN = 4  # rows looked at for each that may be deleted


class Look(NamedTuple):
    """The result of a bounded look at the finished jobs of one status."""

    gone: int  #: jobs that were deleted
    leased: list[Lease]
    edge: str | None  #: where the next look begins; None: the end was reached


def prune(
    dialect: Dialect,
    status: Status,
    wanted: Retention,
    *,
    after: str,
    before: str,
    limit: int,
    leases: int,
) -> Script[Look]:
    """Delete up to `limit` jobs whose time is over, and lease up to `leases` that need a hook or an
    archive."""
    params = _params(dialect, status, wanted, after, before, limit)
    age = _age(wanted)
    edge, seen = (yield Run("prune_edge", params)).rows[0][:2]
    edges = [] if seen < params["scan"] else [edge]
    gone: list[str] = []
    if not wanted.archived:
        gone = [row[0] for row in (yield Run("prune", params, options=age)).rows]
        edges += [max(gone)] if len(gone) == limit else []
    leased: list[Lease] = []
    if wanted.archived or wanted.hooks:
        options = age | {"archived"} if wanted.archived else age
        reply = yield Run("lease", params | {"limit": leases}, options=options)
        leased = [Lease(*row) for row in reply.rows]
        edges += [max(lease.id for lease in leased)] if len(leased) == leases else []
    return Look(len(gone), leased, min(edges, default=None))


class Due(NamedTuple):
    """The jobs that a look would delete or lease."""

    number: int
    unknown: int  #: of these, the jobs with a hook that the caller does not know
    edge: str | None


def count(
    dialect: Dialect, status: Status, wanted: Retention, *, after: str, before: str, limit: int
) -> Script[Due]:
    """Count the jobs that `prune` would delete or lease."""
    params = _params(dialect, status, wanted, after, before, limit)
    options = _age(wanted) | {"counted"}
    edge, seen, number, unknown = (yield Run("prune_edge", params, options=options)).rows[0]
    return Due(number or 0, unknown or 0, edge if seen == params["scan"] else None)


def _params(
    dialect: Dialect, status: Status, wanted: Retention, after: str, before: str, limit: int
) -> dict[str, Any]:
    return {
        "now": dialect.now(),
        "status": status.value,
        "after": after,
        "before": before,
        "scan": limit * _SCAN,
        "limit": limit,
        "age": None if wanted.older_than is None else round(wanted.older_than * MICRO),
        "types": json.dumps(sorted(wanted.hooks)),
        "lease": round(LEASE * MICRO),
    }


def _age(wanted: Retention) -> frozenset[str]:
    return frozenset({"over" if wanted.older_than is None else "old"})


def prune_leased(leases: Sequence[Lease]) -> Script[list[str]]:
    """Delete leased jobs, each only while its lease holds; return the ids of the deleted jobs."""
    rows = [lease._asdict() for lease in sorted(leases)]
    return [row[0] for row in (yield Run("prune_leased", {}, rows)).rows]


def put_off(dialect: Dialect, kept: Sequence[PutOff]) -> Script[None]:
    """Keep leased jobs whose hook or archive failed, with the reason, until they are tried again."""
    now = dialect.now()
    rows = [
        {"now": now, **one.lease._asdict(), "delay": round(one.delay * MICRO), "error": one.error}
        for one in sorted(kept)
    ]
    yield Run("put_off", {"now": now}, rows)


def declare_hooks(types: Collection[str], gone: Collection[str]) -> Script[None]:
    """Record which tasks have a hook, and which have none any more."""
    if types:
        yield Run("declare_hooks", {}, [{"type": type} for type in sorted(types)])
    if gone:
        yield Run("forget_hooks", {"types": json.dumps(sorted(gone))})


def hooks() -> Script[list[str]]:
    """Return the tasks whose jobs are deleted only after a hook."""
    return [row[0] for row in (yield Run("hooks", {})).rows]
