"""Claims of pods as sessions see them: those of their groups, and those whose devices are being made ready.

A member of one of Kubernetes' own PodGroups that names a claim of the group uses the group's, reserved for the group. As the claim controller has it, a pod's claim is its group's where both have the same name and source; one that is made
from a template is named in the group's status. A member's class tells the claim and the group, so that all
members share it like any claim that several pods name.

What containers request of extended resources that a class of devices stands for is one more claim, the last of the pod:
made with the binding where the node has such a resource as devices only.

A pod's claim from a template whose devices are being made ready by their driver is shown as one that the pod names: so
whoever leads then places the pod where these devices are, and the wait goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

import attrs
from msgspec import structs

from gpusched.api.devices.dynamic.claims import (
    EXTENDED_CLAIM,
    ClaimGroup,
    DeviceClass,
    ExtendedRequest,
    PodClaim,
    ResourceClaim,
)
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.pod.pod_class import class_digest
from gpusched.devices.extended_resources import with_classes
from gpusched.devices.readiness import has_failed, has_waited

_Key = tuple[str, tuple[PodClaim, ...]]


class ResolvedClaims:
    """See the module.

    Args:
        groups: PodGroups by key.
        claims: by key, as the API shows them.
    """

    def __init__(
        self,
        groups: Mapping[ObjectKey, PodGroup],
        claims: Mapping[ObjectKey, ResourceClaim],
    ) -> None:
        self._groups = groups
        self._claims = claims
        self.served: Mapping[str, DeviceClass] = {}
        """Classes of devices that stand for extended resources, by resource."""
        self._classes: WeakValueDictionary[_Key, PodClass] = WeakValueDictionary()
        self._keys: dict[UID, ObjectKey] = {}
        """Groups with claims, by UID."""

    def note_group(self, known: PodGroup | None, item: PodGroup | None) -> bool:
        """A group changed; whether its members may use other claims by that."""
        before, after = (_group_terms(each) for each in (known, item))
        if known is not None:
            self._keys.pop(known.uid, None)
        if item is not None and after[1]:
            self._keys[item.uid] = ObjectKey(item.namespace, item.name)
        return before != after and bool(before[1] or after[1])

    def group_of(self, uid: UID) -> ObjectKey | None:
        """The group of that UID, where it has claims."""
        return self._keys.get(uid)

    def resolve_claims(self, pod: Pod) -> Pod:
        """The pod with its group's claims in place of those that it names alike, and those that it waits for."""
        group = self._groups.get(ObjectKey(pod.namespace, pod.group)) if pod.group else None
        named = [each for each in pod.pod_class.claims if not each.extended]
        claims = (
            *[
                self._await_claim(pod, _resolve_claim(pod, _plain_claim(each), group))
                for each in named
            ],
            *self._extended_claims(pod.extended),
        )
        if claims == pod.pod_class.claims:
            return pod
        plain = self._class_with(pod.pod_class, tuple(map(_plain_claim, named)))
        return structs.replace(pod, pod_class=self._class_with(plain, claims))

    def resolve_template(self, job: Job) -> Job:
        """The Job with what its pods request of extended resources as one more claim of them."""
        template = job.template
        if template is None:
            return job
        named = tuple([each for each in template.pod_class.claims if not each.extended])
        claims = (*named, *self._extended_claims(template.extended))
        pod_class = self._class_with(self._class_with(template.pod_class, named), claims)
        if pod_class is template.pod_class:
            return job
        return attrs.evolve(job, template=attrs.evolve(template, pod_class=pod_class))

    def _extended_claims(self, requests: Sequence[ExtendedRequest]) -> tuple[PodClaim, ...]:
        found = with_classes(requests, self.served) if self.served else ()
        return (PodClaim(name=EXTENDED_CLAIM, extended=found),) if found else ()

    def _await_claim(self, pod: Pod, named: PodClaim) -> PodClaim:
        """A claim from a template as a named one while its devices are being made ready."""
        if not named.template or named.group is not None or pod.node:
            return named
        made = next((claim for own, claim in pod.generated_claims if own == named.name), "")
        claim = self._claims.get(ObjectKey(pod.namespace, made)) if made else None
        if claim is None or claim.owner != pod.uid or not has_waited(claim) or has_failed(claim):
            return named
        return PodClaim(name=named.name, claim=made, made_of=named.template)

    def _class_with(self, pod_class: PodClass, claims: tuple[PodClaim, ...]) -> PodClass:
        if pod_class.claims == claims:
            return pod_class
        key = (pod_class.digest, claims)
        known = self._classes.get(key)
        if known is None:
            made = attrs.evolve(pod_class, claims=claims, digest="")
            known = self._classes[key] = attrs.evolve(made, digest=class_digest(made))
        return known


def _resolve_claim(pod: Pod, named: PodClaim, group: PodGroup | None) -> PodClaim:
    """What a pod's claim is by its group, as it stands."""
    native = group.native if group is not None else None
    if group is None or native is None or named not in native.group_claims:
        return named
    whose = ClaimGroup(name=group.name, uid=group.uid)
    if not named.template:
        return attrs.evolve(named, group=whose)
    made = dict(native.made_claims).get(named.name, "")
    noted = dict(pod.generated_claims).get(named.name, made)
    if made and noted != made:
        return named  # made for the pod alone: it is no member to the claim controller
    if not made:
        return attrs.evolve(named, group=whose)
    return PodClaim(name=named.name, claim=made, made_of=named.template, group=whose)


def _plain_claim(claim: PodClaim) -> PodClaim:
    """The claim as the pod's spec has it."""
    if claim.group is None and not claim.made_of:
        return claim
    template = claim.template or claim.made_of
    return PodClaim(name=claim.name, claim="" if template else claim.claim, template=template)


def _group_terms(group: PodGroup | None) -> tuple[object, ...]:
    """UID, claims and names of made claims of a group."""
    native = group.native if group is not None else None
    if group is None or native is None:
        return (UID(""), (), ())
    return (group.uid, native.group_claims, native.made_claims)
