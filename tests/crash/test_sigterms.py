import signal
import time

from tests.crash import sigterms
from tests.crash.testbed import CrashTestbed, jobs_of, unfinished, until
from tests.crash.worker_group import worker_group


def test_a_stop_under_load_spends_no_attempt_and_loses_no_job(testbed: CrashTestbed) -> None:
    report = sigterms.run(testbed, times=5, processes=1, grace=0.5, late=5.0, seed=1)
    assert report.problems == []


def test_a_second_sigterm_ends_immediately_and_makes_no_job_suspect(testbed: CrashTestbed) -> None:
    with testbed.app() as app, worker_group(testbed, grace=60.0, heartbeat=0.5) as workers:
        workers.start()
        jobs = [app.enqueue("gated").id, app.enqueue("gated_thread").id]
        until(lambda: len(testbed.entries("start")) == 2, 30, "the start of both jobs")
        [one] = workers.live_supervisors()
        children = workers.children()
        one.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in workers.log(), 10, "the first request was heard")
        begin = time.monotonic()
        one.send_signal(signal.SIGTERM)
        workers.wait_until_gone(children)
        assert one.wait(30) == 0
        assert time.monotonic() - begin < 10  # and not the sixty seconds of the grace period
        testbed.open_gate(2)
        workers.start()
        until(lambda: unfinished(app) == 0, 30, "the end of both jobs")
        for job in jobs_of(app, jobs):
            assert (job.status, job.attempts, job.crashes) == ("completed", 1, 0)
        assert "to run alone" not in workers.log()


def test_sigusr1_prints_the_stacks_of_running_jobs(testbed: CrashTestbed) -> None:
    with testbed.app() as app, worker_group(testbed) as workers:
        workers.start()
        jobs = [app.enqueue("gated").id, app.enqueue("gated_thread").id]
        until(lambda: len(testbed.entries("start")) == 2, 30, "the start of both jobs")
        workers.live_supervisors()[0].send_signal(signal.SIGUSR1)
        until(lambda: "2 jobs run" in workers.log(), 10, "the stacks in the log")
        until(lambda: all(job in workers.log() for job in jobs), 10, "both jobs in the log")
        log = workers.log()
        assert "in gated\n" in log
        assert "await asyncio.sleep(0.02)" in log
        assert "in gated_thread\n" in log
        assert "time.sleep(0.02)" in log or ".exists()" in log
        assert len(workers.live_supervisors()) == 1


def test_stacks_of_running_jobs_can_be_requested_through_the_database(
    testbed: CrashTestbed,
) -> None:
    with testbed.app() as app, worker_group(testbed, heartbeat=0.5) as workers:
        workers.start()
        job = app.enqueue("gated_thread").id
        until(lambda: len(testbed.entries("start")) == 1, 30, "the start of the job")
        [worker] = [one.id for one in app.engine.workers()]
        assert app.engine.ask_stacks(worker)

        def told() -> bool:
            found = app.engine.stacks(worker)
            return found is not None and found.text is not None

        until(told, 10, "its answer")
        found = app.engine.stacks(worker)
        assert found is not None
        assert found.text is not None
        assert job in found.text
        assert "in gated_thread\n" in found.text
