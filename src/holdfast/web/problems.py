"""Errors as problem+json (RFC 9457): each names the thing, the rule and the remedy."""

import http
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.web.replies import Json

logger = logging.getLogger("holdfast.web")

_STATUS: Sequence[tuple[type[HoldfastError], int]] = (
    (errors.PayloadTooLarge, 413),
    (errors.UnknownLimit, 404),  # before its base class
    (errors.InvalidInput, 422),
    (errors.JobNotFound, 404),
    (errors.UnknownTask, 404),
    (errors.InvalidTransition, 409),
    (errors.KeyConflict, 409),
    (errors.DatabaseError, 503),
    (errors.AppClosed, 503),
)


class FieldError(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """The error, and its remedy."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []


class Refusal(HTTPException):
    """Ends a request with a problem. (FastAPI takes any other exception while it reads a body for a
    malformed body.)"""


def problem(
    status: int,
    detail: str,
    fields: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": list(fields),
    }
    return Json(body, status_code=status, headers=headers, media_type="application/problem+json")


def status_of(error: HoldfastError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


async def _refused(request: Request, error: Any) -> Response:
    return problem(error.status_code, error.detail, headers=error.headers)


async def _ours(request: Request, error: Any) -> Response:
    status = status_of(error)
    if status >= 500:
        logger.error("%s %s: %s", request.method, request.url.path, error)
    headers = {"Retry-After": "2"} if status == 503 else None
    misfits = error.fields if isinstance(error, errors.InvalidArguments) else ()
    fields = [
        {"field": f"body.payload.{field}".rstrip("."), "message": _plain(why)}
        for field, why in misfits
    ]
    return problem(status, _plain(str(error)), fields, headers)


async def _invalid(request: Request, error: Any) -> Response:
    found = [
        {"field": ".".join(map(str, one["loc"])), "message": _plain(one["msg"])}
        for one in error.errors()[:50]
    ]
    first = found[0] if found else {"field": "body", "message": "cannot be read"}
    return problem(422, f"{first['field']}: {first['message']}", found)


async def _http(request: Request, error: Any) -> Response:
    detail = {
        400: "the body cannot be read: send JSON in UTF-8 that is not nested by the thousand",
        404: f"there is nothing at {_plain(request.url.path)}",
        405: f"{request.method} is not what can be done here",
    }.get(error.status_code, str(error.detail))
    return problem(error.status_code, detail, headers=error.headers)


#: Answers every expected error with a problem. For unexpected errors, see `RequestGuard`.
HANDLERS: dict[int | type[Exception], Any] = {
    Refusal: _refused,
    HoldfastError: _ours,
    RequestValidationError: _invalid,
    HTTPException: _http,
}


def unexpected(method: str, path: str, error: Exception) -> Response:
    """Log an unexpected error, and return a problem that does not reveal it."""
    logger.error("%s %s failed", method, path, exc_info=error)
    return problem(500, "something unexpected went wrong; the server's log has the reason")


def _plain(text: str) -> str:
    return text[:2000]
