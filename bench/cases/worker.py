"""Worker processes of Holdfast and of peers, each with its best settings on a database of its own:
throughput, latency, and the cost of an idle worker."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from bench.contenders import Contender, WorkerDatabases, holdfast_worker, peers
from bench.environments import Missing
from bench.measure import Case, Goal, Pace, Row, at_least, at_most
from bench.processes import Process, cpu_seconds, resident
from bench.worker_benchmark import WorkerBenchmark, worker_benchmark

T = TypeVar("T")

SLOTS = 1000
SETTLED = 2.0  # seconds after which a worker has finished its start-up
RECURRING = 100_000
MISSING = "not installed"
DRAIN = {"Huey": at_least(8.0), "PgQueuer": at_least(1.0)}


def cases() -> list[Case[WorkerDatabases]]:
    return [
        Case("drain", drain),
        Case("pickup", pickup),
        Case("idle", idle),
        Case("memory", memory),
    ]


def drain(databases: WorkerDatabases, pace: Pace) -> list[Row]:
    """Throughput from the release of a full queue until the tables show the last job as done."""
    many, default, others = (
        holdfast_worker(databases, SLOTS),
        holdfast_worker(databases),
        peers(databases),
    )
    rates = drained(databases, [many, default, *others], pace)
    title = f"drain {pace.backlog:,}"
    rows = [compared(f"{title}, default slots", others[0], rates, default)]
    for peer in others:
        fewer = f" against {pace.backlog * peer.share:,.0f}" if peer.share < 1 else ""
        goal = DRAIN.get(peer.name)
        rows.append(compared(f"{title}{fewer}, {SLOTS} slots", peer, rates, many, goal))
    return rows


def drained(
    databases: WorkerDatabases, contenders: Sequence[Contender], pace: Pace
) -> dict[Contender, list[float]]:
    """Return the jobs per second of each contender, one rate for each round."""

    def rate(contender: Contender, number: int) -> float:
        jobs = round(pace.backlog * contender.share)
        with worker_benchmark(contender, databases) as benchmark, benchmark.worker() as worker:
            return jobs / benchmark.drain(jobs, worker)

    return in_rounds(contenders, rate, pace.rounds)


def pickup(databases: WorkerDatabases, pace: Pace) -> list[Row]:
    """Latency from the commit of an enqueue in another process, or from its call, until the handler
    begins on an idle worker."""
    late: dict[Contender, list[tuple[float, float]]] = {}

    def collect(contender: Contender, number: int) -> None:
        with worker_benchmark(contender, databases) as benchmark, benchmark.worker() as worker:
            time.sleep(SETTLED)
            found = benchmark.lateness(pace.single // pace.rounds, number, worker)
            late.setdefault(contender, []).extend(found)

    mine, others = holdfast_worker(databases), peers(databases)
    in_rounds([mine, *others], collect, pace.rounds)
    rows = []
    for peer in others:
        for column, since in enumerate(("commit", "call")):
            for percent, bound in ((50, 2.0), (99, 10.0)):
                figures = {
                    who: [percentile([times[column] for times in found], percent)]
                    for who, found in late.items()
                }
                goal = at_most(bound, of="holdfast") if peer is others[0] and not column else None
                title = f"pickup p{percent} in ms since the {since}"
                rows.append(compared(title, peer, figures, mine, goal))
    return rows


def idle(databases: WorkerDatabases, pace: Pace) -> list[Row]:
    """Processor time of idle workers, all measured at the same time."""
    if sys.platform != "linux":
        return [Row("idle, % of a core", None, None, None, note="only on Linux")]
    mine, others = holdfast_worker(databases), peers(databases)
    waiting = holdfast_worker(databases, SLOTS)
    with ExitStack() as stack:
        workers: dict[Contender, Process] = {}
        for contender in (mine, waiting, *others):
            try:
                benchmark = stack.enter_context(worker_benchmark(contender, databases))
            except Missing:
                continue
            if contender is waiting:
                benchmark.recur(RECURRING)
            workers[contender] = stack.enter_context(benchmark.worker())
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
    goal = at_most(0.5, of="holdfast")
    title = f"idle with {RECURRING:,} recurring rows, % of a core"
    alone, among = used[mine][0], used[waiting][0]
    return [
        *(
            compared("idle, % of a core", peer, used, mine, goal if peer is others[0] else None)
            for peer in others
        ),
        Row(title, alone, among, among / alone if alone else None, goal),
    ]


def memory(databases: WorkerDatabases, pace: Pace) -> list[Row]:
    """Memory of a worker process, which must not grow after the first backlog."""
    title = f"memory in MB, {pace.lasting:,} jobs against 20,000"
    if sys.platform != "linux":
        return [Row(title, None, None, None, note="only on Linux")]
    with (
        worker_benchmark(holdfast_worker(databases), databases) as benchmark,
        benchmark.worker() as worker,
    ):
        _, child = worker.family()
        sizes = [
            after(benchmark, worker, child, 20_000)
            for _ in range(0, max(pace.lasting, 40_000), 20_000)
        ]
    first, last = sizes[0], sizes[-1]
    goal = at_most(max(1.10, 1 + 5 / first))
    return [Row(title, first, last, last / first, goal)]


def after(benchmark: WorkerBenchmark, worker: Process, child: int, count: int) -> float:
    benchmark.drain(count, worker)
    return resident(child)


def in_rounds(
    contenders: Sequence[Contender], act: Callable[[Contender, int], T], rounds: int
) -> dict[Contender, list[T]]:
    """Run each contender in each round, in alternating order. Missing contenders are left out."""
    found: dict[Contender, list[T]] = {}
    for number in range(rounds):
        for contender in contenders[:: -1 if number % 2 else 1]:
            try:
                found.setdefault(contender, []).append(act(contender, number))
            except Missing:
                found.pop(contender)
    return found


def compared(
    title: str,
    peer: Contender,
    figures: dict[Contender, list[float]],
    mine: Contender,
    goal: Goal | None = None,
) -> Row:
    """Make a row of the medians of Holdfast and of a peer, and of the ratios of neighbours."""
    title = f"{title} ({peer.name})"
    own, theirs = figures[mine], figures.get(peer)
    if theirs is None:
        return Row(title, None, statistics.median(own), None, goal, note=MISSING)
    ratios = [own / their for own, their in zip(own, theirs, strict=True) if their]
    ratio = statistics.median(ratios) if ratios else None
    return Row(title, statistics.median(theirs), statistics.median(own), ratio, goal)


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
