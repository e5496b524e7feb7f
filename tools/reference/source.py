"""Reads the source of a class or a function: its parameters, fields and methods, with the comments that
begin with `#:` and describe them."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_COMMENT = re.compile(r"#: ?(.*?)\s*(?:# noqa.*)?$")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Field:
    """A parameter, an attribute, a member of an enumeration."""

    name: str
    type: str = ""
    default: str | None = None  #: None: it must be given
    words: str = ""


@dataclass(frozen=True)
class Method:
    name: str
    signature: str  #: without the name and `self`
    words: str
    fields: list[Field]
    is_property: bool = False
    is_async: bool = False
    returns: str = ""


@dataclass
class Source:
    """The source of a class or a function."""

    node: ast.ClassDef | Function
    lines: list[str] = field(repr=False)

    @property
    def words(self) -> str:
        return ast.get_docstring(self.node) or ""

    def comment(self, first: int, last: int | None = None) -> str:
        for line in self.lines[first - 1 : last or first]:
            if match := _COMMENT.search(line):
                return match[1]
        return ""

    def fields(self) -> Iterator[Field]:
        """Yield the fields that a class declares in its body."""
        for node in self.node.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                    words = self.comment(node.lineno, node.end_lineno)
                    yield Field(name, typed(node.annotation), default_of(node.value), words)
                case ast.Assign(targets=[ast.Name(id=name)]) if (
                    not name.startswith("_") and twin_of(node) is None
                ):
                    words = self.comment(node.lineno, node.end_lineno)
                    yield Field(name, "", text(node.value), words)

    def methods(self) -> Iterator[Method]:
        for node in self.node.body:
            if isinstance(node, ast.Assign) and (name := twin_of(node)) is not None:
                yield Method(name, signature="", words="", fields=[], is_async=True)
            if not isinstance(node, Function) or node.name.startswith("_"):
                continue
            if not any(text(one) == "overload" for one in node.decorator_list):
                yield self.method(node)

    def find(self, name: str, *, overload: bool = False) -> Function | None:
        """Return a method; with `overload`, the overload of it that has keyword parameters."""
        for node in self.node.body:
            if isinstance(node, Function) and node.name == name:
                overloaded = any(text(one) == "overload" for one in node.decorator_list)
                if overloaded == overload and (not overload or node.args.kwonlyargs):
                    return node
        return None

    def method(self, node: Function, *, bound: bool = True) -> Method:
        kinds = {text(one) for one in node.decorator_list}
        return Method(
            name=node.name,
            signature=signature(node, bound=bound),
            words=ast.get_docstring(node) or "",
            fields=list(self.parameters(node, bound=bound)),
            is_property="property" in kinds,
            is_async=isinstance(node, ast.AsyncFunctionDef),
            returns=typed(node.returns),
        )

    def parameters(self, node: Function, *, bound: bool = True) -> Iterator[Field]:
        args = node.args
        plain = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
        named = zip(args.kwonlyargs, args.kw_defaults, strict=True)
        for arg, value in [*zip(plain, defaults, strict=True), *named]:
            if not (bound and arg.arg == "self"):
                words = self.comment(arg.lineno)
                yield Field(arg.arg, typed(arg.annotation), default_of(value), words)


def twin_of(node: ast.Assign) -> str | None:
    """The name of a method that is only the async twin of another: `aget = async_twin(get)`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(ast.Name("async_twin"))):
            return name
    return None


def source_of(thing: Any) -> Source:
    lines = textwrap.dedent(inspect.getsource(thing)).splitlines()
    [node] = ast.parse("\n".join(lines)).body
    assert isinstance(node, ast.ClassDef | Function)
    return Source(node, lines)


def text(node: ast.AST) -> str:
    """Return the code of a node, with double quotes."""
    written = ast.unparse(node)
    return written if '"' in written else written.replace("'", '"')


def typed(node: ast.expr | None) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value  # an annotation in quotes
    if isinstance(node, ast.Subscript) and text(node.value) == "Steps":
        return typed(node.slice)  # what a caller of the method gets
    return text(node).replace("Unset | ", "")  # how we spell "not given"


def default_of(node: ast.expr | None) -> str | None:
    """Return a default as code; of a dataclass's `field(...)`, the value."""
    if isinstance(node, ast.Call) and text(node.func) == "field":
        for keyword in node.keywords:
            if keyword.arg == "default":
                return text(keyword.value)
            if keyword.arg == "default_factory":
                return {"dict": "{}", "list": "[]"}.get(text(keyword.value), "")
    return None if node is None else "..." if text(node) == "UNSET" else text(node)


def signature(node: Function, *, bound: bool = True) -> str:
    """Return the signature on one line if it fits, else with one parameter on each line."""
    args = node.args
    parts = [_part(args, at, arg) for at, arg in enumerate([*args.posonlyargs, *args.args])]
    if args.posonlyargs:
        parts.insert(len(args.posonlyargs), "/")
    if bound and parts and parts[0] == "self":
        parts.pop(0)
        if parts and parts[0] == "/":
            parts.pop(0)
    if args.vararg:
        parts.append(f"*{_annotated(args.vararg)}")
    elif args.kwonlyargs:
        parts.append("*")
    for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        parts.append(_annotated(arg) + ("" if value is None else f" = {default_of(value)}"))
    if args.kwarg:
        parts.append(f"**{_annotated(args.kwarg)}")
    returns = f" -> {typed(node.returns)}" if node.returns and typed(node.returns) != "None" else ""
    line = f"({', '.join(parts)}){returns}"
    if len(line) + len(node.name) <= 76:
        return line
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _part(args: ast.arguments, at: int, arg: ast.arg) -> str:
    count = len(args.posonlyargs) + len(args.args)
    place = at - (count - len(args.defaults))
    return _annotated(arg) + ("" if place < 0 else f" = {default_of(args.defaults[place])}")


def _annotated(arg: ast.arg) -> str:
    return arg.arg + (f": {typed(arg.annotation)}" if arg.annotation is not None else "")
