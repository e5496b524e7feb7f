"""Which events a reader returns, when positions and commits are in different orders."""

from holdfast.events.outbox import OutboxCursor, Reading

LIMIT = 5


def look(
    outbox_cursor: OutboxCursor, *visible: int, newest: int, ended: int = 0, mark: int | None = None
) -> list[int]:
    """Return the positions that are passed on, of those that can be read. `mark`: the number that the
    next mark gets."""
    rows = [(position,) for position in visible if position > outbox_cursor.position][:LIMIT]
    wanted = mark if outbox_cursor.wants_mark else None
    return [row[0] for row in outbox_cursor.take(Reading(newest, wanted, ended, 0, rows), LIMIT)]


def test_without_gaps_all_events_are_delivered_despite_other_transactions() -> None:
    outbox_cursor = OutboxCursor(0)
    assert look(outbox_cursor, 1, 2, newest=2) == [1, 2]
    assert (outbox_cursor.position, outbox_cursor.pending) == (2, False)
    assert look(outbox_cursor, *range(3, 11), newest=10) == [3, 4, 5, 6, 7]
    assert outbox_cursor.pending
    assert look(outbox_cursor, *range(3, 11), newest=10) == [8, 9, 10]


def test_a_late_event_is_waited_for() -> None:
    outbox_cursor = OutboxCursor(0)
    assert look(outbox_cursor, 1, 3, 4, newest=4) == [1]
    assert look(outbox_cursor, 1, 2, 3, 4, newest=4) == [2, 3, 4]
    assert (outbox_cursor.position, outbox_cursor.pending) == (4, False)


def test_a_gap_is_passed_when_all_earlier_transactions_have_ended() -> None:
    outbox_cursor = OutboxCursor(0)
    assert look(outbox_cursor, 2, newest=2) == []  # the first look takes no number
    assert outbox_cursor.wants_mark
    assert look(outbox_cursor, 2, newest=2, ended=50, mark=60) == []
    assert not outbox_cursor.wants_mark  # one is enough
    assert look(outbox_cursor, 2, 4, newest=4, ended=59) == []
    assert look(outbox_cursor, 2, 4, newest=4, ended=60) == [2]  # 3 may be younger than the mark
    assert look(outbox_cursor, 4, newest=4, ended=99, mark=70) == [4]
    assert (outbox_cursor.position, outbox_cursor.pending) == (4, False)


def test_a_gap_at_the_end_is_passed() -> None:
    outbox_cursor = OutboxCursor(0)
    assert look(outbox_cursor, 1, newest=3) == [1]
    assert look(outbox_cursor, newest=3, ended=9, mark=9) == []
    assert (outbox_cursor.position, outbox_cursor.pending) == (3, False)


def test_a_full_page_does_not_skip_unread_events() -> None:
    outbox_cursor = OutboxCursor(0)
    look(outbox_cursor, 2, newest=12)
    assert look(outbox_cursor, *range(2, 13), newest=12, ended=9, mark=9) == [2, 3, 4, 5, 6]
    assert look(outbox_cursor, *range(2, 13), newest=12, ended=9) == [7, 8, 9, 10, 11]
    assert look(outbox_cursor, *range(2, 13), newest=12, ended=9) == [12]
