"""Asking every bound policy about a write, in order of their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from gpusched.cel.libraries.authorization import (
    AuthorizationDecision,
    AuthorizationQuestion,
    Decide,
)
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.admission.policy_evaluation import (
    Denial,
    evaluate_policy,
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
_POLICIES: Final = f"validatingadmissionpolicies.{GROUP}"
_BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"
_EXEMPT: Final = frozenset({GROUP})
"""Policies are not asked about changes of policies: one could lock out its own administrator."""
_CODES: Final = {"Forbidden": 403, "RequestEntityTooLarge": 413}


@attrs.frozen
class _BoundPolicy:
    """A policy with the bindings that put it in force."""

    policy: CompiledPolicy
    bindings: tuple[Obj, ...]


class AdmissionPolicies:
    """Keeps the policies compiled as they stand in the store.

    A change of a policy or a binding counts from the next write on; a real server needs a moment.
    """

    def __init__(self, core: ServerState) -> None:
        self._core = core
        self._policies = core.store.collection(_POLICIES)
        self._bindings = core.store.collection(_BINDINGS)
        self._authorizer = RbacAuthorizer(core.store)
        self._compiled: dict[str, tuple[Obj, CompiledPolicy]] = {}
        self._bound: tuple[_BoundPolicy, ...] | None = None
        for collection in (self._policies, self._bindings):
            collection.listen(self._forget)

    def _forget(self) -> None:
        self._bound = None

    @property
    def active(self) -> bool:
        """Whether any policy is in force."""
        return bool(self._in_force())

    def admit(self, asked: Attributes) -> None:
        """Let a write through, or raise the StatusError by which a policy refuses it."""
        bound = self._in_force()
        if asked.resource.group in _EXEMPT:
            return
        decide = _decider(self._authorizer, asked.user)
        denials: list[tuple[CompiledPolicy, Obj | None, Denial]] = []
        for each in bound:
            match = match_request(self._core, each.policy.spec["matchConstraints"], asked)
            if match is not None:
                denials += self._run(each, asked, match=match, decide=decide)
        if denials:
            raise _refusal(asked, *denials[0])

    def _in_force(self) -> tuple[_BoundPolicy, ...]:
        if self._bound is None:
            self._bound = tuple(self._gathered())
        return self._bound

    def _gathered(self) -> Iterator[_BoundPolicy]:
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
            yield _BoundPolicy(known[1], tuple(bindings[name]))

    def _run(
        self, bound: _BoundPolicy, asked: Attributes, *, match: PolicyMatch, decide: Decide
    ) -> Iterator[tuple[CompiledPolicy, Obj, Denial]]:
        policy = bound.policy
        env: Obj | None = None
        for binding in bound.bindings:
            spec = binding["spec"]
            resources = spec.get("matchResources")
            if resources and match_request(self._core, resources, asked) is None:
                continue
            try:
                params = params_of(
                    self._core, policy.spec.get("paramKind"), spec.get("paramRef"), asked
                )
            except ParamsError as fault:
                if not policy.lenient:
                    yield policy, binding, Denial(f"failed to configure binding: {fault}")
                continue
            if env is None:
                env = self._environment(asked, match=match, decide=decide)
            for param in params:
                for denial in evaluate_policy(policy, {**env, "params": param}):
                    if "Warn" in spec["validationActions"]:
                        asked.warnings.append(
                            f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with "
                            f"binding '{binding['metadata']['name']}': {denial.message}"
                        )
                    if "Deny" in spec["validationActions"]:
                        yield policy, binding, denial

    def _environment(self, asked: Attributes, *, match: PolicyMatch, decide: Decide) -> Obj:
        shape = None if asked.subresource in _OWN_KINDS else view_function(match.resource)
        new, old = asked.obj, asked.old
        if shape is not None:
            new, old = (None if obj is None else shape(obj) for obj in (new, old))
        env = request_variables(asked, seen=match.resource, objects=(new, old), decide=decide)
        if asked.namespace and asked.resource.storage != "namespaces":
            env["namespaceObject"] = namespace_view(namespace_of(self._core, asked.namespace))
        return env


_OWN_KINDS: Final = frozenset({"binding", "eviction", "scale", "token"})
"""Subresources whose body is of a kind of its own."""


def _decider(authorizer: RbacAuthorizer, user: User) -> Decide:
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


def _refusal(
    asked: Attributes, policy: CompiledPolicy, binding: Obj | None, denial: Denial
) -> status.StatusError:
    """The first denial, in the form of an API server's own refusal."""
    by = f"ValidatingAdmissionPolicy '{policy.name}'"
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
