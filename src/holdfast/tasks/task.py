"""Tasks: registered functions, and how a call of one becomes a job.

A task knows its arguments and its defaults. It does not know the database: its host, the application,
inserts jobs. See also `using.py`: a task with options.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from holdfast.core import validation
from holdfast.core.codec import Arguments, Result
from holdfast.core.ids import new_id
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Job, NewJob
from holdfast.jobs.outcome import Policy
from holdfast.limits.limit import Limit, Rule, make_rule
from holdfast.schedules.next_run import Schedule
from holdfast.tasks.options import Options
from holdfast.tasks.using import BaseTask, Call, Host

P = ParamSpec("P")
R = TypeVar("R")


Kind = Literal["async", "thread", "process"]
Hook = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the jobs of a task are run, and what is done after a run."""

    policy: Policy
    kind: Kind
    takes_context: bool = False
    timeout: float | None = 300.0  #: of one attempt, in seconds; None: no limit
    strict: bool = (
        True  #: stop a run before its worker, cut off from the database, is declared dead
    )
    on_success: Hook | None = None
    on_failure: Hook | None = None
    then: Any = None  #: a task, one with options, or a function of the job and its result
    on_prune: Hook | None = None  #: called with the job before its row is deleted


Then = Callable[[Job, Any], Any]  #: a job and its result: a Call, several, or None


class Task(BaseTask[P], Generic[P, R]):
    """A registered function. A call runs it in the calling thread; `enqueue` makes a job of the
    call."""

    def __init__(
        self,
        name: str,
        handler: Callable[..., R],
        *,
        host: Host,
        defaults: Options,
        conduct: Conduct,
        limits: Sequence[Limit] = (),
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(self, host, Options())
        self.name = validation.name(name, "name")
        self.handler = handler
        self.conduct = conduct
        self.policy = conduct.policy
        self.arguments = Arguments(name, handler, skip=int(conduct.takes_context))
        self.result = Result(name, handler)
        self.defaults = defaults
        defaults.new_job(name, "{}", defaults, new_id())  # raises for defaults that break a rule
        known = list(self.arguments.signature.parameters)
        self.rule: Rule | None = make_rule(name, limits, known, self.arguments.decode)
        self.schedule = schedule  #: the schedule of `@app.task(every=...)` or `cron=`
        self.__doc__ = handler.__doc__
        self.__name__ = getattr(handler, "__name__", name)
        self.__wrapped__ = handler

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.conduct.takes_context:
            return self.handler(self.host.detached(self), *args, **kwargs)
        return self.handler(*args, **kwargs)

    def following(self, job: Job, result: Any) -> list[NewJob]:
        """Return the jobs that `then=` asks for after a run with this result, which is the arguments of
        the next task; if it is None, they are those of `job`."""
        then = self.conduct.then
        if isinstance(then, BaseTask):
            arguments = job.payload if result is None else result
            if not isinstance(arguments, Mapping):
                raise InvalidInput(
                    f"then= of task {self.name!r}: the result {result!r} is no mapping of arguments "
                    "for the next task: return a dict, or give then= a function of the job and the "
                    "result"
                )
            return [then.follow((), arguments, job)]
        asked = None if then is None else then(job, result)
        calls = [] if asked is None else [asked] if isinstance(asked, Call) else list(asked)
        for call in calls:
            if not isinstance(call, Call):
                raise InvalidInput(
                    f"then= of task {self.name!r} returned {call!r}: return task.call(...), several "
                    "of them, or None"
                )
        return [call.follow(job) for call in calls]

    def __repr__(self) -> str:
        return f"<Task {self.name}{self.arguments.signature}>"
