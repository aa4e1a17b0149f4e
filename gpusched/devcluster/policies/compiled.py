"""A policy ready to run: its expressions compiled once, in the order in which they run."""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.devcluster.cel.signatures import Type
from gpusched.devcluster.policies.expressions import Expression, compile_one, variable_types

Obj = dict[str, Any]

TRUTH: Final = ("bool",)
TEXT: Final = ("string",)
NOTE: Final = ("string", "null_type")


@attrs.frozen
class Validation:
    """One thing that must be true, and what is said when it is not."""

    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str


@attrs.frozen
class Policy:
    """A compiled ValidatingAdmissionPolicy.

    Attributes:
        lenient: whether what cannot be evaluated is let through (``failurePolicy: Ignore``).
        conditions: all must hold, else the policy has nothing to say.
        notes: for the audit log, by key; this server keeps none, so only their faults count.
    """

    name: str
    spec: Obj
    lenient: bool
    conditions: tuple[Expression, ...]
    variables: dict[str, Expression]
    validations: tuple[Validation, ...]
    notes: tuple[tuple[str, Expression], ...]


def compile_policy(obj: Obj) -> Policy:
    """Compile a stored policy; expressions without meaning keep their fault."""
    spec: Obj = obj["spec"]
    params = bool(spec.get("paramKind"))
    plain = variable_types(params=params, authorizer=True, variables=None)
    variables = compiled_variables(spec)
    types: dict[str, Type] | None = {name: e.type for name, e in variables.items()} or None
    known = variable_types(params=params, authorizer=True, variables=types)
    said = variable_types(params=params, authorizer=False, variables=types)
    return Policy(
        name=obj["metadata"]["name"],
        spec=spec,
        lenient=spec.get("failurePolicy") == "Ignore",
        conditions=tuple(
            compile_one(c["expression"], plain, TRUTH) for c in spec.get("matchConditions") or ()
        ),
        variables=variables,
        validations=tuple(
            _validation(v, known, said=said) for v in spec.get("validations") or ()
        ),
        notes=tuple(
            (n["key"], compile_one(n["valueExpression"], known, NOTE))
            for n in spec.get("auditAnnotations") or ()
        ),
    )  # fmt: skip


def compiled_variables(spec: Obj) -> dict[str, Expression]:
    """Compile a policy's variables, each of which knows those before it."""
    found: dict[str, Expression] = {}
    for raw in spec.get("variables") or ():
        known = variable_types(
            params=bool(spec.get("paramKind")),
            authorizer=True,
            variables={name: e.type for name, e in found.items()},
        )
        found[raw["name"]] = compile_one(raw["expression"], known, ())
    return found


def _validation(raw: Obj, known: dict[str, Type], *, said: dict[str, Type]) -> Validation:
    message = raw.get("messageExpression")
    return Validation(
        expression=compile_one(raw["expression"], known, TRUTH),
        message=(raw.get("message") or "").strip(),
        message_expression=compile_one(message, said, TEXT) if message else None,
        reason=raw.get("reason") or "Invalid",
    )
