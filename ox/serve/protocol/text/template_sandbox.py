"""The environment in which chat templates run: Jinja's immutable sandbox, with less of everything, and a budget.

Jinja's sandbox keeps a template away from Python's internals. It does not bound time and memory: `'a' * 10 ** 10`, two
nested loops, or a filter with a large width would stop the server. So operators that multiply are checked before they
run, loops and macros count their passes, and only those filters and methods exist that chat templates use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

from ox.serve.protocol.text.render_budget import BudgetError, Changeable, RenderBudget

if TYPE_CHECKING:
    from jinja2 import Template

NAME = "chat template"  # in tracebacks
MAX_SOURCE = 256 << 10  # characters of a template
FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length",
    "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "select", "selectattr", "sort",
    "string", "title", "trim", "unique", "upper",
)  # fmt: skip
METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        ("capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit", "islower", "isspace",
         "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
         "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper")
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}  # fmt: skip
DATE = re.compile(r"(?:%[A-Za-z%]|[^%]){0,64}")  # a format of strftime without widths
BUDGET: ContextVar[RenderBudget] = ContextVar("budget")


class TemplateError(Exception):
    """A template refuses what it was given, by `raise_exception`."""


def compile_template(source: str) -> Template:
    """A template that counts what it does; render it with `BUDGET` set.

    Raises:
        jinja2.TemplateSyntaxError: the source is wrong.
        BudgetError: it is too long.
    """
    from jinja2 import Template

    if len(source) > MAX_SOURCE:
        raise BudgetError(f"a source of more than {MAX_SOURCE:,} characters")
    environment = _environment()
    tree = _counting(environment.parse(source, NAME, NAME), environment)
    code = environment.compile(tree, NAME, NAME)
    return Template.from_code(environment, code, environment.globals)


def _counting(tree: Any, environment: Any) -> Any:
    """The template with loops and macros that count their passes, and with calls that count what ``~``, ``[]``, ``()``
    and ``{}`` make."""
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    def call(name: str, arguments: list[Any], line: int) -> Any:
        # A template cannot give another meaning to an attribute of its environment.
        made = nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)
        return made.set_lineno(line, override=True).set_environment(environment)

    class Counted(NodeTransformer):
        def visit_Concat(self, node: Any) -> Any:
            self.generic_visit(node)
            return call("concatenate", node.nodes, node.lineno)

        def visit_List(self, node: Any) -> Any:
            self.generic_visit(node)
            return call("counted", [node], node.lineno)

        def visit_Tuple(self, node: Any) -> Any:
            self.generic_visit(node)
            return call("counted", [node], node.lineno) if node.ctx == "load" else node

        visit_Dict = visit_List

    tree = Counted().visit(tree)
    for owner in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
        text = sum(len(data.data) for data in owner.find_all(nodes.TemplateData))
        count = nodes.ExprStmt(call("count_pass", [nodes.Const(text)], owner.lineno))
        owner.body.insert(0, count.set_lineno(owner.lineno).set_environment(environment))
    return tree


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class GenerationTag(Extension):
        """``{% generation %}``, which Hugging Face's templates put around the texts of the assistant."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class BoundedNamespace(Namespace, Changeable):
        """A namespace without other ones in it, whose text would have no bound."""

        def __init__(self, /, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            for name, value in dict(*args, **kwargs).items():
                self[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if isinstance(value, Changeable):
                raise BudgetError("a namespace inside of another value")
            super().__setitem__(name, value)

        def __repr__(self) -> str:
            return "<namespace>"

    class Environment(ImmutableSandboxedEnvironment):
        """See the module."""

        intercepted_binops = frozenset(("+", "*", "**", "%"))

        def count_pass(self, size: int) -> str:
            BUDGET.get().step(size)
            return ""

        def counted(self, value: Any) -> Any:
            return value  # which `call` counts

        def concatenate(self, *values: Any) -> str:
            texts = [str(value) for value in values]
            BUDGET.get().step(sum(map(len, texts)))
            return "".join(texts)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            budget = BUDGET.get()
            if operator == "*":
                budget.check_multiply(left, right)
            elif operator == "**":
                budget.check_bits(left, right, power=True)
            elif operator == "%" and isinstance(left, str):
                raise BudgetError("% formats a text")  # with a width of any size
            return budget.spend(super().call_binop(context, operator, left, right))

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            names = next((names for kind, names in METHODS.items() if isinstance(obj, kind)), None)
            return super().is_safe_attribute(obj, attr, value) and (names is None or attr in names)

        def wrap_str_format(self, value: Any) -> None:
            """`str.format` can make a text of any length: it is not among the methods."""

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
            budget, owner = BUDGET.get(), getattr(__obj, "__self__", None)
            if isinstance(owner, str):
                name = getattr(__obj, "__name__", "")
                if name == "replace":
                    _check_replace(owner, *args)
                elif name == "join":
                    args = (_checked_parts(owner, *args),)
            return budget.spend(super().call(__context, __obj, *args, **kwargs))

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, autoescape=False, finalize=_finalize,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )  # fmt: skip
    environment.filters = {name: _metered(environment.filters[name]) for name in FILTERS}
    own: dict[str, Callable[..., Any]] = {
        "indent": _indent, "join": _join, "replace": _replace, "safe": str, "tojson": _tojson,
    }  # fmt: skip
    environment.filters |= {name: _metered(function) for name, function in own.items()}
    known = {name: environment.globals[name] for name in ("dict", "range")} | {"namespace": BoundedNamespace}
    environment.globals = known | {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


def _metered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts what it makes."""

    @wraps(function)  # keeps Jinja's marks of what a filter is given
    def counted(*args: Any, **kwargs: Any) -> Any:
        budget = BUDGET.get()
        budget.step()
        return budget.spend(function(*args, **kwargs))

    return counted


def _finalize(value: Any) -> Any:
    if isinstance(value, str):
        return BUDGET.get().spend(value)
    if isinstance(value, list | tuple | dict):
        return BUDGET.get().spend(str(value))
    return value


def _checked_parts(separator: str, values: Iterable[Any]) -> list[str]:
    parts = [str(value) for value in values]
    BUDGET.get().step(sum(map(len, parts)) + len(separator) * len(parts))
    return parts


def _check_replace(text: str, old: str, new: str, count: int = -1) -> None:
    if isinstance(old, str) and isinstance(new, str):
        places = text.count(old) if count is None or count < 0 else min(count, text.count(old))
        BUDGET.get().step(len(text) + places * len(new))


def _join(values: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        values = [value.get(attribute, "") if isinstance(value, dict) else "" for value in values]
    return separator.join(_checked_parts(separator, values))


def _replace(text: Any, old: str, new: str, count: int | None = None) -> str:
    plain, most = str(text), -1 if count is None else count
    _check_replace(plain, old, new, most)
    return plain.replace(old, new, most)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    margin = width if isinstance(width, str) else " " * min(width, 1000)
    lines = str(text).splitlines()
    BUDGET.get().step(sum(map(len, lines)) + len(lines) * len(margin))
    kept = [line if (not line and not blank) or (place == 0 and not first) else margin + line
            for place, line in enumerate(lines)]  # fmt: skip
    return "\n".join(kept)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: Any = None, sort_keys: bool = False) -> str:  # fmt: skip
    """As in Hugging Face's templates: plain JSON, without the escapes that HTML would need."""
    if indent is not None and not 0 <= indent <= 16:
        raise BudgetError("an indent of more than 16 characters")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> None:
    raise TemplateError(str(message)[:500])


def _strftime_now(form: str) -> str:
    if not DATE.fullmatch(form):
        raise BudgetError("a format of dates with more than letters after %")
    return datetime.now().strftime(form)
