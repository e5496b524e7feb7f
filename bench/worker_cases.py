"""A worker process beside those of peers, each with its best settings on a database of its own: how
fast it empties a queue, how soon it begins, and what it takes when there is nothing to do."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from bench.arena import Arena, arena
from bench.cases import Case
from bench.contenders import Contender, WorkerPlace, ours, peers
from bench.environments import Missing
from bench.measure import Goal, Pace, Row, at_least, at_most
from bench.processes import Process, cpu_seconds, resident

T = TypeVar("T")

SLOTS = 1000
SETTLED = 2.0  # seconds after which a worker has done what it does at its start
RECURRING = 100_000
MISSING = "not installed"
DRAIN = {"Huey": at_least(8.0), "PgQueuer": at_least(1.0)}


def of_workers() -> list[Case[WorkerPlace]]:
    return [
        Case("drain", drain),
        Case("pickup", pickup),
        Case("idle", idle),
        Case("memory", memory),
    ]


def drain(place: WorkerPlace, pace: Pace) -> list[Row]:
    """From the moment that a full queue is let go until the tables say that the last job is done."""
    many, default, others = ours(place, SLOTS), ours(place), peers(place)
    rates = drained(place, [many, default, *others], pace)
    title = f"drain {pace.backlog:,}"
    rows = [beside(f"{title}, default slots", others[0], rates, default)]
    for peer in others:
        fewer = f" against {pace.backlog * peer.share:,.0f}" if peer.share < 1 else ""
        goal = DRAIN.get(peer.name)
        rows.append(beside(f"{title}{fewer}, {SLOTS} slots", peer, rates, many, goal))
    return rows


def drained(
    place: WorkerPlace, contenders: Sequence[Contender], pace: Pace
) -> dict[Contender, list[float]]:
    """Jobs per second of each, once in every round."""

    def rate(contender: Contender, number: int) -> float:
        jobs = round(pace.backlog * contender.share)
        with arena(contender, place) as field, field.worker() as worker:
            return jobs / field.drain(jobs, worker)

    return in_turn(contenders, rate, pace.rounds)


def pickup(place: WorkerPlace, pace: Pace) -> list[Row]:
    """From the moment that another process has enqueued (its commit is acknowledged), or called, until
    the handler begins, on a worker that has nothing else to do."""
    late: dict[Contender, list[tuple[float, float]]] = {}

    def collect(contender: Contender, number: int) -> None:
        with arena(contender, place) as field, field.worker() as worker:
            time.sleep(SETTLED)
            found = field.lateness(pace.single // pace.rounds, number, worker)
            late.setdefault(contender, []).extend(found)

    mine, others = ours(place), peers(place)
    in_turn([mine, *others], collect, pace.rounds)
    rows = []
    for peer in others:
        for column, since in enumerate(("commit", "call")):
            for percent, bound in ((50, 2.0), (99, 10.0)):
                figures = {
                    who: [percentile([times[column] for times in found], percent)]
                    for who, found in late.items()
                }
                goal = at_most(bound, of="ours") if peer is others[0] and not column else None
                title = f"pickup p{percent} in ms since the {since}"
                rows.append(beside(title, peer, figures, mine, goal))
    return rows


def idle(place: WorkerPlace, pace: Pace) -> list[Row]:
    """All of them at the same time: none disturbs another."""
    if sys.platform != "linux":
        return [Row("idle, % of a core", None, None, None, note="only on Linux")]
    mine, others = ours(place), peers(place)
    waiting = ours(place, SLOTS)
    with ExitStack() as stack:
        workers: dict[Contender, Process] = {}
        for contender in (mine, waiting, *others):
            try:
                field = stack.enter_context(arena(contender, place))
            except Missing:
                continue
            if contender is waiting:
                field.recur(RECURRING)
            workers[contender] = stack.enter_context(field.worker())
        time.sleep(SETTLED)
        families = {who: worker.family() for who, worker in workers.items()}
        before = {who: sum(map(cpu_seconds, pids)) for who, pids in families.items()}
        begin = time.perf_counter()
        time.sleep(pace.idle)
        share = 100 / (time.perf_counter() - begin)
        used = {
            who: [(sum(map(cpu_seconds, pids)) - before[who]) * share]
            for who, pids in families.items()
        }
    goal = at_most(0.5, of="ours")
    title = f"idle with {RECURRING:,} recurring rows, % of a core"
    alone, among = used[mine][0], used[waiting][0]
    return [
        *(
            beside("idle, % of a core", peer, used, mine, goal if peer is others[0] else None)
            for peer in others
        ),
        Row(title, alone, among, among / alone if alone else None, goal),
    ]


def memory(place: WorkerPlace, pace: Pace) -> list[Row]:
    """Of one worker process: what it has taken after the first backlog must do for all that follow."""
    title = f"memory in MB, {pace.lasting:,} jobs against 20,000"
    if sys.platform != "linux":
        return [Row(title, None, None, None, note="only on Linux")]
    with arena(ours(place), place) as field, field.worker() as worker:
        _, child = worker.family()
        sizes = [
            after(field, worker, child, 20_000) for _ in range(0, max(pace.lasting, 40_000), 20_000)
        ]
    first, last = sizes[0], sizes[-1]
    goal = at_most(max(1.10, 1 + 5 / first))
    return [Row(title, first, last, last / first, goal)]


def after(field: Arena, worker: Process, child: int, count: int) -> float:
    field.drain(count, worker)
    return resident(child)


def in_turn(
    contenders: Sequence[Contender], act: Callable[[Contender, int], T], rounds: int
) -> dict[Contender, list[T]]:
    """What each does in each round; who begins changes. Those that are missing are left out."""
    found: dict[Contender, list[T]] = {}
    for number in range(rounds):
        for contender in contenders[:: -1 if number % 2 else 1]:
            try:
                found.setdefault(contender, []).append(act(contender, number))
            except Missing:
                found.pop(contender)
    return found


def beside(
    title: str,
    peer: Contender,
    figures: dict[Contender, list[float]],
    mine: Contender,
    goal: Goal | None = None,
) -> Row:
    """Medians of our figures and of a peer's, and of the ratios of neighbours."""
    title = f"{title} ({peer.name})"
    own, theirs = figures[mine], figures.get(peer)
    if theirs is None:
        return Row(title, None, statistics.median(own), None, goal, note=MISSING)
    ratios = [own / their for own, their in zip(own, theirs, strict=True) if their]
    ratio = statistics.median(ratios) if ratios else None
    return Row(title, statistics.median(theirs), statistics.median(own), ratio, goal)


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
