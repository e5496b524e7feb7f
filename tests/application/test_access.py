"""Tokens and sessions, and when they end; the audit log; the secrets of a database."""

import re
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidInput
from holdfast.access import ROLES, Access, Entry
from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.engine import access as scripts
from holdfast.engine.access import NewToken
from holdfast.engine.engine import Engine
from holdfast.errors import DatabaseBusy, UnknownToken
from tests.conftest import Database
from tests.support.jobs import execute


@pytest.fixture
def access(engine: Engine) -> Access:
    return Access(engine)


# tokens


def test_a_token_is_found_only_by_its_secret(engine: Engine, access: Access):
    made, secret = access.create("ann", "operator", by="root")
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}", secret)
    found = access.check(secret)
    assert found is not None
    assert (found.id, found.name, found.role, found.kind) == (made.id, "ann", "operator", "token")
    assert (found.created_by, found.expires_at, found.revoked_at) == ("root", None, None)
    stored = str(execute(engine, "SELECT * FROM {tokens}"))
    assert secret not in stored
    assert secret[3:] not in stored


def test_two_secrets_are_never_the_same(access: Access):
    made = [access.create("ann", "viewer") for _ in range(20)]
    assert len({secret for _, secret in made}) == len({info.id for info, _ in made}) == 20
    for info, secret in made:
        known = access.check(secret)
        assert known is not None
        assert known.id == info.id


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "hf_",
        "x",
        None,
        7,
        b"hf_",
        "hf_" + "a" * 43,
        "hf_" + "a" * 44,
        "hf_" + "é" * 43,
        "hf_\x00",
    ],
)
def test_an_unknown_secret_is_refused(access: Access, wrong: object):
    access.create("ann", "admin")
    assert access.check(wrong) is None
    assert access.end(wrong) is False


def test_a_secret_with_one_changed_letter_is_refused(access: Access):
    _, secret = access.create("ann", "admin")
    other = "A" if secret[-2] != "A" else "B"
    assert access.check(secret[:-2] + other + secret[-1]) is None
    assert access.check(secret + "\n") is None
    assert access.check(secret.upper()) is None


def test_a_revoked_token_is_refused(access: Access, clock: FakeClock):
    made, secret = access.create("ann", "admin")
    revoked = access.revoke(made.id)
    assert revoked.revoked_at == clock.now()
    assert access.check(secret) is None
    clock.advance(60)
    assert access.revoke(made.id).revoked_at == revoked.revoked_at  # the first moment stays
    assert [token.id for token in access.list()] == [made.id]


def test_an_expired_token_is_refused(access: Access, clock: FakeClock):
    made, secret = access.create("ann", "admin", expires="1h")
    assert made.expires_at == clock.now() + timedelta(hours=1)
    clock.advance(3599)
    assert access.check(secret) is not None
    clock.advance(1)
    assert access.check(secret) is None


def test_unknown_tokens_cannot_be_revoked(access: Access):
    with pytest.raises(UnknownToken, match="holdfast tokens list"):
        access.revoke(new_id())
    with pytest.raises(InvalidInput, match="give a UUID"):
        access.revoke("nope")


def test_the_last_use_of_a_token_is_written_once_a_minute(access: Access, clock: FakeClock):
    _, secret = access.create("ann", "viewer")

    def used() -> datetime | None:
        access.check(secret)
        return access.list()[0].last_used_at

    assert access.list()[0].last_used_at is None
    first = used()
    assert first == clock.now()
    clock.advance(59)
    assert used() == first
    clock.advance(1)
    assert used() == clock.now()


def test_a_check_within_a_minute_of_the_last_use_writes_nothing(
    database: Database, access: Access, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    _, secret = access.create("ann", "viewer")
    access.check(secret)
    run = engine.run
    writes = []

    def watched(script, *, write):  # type: ignore[no-untyped-def]
        writes.append(write)
        return run(script, write=write)

    monkeypatch.setattr(engine, "run", watched)
    for _ in range(3):
        assert access.check(secret) is not None
    assert writes == [False] * 3


def test_tokens_are_accepted_while_the_database_is_locked(
    access: Access, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    _, secret = access.create("ann", "viewer")
    run = engine.run

    def busy(script, *, write):  # type: ignore[no-untyped-def]
        if write:
            raise DatabaseBusy("held")
        return run(script, write=write)

    monkeypatch.setattr(engine, "run", busy)
    assert access.check(secret) is not None


def test_the_scope_of_an_enqueue_token(access: Access):
    made, secret = access.create("shop", "enqueue", tasks=["send", "a.b"], queues=["mail"])
    found = access.check(secret)
    assert found is not None
    assert (found.tasks, found.queues) == (made.tasks, made.queues) == (("a.b", "send"), ("mail",))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"role": "root"}, "the roles are viewer, operator, admin, enqueue"),
        ({"role": None}, "the roles are"),
        ({"name": ""}, "1 to 100 printable"),
        ({"name": "  "}, "1 to 100 printable"),
        ({"name": "a\nb"}, "1 to 100 printable"),
        ({"name": "x" * 101}, "1 to 100 printable"),
        ({"name": "\ud800"}, "1 to 100 printable"),
        ({"name": 7}, "1 to 100 printable"),
        ({"role": "enqueue", "tasks": ["a b"]}, "tasks='a b'"),
        ({"role": "enqueue", "tasks": "send"}, "give a list of names"),
        ({"role": "enqueue", "queues": [""]}, "queues=''"),
        ({"role": "enqueue", "queues": [f"q{n}" for n in range(101)]}, "at most 100"),
        ({"tasks": ["send"]}, "only an 'enqueue' token"),
        ({"expires": "soon"}, "expires='soon'"),
        ({"expires": 0}, "expires=0"),
        ({"kind": "other"}, "token, session"),
    ],
)
def test_wrong_tokens_are_refused(access: Access, fields: dict, rule: str):
    with pytest.raises(InvalidInput, match=re.escape(rule)):
        access.create(**{"name": "ann", "role": "viewer", **fields})
    assert access.list() == []


def test_a_token_can_have_every_role(access: Access):
    for role in ROLES:
        _, secret = access.create("ann", role)
        found = access.check(secret)
        assert found is not None
        assert found.role == role
    assert [token.role for token in access.list()] == list(reversed(ROLES))


# the first start


def test_the_first_token_is_made_once(access: Access):
    secret = access.first_token()
    found = access.check(secret)
    assert found is not None
    assert (found.name, found.role) == ("first start", "admin")
    assert access.first_token() is None
    access.revoke(found.id)
    assert access.first_token() is None


def test_the_first_token_sent_again_after_a_lost_answer_is_made_once(
    engine: Engine, access: Access
):
    """A script may be run again from its start: the connection was cut after the commit."""
    first = NewToken(id=new_id(), hash="a", name="first start", role="admin")
    second = NewToken(id=new_id(), hash="b", name="ann", role="viewer")
    entry = replace(make_entry(1), id=new_id())
    for _ in range(2):
        made = engine.run(lambda: scripts.add_first(engine.dialect, first), write=True)
        assert made is not None
        assert made.id == first.id
        assert engine.run(lambda: scripts.add(engine.dialect, second), write=True).id == second.id
        engine.run(lambda: scripts.record(engine.dialect, entry, "{}"), write=True)
        execute(engine, "DELETE FROM {tokens} WHERE id = :id", id=second.id)
        engine.run(lambda: scripts.add(engine.dialect, first), write=True)
    assert [token.id for token in access.list()] == [first.id]
    assert len(access.entries().entries) == 1


def test_no_first_token_is_made_if_a_token_exists(access: Access):
    access.create("ann", "viewer")
    assert access.first_token() is None


def test_servers_that_start_together_make_one_token(database: Database):
    engines = [database.engine() for _ in range(4)]
    for engine in engines:
        engine.open()
    made = together([Access(engine).first_token for engine in engines])
    assert len([secret for secret in made if secret is not None]) == 1
    assert len(Access(engines[0]).list()) == 1


def together(works: list) -> list:
    """Return the results of functions that start at the same time."""
    gate, answers = threading.Barrier(len(works)), [None] * len(works)

    def work(place: int) -> None:
        gate.wait(10)
        answers[place] = works[place]()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


# sessions


def test_a_session_has_the_permissions_of_its_token(access: Access, clock: FakeClock):
    made, _ = access.create("shop", "enqueue", tasks=["send"])
    secret = access.session(made, "12h")
    found = access.check(secret)
    assert found is not None
    assert (found.kind, found.name, found.role) == ("session", "shop", "enqueue")
    assert (found.tasks, found.parent_id) == (("send",), made.id)
    assert found.expires_at == clock.now() + timedelta(hours=12)
    assert [token.id for token in access.list()] == [made.id]
    assert [token.id for token in access.list("session")] == [found.id]


def test_a_session_ends_when_it_is_closed(access: Access):
    made, token = access.create("ann", "admin")
    one, two = access.session(made, "1h"), access.session(made, "1h")
    assert access.end(one) is True
    assert access.end(one) is False
    assert access.check(one) is None
    assert access.check(two) is not None
    assert access.end(token) is False  # which only revoking ends
    assert access.check(token) is not None


def test_a_session_expires(access: Access, clock: FakeClock):
    made, token = access.create("ann", "admin")
    secret = access.session(made, "1h")
    clock.advance(3600)
    assert access.check(secret) is None
    assert access.check(token) is not None


def test_a_session_ends_with_its_token(access: Access):
    made, _ = access.create("ann", "admin")
    other, _ = access.create("ben", "admin")
    secret, others = access.session(made, "1h"), access.session(other, "1h")
    access.revoke(made.id)
    assert access.check(secret) is None
    assert access.check(others) is not None


def test_a_session_ends_when_its_token_expires(access: Access, clock: FakeClock):
    made, _ = access.create("ann", "admin", expires="1h")
    secret = access.session(made, "12h")
    clock.advance(3599)
    assert access.check(secret) is not None
    clock.advance(1)
    assert access.check(secret) is None


def test_a_session_ends_when_its_token_is_deleted(engine: Engine, access: Access):
    made, _ = access.create("ann", "admin")
    secret = access.session(made, "1h")
    execute(engine, "DELETE FROM {tokens} WHERE kind = 'token'")
    assert access.check(secret) is None


def test_a_session_made_by_a_session_belongs_to_the_token(access: Access):
    made, _ = access.create("ann", "admin")
    first = access.check(access.session(made, "1h"))
    assert first is not None
    second = access.session(first, "1h")
    assert access.check(second) is not None
    access.revoke(made.id)
    assert access.check(second) is None


def test_the_use_of_a_session_counts_as_a_use_of_its_token(access: Access, clock: FakeClock):
    made, _ = access.create("ann", "admin")
    secret = access.session(made, "1h")
    clock.advance(30)
    access.check(secret)
    assert access.list()[0].last_used_at == clock.now()


# the audit log


def make_entry(number: int) -> Entry:
    return Entry(actor="ann", role="admin", action="jobs.retry", target=f"job-{number}")


def test_audit_entries_are_written_and_read_in_pages(access: Access, clock: FakeClock):
    access.record(
        Entry(
            actor="ann",
            role="operator",
            action="jobs.cancel",
            target="job-1",
            detail={"matched": 3, "filter": {"type": "send"}},
            address="10.0.0.7",
            request_id="r-1",
        )
    )
    [entry] = access.entries().entries
    assert (entry.actor, entry.role, entry.action) == ("ann", "operator", "jobs.cancel")
    assert (entry.target, entry.detail) == ("job-1", {"matched": 3, "filter": {"type": "send"}})
    assert (entry.address, entry.request_id, entry.at) == ("10.0.0.7", "r-1", clock.now())
    for number in range(2, 8):
        access.record(make_entry(number))
    told, after = [], None
    for _ in range(10):
        page = access.entries(after, 3)
        told += [entry.target for entry in page.entries]
        after = page.next
        if after is None:
            break
    assert told == [f"job-{number}" for number in range(7, 0, -1)]


@pytest.mark.parametrize("limit", [0, -1, 1001, "9", None])
def test_pages_of_the_audit_log_are_bounded(access: Access, limit: object):
    with pytest.raises(InvalidInput, match="limit"):
        access.entries(None, limit)


@pytest.mark.parametrize("odd", ["\x00", "\ud800", "x" * 10_000, "'; DROP TABLE --", "%_\\", "é𝄞"])
def test_texts_of_the_audit_log_are_made_storable(access: Access, odd: str):
    access.record(
        Entry(
            actor=odd,
            role=odd,
            action=odd,
            target=odd,
            detail={"text": odd, odd: object()},
            address=odd,
            request_id=odd,
        )
    )
    [entry] = access.entries().entries
    assert entry.detail is not None
    for text in (entry.actor, entry.target, entry.address, *entry.detail):
        assert text is not None
        assert len(text.encode("utf-8")) <= 10_000
    if odd.isprintable() and len(odd) < 500:
        assert (entry.actor, entry.detail["text"]) == (odd, odd)


def test_a_detail_that_is_too_large_is_omitted(access: Access):
    access.record(Entry(actor="a", role="admin", action="x", detail={"ids": ["y" * 99] * 999}))
    [entry] = access.entries().entries
    assert entry.detail is not None
    assert list(entry.detail) == ["left_out"]


def test_no_statement_changes_the_audit_log():
    """Statements only add, read and prune its entries."""
    for dialect in ("sqlite", "postgres"):
        files = Path(holdfast.__file__).parent.glob(f"*/*.{dialect}.sql")
        text = "".join(path.read_text("utf-8") for path in files)
        found = re.findall(r"(\w+)\s+(?:holdfast_|\{schema\}\.)audit\b", text)
        assert Counter(found) == {"INTO": 1, "FROM": 4}  # a page, the oldest, the newest, what goes
        assert len(re.findall(r"DELETE FROM (?:holdfast_|\{schema\}\.)audit\b", text)) == 1


def prune(engine: Engine, limit: int = 100) -> int:
    return engine.run(lambda: scripts.prune(engine.dialect, limit), write=True)


def test_audit_entries_are_deleted_after_a_year(engine: Engine, access: Access, clock: FakeClock):
    for number in range(5):
        access.record(make_entry(number))
    clock.advance(365 * 86400)
    access.record(make_entry(5))
    assert prune(engine) == 0
    clock.advance(1)
    assert prune(engine, 3) == 3
    assert prune(engine, 3) == 2
    assert prune(engine, 3) == 0
    assert [entry.target for entry in access.entries().entries] == ["job-5"]


def test_audit_entries_beyond_a_million_are_deleted(
    engine: Engine, access: Access, monkeypatch: pytest.MonkeyPatch
):
    assert scripts.KEPT == 1_000_000
    monkeypatch.setattr(scripts, "KEPT", 4)
    for number in range(7):
        access.record(make_entry(number))
    assert prune(engine, 2) == 2
    assert prune(engine, 2) == 1
    assert prune(engine, 2) == 0
    left = [entry.target for entry in access.entries().entries]
    assert left == ["job-6", "job-5", "job-4", "job-3"]


def test_expired_sessions_are_deleted(engine: Engine, access: Access, clock: FakeClock):
    made, _ = access.create("ann", "admin", expires="1h")
    for _ in range(3):
        access.session(made, "1h")
    kept = access.session(made, "3h")
    clock.advance(3600)
    assert prune(engine, 2) == 2
    assert prune(engine, 2) == 1
    assert prune(engine, 2) == 0
    assert [token.id for token in access.list()] == [made.id]
    assert len(access.list("session")) == 1
    assert access.end(kept)


# secrets


def test_a_secret_is_made_once(database: Database, access: Access):
    made = access.secret("csrf")
    assert len(made) == 32
    assert access.secret("csrf") == made
    assert access.secret("other") != made
    assert Access(database.engine()).secret("csrf") == made
    with pytest.raises(InvalidInput, match="name"):
        access.secret("a b")


def test_concurrent_processes_get_the_same_secret(database: Database):
    engines = [database.engine() for _ in range(4)]
    for engine in engines:
        engine.open()
    for name in ("a", "b", "c"):
        made = together([partial(Access(engine).secret, name) for engine in engines])
        assert len(set(made)) == 1
        assert len(made[0]) == 32


def test_app_access_is_available(database: Database):
    app = database.app()
    made, secret = Access(app).create("ann", "viewer")
    assert made.created_at <= datetime.now(UTC)
    assert Access(app).check(secret) is not None
