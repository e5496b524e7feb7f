"""Jobs whose process died run again at the same time, soon, and nothing else waits for them: after a
whole tree of processes was killed, and after one process of it was."""

import json
import os
import signal
import time
from contextlib import suppress
from functools import partial

from holdfast import Holdfast, Job
from tests.crash.fleet import Fleet, children_of, fleet
from tests.crash.scene import Proof, Scene, jobs_of, pause, until
from tests.support.jobs import new

LONG = {"tree": 12, "victims": 60, "kills": 6, "heartbeat": 5.0, "soon": 20.0, "delay": 2.0}
ENGINES = ("sqlite", "postgres")


def prove(
    scene: Scene,
    *,
    tree: int,
    victims: int,
    kills: int,
    heartbeat: float,
    soon: float,
    delay: float,
) -> Proof:
    """`tree`: jobs in a tree of processes that is killed. `victims`: jobs of a second, in a process
    that is killed. `kills`: of one job's process, by an operator. `soon`: seconds until all run or are
    done; `delay`: the most that other jobs may wait, until the killed process is replaced."""
    proof = Proof()
    prove_tree(scene, proof, tree, heartbeat, soon)
    prove_victims(scene, proof, victims, soon, delay)
    prove_operator(scene, proof, kills)
    prove_begun(scene, proof, 10)
    return proof


def prove_tree(scene: Scene, proof: Proof, jobs: int, heartbeat: float, soon: float) -> None:
    """A supervisor and its process are killed: another worker begins all of their jobs together."""
    with scene.app() as app, fleet(scene, "lost", queues="trees=50", heartbeat=heartbeat) as lost:
        lost.start().until_ready()
        ids = [app.enqueue("gated", queue="trees").id for _ in range(jobs)]
        until(lambda: _starts(scene, ids, 1) == jobs, 60, "the first start of all")
        with fleet(scene, "idle", queues="trees=100", heartbeat=heartbeat) as idle:
            idle.start().until_ready()
            _kill_tree(lost)
            others = set(idle.children())
            took = until(lambda: _runs_in(scene, ids, others) == jobs, 60, "a run of all, together")
            for number in range(2, 20):
                scene.open_gate(number)
            until(lambda: _completed(app, ids), 60, "the end of all")
            log = idle.log()
        found = jobs_of(app, ids)
    proof.figures["all begun again"] = f"{took:.1f} s"
    proof.expect(
        took <= soon, f"{jobs} jobs of a tree that was killed ran again after {took:.1f} s"
    )
    proof.expect(all((job.attempts, job.crashes) == (1, 0) for job in found), "jobs were charged")
    proof.expect("whose process died" not in log, "jobs were suspected of a kill from outside")


def _kill_tree(workers: Fleet) -> None:
    """The supervisor first: it must not see what becomes of its processes."""
    [supervisor] = workers.living()
    children = children_of(supervisor.pid)
    os.kill(supervisor.pid, signal.SIGKILL)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    supervisor.wait()
    workers.bury(children)


def prove_victims(scene: Scene, proof: Proof, jobs: int, soon: float, delay: float) -> None:
    """A process with many jobs is killed: they are done soon, and what is new does not wait."""
    with scene.app() as app, fleet(scene, "victims", queues="victims=100") as workers:
        workers.start().until_ready()
        payload = json.dumps({"ms": 1000})
        news = [new("short", queue="victims", payload=payload) for _ in range(jobs)]
        made = app.engine.insert(news)
        ids = [job.id for job in made]
        [child] = workers.children()
        until(lambda: _runs_in(scene, ids, {child}) >= jobs // 2, 60, "the first start of most")
        victims = _runs_in(scene, ids, {child})
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
    waited = max(_waited(scene, job) for job in others)
    proof.figures |= {
        "victims": victims,
        "all done": f"{took:.1f} s",
        "others waited": f"{waited:.1f} s",
    }
    proof.expect(took <= soon, f"{victims} victims were done after {took:.1f} s")
    proof.expect(waited <= delay, f"a new job waited for {waited:.1f} s")
    charged = [job for job in found if (job.attempts, job.crashes, job.deaths) != (1, 0, 0)]
    proof.expect(not charged, f"{len(charged)} victims were charged, e.g. {charged[:1]}")


def prove_operator(scene: Scene, proof: Proof, kills: int) -> None:
    """kill -9 of the process of one job, by somebody: as often as it may be, that is no crash."""
    scene.close_gates()
    with scene.app() as app, fleet(scene, "operator", queues="operated=10") as workers:
        workers.start().until_ready()
        job = app.enqueue("gated", queue="operated").id
        for number in range(1, kills + 1):
            until(partial(_starts, scene, [job], number), 60, f"start {number}")
            [start] = [one for one in scene.facts("start", job) if one.claim_no == number]
            workers.kill_child(start.pid)
        until(lambda: _starts(scene, [job], kills + 1), 60, "the last start")
        found = app.jobs.get(job)
        proof.expect((found.crashes, found.deaths) == (0, kills), f"{found}")
        scene.open_gate(kills + 1)
        until(lambda: _completed(app, [job]), 60, "its end")
        ended = app.jobs.get(job)
    record = (ended.attempts, ended.crashes, ended.deaths)
    proof.expect(record == (1, 0, 0), f"attempts, crashes and deaths at its end: {record}")


def prove_begun(scene: Scene, proof: Proof, jobs: int) -> None:
    """A handler blocks its event loop; others were claimed and wait for it. When the process is killed,
    only the one that had begun is a victim."""
    with scene.app() as app, fleet(scene, "begun", queues="begun=50") as workers:
        workers.start().until_ready()
        begun = app.enqueue("blocks", {"seconds": 3.0}, queue="begun").id
        until(lambda: _starts(scene, [begun], 1), 60, "the start of the one that blocks")
        ids = [app.enqueue("short", {"ms": 1}, queue="begun").id for _ in range(jobs)]
        until(lambda: all(one.claim_no == 1 for one in jobs_of(app, ids)), 60, "claims of others")
        proof.expect(
            not _starts(scene, ids, 1), "others began beside a handler that blocks the loop"
        )
        [child] = workers.children()
        workers.kill_child(child)
        until(lambda: _completed(app, [begun, *ids]), 60, "the end of all")
        told = {id: app.jobs.attempts(id)[0].error for id in [begun, *ids]}
    lost = "the worker was lost"
    proof.expect(told.pop(begun) == f"{lost} while it ran this", "the one that had begun")
    wrong = [text for text in told.values() if text != f"{lost} before this had begun"]
    proof.expect(not wrong, f"{len(wrong)} of {jobs} that had not begun were victims: {wrong[:1]}")


def _starts(scene: Scene, ids: list[str], claim_no: int) -> int:
    return len(
        {one.job for one in scene.facts("start") if one.job in ids and one.claim_no == claim_no}
    )


def _runs_in(scene: Scene, ids: list[str], pids: set[int]) -> int:
    """How many of these jobs run in these processes, at this moment."""
    facts = [one for one in scene.facts() if one.job in ids and one.pid in pids]
    started = {(one.job, one.claim_no) for one in facts if one.what == "start"}
    return len(started - {(one.job, one.claim_no) for one in facts if one.what == "end"})


def _completed(app: Holdfast, ids: list[str]) -> bool:
    return all(job.status == "completed" for job in jobs_of(app, ids))


def _waited(scene: Scene, job: Job) -> float:
    """Seconds from its enqueue to its begin, on one machine with one clock."""
    [start, *_] = scene.facts("start", job.id)
    return start.at + time.time() - time.monotonic() - job.created_at.timestamp()
