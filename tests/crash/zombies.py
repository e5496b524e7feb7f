"""Workers frozen by SIGSTOP until they are declared dead, and thawed while others run their jobs: not
one of their writes is accepted, and afterwards they work again."""

from contextlib import suppress

from holdfast import Holdfast, HoldfastError
from tests.crash.fleet import Fleet, fleet
from tests.crash.scene import Proof, Scene, jobs_of, pause, unfinished, until
from tests.support.witness import check

LONG = {"rounds": 50, "jobs": 50, "heartbeat": 1.0}
ENGINES = ("sqlite", "postgres")
SENT = "its finish changed nothing"  # what a worker logs of a finish that came too late


def prove(scene: Scene, *, rounds: int, jobs: int, heartbeat: float) -> Proof:
    proof = Proof()
    ids: list[str] = []
    later: list[str] = []
    options = {"queues": f"default={jobs}", "heartbeat": heartbeat}
    with (
        scene.app() as app,
        fleet(scene, "frozen", **options) as frozen,
        fleet(scene, "others", **options) as others,
    ):
        frozen.start().until_ready()
        for number in range(rounds):
            ids += _round(scene, app, frozen, others, jobs, children_only=number % 2 == 1)
            later.append(_goes_on(app))
        stale = [job.id for job in jobs_of(app, ids) if job.result != 2 or job.claim_no != 2]
        found = {job.id: job.status.value for job in app.jobs.search()}
        sent = frozen.log().count(SENT)
    proof.figures |= {"frozen": len(ids), "stale writes sent": sent, "accepted": len(stale)}
    proof.take(check(scene.facts(), [*ids, *later], found))
    proof.expect(not stale, f"stale writes were accepted: {len(stale)}, e.g. of {stale[:3]}")
    proof.expect(sent, "no frozen run tried to write: nothing was proved")
    return proof


def _round(
    scene: Scene, app: Holdfast, frozen: Fleet, others: Fleet, jobs: int, *, children_only: bool
) -> list[str]:
    """Each job is begun by the frozen, begun again by the others, and ended by those; the frozen go on
    in between."""
    kinds = ["gated", "gated_thread"]
    ids = [app.enqueue(kinds[number % 2]).id for number in range(jobs)]
    until(lambda: _started(scene, ids, 1), 60, "the first start of every job")
    _freeze(app, frozen, children_only=children_only)
    others.start()
    until(lambda: not _held_by_first(app, ids), 90, "the frozen declared dead")
    # Jobs of a dead worker run one at a time, as one of them may have killed it. These did not.
    app.jobs.retry_all(status="pending")
    until(lambda: _started(scene, ids, 2), 60, "the second start of every job")
    scene.open_gate(1)
    before = _dropped(frozen)
    frozen.thaw()
    until(
        lambda: _dropped(frozen) - before >= jobs or _changed(app, ids),
        60,
        "every frozen run ended in vain",
    )
    changed = _changed(app, ids)
    assert not changed, f"stale writes were accepted: {len(changed)} of {jobs}"
    scene.open_gate(2)
    until(lambda: unfinished(app) == 0, 60, "every job finished by the others")
    others.kill_all()
    scene.close_gates()
    return ids


def _held_by_first(app: Holdfast, ids: list[str]) -> bool:
    return any((job.status, job.claim_no) == ("running", 1) for job in jobs_of(app, ids))


def _changed(app: Holdfast, ids: list[str]) -> list[str]:
    """Jobs whose second run, which goes on, is not what their row says."""
    return [job.id for job in jobs_of(app, ids) if (job.status, job.claim_no) != ("running", 2)]


def _started(scene: Scene, ids: list[str], claim_no: int) -> bool:
    started = {fact.job for fact in scene.facts("start") if fact.claim_no == claim_no}
    return started.issuperset(ids)


def _dropped(fleet: Fleet) -> int:
    """Runs that ended and changed nothing: sent and refused, or not even sent."""
    log = fleet.log()
    return log.count(SENT) + log.count("its result is dropped")


def _freeze(app: Holdfast, fleet: Fleet, *, children_only: bool) -> None:
    """At a moment at which none of them holds SQLite's write lock, as nobody could write then."""
    while True:
        fleet.freeze(children_only=children_only)
        with suppress(HoldfastError):
            app.queues.resume("nothing")
            return
        fleet.thaw()
        pause(0.05)


def _goes_on(app: Holdfast) -> str:
    """The thawed have taken a new name, and work."""
    job = app.enqueue("short", {"ms": 1})
    until(lambda: app.jobs.get(job.id).status == "completed", 60, "a job done by the thawed")
    return job.id
