"""Rights on parts of a claim's status: allocations and reservations are of schedulers, devices of drivers.

After the gate DRAResourceClaimGranularStatusAuthorization, on by default since Kubernetes 1.36: beside
``resourceclaims/status`` a write needs rights on subresources that exist for this question alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import FieldError, forbidden
from gpusched.devcluster.apiserver.rbac.authorizer import RbacAuthorizer
from gpusched.devcluster.apiserver.rbac.rules import AccessRequest, User, account_of
from gpusched.devcluster.storage.store import Store

Obj = dict[str, Any]

_GROUP: Final = "resource.k8s.io"
_BINDING: Final = "resourceclaims/binding"
_DRIVER: Final = "resourceclaims/driver"
_DEVICE: Final = ("pool", "device", "shareID")
_BOUND: Final = ("allocation", "reservedFor")
_NODE_OF_ACCOUNT: Final = "authentication.kubernetes.io/node-name"


def claim_status_errors(
    store: Store, user: User, *, new: Obj, old: Obj, verb: str
) -> list[FieldError]:
    """Return what a user may not change of a claim's status.

    Args:
        store: with roles and bindings.
        user: the requester.
        new: the claim as it is to be.
        old: the claim as it is stored.
        verb: of the request, ``update`` or ``patch``.
    """
    if user.admin:
        return []
    authorizer = RbacAuthorizer(store)
    now, was = new.get("status") or {}, old.get("status") or {}
    errors: list[FieldError] = []
    if any((now.get(part) or None) != (was.get(part) or None) for part in _BOUND):
        ask = AccessRequest(verb=verb, group=_GROUP, resource=_BINDING)
        if not authorizer.decide(user, ask).allowed:
            what = "status.allocation or status.reservedFor"
            errors.append(_refusal(what, _BINDING, verb, _denied(user, ask)))
    verbs = [f"arbitrary-node:{verb}"]
    if _runs_on_node(user, now.get("allocation") or {}):
        verbs.insert(0, f"associated-node:{verb}")
    namespace = old["metadata"].get("namespace", "")
    for driver in sorted(_changed_drivers(now, was)):
        asks = [
            AccessRequest(
                verb=each, group=_GROUP, resource=_DRIVER, name=driver, namespace=namespace
            )
            for each in verbs
        ]
        if not any(authorizer.decide(user, ask).allowed for ask in asks):
            text = f"[{' '.join(verbs)}]"
            errors.append(_refusal("status.devices", _DRIVER, text, _denied(user, asks[0])))
    return errors


def _refusal(what: str, resource: str, verb: str, denied: str) -> FieldError:
    why = f'changing {what} requires resource="{resource}", verb="{verb}" permission: {denied}'
    return forbidden("status", why)


def _denied(user: User, ask: AccessRequest) -> str:
    named = f' "{ask.name}"' if ask.name else ""
    place = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    return (
        f'resourceclaims.{_GROUP}{named} is forbidden: User "{user.name}" cannot {ask.verb} '
        f'resource "{ask.resource}" in API group "{_GROUP}" {place}'
    )


def _changed_drivers(now: Obj, was: Obj) -> Iterator[str]:
    """Drivers of which an entry came, went or changed."""
    new, old = _by_device(now), _by_device(was)
    return (key[0] for key in new.keys() | old.keys() if new.get(key) != old.get(key))


def _by_device(state: Obj) -> dict[tuple[str, str], Obj]:
    """Entries by their driver, and by the device and share that they are about."""
    return {
        (str(entry.get("driver") or ""), str([entry.get(key) for key in _DEVICE])): entry
        for entry in state.get("devices") or ()
    }


def _runs_on_node(user: User, allocation: Obj) -> bool:
    """Whether a service account's pod runs on the one node for which a claim is allocated."""
    terms: Sequence[Obj] = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if account_of(user.name) is None or len(terms) != 1 or terms[0].get("matchExpressions"):
        return False
    held = dict(user.extra).get(_NODE_OF_ACCOUNT) or ()
    fields: Sequence[Obj] = terms[0].get("matchFields") or ()
    wanted = {"key": "metadata.name", "operator": "In", "values": list(held)}
    return len(held) == 1 and len(fields) == 1 and fields[0] == wanted
