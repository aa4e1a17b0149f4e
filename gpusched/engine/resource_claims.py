"""Resource claims in a simulated cluster: made with their pods, given devices, and gone with them.

Claims that a PodGroup of Kubernetes has of its own are not made here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.base.claim_templates import claim_from_template, claim_prefix
from gpusched.cache.claimable.device_stores import AssumedClaim
from gpusched.engine.objects import Obj, SimulatedObjects, plural_of, with_status
from gpusched.engine.world import SimulatedWorld
from gpusched.io.write.claims.device_claims import claims_of
from gpusched.io.write.claims.extended_claims import extended_claim_as_made
from gpusched.session.state.plan import GangBind

_CLAIM: Final = "ResourceClaim"


def claims_from_templates(objects: SimulatedObjects, pod: Obj) -> tuple[Obj, tuple[Obj, ...]]:
    """A pod that knows its claims, and those of them that are to be made first; other objects stay.

    Args:
        objects: what there is; a claim whose template is not there is not made.
        pod: with its UID.
    """
    if plural_of(pod) != "pods":
        return pod, ()
    metadata, wanted = pod["metadata"], _wanted_templates(pod)
    believed = objects.cache.devices.templates.items
    noted = [*((pod.get("status") or {}).get("resourceClaimStatuses") or ())]
    known = {each["name"] for each in noted}
    made = []
    for part, template_name in wanted:
        template = objects.other("ResourceClaimTemplate", metadata["namespace"], template_name)
        key = ObjectKey(metadata["namespace"], template_name)
        if template is None or key not in believed or part in known:
            continue
        spec = {"spec": template["spec"].get("spec") or {}}  # labels of claims decide nothing
        claim = claim_from_template(pod, part, {**template, "spec": spec})
        digest = hashlib.sha256(f"{metadata['name']}/{part}".encode()).hexdigest()[:10]
        name = f"{claim_prefix(metadata['name'], part)}{digest}"
        noted.append({"name": part, "resourceClaimName": name})
        if objects.other(_CLAIM, metadata["namespace"], name) is None:
            claim["apiVersion"] = template["apiVersion"]
            made.append({**claim, "metadata": {**claim["metadata"], "name": name}})
    return (with_status(pod, resourceClaimStatuses=noted) if noted else pod), tuple(made)


def _wanted_templates(pod: Obj) -> Iterator[tuple[str, str]]:
    """Names of claims inside of a pod, each with its template; what is malformed is left to the codec."""
    claims = (pod.get("spec") or {}).get("resourceClaims")
    for each in claims if isinstance(claims, list) else ():
        found = each if isinstance(each, dict) else {}
        name, template = found.get("name"), found.get("resourceClaimTemplateName")
        if isinstance(name, str) and isinstance(template, str) and name and template:
            yield name, template


class SimulatedClaims:
    """The claim controller of a simulated cluster, and the writes by which claims get devices.

    Args:
        world: what is changed.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._extended: dict[UID, list[ObjectKey]] = {}
        """Claims for extended resources that were made here, by their pod."""

    def make_for(self, pod: Obj) -> Obj:
        """Make the claims that a pod needs of templates; the pod as it is then."""
        objects = self._world.objects
        told, claims = claims_from_templates(objects, pod)
        for each in claims:
            objects.create(each, now=self._world.now)
        return pod if told is pod else objects.write(told)

    def allocate(self, gang: GangBind) -> None:
        """Claims of a gang that is bound have their devices."""
        for claim, consumers in claims_of(gang):
            if claim.extended:
                made = extended_claim_as_made(claim, consumers[0])
                for cache in self._world.caches:
                    cache.devices.assume_made(made)
                self._extended.setdefault(consumers[0].uid, []).append(claim.key)
            else:
                assumed = AssumedClaim(claim.uid, claim.allocation, tuple(consumers))
                for cache in self._world.caches:
                    cache.devices.assume_claim(claim.key, assumed)

    def release(self, pod: Obj) -> None:
        """A pod has ended or is to go: its own claims are gone with it, of others it is no user any more."""
        objects, devices = self._world.objects, self._world.cache.devices
        uid, namespace = UID(pod["metadata"]["uid"]), pod["metadata"]["namespace"]
        for key in self._extended.pop(uid, ()):
            for cache in self._world.caches:
                cache.devices.forget_made(key)
        for key in [ObjectKey(namespace, name) for name in _used_names(pod)]:
            obj, claim = objects.other(_CLAIM, *key), devices.claims.items.get(key)
            if obj is None or claim is None:
                continue
            for cache in self._world.caches:
                cache.devices.forget(key, uid)
            if claim.owner == uid:
                objects.remove_other(_CLAIM, key)
            elif any(each.uid == uid for each in claim.reserved_for):
                objects.create(_without_user(obj, uid), now=self._world.now)


def _used_names(pod: Obj) -> set[str]:
    """Names of the claims that a pod uses, as far as they are known."""
    status = pod.get("status") or {}
    entries = [
        *(pod["spec"].get("resourceClaims") or ()),
        *(status.get("resourceClaimStatuses") or ()),
    ]
    entries.append(status.get("extendedResourceClaimStatus") or {})
    return {each["resourceClaimName"] for each in entries if each.get("resourceClaimName")}


def _without_user(claim: Obj, uid: UID) -> Obj:
    """A claim that is not reserved for a pod any more; without any user it has no devices either."""
    users = [each for each in claim["status"].get("reservedFor") or () if each.get("uid") != uid]
    if users:
        return with_status(claim, reservedFor=users)
    return with_status(claim, reservedFor=None, allocation=None)
