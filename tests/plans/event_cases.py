"""Cases for the statements of events; importing this module registers them."""

from functools import partial

from holdfast.engine.engine import Engine
from holdfast.events import outbox
from tests.plans.cases import LIMIT, case
from tests.plans.dataset import Dataset
from tests.support import engine_commands


@case(
    "followed_topics lock_outbox outbox_bounds followed_since begin_topics subscribe emit "
    "postgres:ring",
    needs="id",
)
def _tell_events(engine: Engine, dataset: Dataset) -> None:
    engine.run(lambda: outbox.subscribe(engine.dialect, "me", [""], 60.0), write=True)
    assert len(engine_commands.cancel(engine, dataset.ids("pending", LIMIT), keep=60.0)) == LIMIT


@case("outbox_bounds mark ended events is_subscribed")
def _follow_events(engine: Engine, dataset: Dataset) -> None:
    engine.run(lambda: outbox.is_subscribed(engine.dialect, "me"), write=False)
    script = partial(outbox.read, 5 * LIMIT, LIMIT, mark=True)
    reading = engine.run(script, write=False)
    assert len(reading.rows) == LIMIT


@case("events prune_events prune_followers raise_floor", rows=4 * outbox.PRUNED)
def _prune_events(engine: Engine, dataset: Dataset) -> None:
    assert engine.maintenance.prune_events() == outbox.PRUNED
