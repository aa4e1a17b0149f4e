"""From the text of an expression to a function of its variables, or to the reason why there is none.

Messages are those of the API server: place, line, and a mark under the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusched.cel.checker import check_types
from gpusched.cel.errors import CelError
from gpusched.cel.evaluation import compile_tree
from gpusched.cel.signatures import Type
from gpusched.cel.syntax import CelSyntaxError, parse_expression

FAULTS = (
    CelError, ValueError, TypeError, RuntimeError, KeyError, ArithmeticError, IndexError,
    AttributeError,
)  # fmt: skip
"""What an expression without a value ends in."""
_NO_FUNCTIONS: Final[Mapping[str, Type]] = {}


def compile_expression(
    text: str, variables: Mapping[str, Type], functions: Mapping[str, Type] = _NO_FUNCTIONS
) -> tuple[Callable[[dict[str, Any]], Any] | None, Type, str]:
    """Compile an expression; None and why not when it has no meaning.

    Args:
        text: the expression.
        variables: their types by name.
        functions: results of functions that the environment brings under ``ADDED_FUNCTIONS``.

    Returns:
        A function of the variables' values, the type of what it gives, and the complaint.
    """
    try:
        tree = parse_expression(text)
    except CelSyntaxError as fault:
        return None, "dyn", f"compilation failed: {syntax_error_text(text, fault)}"
    try:
        result, issues = check_types(tree, variables, functions)
        run = compile_tree(tree) if not issues else None
    except RecursionError:
        return None, "dyn", "compilation failed: expression recursion limit exceeded"
    if run is None:
        message = "\n".join(_located(issue.at, issue.text, text) for issue in issues)
        return None, "dyn", f"compilation failed: {message}"
    return run, result, ""


def _located(at: int, text: str, source: str) -> str:
    """An issue with its line and a mark under its place; an empty text has neither."""
    if not source:
        return f"ERROR: <input>:1:1: {text}"
    line = source.count("\n", 0, at) + 1
    start = source.rfind("\n", 0, at) + 1
    column = at - start
    shown = source[start:].split("\n", 1)[0]
    return f"ERROR: <input>:{line}:{column + 1}: {text}\n | {shown}\n | {'.' * column}^"


def syntax_error_text(text: str, fault: CelSyntaxError) -> str:
    """Every issue of a text that is no expression, as the API server prints them."""
    return "\n".join(_located(issue.at, issue.text, text) for issue in fault.issues)


def error_message(fault: Exception) -> str:
    """Why an expression has no value, in the words of the language's own library."""
    if isinstance(fault, TypeError | AttributeError):
        return "no such overload"
    if isinstance(fault, KeyError):
        return f"no such key: {fault.args[0]}"
    return str(fault).split(". ", 1)[0]
