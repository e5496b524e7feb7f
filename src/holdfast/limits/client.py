"""`app.limits`: the limits of tasks and queues, and the numbers that an operator sets."""

from typing import Any

from holdfast.core import validation
from holdfast.engine.records import LimitInfo
from holdfast.engine.steps import Runner, Steps, async_twin, read_step, run_steps, write_step
from holdfast.errors import InvalidInput, UnknownLimit
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.limit import QUEUE, Rate, parse_rate

CAP = 10_000


class Limits:
    """The limits of tasks and queues. The code declares them, and an operator may change them."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    @run_steps
    def list(self) -> Steps[list[LimitInfo]]:
        """Return the limits, with the numbers of jobs that run under each and wait for it."""
        return read_step(lambda: limit_scripts.listing(CAP))

    alist = async_twin(list)

    @run_steps
    def set(
        self, name: str, concurrency: int | None = None, *, rate: str | None = None, tx: Any = None
    ) -> Steps[None]:
        """Use these numbers instead of the code's, from the next claim on. Running jobs go on."""
        most, pace = check_limit(concurrency, rate)
        if most is None and pace is None:
            raise InvalidInput(
                "give a concurrency, a rate, or both; reset() goes back to the code's"
            )
        return self._change(name, most, pace)

    aset = async_twin(set)

    @run_steps
    def reset(self, name: str, *, tx: Any = None) -> Steps[None]:
        """Use the code's numbers again."""
        return self._change(name, None, None)

    areset = async_twin(reset)

    def _change(self, name: str, most: int | None, pace: Rate | None) -> Steps[None]:
        if name.startswith(QUEUE):
            queue = validation.name(name.removeprefix(QUEUE), "queue")
            yield from write_step(
                lambda: limit_scripts.limit_queue(self._dialect, queue, most, pace)
            )
            return
        limits = yield from read_step(lambda: limit_scripts.listing(CAP))
        found = {limit.name: limit for limit in limits}
        known = found.get(name)
        if known is None:
            raise UnknownLimit(
                f"there is no limit named {name!r}; there are {', '.join(sorted(found)) or 'none'}. "
                "A worker makes its limits known when it starts"
            )
        if most is not None and known.concurrency is None:
            raise InvalidInput(
                f"the limit {name!r} has no concurrency in the code: only its rate can be changed"
            )
        yield from write_step(lambda: limit_scripts.change(self._dialect, name, most, pace))

    def forget(self, name: str) -> bool:
        """Delete a limit that the code no longer declares; return False if it does not exist."""
        return self._runner.engine.run(lambda: limit_scripts.forget(name), write=True)


def check_limit(concurrency: int | None, rate: str | None) -> tuple[int | None, Rate | None]:
    """Check the numbers that an operator gives to a limit. Raises InvalidInput."""
    most = (
        None
        if concurrency is None
        else validation.integer(concurrency, "concurrency", 0, 2**31 - 1)
    )
    return most, None if rate is None else parse_rate(rate)
