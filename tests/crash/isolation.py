"""Jobs whose process died run again soon and concurrently, and no other job waits for them: after a
whole tree of processes was killed, and after a single process was."""

import json
import os
import signal
import time
from contextlib import suppress
from functools import partial

from holdfast import Holdfast, Job
from tests.crash.testbed import CrashTestbed, Report, jobs_of, pause, until
from tests.crash.worker_group import WorkerGroup, children_of, worker_group
from tests.support.jobs import new

LONG_RUN = {"tree": 12, "victims": 60, "kills": 6, "heartbeat": 5.0, "soon": 20.0, "delay": 2.0}
ENGINES = ("sqlite", "postgres")


def run(
    testbed: CrashTestbed,
    *,
    tree: int,
    victims: int,
    kills: int,
    heartbeat: float,
    soon: float,
    delay: float,
) -> Report:
    """`tree`: jobs in a tree of processes that is killed. `victims`: jobs of a second, in a process
    that is killed. `kills`: of one job's process, by an operator. `soon`: seconds until all run or are
    done; `delay`: the most that other jobs may wait, until the killed process is replaced."""
    report = Report()
    run_killed_tree(testbed, report, tree, heartbeat, soon)
    run_killed_process(testbed, report, victims, soon, delay)
    run_operator_kills(testbed, report, kills)
    run_killed_before_begun(testbed, report, 10)
    return report


def run_killed_tree(
    testbed: CrashTestbed, report: Report, jobs: int, heartbeat: float, soon: float
) -> None:
    """Kill a supervisor and its process: another worker starts all of their jobs concurrently."""
    with (
        testbed.app() as app,
        worker_group(testbed, "lost", queues="trees=50", heartbeat=heartbeat) as lost,
    ):
        lost.start().until_ready()
        ids = [app.enqueue("gated", queue="trees").id for _ in range(jobs)]
        until(lambda: _starts(testbed, ids, 1) == jobs, 60, "the first start of all")
        with worker_group(testbed, "idle", queues="trees=100", heartbeat=heartbeat) as idle:
            idle.start().until_ready()
            _kill_tree(lost)
            others = set(idle.children())
            took = until(
                lambda: _runs_in(testbed, ids, others) == jobs, 60, "a run of all, together"
            )
            for number in range(2, 20):
                testbed.open_gate(number)
            until(lambda: _completed(app, ids), 60, "the end of all")
            log = idle.log()
        found = jobs_of(app, ids)
    report.figures["all begun again"] = f"{took:.1f} s"
    report.expect(
        took <= soon, f"{jobs} jobs of a tree that was killed ran again after {took:.1f} s"
    )
    report.expect(all((job.attempts, job.crashes) == (1, 0) for job in found), "jobs were charged")
    report.expect("whose process died" not in log, "jobs were suspected of a kill from outside")


def _kill_tree(workers: WorkerGroup) -> None:
    """Kill the supervisor first, so that it does not see the end of its processes."""
    [supervisor] = workers.live_supervisors()
    children = children_of(supervisor.pid)
    os.kill(supervisor.pid, signal.SIGKILL)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    supervisor.wait()
    workers.wait_until_gone(children)


def run_killed_process(
    testbed: CrashTestbed, report: Report, jobs: int, soon: float, delay: float
) -> None:
    """Kill a process with many jobs: they complete soon, and new jobs do not wait."""
    with testbed.app() as app, worker_group(testbed, "victims", queues="victims=100") as workers:
        workers.start().until_ready()
        payload = json.dumps({"ms": 1000})
        new_jobs = [new("short", queue="victims", payload=payload) for _ in range(jobs)]
        made = app.engine.insert(new_jobs)
        ids = [job.id for job in made]
        [child] = workers.children()
        until(lambda: _runs_in(testbed, ids, {child}) >= jobs // 2, 60, "the first start of most")
        victims = _runs_in(testbed, ids, {child})
        workers.kill_child(child)
        begin = time.monotonic()
        quick: list[str] = []

        def done() -> bool:
            quick.append(app.enqueue("short", {"ms": 1}, queue="victims").id)
            pause(0.1)
            return _completed(app, ids)

        until(done, 120, "the end of the victims")
        took = time.monotonic() - begin
        until(lambda: _completed(app, quick), 60, "the end of the others")
        found, others = jobs_of(app, ids), jobs_of(app, quick)
    waited = max(_waited(testbed, job) for job in others)
    report.figures |= {
        "victims": victims,
        "all done": f"{took:.1f} s",
        "others waited": f"{waited:.1f} s",
    }
    report.expect(took <= soon, f"{victims} victims were done after {took:.1f} s")
    report.expect(waited <= delay, f"a new job waited for {waited:.1f} s")
    charged = [job for job in found if (job.attempts, job.crashes, job.deaths) != (1, 0, 0)]
    report.expect(not charged, f"{len(charged)} victims were charged, e.g. {charged[:1]}")


def run_operator_kills(testbed: CrashTestbed, report: Report, kills: int) -> None:
    """Kill the process of one job with kill -9 repeatedly: that never counts as a crash."""
    testbed.close_gates()
    with testbed.app() as app, worker_group(testbed, "operator", queues="operated=10") as workers:
        workers.start().until_ready()
        job = app.enqueue("gated", queue="operated").id
        for number in range(1, kills + 1):
            until(partial(_starts, testbed, [job], number), 60, f"start {number}")
            [start] = [one for one in testbed.entries("start", job) if one.claim_no == number]
            workers.kill_child(start.pid)
        until(lambda: _starts(testbed, [job], kills + 1), 60, "the last start")
        found = app.jobs.get(job)
        report.expect((found.crashes, found.deaths) == (0, kills), f"{found}")
        testbed.open_gate(kills + 1)
        until(lambda: _completed(app, [job]), 60, "its end")
        ended = app.jobs.get(job)
    record = (ended.attempts, ended.crashes, ended.deaths)
    report.expect(record == (1, 0, 0), f"attempts, crashes and deaths at its end: {record}")


def run_killed_before_begun(testbed: CrashTestbed, report: Report, jobs: int) -> None:
    """A handler blocks its event loop while other claimed jobs wait for the loop. When the process is
    killed, only the job that had begun becomes a suspect."""
    with testbed.app() as app, worker_group(testbed, "begun", queues="begun=50") as workers:
        workers.start().until_ready()
        begun = app.enqueue("blocks", {"seconds": 3.0}, queue="begun").id
        until(lambda: _starts(testbed, [begun], 1), 60, "the start of the one that blocks")
        ids = [app.enqueue("short", {"ms": 1}, queue="begun").id for _ in range(jobs)]
        until(lambda: all(one.claim_no == 1 for one in jobs_of(app, ids)), 60, "claims of others")
        report.expect(
            not _starts(testbed, ids, 1), "others began beside a handler that blocks the loop"
        )
        [child] = workers.children()
        workers.kill_child(child)
        until(lambda: _completed(app, [begun, *ids]), 60, "the end of all")
        told = {id: app.jobs.attempts(id)[0].error for id in [begun, *ids]}
    lost = "the worker was lost"
    report.expect(told.pop(begun) == f"{lost} while it ran this", "the one that had begun")
    wrong = [text for text in told.values() if text != f"{lost} before this had begun"]
    report.expect(not wrong, f"{len(wrong)} of {jobs} that had not begun were victims: {wrong[:1]}")


def _starts(testbed: CrashTestbed, ids: list[str], claim_no: int) -> int:
    return len(
        {one.job for one in testbed.entries("start") if one.job in ids and one.claim_no == claim_no}
    )


def _runs_in(testbed: CrashTestbed, ids: list[str], pids: set[int]) -> int:
    """Return how many of these jobs run in these processes now."""
    entries = [one for one in testbed.entries() if one.job in ids and one.pid in pids]
    started = {(one.job, one.claim_no) for one in entries if one.kind == "start"}
    return len(started - {(one.job, one.claim_no) for one in entries if one.kind == "end"})


def _completed(app: Holdfast, ids: list[str]) -> bool:
    return all(job.status == "completed" for job in jobs_of(app, ids))


def _waited(testbed: CrashTestbed, job: Job) -> float:
    """Return the seconds from the enqueue of a job to its start."""
    [start, *_] = testbed.entries("start", job.id)
    return start.at + time.time() - time.monotonic() - job.created_at.timestamp()
