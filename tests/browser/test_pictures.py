"""Where things stand in pictures: layers of a workflow, spans of a waterfall, the last events."""

from tests.browser.test_modules import blank, call

__all__ = ["blank", "call"]

DIAMOND = """[{child: 'b', parent: 'a'}, {child: 'c', parent: 'a'}, {child: 'd', parent: 'b'},
  {child: 'd', parent: 'c'}, {child: 'd', parent: 'a'}]"""


def test_a_job_is_drawn_right_of_its_parents(call):
    ranks = call("layers.js", f"Object.fromEntries(m.ranks(['d', 'c', 'b', 'a'], {DIAMOND}))")
    assert ranks == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_a_cycle_in_the_graph_ends_the_layout(call):
    circle = "[{child: 'a', parent: 'b'}, {child: 'b', parent: 'a'}]"
    assert call("layers.js", f"m.layout(['a', 'b'], {circle}).nodes.length") == 2


def test_boxes_do_not_overlap(call):
    script = """(() => {
      const ids = ['s', ...Array.from({length: 60}, (_, n) => `m${n}`), 'r'];
      const edges = ids.slice(1, -1)
        .flatMap((id) => [{child: id, parent: 's'}, {child: 'r', parent: id}]);
      const { nodes, width, height } = m.layout(ids, [...edges, {child: 'r', parent: 's'}]);
      const over = nodes.filter((a) => nodes.some((b) => a !== b
        && Math.abs(a.x - b.x) < m.BOX.width && Math.abs(a.y - b.y) < m.BOX.height));
      const out = nodes.filter((a) => a.x < 0 || a.y < 0
        || a.x + m.BOX.width > width || a.y + m.BOX.height > height);
      return [over.length, out.length, height < 16 * (m.BOX.height + m.BOX.down)];
    })()"""
    assert call("layers.js", script) == [0, 0, True]


def test_a_long_edge_has_a_point_in_every_layer(call):
    points = f"m.layout(['a', 'b', 'c', 'd'], {DIAMOND}).edges.map((one) => one.points.length)"
    assert call("layers.js", points) == [2, 2, 2, 2, 4]


def test_the_critical_path_is_followed_back(call):
    jobs = """[{id: 'a', started_at: '1', completed_at: '2'},
      {id: 'b', started_at: '3', completed_at: '9'},
      {id: 'c', started_at: '3', completed_at: '4'}, {id: 'd', started_at: '9', completed_at: 'x'}]"""
    assert call("layers.js", f"m.critical({jobs}, {DIAMOND})") == ["a", "b", "d"]


def test_ticks_of_an_axis_are_few_and_round(call):
    assert call("components/Waterfall.js", "[m.ticks(4.2), m.ticks(100), m.ticks(0.004)]") == [
        [0, 1, 2, 3, 4],
        [0, 30, 60, 90],
        [0, 0.001, 0.002, 0.003, 0.004],
    ]


def test_the_event_tail_is_bounded_and_keeps_one_progress_event_for_a_job(call):
    script = """(() => {
      const event = (event, job_id) => ({ event, data: { job_id } });
      let rows = m.joined([], [event('job:started', 'a'), event('job:progress', 'a')], 't', 3);
      const moved = event('job:progress', 'a');
      rows = m.joined(rows, [moved, moved, event('job:complete', 'a')], 'u', 3);
      const names = rows.map((row) => row.event.slice(4));
      const many = Array.from({length: 9}, () => event('job:started', 'b'));
      return [names, m.joined(rows, many, 'v', 5).length];
    })()"""
    assert call("tail.js", script) == [["complete", "progress", "started"], 5]
