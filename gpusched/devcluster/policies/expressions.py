"""A policy's expressions: which variables they see, and what they are compiled to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from gpusched.devcluster.cel import FAULTS, compile_expression, sentence
from gpusched.devcluster.cel.authorization import AUTHORIZER
from gpusched.devcluster.cel.checker import shown
from gpusched.devcluster.cel.cost import METER, CostExceededError, Meter
from gpusched.devcluster.cel.faults import CelFault
from gpusched.devcluster.cel.signatures import Type

Obj = dict[str, Any]
Env = dict[str, Any]

CALL_UNITS: Final = 1_000_000
"""Most that one expression may cost, as on a real server."""
BINDING_UNITS: Final = 10_000_000
"""Most that all validations of one binding may cost together."""
CONDITION_UNITS: Final = 2_500_000
"""Most that all match conditions of one policy may cost together."""
_TEXTS: Final[Type] = ("list", "string")
_TEXT_MAP: Final[Type] = ("map", "string", "string")


def _record(name: str, fields: Mapping[str, Type]) -> Type:
    return ("record", f"kubernetes.{name}", dict(fields))


_KIND: Final = _record(
    "GroupVersionKind", {"group": "string", "version": "string", "kind": "string"}
)
_RESOURCE: Final = _record(
    "GroupVersionResource", {"group": "string", "version": "string", "resource": "string"}
)
_USER: Final = _record(
    "UserInfo",
    {"username": "string", "uid": "string", "groups": _TEXTS, "extra": ("map", "string", _TEXTS)},
)
_REQUEST: Final = _record(
    "AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": "string",
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": "string",
        "name": "string",
        "namespace": "string",
        "operation": "string",
        "userInfo": _USER,
        "dryRun": "bool",
        "options": "dyn",
    },
)
_CONDITION: Final = _record(
    "NamespaceCondition",
    {
        "status": "string",
        "type": "string",
        "lastTransitionTime": "timestamp",
        "message": "string",
        "reason": "string",
    },
)
_NAMESPACE: Final = _record(
    "Namespace",
    {
        "metadata": _record(
            "NamespaceMetadata",
            {
                "name": "string",
                "generateName": "string",
                "namespace": "string",
                "labels": _TEXT_MAP,
                "annotations": _TEXT_MAP,
                "UID": "string",
                "creationTimestamp": "timestamp",
                "deletionGracePeriodSeconds": "int",
                "deletionTimestamp": "timestamp",
                "generation": "int",
                "resourceVersion": "string",
                "finalizers": _TEXTS,
            },
        ),
        "spec": _record("NamespaceSpec", {"finalizers": _TEXTS}),
        "status": _record(
            "NamespaceStatus", {"conditions": ("list", _CONDITION), "phase": "string"}
        ),
    },
)


def variable_types(
    *, params: bool, authorizer: bool, variables: Mapping[str, Type] | None
) -> dict[str, Type]:
    """Types of what an expression may name.

    Args:
        params: whether the policy has a kind of parameters.
        authorizer: whether rights can be asked about, which messages may not.
        variables: types of the policy's own variables so far; None where there are none.
    """
    known: dict[str, Type] = {
        "object": "dyn",
        "oldObject": "dyn",
        "namespaceObject": _NAMESPACE,
        "request": _REQUEST,
    }
    if params:
        known["params"] = "dyn"
    if authorizer:
        known["authorizer"] = AUTHORIZER
    if variables is not None:
        known["variables"] = _record("variables", variables)
    return known


@attrs.frozen
class Expression:
    """A compiled expression; ``fault`` says why it has none."""

    text: str
    run: Callable[[Env], Any] | None
    type: Type
    fault: str = ""

    def evaluate(self, env: Env, budget: Meter) -> Any:
        """Return its value.

        Raises:
            EvaluationError: it has none; ``str()`` is the sentence for the client.
            BudgetError: the budget of all expressions together is used up.
        """
        if self.run is None:
            raise EvaluationError(f"compilation error: {self.fault}")
        try:
            return self.value(self.run, env, budget)
        except CelFault as fault:
            raise EvaluationError(f"expression '{self.text}' resulted in error: {fault}") from None

    def value(self, run: Callable[[Env], Any], env: Env, budget: Meter) -> Any:
        """Run within what one expression may cost; CelFault says why there is no value."""
        before, meter = env.get(METER) or Meter(CALL_UNITS), Meter(CALL_UNITS)
        env[METER] = meter
        try:
            return run(env)
        except CostExceededError as fault:
            raise CelFault(str(fault)) from None
        except FAULTS as fault:
            raise CelFault(sentence(fault)) from None
        except RecursionError:
            raise CelFault("the value is nested too deeply") from None
        finally:
            env[METER] = before
            _draw(budget, 1 + CALL_UNITS - max(meter.left, 0))


class EvaluationError(Exception):
    """An expression gave no value."""


class BudgetError(Exception):
    """All expressions together cost more than they may."""


def _draw(budget: Meter, units: int) -> None:
    try:
        budget.spend(units)
    except CostExceededError:
        raise BudgetError(
            "validation failed due to running out of cost budget, "
            "no further validation rules will be run"
        ) from None


def compile_one(text: str, known: Mapping[str, Type], wanted: tuple[str, ...]) -> Expression:
    """Compile an expression that must give one of the wanted types; empty for any."""
    run, kind, why = compile_expression(text, known)
    if run is not None and wanted and kind not in wanted:
        told = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
        return Expression(text, None, kind, f"must evaluate to {told} but got {shown(kind)}")
    return Expression(text, run, kind, why)


class LazyVariables(Obj):
    """The policy's variables, each worked out when it is first asked for, within a budget."""

    def __init__(self, expressions: Mapping[str, Expression], env: Env, budget: Meter) -> None:
        super().__init__()
        self._expressions = expressions
        self._env = {**env, "variables": self}
        self._budget = budget

    def __contains__(self, name: object) -> bool:
        return name in self._expressions

    def __getitem__(self, name: str) -> Any:
        if not super().__contains__(name):
            self[name] = self._worked_out(name)
        return super().__getitem__(name)

    def _worked_out(self, name: str) -> Any:
        expression = self._expressions[name]
        if expression.run is None:
            why = expression.fault
            raise CelFault(f'composited variable "{name}" fails to compile: {why}')
        try:
            return expression.value(expression.run, self._env, self._budget)
        except CelFault as fault:
            why = str(fault)
        raise CelFault(f'composited variable "{name}" fails to evaluate: {why}')
