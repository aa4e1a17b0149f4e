"""Letting mutating policies change a write, one after the other, before it is validated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.cel.evaluation import ADDED_FUNCTIONS, CostMeter
from gpusched.cel.libraries.authorization import Decide
from gpusched.devcluster.apimachinery.json_patch import PatchError, json_patch
from gpusched.devcluster.apiserver.admission.policy_bindings import (
    BoundPolicies,
    BoundPolicy,
    policy_refusal,
    request_environment,
)
from gpusched.devcluster.apiserver.admission.policy_evaluation import Denial, policy_applies
from gpusched.devcluster.apiserver.admission.policy_matching import match_request
from gpusched.devcluster.apiserver.admission_attributes import Attributes
from gpusched.devcluster.apiserver.reading.representations import view_function
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.registry.policy.cel_policies import (
    BINDING_UNITS,
    PATCH_FUNCTIONS,
    BudgetError,
    CompiledPolicy,
    EvaluationError,
    JsonPatchOperation,
    LazyVariables,
)

Obj = dict[str, Any]

_IDENTITY: Final = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
)  # fmt: skip
"""Metadata that the server gives, which no policy may change."""


@frozen
class PolicyMutations:
    """The mutating policies for one write.

    Attributes:
        decide: answers questions about the rights of who asks.
        misfit: why an object does not fit its schema; None when it does.
    """

    core: ServerState
    policies: BoundPolicies
    decide: Decide
    misfit: Callable[[Obj], str | None]

    def apply_all(self, asked: Attributes) -> Obj:
        """Return the object as the policies leave it, which is the one asked about if none has a say.

        Those that ask for it (``IfNeeded``) run once more when a later one has changed the object.

        Raises:
            StatusError: a policy cannot be evaluated, and is not to be ignored then.
        """
        left: list[tuple[BoundPolicy, Obj | None]] = []
        for bound in self.policies.in_force():
            matched, asked = self._apply(bound, asked)
            if matched and bound.policy.spec.get("reinvocationPolicy") == "IfNeeded":
                left.append((bound, asked.obj))
        for bound, obj in left:
            if asked.obj != obj:
                _, asked = self._apply(bound, asked)
        assert asked.obj is not None
        return asked.obj

    def _apply(self, bound: BoundPolicy, asked: Attributes) -> tuple[bool, Attributes]:
        """Whether a policy is about a write, and the write as its bindings leave it."""
        policy = bound.policy
        match = match_request(self.core, policy.spec["matchConstraints"], asked)
        if match is None:
            return False, asked
        for binding, params, fault in self.policies.params_by_binding(bound, asked):
            why = fault
            for param in params:
                env = request_environment(self.core, asked, match=match, decide=self.decide)
                try:
                    changed = self._patched(policy, {**env, "params": param}, seen=match.resource)
                except (EvaluationError, BudgetError) as e:
                    why = why or str(e)
                else:
                    asked = attrs.evolve(asked, obj=changed)
            if why and not policy.lenient:
                kind = "MutatingAdmissionPolicy"
                raise policy_refusal(asked, policy, binding, Denial(why), kind=kind)
        return True, asked

    def _patched(self, policy: CompiledPolicy, env: Obj, *, seen: Resource) -> Obj:
        """Apply all mutations of a policy or none; each sees what those before it have made."""
        before: Obj = env["object"]
        if not policy_applies(policy, env):
            return before
        if view_function(seen) is not None:
            raise EvaluationError(
                "the embedded cluster mutates objects only in the version that it stores"
            )
        obj, budget = before, CostMeter(BINDING_UNITS)
        for mutation in policy.mutations:
            inner = {**env, "object": obj, ADDED_FUNCTIONS: PATCH_FUNCTIONS}
            if policy.variables:
                inner["variables"] = LazyVariables(policy.variables, inner, budget)
            operations = _operations(mutation.evaluate(inner, budget))
            try:
                obj = json_patch(obj, operations)
            except PatchError as fault:
                raise EvaluationError(f"the JSON patch cannot be applied: {fault}") from None
            if why := _changed_identity(before, obj) or self.misfit(obj):
                raise EvaluationError(f"the JSON patch leaves no valid object: {why}")
        return obj


def _operations(value: Any) -> list[Obj]:
    """Return the operations that an expression gave, which must be JSON throughout."""
    if not isinstance(value, list) or not all(isinstance(v, JsonPatchOperation) for v in value):
        raise EvaluationError(
            "a mutation gives a list of JSONPatch, and this one gave another value"
        )
    for operation in value:
        if not _is_json(operation.get("value")):
            raise EvaluationError(
                f"the value for {operation.get('path', 'no path')} is no JSON: make it a string"
            )
    return value


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and "\x00" not in k and _is_json(v) for k, v in value.items())
    if isinstance(value, list):
        return all(_is_json(each) for each in value)
    return value is None or isinstance(value, bool | int | float | str)


def _changed_identity(before: Obj, after: Any) -> str:
    """Which field that is not a policy's to change another one has; empty for none."""
    if not isinstance(after, dict):
        return "it is no object"
    for key in ("apiVersion", "kind"):
        if after.get(key) != before.get(key):
            return f"{key} may not be changed"
    meta = after.get("metadata")
    if not isinstance(meta, dict):
        return "metadata is no object"
    for key in _IDENTITY:
        if meta.get(key) != before["metadata"].get(key):
            return f"metadata.{key} may not be changed"
    return ""
