"""A job that kills its process, among innocent ones: it is given up after three crashes alone, the
others come through unharmed, and other work goes on meanwhile. One that recurs is disabled."""

import signal
import subprocess
import sys

from holdfast import Holdfast
from tests.crash.fleet import ROOT, environment, fleet
from tests.crash.scene import Proof, Scene, jobs_of, pause, statuses, unfinished, until
from tests.support.jobs import new
from tests.support.witness import Fact, check

LONG = {"rounds": 10, "innocents": 30}
ENGINES = ("sqlite", "postgres")
DEATH = "ended with SIGABRT"
DEATHS = 6  # three to find it among the others, three alone


def prove(scene: Scene, *, rounds: int, innocents: int) -> Proof:
    proof = Proof()
    ids: list[str] = []
    deaths = 0
    with scene.app() as app, fleet(scene, processes=2, queues="default=40,other=5") as workers:
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
    proof.expect(deaths <= DEATHS, f"{deaths} deaths by one pill")
    return proof


def prove_recurring(scene: Scene) -> Proof:
    """One that comes back every half second: it is disabled, and kills no more."""
    proof = Proof()
    with scene.app() as app, fleet(scene, processes=1, queues="default=40,other=5") as workers:
        workers.start().until_ready()
        row = app.schedules.put(new("pill", key="k", schedule='{"every":0.5}', payload="{}"))
        others: list[str] = []

        def disabled() -> bool:
            others.append(app.enqueue("short", {"ms": 1}, queue="other").id)
            pause(0.02)
            return not app.jobs.get(row.id).enabled

        until(disabled, 120, "the end of the pill")
        seen = workers.log().count(DEATH)
        until(lambda: all(one.status == "completed" for one in jobs_of(app, others)), 60, "others")
        ended = app.jobs.get(row.id)
        health = app.health().problems
        deaths = workers.log().count(DEATH)
    proof.expect(seen == deaths <= DEATHS, f"{deaths} deaths, {seen} until it was disabled")
    because = "its process died three times in a row: SIGABRT"
    proof.expect(ended.disabled_because == because, f"because: {ended.disabled_because}")
    named = any("'holdfast schedules enable pill k'" in text for text in health)
    proof.expect(named, f"health: {health}")
    return proof


def prove_embedded(scene: Scene) -> Proof:
    """One in a worker inside an application kills its host twice. Then it runs in a process of its own,
    whose deaths are seen, while the application lives and works."""
    proof = Proof()
    hosts: list[subprocess.Popen[bytes]] = []

    with scene.app() as app:
        pill = app.enqueue("pill").id

        def given_up() -> bool:
            """The application is started again when it has died."""
            if not hosts or hosts[-1].poll() is not None:
                command = [sys.executable, "-m", "tests.crash.host"]
                hosts.append(subprocess.Popen(command, env=environment(scene, 1.0), cwd=ROOT))
            return app.jobs.get(pill).status == "failed"

        try:
            until(given_up, 120, "its end")
            short = app.enqueue("short", {"ms": 1}).id
            until(lambda: app.jobs.get(short).status == "completed", 60, "another job")
            ended, died = app.jobs.get(pill), [one.wait() for one in hosts[:-1]]
            proof.expect(hosts[-1].poll() is None, "the last host died")
        finally:
            hosts[-1].kill()
            hosts[-1].wait()
    proof.expect(died == [-signal.SIGABRT] * 2, f"hosts ended with {died}")
    proof.expect("SIGABRT" in str(ended.error), f"the pill: {ended.error}")
    proof.expect(str(ended.error).startswith("Quarantined"), f"the pill: {ended.error}")
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
