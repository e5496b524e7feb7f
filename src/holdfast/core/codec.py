"""Encode arguments, results and errors as JSON text, and decode them.

Type hints decide how (pydantic). A value that does not fit its hint is refused with an error that names
the field. Any exception can be encoded: the result is printable text of a bounded length.
"""

import inspect
import json
import traceback
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import typing_extensions
from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, SchemaSerializer, SchemaValidator, to_json
from pydantic_core.core_schema import CoreConfig

from holdfast.errors import InvalidArguments, InvalidInput, PayloadTooLarge

MAX_BODY = 1024 * 1024  #: bytes of arguments, and of a result
MAX_ERROR = 16 * 1024  #: characters of error text, and of a traceback

_CONFIG = CoreConfig(
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_inf_nan="constants",  # so that `_bounded` finds and refuses them: null would hide them
)

#: What the serializer raises for a value that JSON does not have.
_UNENCODABLE = (PydanticSerializationError, UnicodeError, RecursionError, ValueError)


class _Shape:
    """The pydantic validator and serializer of a type. Built from the core schema, because a
    TypeAdapter of a TypedDict drops the configuration of bytes."""

    def __init__(self, hint: Any) -> None:
        self.adapter: TypeAdapter[Any] = TypeAdapter(hint)
        self.validator = SchemaValidator(self.adapter.core_schema, _CONFIG)
        self.serializer = SchemaSerializer(self.adapter.core_schema, _CONFIG)


class Arguments:
    """Encodes and decodes the arguments of a handler, by its signature."""

    def __init__(self, name: str, handler: Callable[..., Any], *, skip: int = 0) -> None:
        self.name = name
        self.signature = _signature(name, handler, skip)
        self._shape = _shape(name, handler, self.signature)
        collectors = [
            one.name for one in self.signature.parameters.values() if one.kind is one.VAR_KEYWORD
        ]
        self._collector = "".join(collectors)  #: the name of its `**parameter`, if it has one

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Check the arguments of a call and return the payload. Raises InvalidArguments."""
        what = f"the arguments of task {self.name!r}"
        try:
            bound = self._flatten(args, kwargs) if args or self._collector else kwargs
            data = self._shape.serializer.to_json(self._shape.validator.validate_python(bound))
        except ValidationError as problem:
            raise InvalidArguments(
                f"task {self.name!r} takes {self.signature}: {_describe(problem)}", _fields(problem)
            ) from None
        except TypeError as problem:
            raise InvalidArguments(
                f"task {self.name!r} takes {self.signature}: {problem}"
            ) from None
        except _UNENCODABLE as problem:
            raise _not_json(what, problem) from None
        return _bounded(data, what)

    def decode(self, payload: str) -> dict[str, Any]:
        """Return the handler's keyword arguments from a stored payload. Raises InvalidArguments."""
        try:
            return dict(self._shape.validator.validate_json(payload))
        except ValidationError as problem:
            raise InvalidArguments(
                f"the stored payload does not fit task {self.name!r}: {_describe(problem)}"
            ) from None

    def json_schema(self) -> dict[str, Any]:
        return self._shape.adapter.json_schema()

    def _flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments by name, those of a `**parameter` among the others."""
        bound = dict(self.signature.bind(*args, **kwargs).arguments)
        collected = bound.pop(self._collector, {})
        return {**bound, **collected}


class Result:
    """Encodes and decodes the result of a handler, by its return annotation."""

    def __init__(self, name: str, handler: Callable[..., Any]) -> None:
        self.name = name
        hint = _hints(name, handler).get("return", Any)
        self._shape = _Shape(_adapt(Any if hint in (None, types.NoneType) else hint))

    def encode(self, value: Any) -> str:
        try:
            data = self._shape.serializer.to_json(value, warnings=False)
        except _UNENCODABLE as problem:
            raise InvalidArguments(
                f"the result of task {self.name!r} cannot be written as JSON: {problem}"
            ) from None
        return _bounded(data, f"the result of task {self.name!r}")

    def decode(self, text: str) -> Any:
        return self._shape.validator.validate_json(text)


def encode_json(value: Any, what: str) -> str:
    """Return the JSON text of a value without type hints. Raises InvalidArguments, naming `what`."""
    try:
        data = to_json(value, inf_nan_mode="constants", bytes_mode="base64")
    except _UNENCODABLE as problem:
        raise _not_json(what, problem) from None
    return _bounded(data, what)


def _bounded(data: bytes, what: str) -> str:
    if len(data) > MAX_BODY:
        raise PayloadTooLarge(
            f"{what}: {len(data):,} bytes of JSON, and the limit is {MAX_BODY:,}: store the data "
            "elsewhere and pass its id or path"
        )
    text = data.decode()
    # NaN and Infinity are not JSON, and PostgreSQL refuses them. Only parsing tells them from the same
    # letters in a string.
    if "NaN" in text or "Infinity" in text:
        try:
            json.loads(text, parse_constant=_refuse_constant)
        except ArithmeticError:
            raise InvalidArguments(
                f"{what}: NaN and Infinity cannot be written as JSON: pass None or a string"
            ) from None
    return text


def _refuse_constant(_: str) -> None:
    raise ArithmeticError


def _not_json(what: str, problem: Exception) -> InvalidArguments:
    return InvalidArguments(
        f"{what} cannot be written as JSON ({str(problem)[:200]}): give numbers, strings, booleans, "
        "None, lists and dicts, or annotate the parameter with the type to convert"
    )


#: Instead of pydantic's messages, for errors about an argument itself and not about a part of it.
_MESSAGES = {"missing": "is missing", "extra_forbidden": "there is no such argument"}


def _describe(problem: ValidationError) -> str:
    return "; ".join(f"{field or 'the payload'}: {why}" for field, why in _fields(problem)[:5])


def _fields(problem: ValidationError) -> list[tuple[str, str]]:
    """Return which fields do not fit, and why."""
    found = []
    for error in problem.errors(include_url=False, include_input=False, include_context=False)[:50]:
        ours = _MESSAGES if len(error["loc"]) == 1 else {}
        found.append((".".join(map(str, error["loc"])), ours.get(error["type"], error["msg"])))
    return found


def _signature(name: str, handler: Callable[..., Any], skip: int) -> inspect.Signature:
    signature = inspect.signature(handler)
    parameters = list(signature.parameters.values())[skip:]
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidInput(
                f"task {name!r}: parameter {parameter} cannot be passed by name; a job's arguments "
                "are stored by name, so declare it without '*' or '/'"
            )
    return signature.replace(parameters=parameters)


def _hints(name: str, handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(handler, include_extras=True)
    except NameError as problem:
        raise InvalidInput(
            f"task {name!r}: its type hints cannot be resolved ({problem}); import the names at "
            "module level, outside 'if TYPE_CHECKING'"
        ) from None


def _shape(name: str, handler: Callable[..., Any], signature: inspect.Signature) -> _Shape:
    # A TypedDict, not a model: parameters may have any name ('json', 'copy', 'model_id'), and one
    # with a default may be absent from the payload, so that the code's default of the day applies.
    hints = _hints(name, handler)
    fields: dict[str, Any] = {}
    config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
    for parameter in signature.parameters.values():
        hint = _adapt(hints.get(parameter.name, Any))
        if parameter.kind is parameter.VAR_KEYWORD:
            config["extra"] = "allow"
        elif parameter.default is parameter.empty:
            fields[parameter.name] = typing_extensions.Required[hint]
        else:
            fields[parameter.name] = typing_extensions.NotRequired[hint]
    make: Any = typing_extensions.TypedDict
    shape = make(f"{name} arguments", fields)
    shape.__pydantic_config__ = config
    try:
        return _Shape(shape)
    except Exception as problem:
        raise InvalidInput(
            f"task {name!r}: its type hints cannot be turned into JSON: {problem}"
        ) from problem


def _adapt(hint: Any) -> Any:
    """Return a type hint in which every msgspec Struct is wrapped for pydantic."""
    if isinstance(hint, type) and hasattr(hint, "__struct_fields__"):
        return _struct(hint)
    arguments = typing.get_args(hint)
    if not arguments or typing.get_origin(hint) in (typing.Literal, Annotated):
        return hint
    adapted = tuple(_adapt(argument) for argument in arguments)
    if adapted == arguments:
        return hint
    if isinstance(hint, types.UnionType):
        return typing.Union[adapted]  # noqa: UP007
    return hint.copy_with(adapted) if hasattr(hint, "copy_with") else hint.__origin__[adapted]


def _struct(struct: type) -> Any:
    import msgspec  # the caller's own code has imported it, if it has a Struct

    def validate(value: Any) -> Any:
        return value if isinstance(value, struct) else msgspec.convert(value, struct, strict=False)

    return Annotated[
        struct, PlainValidator(validate), PlainSerializer(msgspec.to_builtins, return_type=Any)
    ]


class ErrorText(NamedTuple):
    error: str  #: "Type: message"
    trace: str


def encode_error(error: BaseException) -> ErrorText:
    """Return the text to store for an exception. Never raises: an exception whose own methods fail must
    be recorded, too."""
    return ErrorText(_total(_headline, error), _total(_traceback, error))


def _total(render: Callable[[BaseException], str], error: BaseException) -> str:
    try:
        return clean(render(error), MAX_ERROR)
    except BaseException:
        return "an error that cannot be shown"


def _headline(error: BaseException) -> str:
    name = type(error).__name__
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be shown)"
    return f"{name}: {message[:MAX_ERROR]}" if message else name


def _traceback(error: BaseException) -> str:
    try:
        summary = traceback.TracebackException.from_exception(
            error, limit=-100, max_group_width=5, max_group_depth=3
        )
        lines = list(summary.format())
    except BaseException:
        return _headline(error)
    text = "".join(line[:MAX_ERROR] for line in lines)
    half = MAX_ERROR // 2 - 20
    # The beginning names the entry point and the end the failure; the middle is cut.
    return text if len(text) <= MAX_ERROR else f"{text[:half]}\n... cut ...\n{text[-half:]}"


def clean(text: str, limit: int) -> str:
    """Return a text that both databases store: without NUL and lone surrogates, at most `limit`
    long."""
    text = str.encode(text[:limit], "utf-8", "backslashreplace").decode()
    text = text.replace("\x00", "\\x00")
    return text if len(text) <= limit else text[: limit - 1] + "…"
