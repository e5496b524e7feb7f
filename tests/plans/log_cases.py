"""Cases for the statements of job logs; importing this module registers them."""

from holdfast.core.clock import SystemClock
from holdfast.engine.engine import Engine
from holdfast.jobs.job import LogLine
from holdfast.jobs.log_lines import RUNS
from tests.plans.cases import LIMIT, case
from tests.plans.dataset import MANY_LINES, OFTEN_FAILED, Dataset
from tests.support import engine_commands


def _line(id: str, line_no: int, claim_no: int = 1) -> LogLine:
    return LogLine(
        job_id=id,
        claim_no=claim_no,
        attempt=1,
        line_no=line_no,
        at=SystemClock().now(),
        level="info",
        text="x",
    )


@case("insert_logs", needs="id")
def _insert_logs(engine: Engine, dataset: Dataset) -> None:
    ids = [*dataset.ids("running", LIMIT // 2), *dataset.ids("failed", LIMIT // 2)]
    engine.log([_line(id, number) for id in ids for number in (1, 2)])


@case("insert_logs prune_logs", needs="logs")
def _prune_logs(engine: Engine, dataset: Dataset) -> None:
    """Those of a few runs go, of many."""
    engine.log([_line(dataset.id(OFTEN_FAILED), 1, 100 + RUNS + 1)])
    assert len(engine_commands.logs(engine, dataset.id(OFTEN_FAILED), limit=LIMIT)) == LIMIT


@case("logs", needs="logs")
def _logs(engine: Engine, dataset: Dataset) -> None:
    id = dataset.id(OFTEN_FAILED)
    assert len(engine_commands.logs(engine, id, limit=LIMIT)) == LIMIT
    last = (MANY_LINES // 50 + 99, 29)
    assert len(engine_commands.logs(engine, id, after=last, limit=LIMIT)) == LIMIT
    assert len(engine_commands.logs(engine, id, limit=LIMIT, newest=True)) == LIMIT
    assert len(engine_commands.logs(engine, dataset.ids("failed", 1)[0])) == 2
