"""Policies that are bound: what is in force, with which parameters, and what expressions see of a write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from gpusched.base.classes import frozen
from gpusched.cel.libraries.authorization import (
    AuthorizationDecision,
    AuthorizationQuestion,
    Decide,
)
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.admission.policy_evaluation import (
    Denial,
    namespace_view,
    request_variables,
)
from gpusched.devcluster.apiserver.admission.policy_matching import (
    PolicyMatch,
    match_request,
    namespace_of,
)
from gpusched.devcluster.apiserver.admission.policy_params import ParamsError, params_of
from gpusched.devcluster.apiserver.admission_attributes import Attributes
from gpusched.devcluster.apiserver.rbac.authorizer import RbacAuthorizer
from gpusched.devcluster.apiserver.rbac.rules import AccessRequest, User, account_user
from gpusched.devcluster.apiserver.reading.representations import view_function
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.policy.cel_policies import CompiledPolicy, compile_policy

Obj = dict[str, Any]

GROUP: Final = "admissionregistration.k8s.io"
_CODES: Final = {"Forbidden": 403, "RequestEntityTooLarge": 413}


@frozen
class BoundPolicy:
    """A policy with the bindings that put it in force."""

    policy: CompiledPolicy
    bindings: tuple[Obj, ...]


class BoundPolicies:
    """Keeps the policies of a kind compiled as they stand in the store.

    A change of a policy or a binding counts from the next write on; a real server needs a moment.
    """

    def __init__(self, core: ServerState, kind: Literal["mutating", "validating"]) -> None:
        self._core = core
        self._policies = core.store.collection(f"{kind}admissionpolicies.{GROUP}")
        self._bindings = core.store.collection(f"{kind}admissionpolicybindings.{GROUP}")
        self._compiled: dict[str, tuple[Obj, CompiledPolicy]] = {}
        self._bound: tuple[BoundPolicy, ...] | None = None
        for collection in (self._policies, self._bindings):
            collection.listen(self._forget)

    def _forget(self) -> None:
        self._bound = None

    def in_force(self) -> tuple[BoundPolicy, ...]:
        """Return the bound policies in order of their names."""
        if self._bound is None:
            self._bound = tuple(self._gathered())
        return self._bound

    def _gathered(self) -> Iterator[BoundPolicy]:
        bindings: dict[str, list[Obj]] = {}
        for _, stored in self._bindings.scan():
            bindings.setdefault(stored.obj["spec"]["policyName"], []).append(stored.obj)
        for name, stored in self._policies.scan():
            if name not in bindings:
                continue
            spec = stored.obj["spec"]
            known = self._compiled.get(name)
            if known is None or known[0] != spec:
                known = self._compiled[name] = (spec, compile_policy(stored.obj))
            yield BoundPolicy(known[1], tuple(bindings[name]))

    def params_by_binding(
        self, bound: BoundPolicy, asked: Attributes
    ) -> Iterator[tuple[Obj, Sequence[Obj | None], str]]:
        """Yield the bindings that are about a request with their parameters, or why there are none."""
        for binding in bound.bindings:
            spec = binding["spec"]
            resources = spec.get("matchResources")
            if resources and match_request(self._core, resources, asked) is None:
                continue
            kind = bound.policy.spec.get("paramKind")
            try:
                params = params_of(self._core, kind, spec.get("paramRef"), asked)
            except ParamsError as fault:
                yield binding, (), f"failed to configure binding: {fault}"
            else:
                yield binding, params, ""


def request_environment(
    core: ServerState, asked: Attributes, *, match: PolicyMatch, decide: Decide
) -> Obj:
    """Return the values of what a policy's expressions may name, but for its parameters."""
    shape = None if asked.subresource in _OWN_KINDS else view_function(match.resource)
    new, old = asked.obj, asked.old
    if shape is not None:
        new, old = (None if obj is None else shape(obj) for obj in (new, old))
    env = request_variables(asked, seen=match.resource, objects=(new, old), decide=decide)
    if asked.namespace and asked.resource.storage != "namespaces":
        env["namespaceObject"] = namespace_view(namespace_of(core, asked.namespace))
    return env


_OWN_KINDS: Final = frozenset({"binding", "eviction", "scale", "token"})
"""Subresources whose body is of a kind of its own."""


def authorization_answers(authorizer: RbacAuthorizer, user: User) -> Decide:
    """Answer questions about rights for one request, each of them once."""
    known: dict[AuthorizationQuestion, AuthorizationDecision] = {}

    def decide(question: AuthorizationQuestion) -> AuthorizationDecision:
        if question not in known:
            about = account_user(*question.account) if question.account else user
            resource = question.resource
            if question.subresource:
                resource = f"{resource}/{question.subresource}"
            verdict = authorizer.decide(
                about,
                AccessRequest(
                    verb=question.verb,
                    group=question.group,
                    resource=resource,
                    name=question.name,
                    namespace=question.namespace,
                    path=question.path,
                ),
            )
            known[question] = AuthorizationDecision(verdict.allowed, verdict.reason)
        return known[question]

    return decide


def policy_refusal(
    asked: Attributes,
    policy: CompiledPolicy,
    binding: Obj | None,
    denial: Denial,
    *,
    kind: str = "ValidatingAdmissionPolicy",
) -> status.StatusError:
    """The first denial, in the form of an API server's own refusal."""
    by = f"{kind} '{policy.name}'"
    if binding is not None:
        by += f" with binding '{binding['metadata']['name']}'"
    message = f"{by} denied request: {denial.message}"
    resource = asked.resource
    error = status.forbidden(
        resource.plural,
        resource.group,
        asked.name or "Unknown",
        why=message,
        causes=[{"message": message}],
    )
    reason = denial.reason or "Invalid"
    error.body["reason"] = reason
    error.body["code"] = _CODES.get(reason, 422)
    return error
