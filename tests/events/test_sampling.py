from holdfast.core.clock import FakeClock
from holdfast.events.sampling import MOST, Pace
from holdfast.jobs.job import EventKind

DONE, FAILED = EventKind.COMPLETED, EventKind.FAILED


def test_the_budget_is_renewed_in_the_next_second():
    clock = FakeClock()
    pace = Pace(clock.monotonic)
    pace.count(DONE, MOST - 1)
    assert (pace.left(DONE), pace.left(FAILED)) == (1, MOST)
    pace.count(DONE, 3)
    assert pace.left(DONE) == 0
    clock.advance(1)
    assert pace.left(DONE) == MOST


def test_events_of_two_seconds_may_be_one_second_of_a_writer():
    clock = FakeClock()
    pace = Pace(clock.monotonic)
    pace.count(DONE, MOST - 2)
    clock.advance(1)
    pace.count(FAILED)
    assert not pace.is_brisk
    pace.count(DONE)
    assert pace.is_brisk
    clock.advance(1)
    assert not pace.is_brisk
    pace.count(DONE, MOST - 2)
    assert pace.is_brisk
    clock.advance(2)
    assert not pace.is_brisk
