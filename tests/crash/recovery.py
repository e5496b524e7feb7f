"""How soon a job runs again after `kill -9`: of the only worker with its supervisor, when a new one is
started at once; and of the worker process alone, whose supervisor lives."""

from holdfast import Holdfast
from tests.crash.fleet import Fleet, fleet
from tests.crash.scene import Proof, Scene, until
from tests.support.witness import check

LONG = {"rounds": 10, "heartbeat": 5.0, "all_dead": 20.0, "child_dead": 2.0}
ENGINES = ("sqlite", "postgres")


def prove(
    scene: Scene, *, rounds: int, heartbeat: float, all_dead: float, child_dead: float
) -> Proof:
    """`all_dead`, `child_dead`: the most seconds that each of them may take."""
    proof = Proof()
    ids: list[str] = []
    after_all: list[float] = []
    after_child: list[float] = []
    with scene.app() as app, fleet(scene, heartbeat=heartbeat) as workers:
        workers.start()
        for _ in range(rounds):
            ids.append(_begun(scene, app))
            workers.kill_supervisor(workers.living()[0])
            workers.start()
            after_all.append(_again(scene, app, ids[-1]))
            ids.append(_begun(scene, app))
            workers.kill_child(_runner(scene, ids[-1], workers))
            after_child.append(_again(scene, app, ids[-1]))
        found = {job.id: job.status.value for job in app.jobs.search()}
    proof.figures |= {
        "after all died": _span(after_all),
        "after the child died": _span(after_child),
    }
    proof.take(check(scene.facts(), ids, found))
    proof.expect(max(after_all) <= all_dead, f"all dead: {max(after_all):.1f} s > {all_dead:g} s")
    proof.expect(
        max(after_child) <= child_dead, f"child dead: {max(after_child):.2f} s > {child_dead:g} s"
    )
    return proof


def _begun(scene: Scene, app: Holdfast) -> str:
    """A job that runs, in its first claim."""
    scene.close_gates()
    job = app.enqueue("gated").id
    until(lambda: scene.facts("start", job), 60, "the first start of the job")
    return job


def _runner(scene: Scene, job: str, workers: Fleet) -> int:
    [start] = scene.facts("start", job)
    assert start.pid in workers.children()
    return start.pid


def _again(scene: Scene, app: Holdfast, job: str) -> float:
    """The seconds until it runs again; then it is let go."""
    seconds = until(lambda: len(scene.facts("start", job)) == 2, 60, "the second start of the job")
    scene.open_gate(2)
    until(lambda: app.jobs.get(job).status == "completed", 60, "the end of the job")
    return seconds


def _span(times: list[float]) -> str:
    return f"{min(times):.2f}-{max(times):.2f} s"
