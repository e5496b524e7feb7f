"""What the command's processes log: lines of text for people, or of JSON for machines.

Records may carry what a job's own logger adds (`ctx.log`): both forms show it.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

from holdfast.errors import InvalidInput

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")
EXTRAS = ("job_id", "task", "attempt")


def configure(level: str = "info", format: str = "text") -> None:
    """Log to stderr. Replaces what was configured before, so that a repeated call is harmless."""
    if level.lower() not in LEVELS:
        raise InvalidInput(f"log level {level!r}: choose one of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise InvalidInput(f"log format {format!r}: choose one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: vars(record)[name] for name in EXTRAS if name in vars(record)}


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


class Text(logging.Formatter):
    """2030-01-01T12:00:00.000Z INFO holdfast.job: fetched [job_id=... task=fetch attempt=1]"""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}"
        extras = " ".join(f"{name}={value}" for name, value in _extras(record).items())
        lines = [f"{head} [{extras}]" if extras else head]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        if record.stack_info:
            lines.append(self.formatStack(record.stack_info))
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, and job_id, task, attempt, error, trace."""

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
        return json.dumps(line, ensure_ascii=False, default=str)
