"""Formats of log lines, as text or JSON, and `RunLog`, the logger of a run (`ctx.log`). Both formats
show the fields that RunLog adds to a record."""

import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any

from holdfast.core.codec import clean
from holdfast.errors import InvalidInput

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")
EXTRAS = ("job_id", "task", "attempt")
MAX_LINE = 4000  # characters, of a line that is kept with its job
# C0 without tab and line feed, DEL and C1; and what Unicode has for directions and line ends.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def configure(level: str = "info", format: str = "text") -> None:
    """Log to stderr, instead of to the handlers configured before."""
    if level.lower() not in LEVELS:
        raise InvalidInput(f"log level {level!r}: choose one of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise InvalidInput(f"log format {format!r}: choose one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def escaped(text: str) -> str:
    """Return a text with its control characters escaped: it cannot move a terminal's cursor, colour or
    clear the terminal, set its title, or turn the direction of writing. Line feeds and tabs stay."""
    return _CONTROLS.sub(_escape, text)


def escaped_json(text: str) -> str:
    """Return JSON text for the same value as `text`, without characters that a terminal acts upon."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: vars(record)[name] for name in EXTRAS if name in vars(record)}


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


class Text(logging.Formatter):
    """2030-01-01T12:00:00.000Z INFO holdfast.job: fetched [job_id=... task=fetch attempt=1]"""

    def formatMessage(self, record: logging.LogRecord) -> str:
        head = f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}"
        extras = " ".join(f"{name}={value}" for name, value in _extras(record).items())
        return f"{head} [{extras}]" if extras else head

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


class JsonLines(logging.Formatter):
    """A JSON object on each line: time, level, logger, message, job_id, task, attempt, error, trace."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = "".join(traceback.format_exception_only(record.exc_info[1])).strip()
            line["trace"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return escaped_json(json.dumps(line, ensure_ascii=False, default=str))


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """`ctx.log`: passes each line to `logging`, and from INFO on also to `keep`, which stores it with
    the job."""

    def __init__(
        self, logger: logging.Logger, extra: Mapping[str, object], keep: Callable[[str, str], None]
    ) -> None:
        super().__init__(logger, extra)
        self._keep = keep

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level >= logging.INFO:
            self._keep(level_name(level), line_text(msg, args, kwargs.get("exc_info")))
        kwargs["stacklevel"] = (
            kwargs.get("stacklevel", 1) + 1
        )  # skip this method, so that the record names the caller
        super().log(level, msg, *args, **kwargs)


def level_name(level: int) -> str:
    """Return the name in LEVELS of a level, also for levels that an application adds between them."""
    return LEVELS[min(max(level // 10, 1), len(LEVELS)) - 1]


def line_text(msg: object, args: tuple[Any, ...], exc_info: Any = None) -> str:
    """Return the message and its traceback, cut to a bounded length. Never raises: a line of the log
    must not fail the run."""
    try:
        text = logging.LogRecord("", 0, "", 0, msg, args, None).getMessage()
        error = sys.exception() if exc_info is True else exc_info
        error = error[1] if isinstance(error, tuple) else error
        if isinstance(error, BaseException):
            text += "\n" + "".join(traceback.format_exception(error)).rstrip()
    except Exception as problem:
        pattern = msg if isinstance(msg, str) else type(msg).__name__
        text = f"{pattern} (this line cannot be formatted: {type(problem).__name__})"
    return clean(text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…", MAX_LINE)
