"""Cases: calls of the engines, and how many rows each of their statements may look at."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.records import Edit, Filter, PutOff, Report, Retention, Seen, Wanted
from holdfast.engine.script import Run, Script
from holdfast.errors import KeyConflict
from holdfast.jobs import claim as claim_scripts
from holdfast.jobs import commands, pruning, wait_reason
from holdfast.jobs import read as read_scripts
from holdfast.jobs.error_groups import read_errors
from holdfast.jobs.job import FINISHED, Claim, Job, NewJob, Status
from holdfast.jobs.outcome import Finish, Outcome, Recur
from holdfast.jobs.read import FIRST_ID, LAST_ID
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.limit import Limit, Rule, make_rule
from holdfast.monitoring.backlog import RANKS
from holdfast.monitoring.metrics import Rollup, minute_of
from holdfast.schedules import clock_repair
from holdfast.schedules import scripts as schedule_scripts
from tests.plans.dataset import (
    DEAD,
    FORGOTTEN,
    KEYS,
    LIVE,
    MANY_ATTEMPTS,
    OFTEN_FAILED,
    QUEUES,
    RUNNING,
    SILENT,
    TYPES,
    Dataset,
)
from tests.support import engine_commands
from tests.support.engine_commands import claim_as

LIMIT = 20
SCAN = 20 * LIMIT  # a search whose filter has no index looks at this many
CAP = 100
SUSPECTS_SEEN = 1000  # at the most, to tell of which queues and types they are

# The index that each statement walks; `id` is the primary key. Nothing else may be in its plan.
INDEXES: dict[str, set[str]] = {
    "insert": {"id"},
    "insert_payloads": set(),
    "wake": set(),
    "present": {"id"},
    "holder": {"key"},
    "first_by_idempotency_key": {"idempotency"},
    "replace": {"id"},
    "claim": {"claim", "id"},
    "claim_types": {"claim", "id"},
    "look": {"claim", "id"},
    "take": {"id"},
    "look_suspects": {"suspect", "id"},
    "take_limited": {"id"},
    "lock_keys": set(),
    "capacities+keyed": {"keyed", "id"},
    "capacities+whole": {"slots", "crowd"},
    "add_keys": set(),
    "record_starts": set(),
    "park": {"id"},
    "unpark": {"parked", "id"},
    "keys_with_parked": {"parked"},
    "claimable_types": {"claim", "slots"},
    "set_turn": set(),
    "idle_turns": {"id"},
    "due_keys": set(),
    "waiting_keys": {"parked"},
    "busy": {"claim", "held", "parked"},
    "declare_limit": set(),
    "set_limit": set(),
    "drop_limit": set(),
    "wake_keys": set(),
    "mark_queue_limit": {"held", "id"},
    "limits": {"keyed", "slots", "crowd", "parked"},
    "place+parked": {"parked"},
    "place+pending": {"claim"},
    "prune_keys": {"keyed", "parked"},
    "keys_edge": set(),
    "recur": {"id"},
    "find_schedule": {"key"},
    "renew_schedule": {"id"},
    "enable_schedule": {"id"},
    "move_schedule": {"id"},
    "schedules": {"recurring"},
    "disabled_schedules": {"disabled"},
    "clock": set(),
    "ahead": {"due", "attempts"},
    "ahead_edge": {"due"},
    "bring_forward": {"id"},
    "wake_keys_early": set(),
    "recurring_types": {"recurring"},
    "roll_up": set(),
    "prune_rollups": set(),
    "series": set(),
    "totals": set(),
    "shares": set(),
    "overdue": {"due"},
    "next_pending": {"claim"},
    "probe": set(),
    "suspects": {"suspect"},
    "complete": {"id"},
    "finish": {"id"},
    "insert_results": set(),
    "finished": {"id"},
    "record_attempts": {"attempts", "id"},
    "promote": {"due", "id"},
    "next_due": {"due"},
    "mark_dead": set(),
    "suspect": {"held", "id"},
    "held_by_dead": {"held"},
    "rescue": {"id"},
    "leave": set(),
    "ask_stacks": set(),
    "tell_stacks": set(),
    "stacks": set(),
    "record_verdict": {"id"},
    "report": {"id"},
    "prune": {"listed", "id", "attempts"},
    "lease": {"listed", "id"},
    "prune_leased": {"id", "attempts"},
    "put_off": {"id"},
    "declare_hooks": set(),
    "forget_hooks": set(),
    "hooks": set(),
    "prune_edge": {"listed"},
    "prune_workers": {"held"},
    "cancel": {"id"},
    "retry": {"id", "key"},
    "delete": {"id", "attempts"},
    "edit": {"id"},
    "beat": set(),
    "held": {"held"},
    "pause": set(),
    "get": {"id"},
    "attempts": {"attempts"},
    "last_runs": {"attempts"},
    "search": {"id"},
    "search+entity": {"entity"},
    "search+listed": {"listed"},
    "search+running": {"held"},
    "search_edge": {"id"},
    "search_edge+entity": {"entity"},
    "search_edge+listed": {"listed"},
    "search_edge+running": {"held"},
    "counts": {"listed", "held"},
    "workers": set(),
    "queues": {"claim"},
    "hold_tokens": set(),
    "any_token": set(),
    "add_token": set(),
    "find_token": set(),
    "touch_token": set(),
    "tokens": set(),
    "revoke_token": set(),
    "end_session": set(),
    "prune_sessions": set(),
    "keep_secret": set(),
    "secret": set(),
    "record": {"audit"},
    "entries": {"audit"},
    "prune_audit": {"audit"},
    "insert_logs": {"id"},
    "prune_logs": {"logs"},
    "logs": {"logs"},
    "followed_topics": set(),
    "emit": {"id"},
    "ring": set(),
    "lock_outbox": set(),
    "followed_since": set(),
    "begin_topics": set(),
    "is_subscribed": set(),
    "raise_floor": set(),
    "subscribe": set(),
    "outbox_bounds": set(),
    "mark": set(),
    "ended": set(),
    "events": {"events"},
    "prune_events": {"events"},
    "prune_followers": set(),
    "insert_workflow": set(),
    "insert_edges": {"edges", "id"},
    "lock_workflows": set(),
    "changed_workflows": {"unseen"},
    "changed_jobs": {"unseen"},
    "mark_followed_up": {"id"},
    "record_outcomes": {"edges", "edges_parent", "edges_open", "id"},
    "free": {"id", "edges_open"},
    "drop": {"id"},
    "workflow_states": {"workflow"},
    "callbacks": {"workflow"},
    "mark_workflow": set(),
    "reopen": {"workflow", "id", "edges"},
    "clear_outcomes": {"edges_parent"},
    "release_node": {"edges", "edges_open", "id"},
    "parents": {"edges", "id"},
    "workflows": set(),
    "workflow_counts": {"workflow"},
    "members": {"workflow"},
    "edges": {"edges"},
    "orphans": {"edges_open", "id"},
    "follow_up_again": {"id"},
    "abandoned": {"workflow"},
    "prune_workflows": {"workflow"},
}


def indexes(name: str, options: frozenset[str]) -> set[str]:
    """What a statement may walk, by the optional lines that choose its index."""
    choice = options & {"entity", "listed", "running", "keyed", "whole", "parked", "pending"}
    return INDEXES["+".join([name, *choice])]


@dataclass(frozen=True)
class Case:
    name: str
    act: Callable[[Engine, Dataset], Any]
    runs: frozenset[str]  #: the statements; a case that stops running one no longer guards it
    rows: int = 10 * LIMIT  #: of jobs and attempts that one statement may read
    needs: tuple[str, ...] = ()  #: the indexes without any of which it must be found out

    def runs_on(self, engine: str) -> set[str]:
        """Without those that only the other engine runs ("sqlite:look")."""
        return {
            word.rpartition(":")[2]
            for word in self.runs
            if word.partition(":")[0] in (word, engine)
        }


CASES: list[Case] = []
_Act = Callable[[Engine, Dataset], Any]


def case(
    runs: str, *, name: str = "", rows: int = 10 * LIMIT, needs: str = ""
) -> Callable[[_Act], _Act]:
    def add(act: _Act) -> _Act:
        title = name or act.__name__.removeprefix("_").replace("_", "-")
        CASES.append(Case(title, act, frozenset(runs.split()), rows, tuple(needs.split())))
        return act

    return add


def _new(type: str = "t0", **fields: Any) -> NewJob:
    return NewJob(id=new_id(), type=type, payload='{"n": 2}', **fields)


# enqueue


@case("insert")
def _insert(engine: Engine, dataset: Dataset) -> None:
    jobs = [_new(queue="mail", delay=number % 2 * 60.0) for number in range(LIMIT)]
    engine.insert([*jobs, _new(key="new")], notify=False)


@case("insert present get")
def _insert_again(engine: Engine, dataset: Dataset) -> None:
    taken = [NewJob(id=id, type="t0", payload="{}") for id in dataset.ids("pending", LIMIT)]
    assert len(engine.insert(taken, notify=False)) == LIMIT


def _keyed(dataset: Dataset, status: str, **fields: Any) -> NewJob:
    start = dataset.first(status)
    number = next(n for n in range(start, start + 20) if n % 4 == 0 and n % 5 == 0)
    return _new(type="t0", key=f"k{number}", **fields)


@case("insert present holder get")
def _key_existing(engine: Engine, dataset: Dataset) -> None:
    [job] = engine.insert([_keyed(dataset, "pending")], notify=False)
    assert not job.created


@case("insert present holder")
def _key_raise(engine: Engine, dataset: Dataset) -> None:
    with suppress(KeyConflict):
        engine.insert([_keyed(dataset, "scheduled", on_conflict="raise")], notify=False)
        raise AssertionError("the key was not live")


@case("insert present first_by_idempotency_key get")
def _idempotency_key(engine: Engine, dataset: Dataset) -> None:
    number = -(-dataset.first("completed") // 20) * 20
    again = [_new(idempotency_key=f"i{number + 20 * n}") for n in range(3)]
    assert not any(job.created for job in engine.insert(again, notify=False))


@case("insert present holder replace get")
def _key_replace(engine: Engine, dataset: Dataset) -> None:
    for status in ("running", "retrying"):
        for policy in ("replace", "debounce"):
            job = _keyed(dataset, status, on_conflict=policy, delay=5.0)
            assert not engine.insert([job], notify=False)[0].created


# workers


def _claim(engine: Engine, queue: str, types: tuple[str, ...]) -> list[Job]:
    return claim_as(engine, queue, LIMIT, worker=LIVE[0], types=types)


_CLAIM = "sqlite:look sqlite:take postgres:claim postgres:claim_types"
_CLAIM_ROWS = 10 * LIMIT + 50 * len(TYPES)


@case(_CLAIM, rows=_CLAIM_ROWS, needs="claim id")
def _claim_best(engine: Engine, dataset: Dataset) -> None:
    assert len(_claim(engine, "default", TYPES)) == LIMIT
    assert len(_claim(engine, "default", TYPES)) == LIMIT  # goes on where the first one ended
    assert len(_claim(engine, "mail", TYPES[:1])) == LIMIT


@case("sqlite:look postgres:claim postgres:claim_types", rows=10, needs="claim")
def _claim_nothing(engine: Engine, dataset: Dataset) -> None:
    assert _claim(engine, "default", ("idle", "idler")) == []
    assert _claim(engine, "nowhere", TYPES) == []
    assert _claim(engine, "default", ("idle",)) == []


@case("sqlite:look postgres:claim postgres:claim_types", rows=10, needs="claim")
def _claim_when_not_allowed(engine: Engine, dataset: Dataset) -> None:
    for types in (TYPES, TYPES[:1]):
        assert claim_as(engine, "default", LIMIT, worker=DEAD[0], types=types) == []


@case("look_suspects take_limited", rows=2 * len(QUEUES) * len(TYPES) + 400, needs="suspect id")
def _claim_suspects(engine: Engine, dataset: Dataset) -> None:
    for types in (TYPES, TYPES[2:3]):  # of one type: past those of the others
        for level in (None, 1):
            options = {"level": level, "worker": LIVE[0], "types": types}
            assert len(engine.claimer.claim_suspects(QUEUES, 5, **options)) == 5


@case("look_suspects", rows=10, needs="suspect")
def _claim_suspects_when_not_allowed(engine: Engine, dataset: Dataset) -> None:
    assert engine.claimer.claim_suspects(QUEUES, 5, worker=DEAD[0], types=TYPES) == []


@case("suspects", rows=SUSPECTS_SEEN, needs="suspect")
def _suspects(engine: Engine, dataset: Dataset) -> None:
    expected = sorted((queue, type, 1) for queue in QUEUES for type in TYPES)
    found = engine.suspects()
    assert sorted(one[:3] for one in found) == expected
    assert sum(one.waiting for one in found) == SUSPECTS_SEEN


def _held(dataset: Dataset, worker: int, count: int) -> list[Finish]:
    """Ends of what `w0`, `w1`... hold: of every three one completes, one is tried again, one fails."""
    endings = (Outcome.COMPLETED, Outcome.RETRY_LATER, Outcome.FAILED)
    return [
        Finish(
            id=id,
            claim_no=1,
            outcome=endings[number % 3],
            attempt=1,
            worker_id=f"w{worker}",
            started_at=dataset.now,
            result="1" if number % 3 == 0 else None,
            error="E: no" if number % 3 else None,
        )
        for number, id in enumerate(dataset.ids("running", count * 8)[worker::8])
    ]


@case("finish finished record_attempts", needs="id attempts")
def _finish(engine: Engine, dataset: Dataset) -> None:
    lost = [
        Finish(
            id=id,
            claim_no=1,
            outcome=Outcome.COMPLETED,
            attempt=1,
            worker_id=LIVE[0],
            started_at=None,
        )
        for id in [*dataset.ids("retrying", 3), new_id()]
    ]
    done = _held(dataset, 1, LIMIT)
    results = engine.finish([*done, *lost])
    assert [results[Claim(f.id, 1)] for f in done] == ["applied"] * LIMIT


@case("finish record_attempts", rows=10 * MANY_ATTEMPTS, needs="id attempts")
def _finish_tired(engine: Engine, dataset: Dataset) -> None:
    tired = Finish(
        id=dataset.id(OFTEN_FAILED),
        claim_no=1,
        outcome=Outcome.RETRY_LATER,
        attempt=1,
        worker_id="w7",
        started_at=None,
        error="E: no",
    )
    engine.finish([tired])


@case("promote due_keys next_due", needs="due id")
def _promote(engine: Engine, dataset: Dataset) -> None:
    assert engine.promote(LIMIT).moved == LIMIT
    assert engine.next_due() == 0.0


@case("promote due_keys next_due", rows=10, needs="due")
def _promote_nothing(engine: Engine, dataset: Dataset) -> None:
    long_ago = FakeClock(dataset.now - timedelta(days=400))
    engine.dialect._clock, kept = long_ago, engine.dialect._clock  # type: ignore[attr-defined]
    try:
        assert engine.promote(LIMIT).moved == 0
    finally:
        engine.dialect._clock = kept  # type: ignore[attr-defined]


@case(
    "mark_dead held suspect held_by_dead rescue record_attempts", rows=4 * RUNNING, needs="held id"
)
def _sweep(engine: Engine, dataset: Dataset) -> None:
    crash = "its process died: SIGSEGV"
    seen = [Seen(SILENT[0], 1, None, crash), Seen(LIVE[0], 99)]
    swept = engine.sweep(seen, limit=LIMIT)
    assert swept.buried == [*SILENT]
    assert len(swept.rescued) == LIMIT


@case("beat held", rows=4 * RUNNING, needs="held")
def _beat(engine: Engine, dataset: Dataset) -> None:
    assert len(engine.beat(LIVE[1], "{}").held) == RUNNING // 8
    assert len(engine.held(LIVE[2])) == RUNNING // 8


@case("ask_stacks tell_stacks stacks")
def _stacks(engine: Engine, dataset: Dataset) -> None:
    assert engine.ask_stacks(LIVE[1])
    engine.tell_stacks(LIVE[1], "here")
    found = engine.stacks(LIVE[1])
    assert found is not None
    assert found.text == "here"


@case("leave")
def _leave(engine: Engine, dataset: Dataset) -> None:
    engine.leave(LIVE[0])


@case("record_verdict", rows=10, needs="id")
def _sentence(engine: Engine, dataset: Dataset) -> None:
    engine.record_verdict(Claim(dataset.ids("running", 1)[0], 1), "E: no")


@case("report", needs="id")
def _report(engine: Engine, dataset: Dataset) -> None:
    ids = [*dataset.ids("running", LIMIT), *dataset.ids("completed", LIMIT)]
    engine.report([Report(id, 1, 50.0, "half") for id in ids])
    engine.report([Report(ids[0], 1, None, None)])


def _retention(keep: float = 0.0, **wanted: Any) -> Retention:
    return Retention(keep=dict.fromkeys(FINISHED, keep), **wanted)


@case("prune_edge prune", rows=24 * LIMIT, needs="listed id attempts")
def _prune(engine: Engine, dataset: Dataset) -> None:
    """Of `cancelled` nothing is over, of `completed` the first look finds enough."""
    assert engine.maintenance.prune(_retention(), limit=LIMIT).gone == LIMIT


@case("prune_edge prune", rows=24 * LIMIT, needs="listed id attempts")
def _prune_older(engine: Engine, dataset: Dataset) -> None:
    assert engine.maintenance.prune(_retention(older_than=3600.0), limit=LIMIT).gone == LIMIT


@case("prune_edge prune prune_workers", rows=24 * LIMIT, needs="listed held")
def _prune_nothing(engine: Engine, dataset: Dataset) -> None:
    engine.maintenance.prune_from_the_start()
    assert engine.maintenance.prune(_retention(1000 * 86400.0), limit=LIMIT) == (0, [], False)


@case("prune_edge", rows=5 * LIMIT, needs="listed")
def _prune_count(engine: Engine, dataset: Dataset) -> None:
    for wanted in (_retention(hooks=frozenset({"t0"})), _retention(older_than=3600.0)):
        look = partial(
            pruning.count,
            *(engine.dialect, Status.COMPLETED, wanted),
            after=FIRST_ID,
            before=LAST_ID,
            limit=LIMIT,
        )
        assert engine.run(look, write=False).number == 4 * LIMIT


@case("declare_hooks forget_hooks hooks")
def _hooks(engine: Engine, dataset: Dataset) -> None:
    engine.maintenance.declare_hooks(["t0", "t1"], ["t1", "t2"])
    assert engine.run(pruning.hooks, write=False) == ["t0"]
    engine.maintenance.declare_hooks([], ["t0"])


@case("prune_edge prune lease prune_leased put_off", rows=24 * LIMIT, needs="listed id")
def _prune_leased(engine: Engine, dataset: Dataset) -> None:
    for archived in (False, True):
        engine.maintenance._pruned_to = {Status.COMPLETED: FIRST_ID}
        wanted = _retention(hooks=frozenset({"t0"}), archived=archived)
        leases = engine.maintenance.prune(wanted, limit=LIMIT, leases=6).leased
        assert len(leases) == 6
        assert len(engine.maintenance.prune_leased(leases[:3])) == 3
        engine.maintenance.put_off([PutOff(lease, 60.0, "E: no") for lease in leases[3:]])


# limits


def _rule(task: str, limit: Limit) -> Rule:
    rule = make_rule(task, [limit], ["n"], lambda payload: {})
    assert rule is not None
    return rule


_LIMITS = {
    "t0": Limit(400, name="whole-too", rate="1000/m"),
    "t1": Limit(3, name="keyed-too", per="n", rate="2/m"),
    "t2": Limit(3, name="fair-too", per="n", fair=True),
}
_RULES = {type: _rule(type, limit) for type, limit in _LIMITS.items()}


@case(
    "look take_limited capacities add_keys record_starts park set_turn unpark declare_limit "
    "postgres:lock_keys",
    rows=20 * LIMIT + 50 * len(TYPES) + 1000,
    needs="claim",
)
def _fetch_limited(engine: Engine, dataset: Dataset) -> None:
    for types in (TYPES, TYPES, TYPES, TYPES[:1]):
        found = engine.claimer.fetch("default", LIMIT, worker=LIVE[0], types=types, rules=_RULES)
        assert len(found.jobs) == LIMIT or len(types) == 1


@case("claimable_types", rows=4 * RUNNING, needs="claim slots")
def _foresee(engine: Engine, dataset: Dataset) -> None:
    rules = {type: _rule(type, Limit(1, name="whole")) for type in TYPES}
    engine.run(lambda: claim_scripts.look_ahead(engine.dialect, "default", rules), write=False)


@case("sqlite:capacities sqlite:look postgres:claimable_types", rows=4 * RUNNING, needs="claim")
def _fetch_nothing(engine: Engine, dataset: Dataset) -> None:
    rules = {"idle": _rule("idle", Limit(1, name="whole"))}
    assert (
        engine.claimer.fetch("nowhere", LIMIT, worker=LIVE[0], types=["idle"], rules=rules).jobs
        == []
    )


@case("complete keys_with_parked unpark postgres:lock_keys", needs="parked")
def _make_room(engine: Engine, dataset: Dataset) -> None:
    for number, finish in enumerate(_held(dataset, 2, 9)):
        if finish.outcome is Outcome.COMPLETED:
            finish.limit_key = f"lim={number}"  # type: ignore[misc]
            engine.finish([finish])


@case("waiting_keys capacities idle_turns unpark", rows=40 * LIMIT, needs="parked keyed")
def _repair(engine: Engine, dataset: Dataset) -> None:
    assert engine.maintenance.repair_limits(LIMIT) > 0
    assert engine.maintenance.repair_limits(LIMIT) > 0


@case("busy", needs="claim parked held")
def _is_busy(engine: Engine, dataset: Dataset) -> None:
    served = {
        f"nowhere-{number}" for number in range(LIMIT)
    }  # so that it looks at everything it may
    for queues in (served, set(QUEUES)):
        engine.run(partial(limit_scripts.is_busy, queues, "nobody", LIMIT), write=False)


@case("set_limit wake_keys due_keys unpark", rows=KEYS, needs="parked")
def _change_limit(engine: Engine, dataset: Dataset) -> None:
    assert engine.run(lambda: limit_scripts.change(engine.dialect, "lim", 2, None), write=True)
    assert engine.promote(LIMIT).moved


@case("declare_limit add_keys set_limit wake_keys mark_queue_limit", rows=4 * RUNNING, needs="held")
def _limit_queue(engine: Engine, dataset: Dataset) -> None:
    engine.run(lambda: limit_scripts.limit_queue(engine.dialect, "mail", 7, None), write=True)


@case("drop_limit")
def _drop_limit(engine: Engine, dataset: Dataset) -> None:
    engine.run(lambda: limit_scripts.limit_queue(engine.dialect, "mail", None, None), write=True)


@case("limits", rows=8 * CAP + 4 * RUNNING, needs="parked keyed slots")
def _list_limits(engine: Engine, dataset: Dataset) -> None:
    found = {limit.name: limit for limit in engine.limits(cap=CAP)}
    assert (found["lim"].running, found["lim"].waiting) == (CAP, CAP)


@case("keys_edge prune_keys", rows=40 * LIMIT, needs="parked keyed")
def _prune_keys(engine: Engine, dataset: Dataset) -> None:
    for _ in range(3):
        engine.maintenance.prune_keys(LIMIT)


@case("place", rows=4 * CAP, needs="parked claim")
def _place(engine: Engine, dataset: Dataset) -> None:
    for id in (dataset.ids("blocked", 3)[2], dataset.ids("pending", 9)[8]):
        [job] = engine.get([id])
        engine.run(lambda job=job: wait_reason.place(engine.dialect, job, CAP), write=False)  # type: ignore[misc]


# recurring jobs


def _recurring(dataset: Dataset) -> tuple[str, str]:
    start = next(section.start for section in dataset.sections if section.schedule != "NULL")
    return f"t{start % 5}", f"r{start}"


@case("find_schedule renew_schedule enable_schedule move_schedule get delete", needs="key id")
def _schedule(engine: Engine, dataset: Dataset) -> None:
    dialect, (type, key) = engine.dialect, _recurring(dataset)
    new = _new(type, key=key, schedule='{"every":60.0}')
    for verb in (
        lambda: schedule_scripts.schedule(dialect, new),
        lambda: schedule_scripts.enable(dialect, type, key, False),
        lambda: schedule_scripts.move(dialect, type, key, None, 60.0),
        lambda: schedule_scripts.remove(dialect, type, key),
    ):
        engine.run(verb, write=True)


@case("schedules", needs="recurring")
def _schedules(engine: Engine, dataset: Dataset) -> None:
    page = engine.run(
        lambda: schedule_scripts.listing(engine.dialect, ("", ""), LIMIT), write=False
    )
    after = (page[-1].type, str(page[-1].key))
    again = engine.run(lambda: schedule_scripts.listing(engine.dialect, after, LIMIT), write=False)
    assert len(page) == len(again) == LIMIT


@case("disabled_schedules", rows=10, needs="disabled")
def _disabled_schedules(engine: Engine, dataset: Dataset) -> None:
    assert engine.run(schedule_scripts.disabled, write=False) == []


@case("recurring_types", rows=10 * len(TYPES), needs="recurring")
def _recurring_types(engine: Engine, dataset: Dataset) -> None:
    assert engine.run(schedule_scripts.types, write=False) == sorted(TYPES)


@case("recur finished", needs="id")
def _recur(engine: Engine, dataset: Dataset) -> None:
    finish = _held(dataset, 3, 1)[0]
    finish.recur = Recur(dataset.now, dataset.now)  # type: ignore[misc]
    finish.outcome = Outcome.RECURRED  # type: ignore[misc]
    engine.finish([finish])


# after a step back of the clock


@case("clock ahead ahead_edge", needs="due")
def _look_ahead(engine: Engine, dataset: Dataset) -> None:
    after: clock_repair.Cursor | None = None
    for _ in range(2):
        after = engine.write(clock_repair.bring_forward, after, LIMIT).after
        assert after is not None


@case("bring_forward", needs="id")
def _bring_forward(engine: Engine, dataset: Dataset) -> None:
    dialect = engine.dialect
    jobs = engine.get(dataset.ids("retrying", LIMIT))
    rows = [
        {
            "now": dialect.now(),
            "id": job.id,
            "run_at": dialect.time(dataset.now),
            "due_at": None,
            "written": dialect.time(job.updated_at),
        }
        for job in jobs
    ]

    def script() -> Script[int]:
        return len((yield Run("bring_forward", {"now": dialect.now()}, rows)).rows)

    assert engine.run(script, write=True) == LIMIT


@case("keys_edge wake_keys_early", rows=40 * LIMIT)
def _wake_keys_early(engine: Engine, dataset: Dataset) -> None:
    engine.write(clock_repair.wake_keys_early, "", LIMIT)


# figures


@case("roll_up")
def _roll_up(engine: Engine, dataset: Dataset) -> None:
    minute = minute_of(dataset.now)
    engine.roll_up([Rollup(minute, type, "default", LIVE[0], completed=1) for type in TYPES])
    engine.roll_up([Rollup(minute, TYPES[0], "default", LIVE[0], completed=2)])


@case("prune_rollups", rows=10 * len(TYPES) * len(LIVE))
def _prune_rollups(engine: Engine, dataset: Dataset) -> None:
    assert engine.maintenance.prune_rollups() == len(TYPES) * len(LIVE)


@case("series totals shares", rows=80 * len(TYPES) * len(LIVE))
def _figures(engine: Engine, dataset: Dataset) -> None:
    hour = minute_of(dataset.hours_ago(1))
    assert len(engine.series(hour)) == len(engine.series(hour, type="t0", queue="default")) == 60
    assert len(engine.totals(hour)) == len(TYPES)
    assert len(engine.shares(hour)) == len(LIVE)


@case("overdue", rows=10, needs="due")
def _overdue(engine: Engine, dataset: Dataset) -> None:
    assert engine.overdue() is not None


@case("next_pending", rows=20, needs="claim")
def _backlog(engine: Engine, dataset: Dataset) -> None:
    assert len(engine.backlog(limit=4)) == 4


@case("next_pending", rows=60 * RANKS, needs="claim")
def _backlog_of_many_kinds(engine: Engine, dataset: Dataset) -> None:
    assert {queue for queue, _, _ in engine.backlog()} == set(QUEUES)


@case("probe", rows=1)
def _probe(engine: Engine, dataset: Dataset) -> None:
    engine.probe()


# applications and operators


def _some_of_each(dataset: Dataset) -> list[str]:
    statuses = ("running", "pending", "scheduled", "retrying", "cancelled", "failed", "completed")
    return [id for status in statuses for id in dataset.ids(status, 5)]


@case("cancel", needs="id")
def _cancel(engine: Engine, dataset: Dataset) -> None:
    assert len(engine_commands.cancel(engine, _some_of_each(dataset), keep=60.0)) == 20


@case("retry", needs="id key")
def _retry(engine: Engine, dataset: Dataset) -> None:
    ids = dataset.ids("completed", LIMIT // 2) + dataset.ids("failed", LIMIT // 2)
    assert engine_commands.retry(engine, ids)  # of those whose key is not live by now


@case("delete", needs="id attempts")
def _delete(engine: Engine, dataset: Dataset) -> None:
    ids = dataset.ids("failed", LIMIT)
    assert len(engine_commands.delete(engine, ids)) == LIMIT


@case("cancel retry delete", needs="id key")
def _change_only_some(engine: Engine, dataset: Dataset) -> None:
    """Only what still has the status that it was seen with."""
    ids, dialect = _some_of_each(dataset), engine.dialect
    for verb, status, changed in (
        (partial(commands.cancel, dialect, ids, 60.0), Status.PENDING, 5),
        (partial(commands.retry, dialect, ids), Status.RETRYING, 5),
        (partial(commands.delete, dialect, ids), Status.FAILED, 5),
    ):
        assert len(engine.run(partial(verb, only={status}), write=True)) == changed


@case("edit", rows=10, needs="id")
def _edit(engine: Engine, dataset: Dataset) -> None:
    change = Edit(priority=7, delay=60.0, queue="mail")
    for id in (dataset.ids("pending", 1)[0], dataset.ids("running", 1)[0]):
        engine.run(partial(commands.edit, engine.dialect, id, change), write=True)


@case("pause")
def _pause(engine: Engine, dataset: Dataset) -> None:
    engine_commands.pause(engine, "default", True)


@case("get", needs="id")
def _get(engine: Engine, dataset: Dataset) -> None:
    assert len(engine.get(_some_of_each(dataset))) == 35


@case("attempts", rows=3 * MANY_ATTEMPTS, needs="attempts")
def _attempts(engine: Engine, dataset: Dataset) -> None:
    assert len(engine_commands.attempts(engine, dataset.id(OFTEN_FAILED))) == MANY_ATTEMPTS


@case("search last_runs", rows=4 * SCAN, needs="listed")
def _errors(engine: Engine, dataset: Dataset) -> None:
    """Of those that failed most have run twice; one has often."""
    found = read_errors(engine, look=LIMIT)
    assert (found.looked_at, found.complete) == (LIMIT, False)
    runs = partial(
        read_scripts.last_runs,
        engine.dialect,
        [dataset.id(OFTEN_FAILED), *dataset.ids("failed", 5)],
    )
    assert len(engine.run(runs, write=False)) == 6


@case("workers")
def _workers(engine: Engine, dataset: Dataset) -> None:
    assert len(engine.workers()) == FORGOTTEN + 8


@case("counts", rows=4 * RUNNING, needs="listed held")
def _counts(engine: Engine, dataset: Dataset) -> None:
    counted = engine.counts(cap=CAP)
    assert (counted[Status.BLOCKED], counted[Status.PENDING]) == (CAP, CAP)


@case("queues", rows=8 * CAP, needs="claim")
def _queues(engine: Engine, dataset: Dataset) -> None:
    assert [(q.name, q.depth) for q in engine.queues(cap=CAP)] == [("default", CAP), ("mail", CAP)]


# searching


def _pages(engine: Engine, count: int | None, **fields: Any) -> None:
    """The first page, the one after it, and one from the middle."""
    page = engine.search(Filter(**fields), limit=LIMIT)
    assert count is None or len(page.jobs) == count
    if page.next is not None:
        engine.search(Filter(**fields), after=page.next, limit=LIMIT)


@case("search")
def _search(engine: Engine, dataset: Dataset) -> None:
    _pages(engine, LIMIT)
    middle = dataset.id(dataset.total // 2)
    assert len(engine.search(Filter(), after=middle, limit=LIMIT).jobs) == LIMIT


def _search_status(engine: Engine, dataset: Dataset, *, status: Status) -> None:
    _pages(engine, LIMIT, status=frozenset({status}))
    _pages(engine, None, status=frozenset({status}), since=dataset.hours_ago(48))


for _status in Status:
    if _status is Status.RUNNING:
        _add = case("search", name="search-running", rows=4 * RUNNING, needs="held")
    else:
        _add = case("search", name=f"search-{_status}", needs="listed")
    _add(partial(_search_status, status=_status))


@case("search", rows=4 * RUNNING, needs="listed held")
def _search_statuses(engine: Engine, dataset: Dataset) -> None:
    _pages(engine, LIMIT, status=frozenset(Status))
    _pages(engine, LIMIT, status=frozenset({Status.PENDING, Status.FAILED}))


@case("search", needs="entity")
def _search_entity(engine: Engine, dataset: Dataset) -> None:
    _pages(engine, LIMIT, entity=("tenant", "1"))
    _pages(engine, None, entity=("order", "3"))
    _pages(engine, 0, entity=("order", '"none"'))
    _pages(engine, None, entity=("tenant", "1"), since=dataset.hours_ago(48))


@case("search search_edge", rows=4 * SCAN, needs="entity")
def _search_entity_filtered(engine: Engine, dataset: Dataset) -> None:
    _pages(engine, None, entity=("tenant", "1"), status=frozenset({Status.FAILED}))
    _pages(engine, None, entity=("tenant", "1"), type="none")


@case("search search_edge", rows=4 * SCAN)
def _search_filtered(engine: Engine, dataset: Dataset) -> None:
    """Filters without an index: the look is bounded, whatever it finds."""
    residues: list[dict[str, Any]] = [
        {"type": "unknown"},
        {"prefix": "unk"},
        {"queue": "nowhere"},
        {"key": "k-none"},
        {"worker_id": "w1"},
        {"queue": "mail", "type": "t0"},
        {"lowest": 90, "highest": 99},
        {"text": ("unknown word",)},
        {"error": ("a", "b")},
        {"payload": (Wanted(("n", "0"), ("7", '"7"')), Wanted(("m",), ("null",)))},
        {"id": (FIRST_ID, LAST_ID), "text": ("none",)},
        {"type": "unknown", "since": dataset.hours_ago(48), "until": dataset.hours_ago(1)},
    ]
    for residue in residues:
        _pages(engine, None, **residue)


@case("search search_edge", rows=4 * SCAN, needs="listed held")
def _search_status_filtered(engine: Engine, dataset: Dataset) -> None:
    dialect_sql: tuple[dict[str, Any], ...] = ({"error": ("none",)}, {"text": ("e: no",)})
    for residue in ({"type": "none"}, {"queue": "nowhere"}, {"worker_id": LIVE[0]}, *dialect_sql):
        _pages(engine, None, status=frozenset(Status), **residue)
