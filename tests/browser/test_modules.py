"""The decisions of the dashboard's modules, in the browser that runs them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

import holdfast.web

STATIC = Path(holdfast.web.__file__).parent / "static"
SITE = "http://modules.test"
ANSWERS = {"/tasks": {"tasks": [{"name": "render"}]}, "/queues": {"queues": []}}
SHELL = '<!doctype html><meta name="holdfast-base" content=""><title>Modules</title>'


def answer(route: Route) -> None:
    """The files of the dashboard, and the few names that completion asks for: no server is needed."""
    path = route.request.url.removeprefix(SITE)
    if path.startswith("/static/"):
        kind = "text/javascript" if path.endswith(".js") else "text/css"
        route.fulfill(path=STATIC / path.removeprefix("/static/"), content_type=kind)
    elif path.startswith("/api/v1"):
        body = ANSWERS.get(path.removeprefix("/api/v1"), {"workers": []})
        route.fulfill(body=json.dumps(body), content_type="application/json")
    else:
        route.fulfill(body=SHELL, content_type="text/html")


@pytest.fixture(scope="module")
def blank(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(timezone_id="Asia/Kolkata")
    context.route(f"{SITE}/**", answer)
    page = context.new_page()
    page.goto(SITE)
    yield page
    context.close()


@pytest.fixture
def call(blank: Page) -> Any:
    """What an expression gives, in which `m` is the module."""

    def run(module: str, body: str) -> Any:
        script = f"async () => {{ const m = await import('/static/{module}'); return {body}; }}"
        return blank.evaluate(script)

    return run


def test_times_numbers_and_sizes_are_formatted_shortly(call):
    seconds = "[0, 0.0004, 0.42, 3.24, 9.96, 59.7, 75, 3600, 3725, 90000]"
    assert call("format.js", f"{seconds}.map(m.duration)") == [
        *("0 s", "<1 ms", "420 ms", "3.2 s", "10 s", "1m", "1m 15s", "1h", "1h 2m", "1d 1h"),
    ]
    assert call("format.js", "[m.capped(9, 10000), m.capped(10000, 10000)]") == ["9", "10,000+"]
    assert call("format.js", "[0, 999, 1500, 2500000].map(m.bytes)") == [
        *("0 B", "999 B", "1.5 kB", "2.5 MB"),
    ]
    moments = "['2026-01-01T00:00:03Z', '2025-12-31T23:58:00Z', '2026-01-01T02:30:00Z']"
    now = "Date.parse('2026-01-01T00:00:00Z')"
    assert call("format.js", f"{moments}.map((one) => m.relative(one, {now}))") == [
        *("in 3 s", "2 min ago", "in 2h 30m"),
    ]


def test_times_are_shown_in_local_time_or_utc(call):
    """A day begins when it begins on the clock that is shown."""
    late, now = "'2026-01-01T20:15:07.250Z'", "Date.parse('2026-01-01T17:00:00Z')"
    shown = (
        f"[m.clock({late}, {now}), m.clock({late}, {now}, {{ millis: true }}),"
        f" m.minute(Date.parse({late}) / 1000)]"
    )
    local = ["2026-01-02 01:45:07", "2026-01-02 01:45:07.250", "01:45"]
    assert call("format.js", shown) == local
    call("zone.js", "m.setZone('UTC')")
    assert call("format.js", shown) == ["20:15:07", "20:15:07.250", "20:15"]
    call("zone.js", "m.setZone('local')")
    assert call("format.js", shown) == local
    told = "2026-01-02 01:45:07.250 local · 2026-01-01T20:15:07.250Z"
    assert call("format.js", f"m.fullTime({late})") == told


def test_deceptive_characters_are_shown_as_their_code(call):
    given = "String.fromCharCode(0x61, 0x202e, 0x62, 7, 0x63)"
    assert call("format.js", f"m.visible({given})") == "a\\u202eb\\u0007c"


def test_integers_of_any_size_survive(call):
    text = '{"a":[12345678901234567890,-9007199254740993,1.5,7],"b":"12345678901234567890"}'
    assert call("json.js", f"m.stringify(m.parse('{text}'))") == text


def test_a_page_merged_into_the_rows_keeps_their_order(call):
    rows = "['f', 'e', 'd', 'c', 'b'].map((id) => ({id}))"
    page = "{jobs: ['g', 'f', 'd'].map((id) => ({id, fresh: true})), next: 'd'}"
    shown = "({rows: r.rows.map((one) => one.id + (one.moved ? '!' : '')), waiting: r.waiting})"
    for held, wanted in [
        ("false", {"rows": ["g", "f", "d", "c", "b"], "waiting": 0}),
        ("true", {"rows": ["f", "e!", "d", "c", "b"], "waiting": 1}),
    ]:
        script = f"(() => {{ const r = m.overlay({rows}, {page}, {held}); return {shown}; }})()"
        assert call("joblist.js", script) == wanted


def test_rows_of_a_distant_page_replace_the_old_ones(call):
    """More jobs came than a page holds: the rows between it and the old ones are unknown."""
    script = """(() => {
      const rows = [{id: 'c'}, {id: 'b'}, {id: 'a'}];
      const far = {jobs: [{id: 'f'}, {id: 'e'}], next: 'e'};
      const near = {jobs: [{id: 'd'}, {id: 'c'}], next: 'c'};
      const ids = (page, grown) => m.overlay(rows, page, false, grown).rows.map((job) => job.id);
      return [ids(far, false), ids(far, true), ids(near, false), ids(near, true)];
    })()"""
    assert call("joblist.js", script) == [
        ["f", "e"],
        ["f", "e"],
        ["d", "c"],
        ["d", "c", "b", "a"],
    ]


def test_events_received_before_a_pause_trigger_no_request(call):
    """A page that was hidden or paused a moment ago asks for nothing, not even once more."""
    script = """(async () => {
      const told = [];
      const hear = (events) => told.push(events.map((one) => one.event));
      const leave = m.listen(hear, () => told.push('hush'));
      m.start();
      m.refresh();
      m.togglePause();
      await new Promise((done) => setTimeout(done, 400));
      const paused = told.splice(0);
      m.refresh();  // by hand
      await new Promise((done) => setTimeout(done, 400));
      m.stop();
      leave();
      m.togglePause();
      return [paused, told[0]];
    })()"""
    assert call("live.js", script) == [["hush"], ["refresh"]]


def test_a_traceback_is_folded_to_the_applications_frames(call):
    trace = (
        "Traceback (most recent call last):\\n"
        '  File "/opt/shop/site-packages/httpx/a.py", line 3, in send\\n    raise X\\n'
        '  File "/srv/shop/tasks.py", line 42, in enrich\\n    find()\\n'
        "ValueError: no title"
    )
    found = f"m.pieces({trace!r}.replaceAll('\\\\n', '\\n'))"
    script = f"{found}.map((one) => one.file ? [one.line, one.foreign, one.code] : one.text)"
    assert call("components/Trace.js", script) == [
        "Traceback (most recent call last):",
        ["3", True, ["raise X"]],
        ["42", False, ["find()"]],
        "ValueError: no title",
    ]


def test_a_form_becomes_a_payload(call):
    schema = """{type: 'object', required: ['id', 'mode'], properties: {
        id: {type: 'integer'}, mode: {enum: ['full', 'quick']}, force: {type: 'boolean'},
        tags: {type: 'array'}, note: {anyOf: [{type: 'string'}, {type: 'null'}]}}}"""
    fields = f"m.fieldsOf({schema})"

    def made(values: str) -> Any:
        return call("components/SchemaForm.js", f"m.payloadOf({fields}, {values})")

    assert made("{id: '7', mode: '\"full\"', force: '', tags: '[1]', note: ''}") == {
        "payload": {"id": 7, "mode": "full", "tags": [1]},
        "errors": {},
    }
    assert made("{id: '1.5', mode: '', tags: '['}")["errors"] == {
        "id": "It has to be a whole number.",
        "mode": "It is needed.",
        "tags": "This is not JSON.",
    }


def test_the_word_at_the_cursor_is_completed(call):
    text = 'type:mail error:"rate li'
    assert call("query.js", f"m.wordAt({text!r}, {len(text)}).text") == 'error:"rate li'
    labels = "(await m.complete('st')).map((one) => one.insert)"
    assert call("query.js", labels) == ["status:"]
    values = "(await m.complete('status:ret')).map((one) => one.insert)"
    assert call("query.js", values) == ["status:retrying "]
    names = "(await m.complete('type:ren')).map((one) => one.insert)"
    assert call("query.js", names) == ["type:render "]


def test_addresses_are_matched_completely(call):
    tried = "['/jobs/a%20b', '/jobs', '/jobs/', '/jobs/a/b', '/jobs/%E0%A4%A']"
    assert call("router.js", f"{tried}.map((one) => m.match('/jobs/:id', one))") == [
        {"id": "a b"},
        *(None,) * 4,
    ]
