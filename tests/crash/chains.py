"""Chains and workflows while workers are killed: exactly one job for each link of a chain, and every
job of every workflow ends as a model predicts."""

import random
from collections import Counter
from dataclasses import dataclass, field

from holdfast import Holdfast
from holdfast.jobs.job import Job, Status
from holdfast.workflows.builder import Node
from tests.crash.testbed import CrashTestbed, Report, pause, statuses, until
from tests.crash.worker_group import WorkerGroup, worker_group
from tests.support.history import check_history

LONG_RUN = {
    "chains": 3000,
    "flows": 300,
    "nodes": 30,
    "kills": 100,
    "interval": 1.0,
    "heartbeat": 1.0,
    "seed": 1,
}
ENGINES = ("sqlite", "postgres")
LINKS = 5  # of a chain: as in `workflow_tasks.py`
POLICIES = ("cancel", "continue", "hold")


@dataclass
class Planned:
    """A job of a workflow and its expected final status."""

    name: str
    fails: bool
    after: list[tuple["Planned", str]] = field(default_factory=list)

    @property
    def expected(self) -> str:
        ends = [(parent.expected, policy) for parent, policy in self.after]
        lost = [policy for end, policy in ends if end in ("failed", "cancelled")]
        if "cancel" in lost:
            return "cancelled"
        if "hold" in lost or any(end == "blocked" for end, _ in ends):
            return "blocked"
        return "failed" if self.fails else "completed"


def run(
    testbed: CrashTestbed,
    *,
    chains: int,
    flows: int,
    nodes: int,
    kills: int,
    interval: float,
    heartbeat: float,
    seed: int,
) -> Report:
    rng = random.Random(seed)
    report = Report()
    plans: dict[str, list[Planned]] = {}
    options = {"processes": 2, "heartbeat": heartbeat, "app": "tests.crash.workflow_tasks:app"}
    with testbed.app() as app, worker_group(testbed, **options) as workers:
        task = app.task(name="node", max_attempts=1)(_node)
        workers.start(2).until_ready()
        for number in range(kills):
            for chain in range(chains * number // kills, chains * (number + 1) // kills):
                app.enqueue(("link", "chained")[chain % 2], {"chain": chain, "number": 0})
            for _ in range(flows * number // kills, flows * (number + 1) // kills):
                plan = _plan(rng, nodes)
                plans[_insert(app, task, plan)] = plan
            _kill(workers, rng)
            pause(rng.uniform(0.0, interval))
        until(lambda: _settled(app, plans), 180, "every chain and workflow came to its end", 0.2)
        jobs = list(app.jobs.search())
        found = statuses(app)
        linked = [app.jobs.get(job.id) for job in jobs if job.type != "node"]
    report.figures |= {"chains": chains, "workflows": flows, "kills": kills, "jobs": len(jobs)}
    report.figures["runs interrupted"] = len(testbed.entries("start")) - len(
        {entry.job for entry in testbed.entries("start")}
    )
    report.expect(report.figures["runs interrupted"], "no kill hit a run: nothing was tested")
    _check_chains(report, linked, chains)
    _check_flows(report, jobs, plans)
    report.take(check_history(testbed.entries(), list(found), found, finals=list(Status)))
    return report


def _node(fails: bool) -> None:
    """Runs in the workers: see `workflow_tasks.py`."""


def _plan(rng: random.Random, most: int) -> list[Planned]:
    plan: list[Planned] = []
    for number in range(rng.randint(2, most)):
        parents = rng.sample(plan, min(len(plan), rng.choice((0, 1, 1, 2, 3))))
        after = [(parent, rng.choice(POLICIES)) for parent in parents]
        plan.append(Planned(f"n{number}", rng.random() < 0.15, after))
    return plan


def _insert(app: Holdfast, task: object, plan: list[Planned]) -> str:
    made: dict[str, Node] = {}
    with app.workflow("random") as flow:
        for one in plan:
            after = [(made[parent.name], policy) for parent, policy in one.after]
            made[one.name] = flow.add(
                task.using(node=one.name, after=after),  # type: ignore[attr-defined]
                fails=one.fails,
            )
    return flow.id


def _kill(workers: WorkerGroup, rng: random.Random) -> None:
    until(workers.children, 60, "a child to kill")
    workers.kill_child(rng.choice(workers.children()))


def _settled(app: Holdfast, plans: dict[str, list[Planned]]) -> bool:
    """Return whether no job can change its status any more."""
    counts = app.stats().jobs
    held = sum(one.expected == "blocked" for plan in plans.values() for one in plan)
    idle = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.BLOCKED)
    moving = sum(count for status, count in counts.items() if status not in idle)
    return moving == 0 and counts[Status.BLOCKED] == held


def _check_chains(report: Report, jobs: list[Job], chains: int) -> None:
    links = Counter((job.payload["chain"], job.payload["number"]) for job in jobs)
    wanted = {(chain, number) for chain in range(chains) for number in range(LINKS)}
    report.expect(links.keys() == wanted, f"links missing: {sorted(wanted - links.keys())[:3]}")
    doubled = [link for link, count in links.items() if count > 1]
    report.expect(not doubled, f"links twice: {doubled[:3]}")
    report.expect(all(job.status == "completed" for job in jobs), "a link did not complete")


def _check_flows(report: Report, jobs: list[Job], plans: dict[str, list[Planned]]) -> None:
    found: dict[str, dict[str, str]] = {id: {} for id in plans}
    for job in jobs:
        if job.workflow_id is not None:
            found[job.workflow_id][str(job.node)] = job.status.value
    for id, plan in plans.items():
        expected = {one.name: one.expected for one in plan}
        report.expect(found[id] == expected, f"workflow {id}: {found[id]} is not {expected}")
