"""Cases for the statements of tokens and the audit log; importing this module registers them."""

from functools import partial

from holdfast.access import Access, Entry
from holdfast.engine import access as scripts
from holdfast.engine.engine import Engine
from tests.plans.cases import LIMIT, case
from tests.plans.dataset import Dataset


@case("hold_tokens any_token add_token find_token touch_token tokens revoke_token end_session")
def _tokens(engine: Engine, dataset: Dataset) -> None:
    access = Access(engine)
    assert access.first_token() is not None
    made, secret = access.create("ann", "admin")
    session = access.session(made, 60.0)
    assert access.check(secret) is not None
    assert access.check(session) is not None
    assert len(access.list()) == 2
    assert access.end(session)
    assert access.revoke(made.id).revoked_at is not None


@case("keep_secret secret")
def _secrets(engine: Engine, dataset: Dataset) -> None:
    assert len(Access(engine).secret("new")) == 32


@case("record entries")
def _audit(engine: Engine, dataset: Dataset) -> None:
    access = Access(engine)
    access.record(Entry(actor="ann", role="admin", action="jobs.retry"))
    page = access.entries(limit=LIMIT)
    assert len(access.entries(page.next, LIMIT).entries) == LIMIT


@case("prune_audit prune_sessions")
def _prune_audit(engine: Engine, dataset: Dataset) -> None:
    """All but the newest few are too many, or none is."""
    for kept, gone in ((5, LIMIT), (scripts.KEPT, 0)):
        scripts.KEPT, known = kept, scripts.KEPT  # type: ignore[misc]
        try:
            prune = partial(scripts.prune, engine.dialect, LIMIT)
            assert engine.run(prune, write=True) == gone
        finally:
            scripts.KEPT = known  # type: ignore[misc]
