"""The page of states: the table of transitions, from the data that the code uses."""

import inspect
import re

from holdfast.jobs import job
from holdfast.jobs.job import TRANSITIONS, Status
from tools.reference.markdown import code, heading, sentence, table
from tools.reference.source import source_of

_GROUP = re.compile(r"^    # (.*)$")
_VERB = re.compile(r'^    "(\w+)": Transition')

#: When each transition happens.
WORDS = {
    "promote": "its `run_at` has passed",
    "claim": "a worker takes it",
    "rescue": "its worker died: another worker may claim it",
    "prune": "its retention is over",
    "completed": "the handler returned",
    "retry_later": "the handler raised, and attempts are left",
    "snoozed": "the handler raised `Snooze`",
    "failed": "the handler raised, and no attempt is left, or the error is permanent",
    "stopped": "it was cancelled while it ran",
    "released": "its worker shuts down, and gives it back",
    "unreadable": "its worker cannot read the payload, and gives it back",
    "crashed": "its process died while it ran",
    "recurred": "a run of a recurring job ended",
    "park": "its key has no capacity under a limit",
    "unpark": "its key has capacity again",
    "free": "all jobs that it waited for have ended",
    "drop": "a job that it waited for failed, and its policy is to cancel",
    "cancel": "`app.jobs.cancel`",
    "request_cancel": "`app.jobs.cancel` of a running job: it is asked to stop",
    "retry": "`app.jobs.retry`",
    "reopen": "`app.workflows.retry`: it waits again for jobs that run again",
    "postpone": "`app.jobs.edit`: a later time",
    "hasten": "`app.jobs.edit`: a time that has come",
    "debounce": 'a newer request for its key, with `on_conflict="debounce"`',
    "request_rerun": "a newer request for its key: it runs again afterwards",
    "delete": "`app.jobs.delete`",
}


def groups() -> dict[str, str]:
    """Return the group of each transition, from the comments in the table."""
    found, group = {}, ""
    for line in inspect.getsource(job).splitlines():
        if match := _GROUP.match(line):
            group = match[1]
        elif match := _VERB.match(line):
            found[match[1]] = group
    return found


def page() -> str:
    statuses = {one.name: one for one in source_of(Status).fields()}
    described = ([code(one.value), sentence(statuses[one.name].words)] for one in Status)
    return (
        "# States\n\n"
        "`blocked | scheduled | retrying -> pending -> running -> completed | failed | cancelled`\n\n"
        "Every job has one of these statuses:\n"
        + table(("status", "meaning"), described)
        + "`completed`, `failed` and `cancelled` are final: only an operator's `retry` leads out of "
        "them. A recurring job never reaches one; it goes back to `scheduled`.\n"
        + heading(2, "Transitions", "transitions")
        + "There are no others: the SQL, the code and the tests take their lists from this table, and "
        "a transition from another status changes nothing.\n"
        + "".join(_table(group) for group in dict.fromkeys(groups().values()))
    )


def _table(group: str) -> str:
    rows = [
        [
            code(verb),
            ", ".join(code(one.value) for one in Status if one in step.sources),
            code(step.target.value) if step.target else "gone",
            sentence(WORDS[verb]),
        ]
        for verb, step in TRANSITIONS.items()
        if groups()[verb] == group
    ]
    return f"\n**{sentence(group)}**\n" + table(("transition", "from", "to", "when"), rows)
