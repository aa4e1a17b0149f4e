"""Asking every bound policy about a write, in order of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gpusched.cel.libraries.authorization import Decide
from gpusched.devcluster.apiserver.admission.policy_bindings import (
    GROUP,
    BoundPolicies,
    BoundPolicy,
    authorization_answers,
    policy_refusal,
    request_environment,
)
from gpusched.devcluster.apiserver.admission.policy_evaluation import Denial, evaluate_policy
from gpusched.devcluster.apiserver.admission.policy_matching import PolicyMatch, match_request
from gpusched.devcluster.apiserver.admission.policy_mutations import PolicyMutations
from gpusched.devcluster.apiserver.admission_attributes import Attributes
from gpusched.devcluster.apiserver.rbac.authorizer import RbacAuthorizer
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.policy.cel_policies import CompiledPolicy

Obj = dict[str, Any]

_EXEMPT: Final = frozenset({GROUP})
"""Policies are not asked about changes of policies: one could lock out its own administrator."""


class AdmissionPolicies:
    """Asks mutating policies what they change, then validating ones what they refuse."""

    def __init__(self, core: ServerState) -> None:
        self._core = core
        self._validating = BoundPolicies(core, "validating")
        self._mutating = BoundPolicies(core, "mutating")
        self._authorizer = RbacAuthorizer(core.store)

    @property
    def active(self) -> bool:
        """Whether any validating policy is in force."""
        return bool(self._validating.in_force())

    @property
    def mutates(self) -> bool:
        """Whether any mutating policy is in force."""
        return bool(self._mutating.in_force())

    def mutate(self, asked: Attributes, misfit: Callable[[Obj], str | None]) -> Obj:
        """Return the object as mutating policies leave it; raises StatusError by which one fails."""
        assert asked.obj is not None
        if asked.resource.group in _EXEMPT:
            return asked.obj
        decide = authorization_answers(self._authorizer, asked.user)
        return PolicyMutations(self._core, self._mutating, decide, misfit).apply_all(asked)

    def admit(self, asked: Attributes) -> None:
        """Let a write through, or raise the StatusError by which a policy refuses it."""
        bound = self._validating.in_force()
        if asked.resource.group in _EXEMPT:
            return
        decide = authorization_answers(self._authorizer, asked.user)
        denials: list[tuple[CompiledPolicy, Obj | None, Denial]] = []
        for each in bound:
            match = match_request(self._core, each.policy.spec["matchConstraints"], asked)
            if match is not None:
                denials += self._run(each, asked, match=match, decide=decide)
        if denials:
            raise policy_refusal(asked, *denials[0])

    def _run(
        self, bound: BoundPolicy, asked: Attributes, *, match: PolicyMatch, decide: Decide
    ) -> Iterator[tuple[CompiledPolicy, Obj, Denial]]:
        policy = bound.policy
        env: Obj | None = None
        for binding, params, fault in self._validating.params_by_binding(bound, asked):
            if fault and not policy.lenient:
                yield policy, binding, Denial(fault)
            if env is None:
                env = request_environment(self._core, asked, match=match, decide=decide)
            actions = binding["spec"]["validationActions"]
            for param in params:
                for denial in evaluate_policy(policy, {**env, "params": param}):
                    if "Warn" in actions:
                        asked.warnings.append(
                            f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with "
                            f"binding '{binding['metadata']['name']}': {denial.message}"
                        )
                    if "Deny" in actions:
                        yield policy, binding, denial
