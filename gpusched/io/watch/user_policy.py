"""Whether the API server holds names of users to be true: the policy that does it is there and bound.

Asked while some queue limits users, as what a tenant writes is else believed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error

POLICY: Final = "gpusched-users"
_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
_TIMEOUT_S: Final = 10.0
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_INSTALL: Final = "install manifests/policies, or say users: ignored in the configuration"


class _BindingSpec(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    validation_actions: list[str] = []


class _Binding(msgspec.Struct):
    spec: _BindingSpec = msgspec.field(default_factory=_BindingSpec)


_BINDING: Final = msgspec.json.Decoder(_Binding)


async def find_users_doubt(api: ApiClient) -> str:
    """Why limits by user are not safe, as words of a sentence; empty where they are.

    Raises:
        ClusterUnreachable: the API server gives no answer.
        ApiError: it gives one that says nothing about it.
    """
    policy = await api.request("GET", f"{_PATH}ies/{POLICY}", timeout_s=_TIMEOUT_S)
    binding = await api.request("GET", f"{_PATH}ybindings/{POLICY}", timeout_s=_TIMEOUT_S)
    for answer in (policy, binding):
        if answer.status == _NOT_FOUND:
            return (
                f"limits by user are not safe: the API server has no policy {POLICY} that is bound, so that "
                f"anybody may name any user: {_INSTALL}"
            )
        if answer.status == _FORBIDDEN:
            return (
                f"limits by user may not be safe: the daemon may not look whether the API server has the "
                f"policy {POLICY}: apply manifests/rbac.yaml"
            )
        if not answer.ok:
            raise api_error(answer, doing=f"look for the policy {POLICY}")
    spec = _BINDING.decode(binding.body).spec
    if spec.policy_name != POLICY or "Deny" not in spec.validation_actions:
        return (
            f"limits by user are not safe: the binding {POLICY} does not deny, so that anybody may name any "
            f"user: {_INSTALL}"
        )
    return ""
