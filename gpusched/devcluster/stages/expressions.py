"""jq and CEL over one object, with the quirks that decide which Stage KWOK picks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import purejq

from gpusched.cel.compilation import FAULTS, compile_expression
from gpusched.cel.evaluation import ADDED_FUNCTIONS, Env, Run
from gpusched.devcluster.stages.model import StageExpression
from gpusched.devcluster.stages.read_cache import (
    ReadCache,
    TrackedView,
    is_pure,
    jq_value,
    without_views,
)
from gpusched.devcluster.stages.typed_objects import is_typed

_NO_DATA: Final = (purejq.JqError, ArithmeticError, ValueError, TypeError, RecursionError)
"""How jq programs end on objects they do not fit; the package lets some of Python's own through."""


@functools.cache
def compile_jq(text: str) -> purejq.Program:
    """A jq program, once for each text. Raises purejq.JqParseError."""
    program: purejq.Program = purejq.compile(text)  # type: ignore[no-untyped-call]
    return program


_CEL_FUNCTIONS: Final = {
    "Now": "timestamp", "UnixSecond": "double", "SinceSecond": "double", "Rand": "double",
}  # fmt: skip
"""Functions that KWOK adds to CEL, with the types of their results."""


@functools.cache
def compile_cel(text: str) -> Run:
    """Compile a CEL expression, once for each text.

    Raises:
        ValueError: it is none, or names what no object and no function of KWOK is.
    """
    run, _, why = compile_expression(text, {"self": "dyn"}, _CEL_FUNCTIONS)
    if run is None:
        raise ValueError(why)
    return run


@functools.cache
def _outputs(text: str, *, typed: bool) -> ReadCache[list[Any]]:
    """The outputs of a jq program over objects, remembered by what it reads of them."""
    program = compile_jq(text)

    def run(obj: dict[str, Any]) -> list[Any]:
        found: list[Any] = without_views(_evaluated(program, obj))
        return found

    return ReadCache(run, typed=typed)


def _evaluated(program: purejq.Program, obj: dict[str, Any]) -> list[Any]:
    try:
        found: list[Any] = program.all(obj)  # type: ignore[no-untyped-call]
    except _NO_DATA:
        return []
    return [item for item in found if item is not None]


class ExpressionInput:
    """One object with the forms that expressions need, each made at most once.

    Args:
        obj: the decoded object, never changed here; or a view of one, which notes what is read.
        now: seconds since the Unix epoch, for CEL's ``Now()``.
        rand: gives a number in [0, 1), for CEL's ``Rand()``.
    """

    def __init__(
        self, obj: dict[str, Any], *, now: float, rand: Callable[[], float] | None = None
    ) -> None:
        self.obj = obj
        self.now = now
        self._rand = rand
        self._found: dict[str, list[Any]] = {}  # stages of one kind ask the same again and again
        self._cel_env: Env | None = None

    def jq(self, text: str) -> list[Any]:
        """The outputs that are not null; none at all when jq fails on this object."""
        found = self._found.get(text)
        if found is None:
            found = self._found[text] = self._evaluate(text)
        return found

    def _evaluate(self, text: str) -> list[Any]:
        if isinstance(self.obj, TrackedView):
            return _evaluated(compile_jq(text), self.obj)
        typed = is_typed(self.obj.get("apiVersion", ""), self.obj.get("kind", ""))
        if is_pure(text):
            return _outputs(text, typed=typed).answer_for(self.obj)
        return _evaluated(compile_jq(text), jq_value(self.obj, typed=typed))

    def cel(self, text: str) -> tuple[Any, bool]:
        """Value and True, or None and False when CEL fails on this object."""
        if self._cel_env is None:
            functions = {
                "Now": lambda: datetime.fromtimestamp(self.now, UTC),
                "UnixSecond": lambda moment: moment.timestamp(),
                "SinceSecond": lambda moment: self.now - moment.timestamp(),
                **({"Rand": self._rand} if self._rand else {}),
            }
            self._cel_env = {"self": self._for_cel(), ADDED_FUNCTIONS: functions}
        try:
            return compile_cel(text)(self._cel_env), True
        except (*FAULTS, RecursionError):
            return None, False

    def _for_cel(self) -> dict[str, Any]:
        if not is_typed(self.obj.get("apiVersion", ""), self.obj.get("kind", "")):
            return self.obj
        return {key: item for key, item in self.obj.items() if key not in {"apiVersion", "kind"}}

    def first(self, expression: StageExpression) -> Any:
        """The first output of an expression, None when it has none."""
        if expression.language == "cel":
            return self.cel(expression.text)[0]
        outputs = self.jq(expression.text)
        return outputs[0] if outputs else None
