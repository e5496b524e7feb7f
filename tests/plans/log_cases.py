"""What is asked of the engines for logs of runs; they add themselves to the others."""

from holdfast.clock import SystemClock
from holdfast.engine import Engine
from holdfast.engine.logs import RUNS
from holdfast.job import LogLine
from tests.plans.cases import LIMIT, case
from tests.plans.world import MANY_LINES, TIRED, World


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
def _insert_logs(engine: Engine, world: World) -> None:
    ids = [*world.ids("running", LIMIT // 2), *world.ids("failed", LIMIT // 2)]
    engine.log([_line(id, number) for id in ids for number in (1, 2)])


@case("insert_logs prune_logs", needs="logs")
def _prune_logs(engine: Engine, world: World) -> None:
    """Those of a few runs go, of many."""
    engine.log([_line(world.id(TIRED), 1, 100 + RUNS + 1)])
    assert len(engine.logs(world.id(TIRED), limit=LIMIT)) == LIMIT


@case("logs", needs="logs")
def _logs(engine: Engine, world: World) -> None:
    id = world.id(TIRED)
    assert len(engine.logs(id, limit=LIMIT)) == LIMIT
    last = (MANY_LINES // 50 + 99, 29)
    assert len(engine.logs(id, after=last, limit=LIMIT)) == LIMIT
    assert len(engine.logs(id, limit=LIMIT, newest=True)) == LIMIT
    assert len(engine.logs(world.ids("failed", 1)[0])) == 2
