"""A job that kills its process, among others: it fails after three crashes alone, the others complete
unharmed, and other work continues meanwhile. A recurring one is disabled."""

import signal
import subprocess
import sys

from holdfast import Holdfast
from tests.crash.testbed import CrashTestbed, Report, jobs_of, pause, statuses, unfinished, until
from tests.crash.worker_group import ROOT, environment, worker_group
from tests.support.history import HistoryEntry, check_history
from tests.support.jobs import new

LONG_RUN = {"rounds": 10, "innocents": 30}
ENGINES = ("sqlite", "postgres")
DEATH = "ended with SIGABRT"
DEATHS = 6  # three until it runs alone, three alone


def run(testbed: CrashTestbed, *, rounds: int, innocents: int) -> Report:
    report = Report()
    ids: list[str] = []
    deaths = 0
    with (
        testbed.app() as app,
        worker_group(testbed, processes=2, queues="default=40,other=5") as workers,
    ):
        workers.start().until_ready()
        for _ in range(rounds):
            before = workers.log().count(DEATH)
            beside = [app.enqueue("short", {"ms": 300}).id for _ in range(innocents)]
            poison = app.enqueue("poison", priority=1).id
            others = _work_until_given_up(app, poison)
            until(lambda: unfinished(app) == 0, 120, "every job finished")
            deaths = max(deaths, workers.log().count(DEATH) - before)
            _check_harm(report, app, poison, [*beside, *others])
            _check_progress(report, testbed.entries(), poison, others)
            ids += [poison, *beside, *others]
        found = statuses(app)
    report.figures |= {
        "poison jobs": rounds,
        "jobs beside": len(ids) - rounds,
        "most deaths": deaths,
    }
    report.take(check_history(testbed.entries(), ids, found, finals=("completed", "failed")))
    report.expect(deaths <= DEATHS, f"{deaths} deaths by one poison job")
    return report


def run_recurring(testbed: CrashTestbed) -> Report:
    """A recurring poison job, due every half second, is disabled and kills no more."""
    report = Report()
    with (
        testbed.app() as app,
        worker_group(testbed, processes=1, queues="default=40,other=5") as workers,
    ):
        workers.start().until_ready()
        row = app.schedules.put(new("poison", key="k", schedule='{"every":0.5}', payload="{}"))
        others: list[str] = []

        def disabled() -> bool:
            others.append(app.enqueue("short", {"ms": 1}, queue="other").id)
            pause(0.02)
            return not app.jobs.get(row.id).enabled

        until(disabled, 120, "the end of the poison job")
        seen = workers.log().count(DEATH)
        until(lambda: all(one.status == "completed" for one in jobs_of(app, others)), 60, "others")
        ended = app.jobs.get(row.id)
        health = app.health().problems
        deaths = workers.log().count(DEATH)
    report.expect(seen == deaths <= DEATHS, f"{deaths} deaths, {seen} until it was disabled")
    because = "its process died three times in a row: SIGABRT"
    report.expect(ended.disabled_because == because, f"because: {ended.disabled_because}")
    named = any("'holdfast schedules enable poison k'" in text for text in health)
    report.expect(named, f"health: {health}")
    return report


def run_embedded(testbed: CrashTestbed) -> Report:
    """A poison job in an embedded worker kills the application twice. Then it runs in a process of its
    own, while the application keeps working."""
    report = Report()
    hosts: list[subprocess.Popen[bytes]] = []

    with testbed.app() as app:
        poison = app.enqueue("poison").id

        def given_up() -> bool:
            """Restart the application if it has died; return whether the job has failed."""
            if not hosts or hosts[-1].poll() is not None:
                command = [sys.executable, "-m", "tests.crash.embedded_worker"]
                hosts.append(subprocess.Popen(command, env=environment(testbed, 1.0), cwd=ROOT))
            return app.jobs.get(poison).status == "failed"

        try:
            until(given_up, 120, "its end")
            short = app.enqueue("short", {"ms": 1}).id
            until(lambda: app.jobs.get(short).status == "completed", 60, "another job")
            ended, died = app.jobs.get(poison), [one.wait() for one in hosts[:-1]]
            report.expect(hosts[-1].poll() is None, "the last host died")
        finally:
            hosts[-1].kill()
            hosts[-1].wait()
    report.expect(died == [-signal.SIGABRT] * 2, f"hosts ended with {died}")
    report.expect("SIGABRT" in str(ended.error), f"the poison job: {ended.error}")
    report.expect(str(ended.error).startswith("Quarantined"), f"the poison job: {ended.error}")
    return report


def _work_until_given_up(app: Holdfast, poison: str) -> list[str]:
    """Enqueue small jobs in another queue until the poison job has failed."""
    ids: list[str] = []

    def given_up() -> bool:
        ids.append(app.enqueue("short", {"ms": 1}, queue="other").id)
        pause(0.02)
        return app.jobs.get(poison).status == "failed"

    until(given_up, 120, "the end of the poison job")
    return ids


def _check_harm(report: Report, app: Holdfast, poison: str, innocent: list[str]) -> None:
    ended = app.jobs.get(poison)
    report.expect(
        (ended.error or "").startswith("Quarantined") and ended.crashes == 3,
        f"the poison job: {ended.crashes} crashes, {ended.error}",
    )
    harmed = [
        job
        for job in jobs_of(app, innocent)
        if (job.status, job.attempts, job.crashes) != ("completed", 1, 0)
    ]
    report.expect(not harmed, f"{len(harmed)} innocents were harmed, e.g. {harmed[:1]}")


def _check_progress(
    report: Report, entries: list[HistoryEntry], poison: str, others: list[str]
) -> None:
    """Check that other jobs finished between the first and the last start of the poison job."""
    starts = [entry.at for entry in entries if entry.kind == "start" and entry.job == poison]
    done = [
        entry
        for entry in entries
        if entry.kind == "accepted" and entry.job in others and starts[0] < entry.at < starts[-1]
    ]
    report.expect(
        len(done) >= 5, f"only {len(done)} other jobs were done while the poison job killed"
    )
