"""Running one policy on one request: what it decides, by which sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.cel.evaluation import CostMeter
from gpusched.cel.libraries.authorization import (
    AuthorizerVariable,
    Decide,
    ResourceCheck,
)
from gpusched.devcluster.apiserver.admission_attributes import Attributes
from gpusched.devcluster.apiserver.rbac.tokens import user_info
from gpusched.devcluster.registry.policy.cel_policies import (
    BINDING_UNITS,
    CONDITION_UNITS,
    BudgetError,
    CompiledPolicy,
    EvaluationError,
    LazyVariables,
    PolicyExpression,
    Validation,
)

Obj = dict[str, Any]
Env = dict[str, Any]

_MESSAGE_BYTES_MAX: Final = 5 * 1024
_NAMESPACE_META: Final = frozenset(
    {
        "name", "generateName", "namespace", "uid", "resourceVersion", "generation",
        "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels",
        "annotations", "finalizers",
    }
)  # fmt: skip


@frozen
class Denial:
    """What a policy says against a request; ``reason`` is empty for what could not be evaluated."""

    message: str
    reason: str = ""


def request_variables(
    asked: Attributes, *, seen: Any, objects: tuple[Obj | None, Obj | None], decide: Decide
) -> Env:
    """Return the variables that do not depend on a policy.

    Args:
        asked: the request.
        seen: the resource in the version that the policy asked for.
        objects: new and old object in that version.
        decide: answers questions about rights.
    """
    new, old = objects
    requested = ResourceCheck(
        authorizer=AuthorizerVariable(decide),
        group=asked.resource.group,
        resource=asked.resource.plural,
        subresource=asked.subresource,
        namespace=asked.namespace,
        name=asked.name,
    )
    return {
        "object": new,
        "oldObject": old,
        "request": _request(asked, seen),
        "namespaceObject": None,
        "params": None,
        "authorizer": AuthorizerVariable(decide, requested=requested),
    }


def _request(asked: Attributes, seen: Any) -> Obj:
    resource = asked.resource
    group, version, kind = asked.kind
    seen_kind = (
        (group, version, kind)
        if asked.subresource or seen is resource
        else (seen.group, seen.version, seen.kind)
    )
    request: Obj = {
        "uid": "",
        "kind": dict(zip(("group", "version", "kind"), seen_kind, strict=True)),
        "resource": _gvr(seen),
        "requestKind": {"group": group, "version": version, "kind": kind},
        "requestResource": _gvr(resource),
        "operation": asked.operation,
        "userInfo": user_info(asked.user),
        "dryRun": asked.dry_run,
        "options": asked.options,
    }
    for key, value in (
        ("subResource", asked.subresource),
        ("requestSubResource", asked.subresource),
        ("name", asked.name),
        ("namespace", asked.namespace),
    ):
        if value:
            request[key] = value
    return request


def _gvr(resource: Any) -> Obj:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def namespace_view(namespace: Obj) -> Obj:
    """A namespace as policies see it: without owners and records of managers."""
    meta = {k: v for k, v in namespace["metadata"].items() if k in _NAMESPACE_META}
    return {
        "metadata": meta,
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }


def evaluate_policy(policy: CompiledPolicy, env: Env) -> Iterator[Denial]:
    """Yield what a policy says against a request, given its variables' values."""
    try:
        if not policy_applies(policy, env):
            return
    except (EvaluationError, BudgetError) as fault:
        if not policy.lenient:
            yield Denial(str(fault))
        return
    inner, budget = dict(env), CostMeter(BINDING_UNITS)
    if policy.variables:
        inner["variables"] = LazyVariables(policy.variables, env, budget)
    try:
        yield from _validated(policy, inner, budget)
        yield from _noted(policy, inner)
    except BudgetError as fault:
        if not policy.lenient:
            yield Denial(str(fault))


def policy_applies(policy: CompiledPolicy, env: Env) -> bool:
    """Whether every match condition holds; one that does not outweighs faults of others.

    Raises:
        EvaluationError: one has no value, and all others hold.
        BudgetError: they cost more than they may.
    """
    budget, faults = CostMeter(CONDITION_UNITS), []
    env = {**env, "namespaceObject": None}
    for condition in policy.conditions:
        try:
            if condition.evaluate(env, budget) is False:
                return False
        except EvaluationError as fault:
            faults.append(str(fault))
    if len(faults) == 1:
        raise EvaluationError(faults[0])
    if faults:
        raise EvaluationError(f"[{', '.join(dict.fromkeys(faults))}]")
    return True


def _validated(policy: CompiledPolicy, env: Env, budget: CostMeter) -> Iterator[Denial]:
    """Run every validation before the first denial is yielded, as the budget covers all of them."""
    denials: list[Denial] = []
    for validation in policy.validations:
        try:
            holds = validation.expression.evaluate(env, budget)
        except EvaluationError as fault:
            if not policy.lenient:
                denials.append(Denial(str(fault)))
            continue
        if holds is not True:
            denials.append(Denial(_message(validation, env, budget), validation.reason))
    yield from denials


def _message(validation: Validation, env: Env, budget: CostMeter) -> str:
    """The sentence of a failed validation: computed, else fixed, else the expression itself."""
    said = ""
    if validation.message_expression is not None:
        said = _computed(validation.message_expression, env, budget)
    return said or validation.message or f"failed expression: {validation.expression.text.strip()}"


def _computed(expression: PolicyExpression, env: Env, budget: CostMeter) -> str:
    try:
        value = expression.evaluate(env, budget)
    except EvaluationError:
        return ""
    text = value.strip() if isinstance(value, str) else ""
    return "" if "\n" in text or len(text.encode()) > _MESSAGE_BYTES_MAX else text


def _noted(policy: CompiledPolicy, env: Env) -> Iterator[Denial]:
    """Audit annotations go nowhere here; one that cannot be worked out denies, as by contract."""
    budget = CostMeter(BINDING_UNITS)
    for _key, note in policy.notes:
        try:
            note.evaluate(env, budget)
        except EvaluationError as fault:
            if not policy.lenient:
                yield Denial(str(fault))
