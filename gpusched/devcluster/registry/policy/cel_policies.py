"""An admission policy compiled: its variables and their types, its expressions in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.cel.checker import type_text
from gpusched.cel.compilation import FAULTS, compile_expression, error_message
from gpusched.cel.errors import CelError
from gpusched.cel.evaluation import METER, CostExceededError, CostMeter
from gpusched.cel.libraries.authorization import AUTHORIZER
from gpusched.cel.signatures import Type
from gpusched.cel.syntax import CONSTRUCTOR

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


@frozen
class PolicyExpression:
    """A compiled expression; ``fault`` says why it has none."""

    text: str
    run: Callable[[Env], Any] | None
    type: Type
    fault: str = ""

    def evaluate(self, env: Env, budget: CostMeter) -> Any:
        """Return its value.

        Raises:
            EvaluationError: it has none; ``str()`` is the sentence for the client.
            BudgetError: the budget of all expressions together is used up.
        """
        if self.run is None:
            raise EvaluationError(f"compilation error: {self.fault}")
        try:
            return self.value(self.run, env, budget)
        except CelError as fault:
            raise EvaluationError(f"expression '{self.text}' resulted in error: {fault}") from None

    def value(self, run: Callable[[Env], Any], env: Env, budget: CostMeter) -> Any:
        """Run within what one expression may cost; CelError says why there is no value."""
        before, meter = env.get(METER) or CostMeter(CALL_UNITS), CostMeter(CALL_UNITS)
        env[METER] = meter
        try:
            return run(env)
        except CostExceededError as fault:
            raise CelError(str(fault)) from None
        except FAULTS as fault:
            raise CelError(error_message(fault)) from None
        except RecursionError:
            raise CelError("the value is nested too deeply") from None
        finally:
            env[METER] = before
            _draw(budget, 1 + CALL_UNITS - max(meter.left, 0))


class EvaluationError(Exception):
    """An expression gave no value."""


class BudgetError(Exception):
    """All expressions together cost more than they may."""


def _draw(budget: CostMeter, units: int) -> None:
    try:
        budget.spend(units)
    except CostExceededError:
        raise BudgetError(
            "validation failed due to running out of cost budget, "
            "no further validation rules will be run"
        ) from None


def compile_expression_of_policy(
    text: str, known: Mapping[str, Type], wanted: tuple[str, ...]
) -> PolicyExpression:
    """Compile an expression that must give one of the wanted types; empty for any."""
    run, kind, why = compile_expression(text, known)
    if run is not None and wanted and kind not in wanted:
        types = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
        return PolicyExpression(
            text, None, kind, f"must evaluate to {types} but got {type_text(kind)}"
        )
    return PolicyExpression(text, run, kind, why)


class JsonPatchOperation(Obj):
    """A message JSONPatch of an expression: one operation of a JSON patch."""


_PATCH_TYPE: Final[Type] = (
    "record",
    "JSONPatch",
    {"op": "string", "path": "string", "from": "string", "value": "dyn"},
)
_PATCHES: Final[Type] = ("list", _PATCH_TYPE)
_PATCH_CONSTRUCTOR: Final = f"JSONPatch{CONSTRUCTOR}"
PATCH_FUNCTIONS: Final = {_PATCH_CONSTRUCTOR: JsonPatchOperation}
"""What the environment of a mutation brings beside its variables."""


def compile_mutation(text: str, known: Mapping[str, Type]) -> PolicyExpression:
    """Compile an expression that must give a list of JSONPatch, which shows when it runs at last."""
    run, kind, why = compile_expression(text, known, {_PATCH_CONSTRUCTOR: _PATCH_TYPE})
    if run is not None and kind not in (_PATCHES, ("list", "dyn"), "dyn"):
        why = f"must evaluate to {type_text(_PATCHES)} but got {type_text(kind)}"
        return PolicyExpression(text, None, kind, why)
    return PolicyExpression(text, run, kind, why)


class LazyVariables(Obj):
    """The policy's variables, each worked out when it is first asked for, within a budget."""

    def __init__(
        self, expressions: Mapping[str, PolicyExpression], env: Env, budget: CostMeter
    ) -> None:
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
            raise CelError(f'composited variable "{name}" fails to compile: {why}')
        try:
            return expression.value(expression.run, self._env, self._budget)
        except CelError as fault:
            why = str(fault)
        raise CelError(f'composited variable "{name}" fails to evaluate: {why}')


TRUTH: Final = ("bool",)
TEXT: Final = ("string",)
NOTE: Final = ("string", "null_type")


@frozen
class Validation:
    """One thing that must be true, and what is said when it is not."""

    expression: PolicyExpression
    message: str
    message_expression: PolicyExpression | None
    reason: str


@frozen
class CompiledPolicy:
    """A compiled ValidatingAdmissionPolicy or MutatingAdmissionPolicy.

    Attributes:
        lenient: whether what cannot be evaluated is let through (``failurePolicy: Ignore``).
        conditions: all must hold, else the policy has nothing to say.
        notes: for the audit log, by key; this server keeps none, so only their faults count.
        mutations: of a mutating policy, which has no validations and notes.
    """

    name: str
    spec: Obj
    lenient: bool
    conditions: tuple[PolicyExpression, ...]
    variables: dict[str, PolicyExpression]
    validations: tuple[Validation, ...]
    notes: tuple[tuple[str, PolicyExpression], ...]
    mutations: tuple[PolicyExpression, ...] = ()


def compile_policy(obj: Obj) -> CompiledPolicy:
    """Compile a stored policy; expressions without meaning keep their fault."""
    spec: Obj = obj["spec"]
    params = bool(spec.get("paramKind"))
    plain = variable_types(params=params, authorizer=True, variables=None)
    variables = compiled_variables(spec)
    types: dict[str, Type] | None = {name: e.type for name, e in variables.items()} or None
    known = variable_types(params=params, authorizer=True, variables=types)
    said = variable_types(params=params, authorizer=False, variables=types)
    return CompiledPolicy(
        name=obj["metadata"]["name"],
        spec=spec,
        lenient=spec.get("failurePolicy") == "Ignore",
        conditions=tuple(
            compile_expression_of_policy(c["expression"], plain, TRUTH) for c in spec.get("matchConditions") or ()
        ),
        variables=variables,
        validations=tuple(
            _validation(v, known, said=said) for v in spec.get("validations") or ()
        ),
        notes=tuple(
            (n["key"], compile_expression_of_policy(n["valueExpression"], known, NOTE))
            for n in spec.get("auditAnnotations") or ()
        ),
        mutations=tuple(
            compile_mutation(m["jsonPatch"]["expression"], known) for m in spec.get("mutations") or ()
        ),
    )  # fmt: skip


def compiled_variables(spec: Obj) -> dict[str, PolicyExpression]:
    """Compile a policy's variables, each of which knows those before it."""
    found: dict[str, PolicyExpression] = {}
    for raw in spec.get("variables") or ():
        known = variable_types(
            params=bool(spec.get("paramKind")),
            authorizer=True,
            variables={name: e.type for name, e in found.items()},
        )
        found[raw["name"]] = compile_expression_of_policy(raw["expression"], known, ())
    return found


def _validation(raw: Obj, known: dict[str, Type], *, said: dict[str, Type]) -> Validation:
    message = raw.get("messageExpression")
    return Validation(
        expression=compile_expression_of_policy(raw["expression"], known, TRUTH),
        message=(raw.get("message") or "").strip(),
        message_expression=compile_expression_of_policy(message, said, TEXT) if message else None,
        reason=raw.get("reason") or "Invalid",
    )
