"""Searching: newest first, page by page, filters that combine, and pages that stay bounded."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from holdfast import BodyNotLoaded, Holdfast, InvalidInput, Status
from holdfast.core.codec import encode_json
from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter, Report
from holdfast.jobs import outcome
from holdfast.jobs.filters import make_filter
from holdfast.jobs.job import Job
from holdfast.jobs.query_language import parse, quote
from holdfast.jobs.read import LAST_ID
from tests.support.jobs import claim, execute, in_status, insert, new, running


def pages(engine: Engine, filter: Filter, limit: int) -> list[Job]:
    found: list[Job] = []
    after = None
    for _ in range(1000):
        page = engine.search(filter, after=after, limit=limit)
        assert len(page.jobs) <= limit
        found += page.jobs
        if page.next is None:
            return found
        assert after is None or page.next < after
        after = page.next
    raise AssertionError("the pages do not end")


def statuses(*names: str) -> frozenset[Status]:
    return frozenset(Status(name) for name in names)


@pytest.fixture
def mixed(engine: Engine) -> list[Job]:
    """Sixty jobs in all statuses, two types, two queues; newest last."""
    for number in range(60):
        status = list(Status)[number % 8]
        in_status(
            engine,
            status,
            type="fetch" if number % 3 else "send-mail",
            queue=f"q{number % 2}-{number}" if status is Status.RUNNING else f"q{number % 2}",
            entity_type="movie" if number % 5 == 0 else None,
            entity_id=str(number % 10) if number % 5 == 0 else None,
            key=f"k{number}",
        )
    return engine.search(Filter(), limit=100).jobs


FILTERS = [
    (Filter(), lambda job: True),
    *((Filter(status=statuses(s)), lambda job, s=s: job.status == s) for s in Status),
    (
        Filter(status=statuses("failed", "running", "pending")),
        lambda job: job.status in ("failed", "running", "pending"),
    ),
    (Filter(status=frozenset(Status)), lambda job: True),
    (Filter(type="fetch"), lambda job: job.type == "fetch"),
    (Filter(prefix="send"), lambda job: job.type == "send-mail"),
    (Filter(prefix="nothing"), lambda job: False),
    (Filter(queue="q0"), lambda job: job.queue == "q0"),
    (Filter(entity=("movie", "0")), lambda job: job.entity == ("movie", 0)),
    (
        Filter(entity=("movie", "5"), status=statuses("failed", "scheduled")),
        lambda job: job.entity == ("movie", 5) and job.status in ("failed", "scheduled"),
    ),
    (
        Filter(status=statuses("pending", "failed"), type="fetch", queue="q1"),
        lambda job: (
            job.status in ("pending", "failed") and job.type == "fetch" and job.queue == "q1"
        ),
    ),
    (Filter(key="k17"), lambda job: job.key == "k17"),
]


def test_every_filter_finds_all_matches_across_pages(engine: Engine, mixed: list[Job]) -> None:
    assert [job.id for job in mixed] == sorted((job.id for job in mixed), reverse=True)
    for filter, holds in FILTERS:
        expected = [job.id for job in mixed if holds(job)]
        for limit in (1, 2, 3, 7, 60, 61):
            assert [job.id for job in pages(engine, filter, limit)] == expected, (filter, limit)


def test_a_rare_match_needs_a_bounded_number_of_pages(engine: Engine) -> None:
    """A filter without an index looks at a bounded number of rows a page: pages come back short,
    with a cursor to go on from, instead of one page that reads the table."""
    rare = insert(engine, "rare")
    engine.insert([new() for _ in range(100)])
    first = engine.search(Filter(type="rare"), limit=2)
    assert first.jobs == []
    assert first.next is not None
    assert [job.id for job in pages(engine, Filter(type="rare"), 2)] == [rare.id]


def test_search_by_time_of_creation(engine: Engine) -> None:
    insert(engine)
    now = datetime.now(UTC)
    assert pages(engine, Filter(since=now - timedelta(hours=1)), 10) != []
    assert pages(engine, Filter(since=now + timedelta(hours=1)), 10) == []
    assert pages(engine, Filter(until=now - timedelta(hours=1)), 10) == []
    assert pages(engine, Filter(until=now + timedelta(hours=1)), 10) != []


def test_search_by_worker(engine: Engine) -> None:
    engine.insert([new() for _ in range(4)])
    claim(engine, 2, worker="a")
    claim(engine, 1, worker="b")
    assert len(pages(engine, Filter(worker_id="a"), 10)) == 2
    assert len(pages(engine, Filter(worker_id="b", status=statuses("running")), 10)) == 1


def test_lists_do_not_read_bodies(engine: Engine) -> None:
    job = insert(engine)
    [listed] = engine.search(Filter()).jobs
    with pytest.raises(BodyNotLoaded, match=f"app.jobs.get.*|{job.id}"):
        _ = listed.payload


def test_get_keeps_the_order_and_omits_unknown_ids(engine: Engine) -> None:
    made = engine.insert([new() for _ in range(3)])
    ids = [made[2].id, new().id, made[0].id, made[2].id]
    assert [job.id for job in engine.get(ids)] == [made[2].id, made[0].id]
    assert engine.get([]) == []


def test_entity_ids_keep_their_type(engine: Engine) -> None:
    number = insert(engine, entity_type="movie", entity_id="7")
    text = insert(engine, entity_type="movie", entity_id='"7"')
    assert [job.id for job in pages(engine, Filter(entity=("movie", "7")), 5)] == [number.id]
    assert [job.id for job in pages(engine, Filter(entity=("movie", '"7"')), 5)] == [text.id]
    assert (number.entity, text.entity) == (("movie", 7), ("movie", "7"))


# what the search language needs


def found(engine: Engine, limit: int = 5, **fields: object) -> list[str]:
    return [job.id for job in pages(engine, make_filter(**fields), limit)]


def failed(engine: Engine, error: str, **fields: object) -> Job:
    job = running(engine, **fields)
    engine.finish([outcome.failed(job, error, keep=60.0)])
    return job


def test_search_by_priority(engine: Engine):
    ids = [insert(engine, priority=number).id for number in range(-2, 3)]
    assert found(engine, min_priority=1) == ids[:2:-1]
    assert found(engine, max_priority=-1) == ids[1::-1]
    assert found(engine, min_priority=0, max_priority=0) == [ids[2]]
    assert found(engine, min_priority=3) == []


def test_search_by_id_and_its_prefix(engine: Engine):
    ids = [insert(engine).id for _ in range(3)]
    for id in ids:
        assert (
            found(engine, id=id)
            == found(engine, id=UUID(id))
            == found(engine, id=id.upper())
            == [id]
        )
        assert found(engine, id=id, status="pending") == [id]
        assert found(engine, id=id, status="failed") == []
    assert found(engine, id=ids[0][:9]) == [id for id in reversed(ids) if id[:9] == ids[0][:9]]
    assert found(engine, id="ffff") == found(engine, id=LAST_ID) == []


def test_search_by_text(engine: Engine):
    one = failed(engine, "HTTPError: Rate Limit of 50% reached", key="movie-7")
    two = failed(engine, "ValueError: no", type="enrich-metadata")
    assert found(engine, text="rate limit") == found(engine, text=["LIMIT", "50%"]) == [one.id]
    assert found(engine, text=["rate", "movie-"]) == [one.id]
    assert found(engine, text="Metadata") == [two.id]
    assert found(engine, text="error") == [two.id, one.id]
    assert found(engine, text=["rate", "metadata"]) == []
    assert found(engine, error="rate limit") == [one.id]
    assert found(engine, error=["http", "%"]) == [one.id]
    assert found(engine, error="movie-7") == found(engine, error="enrich") == []
    engine.insert([new() for _ in range(3)])
    assert found(engine, error="zzz") == []


def test_text_search_includes_the_message(engine: Engine):
    job = running(engine)
    engine.report([Report(job.id, job.claim_no, 50.0, "Fetching page 7")])
    assert found(engine, text="page 7") == [job.id]
    assert found(engine, error="page 7") == []


ODD = [
    "50%",
    "a_b",
    "back\\slash",
    "it's",
    'say "hi"',
    "é𝄞",
    "[x]",
    "--",
    ";",
    ":now",
    "%(name)s",
    "$1",
    "*?",
]


def test_special_characters_have_no_meaning_in_text_search(engine: Engine):
    jobs = {
        text: failed(engine, f"E: {text}!", key=text, payload=encode_json({"t": text}, "p"))
        for text in ODD
    }
    insert(engine, key="5000", payload='{"t":"5000"}')
    insert(engine, key="axb", payload='{"t":"axb"}')
    for text, job in jobs.items():
        asked = [{"error": text}, {"text": text}, {"key": text}, {"payload": {"t": text}}]
        for fields in [*asked, parse(quote(text)), parse(f"error:{quote(text)}")]:
            assert found(engine, **fields) == [job.id], fields


def test_only_ascii_letters_are_case_insensitive(engine: Engine):
    """The same on both engines, whatever their locale."""
    job = failed(engine, "E: ÄRGER")
    assert found(engine, error="ÄRGER") == found(engine, error="Ärger") == [job.id]
    assert found(engine, error="ärger") == []


PAYLOADS = [
    ('{"user":{"id":7}}', {"user.id": 7}),
    ('{"user":{"id":"7"}}', {"user.id": "7"}),
    ('{"user":{"id":12345678901234567890}}', {"user.id": 12345678901234567890}),
    ('{"x":1.5}', {"x": 1.5}),
    ('{"x":true}', {"x": True}),
    ('{"x":null}', {"x": None}),
    ('{"x":""}', {"x": ""}),
    ('{"lines":[{"sku":"a"},{"sku":"b"}]}', {"lines.1.sku": "b"}),
    ('{"0":{"1":"x"}}', {"0.1": "x"}),
    ('{"a b":{"é":"ü"}}', {"a b.é": "ü"}),
    ('{"$":"money"}', {"$": "money"}),
]


def test_search_by_payload(engine: Engine):
    ids = [insert(engine, payload=text).id for text, _ in PAYLOADS]
    for id, (_, wanted) in zip(ids, PAYLOADS, strict=True):
        expected = ids[1::-1] if wanted == {"user.id": "7"} else [id]
        assert found(engine, payload=wanted) == expected, wanted
    assert found(engine, payload={"user.id": 7, "x": True}) == []
    assert found(engine, payload=[(("user", "id"), 7)]) == [ids[0]]
    assert found(engine, payload=[("user.id", 7), ("user.id", "7")]) == [ids[0]]
    assert found(engine, payload={"user": 7}) == found(engine, payload={"nope": None}) == []
    assert found(engine, payload={"user.id": "12345678901234567890"}) == [ids[2]]
    assert found(engine, payload={"user.id": "12345678901234567891"}) == []
    assert found(engine, payload={"x": "null"}) == [ids[5]]
    assert found(engine, payload={"x": "true"}, status="pending") == [ids[4]]
    assert found(engine, payload={"x": True}, status="failed") == []


def test_unusual_payloads_do_not_break_a_search(engine: Engine):
    deep = "[" * 900 + "]" * 900
    odd = [
        '{"a":"\\u0000","x":1}',
        '{"a":"\\ud800","x":1}',
        f'{{"a":{deep},"x":1}}',
        '{"x":{}}',
        '{"x":[]}',
    ]
    engine.insert([new(payload=text) for text in [*odd, '{"a":"\\\\u0000"}', "{}"]])
    job = insert(engine, payload='{"x":1,"n":"NaN"}')
    assert job.id in found(engine, payload={"x": 1})
    assert found(engine, payload={"x": 1, "n": "NaN"}) == [job.id]
    if not hasattr(engine, "schema"):  # SQLite stores any text
        execute(engine, "UPDATE {payloads} SET payload = 'no json' WHERE job_id <> :id", id=job.id)
        assert found(engine, payload={"x": 1}) == [job.id]


def test_unindexed_filters_read_a_bounded_number_of_rows(engine: Engine):
    """A page comes back empty, with a cursor, long before the table's end."""
    rare = failed(engine, "E: rare", priority=9, payload='{"n":"rare"}')
    engine.insert([new() for _ in range(100)])
    for fields in (
        {"min_priority": 9},
        {"max_priority": 9, "min_priority": 9},
        {"text": "rare"},
        {"error": "rare"},
        {"payload": {"n": "rare"}},
    ):
        first = engine.search(make_filter(**fields), limit=2)
        assert first.jobs == []
        assert first.next is not None
        read = [job.id for job in pages(engine, make_filter(**fields), 2)]
        assert read == [rare.id], fields
    looked = engine.search(make_filter(payload={"n": "rare"}), limit=2).next
    other = engine.search(make_filter(error="rare"), limit=2).next
    assert looked is not None
    assert other is not None
    assert looked > other  # bodies are read of fewer


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "01"},
        {"id": "zzzz"},
        {"text": ""},
        {"text": "a\x00"},
        {"text": "\ud800"},
        {"text": "x" * 501},
        {"text": ["w"] * 21},
        {"error": [7]},
        {"worker_id": "\x00"},
        {"min_priority": "high"},
        {"max_priority": 2**63},
        {"payload": {"a..b": 1}},
        {"payload": {'a"b': 1}},
        {"payload": {"a": [1]}},
        {"payload": {"a": float("nan")}},
        {"payload": {7: 1}},
        {"payload": [(7, 1)]},
        {"payload": [((), 1)]},
        {"payload": [(("a", "\ud800"), 1)]},
        {"payload": ["a"]},
        {"payload": 7},
    ],
)
def test_invalid_filters_are_refused(app: Holdfast, fields: dict):
    with pytest.raises(InvalidInput):
        app.jobs.count(**fields)


def test_the_application_searches_by_query(app: Holdfast):
    app.enqueue("send", {"to": "ann"}, priority=7, entity=("movie", 7))
    wanted = app.enqueue("send", {"to": "ben"}, priority=7, key="k", entity=("movie", 7))
    asked = "type:se status:pending priority:>5 entity:movie:7 payload.to:ben after:1h key:k send"
    assert [job.id for job in app.jobs.search(**parse(asked))] == [wanted.id]
    assert app.jobs.delete_all(**parse("payload.to:ann")).changed == 1
    assert app.jobs.count(**parse("before:1h")) == 0
