"""Which events a reader tells, when positions and commits are in different orders."""

from holdfast.engine.outbox import Reading, Tide

LIMIT = 5


def look(
    tide: Tide, *visible: int, newest: int, ended: int = 0, mark: int | None = None
) -> list[int]:
    """What it tells of the positions that can be seen. `mark`: the number it would get."""
    rows = [(position,) for position in visible if position > tide.position][:LIMIT]
    wanted = mark if tide.wants_mark else None
    return [row[0] for row in tide.take(Reading(newest, wanted, ended, 0, rows), LIMIT)]


def test_without_gaps_all_is_told_whoever_else_runs() -> None:
    tide = Tide(0)
    assert look(tide, 1, 2, newest=2) == [1, 2]
    assert (tide.position, tide.pending) == (2, False)
    assert look(tide, *range(3, 11), newest=10) == [3, 4, 5, 6, 7]
    assert tide.pending
    assert look(tide, *range(3, 11), newest=10) == [8, 9, 10]


def test_what_comes_late_is_waited_for() -> None:
    tide = Tide(0)
    assert look(tide, 1, 3, 4, newest=4) == [1]
    assert look(tide, 1, 2, 3, 4, newest=4) == [2, 3, 4]
    assert (tide.position, tide.pending) == (4, False)


def test_what_never_comes_is_passed_when_all_before_the_mark_have_ended() -> None:
    tide = Tide(0)
    assert look(tide, 2, newest=2) == []  # the first look takes no number
    assert tide.wants_mark
    assert look(tide, 2, newest=2, ended=50, mark=60) == []
    assert not tide.wants_mark  # one is enough
    assert look(tide, 2, 4, newest=4, ended=59) == []
    assert look(tide, 2, 4, newest=4, ended=60) == [2]  # 3 may be younger than the mark
    assert look(tide, 4, newest=4, ended=99, mark=70) == [4]
    assert (tide.position, tide.pending) == (4, False)


def test_a_gap_at_the_end_is_passed_too() -> None:
    tide = Tide(0)
    assert look(tide, 1, newest=3) == [1]
    assert look(tide, newest=3, ended=9, mark=9) == []
    assert (tide.position, tide.pending) == (3, False)


def test_a_full_look_does_not_jump_over_what_it_has_not_seen() -> None:
    tide = Tide(0)
    look(tide, 2, newest=12)
    assert look(tide, *range(2, 13), newest=12, ended=9, mark=9) == [2, 3, 4, 5, 6]
    assert look(tide, *range(2, 13), newest=12, ended=9) == [7, 8, 9, 10, 11]
    assert look(tide, *range(2, 13), newest=12, ended=9) == [12]
