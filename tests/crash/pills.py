"""A job that kills its process, among innocent ones: it is given up after three deaths alone, the
others come through unharmed, and other work goes on meanwhile."""

from holdfast import Holdfast
from tests.crash.fleet import fleet
from tests.crash.scene import Proof, Scene, jobs_of, pause, statuses, unfinished, until
from tests.support.witness import Fact, check

LONG = {"rounds": 10, "innocents": 20}
ENGINES = ("sqlite", "postgres")
DEATH = "ended with SIGABRT"


def prove(scene: Scene, *, rounds: int, innocents: int) -> Proof:
    proof = Proof()
    ids: list[str] = []
    deaths = 0
    with scene.app() as app, fleet(scene, processes=2, queues="default=10,other=5") as workers:
        workers.start().until_ready()
        for _ in range(rounds):
            before = workers.log().count(DEATH)
            beside = [app.enqueue("short", {"ms": 300}).id for _ in range(innocents)]
            pill = app.enqueue("pill", priority=1).id
            others = _work_until_given_up(app, pill)
            until(lambda: unfinished(app) == 0, 120, "every job finished")
            deaths = max(deaths, workers.log().count(DEATH) - before)
            _judge(proof, app, pill, [*beside, *others])
            _meanwhile(proof, scene.facts(), pill, others)
            ids += [pill, *beside, *others]
        found = statuses(app)
    proof.figures |= {"pills": rounds, "jobs beside": len(ids) - rounds, "most deaths": deaths}
    proof.take(check(scene.facts(), ids, found, finals=("completed", "failed")))
    proof.expect(deaths <= 4, f"{deaths} deaths by one pill")
    return proof


def _work_until_given_up(app: Holdfast, pill: str) -> list[str]:
    """Small jobs in another queue, all the time until the pill has ended."""
    ids: list[str] = []

    def given_up() -> bool:
        ids.append(app.enqueue("short", {"ms": 1}, queue="other").id)
        pause(0.02)
        return app.jobs.get(pill).status == "failed"

    until(given_up, 120, "the end of the pill")
    return ids


def _judge(proof: Proof, app: Holdfast, pill: str, innocent: list[str]) -> None:
    ended = app.jobs.get(pill)
    proof.expect(
        (ended.error or "").startswith("Quarantined") and ended.crashes == 3,
        f"the pill: {ended.crashes} crashes, {ended.error}",
    )
    harmed = [
        job
        for job in jobs_of(app, innocent)
        if (job.status, job.attempts, job.crashes) != ("completed", 1, 0)
    ]
    proof.expect(not harmed, f"{len(harmed)} innocents were harmed, e.g. {harmed[:1]}")


def _meanwhile(proof: Proof, facts: list[Fact], pill: str, others: list[str]) -> None:
    """Between the pill's first start and its last, other jobs were finished."""
    starts = [fact.at for fact in facts if fact.what == "start" and fact.job == pill]
    done = [
        fact
        for fact in facts
        if fact.what == "accepted" and fact.job in others and starts[0] < fact.at < starts[-1]
    ]
    proof.expect(len(done) >= 5, f"only {len(done)} other jobs were done while the pill killed")
