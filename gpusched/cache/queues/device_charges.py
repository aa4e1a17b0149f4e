"""What queues are charged for devices of the claims of pods.

A claim of a pod's own counts for the pod: what it has, and until then the dearest that it may get. A
claim that several pods name counts once, for the first pod that it is reserved for, else for the
oldest. A pod of another charge is of another class: ``PodClass.charge`` has the amounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary, ref

import attrs
from msgspec import structs

from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.devices.dynamic.claims import GROUPS, PodClaim, ResourceClaim
from gpusched.api.jobs.job import Job
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.cache.queues.device_worth import DeviceWorth, PublishedPool
from gpusched.devices.inventory import PoolId

_NO_TOTALS: Final[Mapping[str, Resources]] = MappingProxyType({})


class DeviceCharges:
    """Follows pods with claims, claims, and what devices there are.

    Args:
        is_ours: whether pods of a UID are charged to a queue of ours.
    """

    def __init__(self, is_ours: Callable[[UID], bool]) -> None:
        self.totals: Mapping[str, Resources] = _NO_TOTALS
        """What there is for our queues by node ("" for devices of several), less what others hold."""
        self.everywhere = NOTHING
        """The sum of ``totals``."""
        self._is_ours = is_ours
        self._left_out: Mapping[str, Resources] = _NO_TOTALS
        """Amounts by node that are counted as amounts of the nodes already."""
        self._worth = DeviceWorth(())
        self._catalog = NO_DEVICES
        self._pods: dict[UID, Pod] = {}
        self._users: dict[ObjectKey, set[UID]] = {}
        """By claim, pods that use it."""
        self._charges: dict[UID, Resources] = {}
        self._dirty: set[UID] = set()
        self._dirty_claims: set[ObjectKey] = set()
        self._others: dict[ObjectKey, tuple[tuple[str, Resources], ...]] = {}
        """By claim, what pods of others hold, by node."""
        self._priced: WeakValueDictionary[tuple[str, Resources], PodClass] = WeakValueDictionary()
        self._plain: dict[str, tuple[ref[PodClass], PodClass]] = {}
        """By digest, classes with a charge, and the classes that they were made of."""

    # -- pods --------------------------------------------------------------------------------
    def without_charge(self, pod_class: PodClass) -> PodClass:
        """The class without what its devices count as."""
        if pod_class.charge is None:
            return pod_class
        made = self._plain.get(pod_class.digest)
        assert made is not None, "classes with a charge are made here"
        return made[1]

    def plain_pod(self, pod: Pod) -> Pod:
        """The pod without what its devices count as."""
        plain = self.without_charge(pod.pod_class)
        return pod if plain is pod.pod_class else structs.replace(pod, pod_class=plain)

    def on_pod(self, pod: Pod) -> Pod:
        """A pod with claims appeared or changed; it has the charge that was worked out last."""
        known = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        if (
            known is None
            or _claim_keys(known) != _claim_keys(pod)
            or known.finished != pod.finished
        ):
            if known is not None:
                self._remove_pod(known)
            for key in _claim_keys(pod):
                self._users.setdefault(key, set()).add(pod.uid)
                self._dirty_claims.add(key)
            self._dirty.add(pod.uid)
        return self.with_charge(pod)

    def with_charge(self, pod: Pod) -> Pod:
        """The pod with the charge that was worked out last."""
        pod_class = self._priced_class(
            self.without_charge(pod.pod_class), self._charges.get(pod.uid, NOTHING)
        )
        return pod if pod_class is pod.pod_class else structs.replace(pod, pod_class=pod_class)

    def drop_pod(self, pod: Pod) -> None:
        """A pod with claims is gone."""
        known = self._pods.pop(pod.uid, None)
        if known is not None:
            self._remove_pod(known)
        self._charges.pop(pod.uid, None)
        self._dirty.discard(pod.uid)

    def _remove_pod(self, pod: Pod) -> None:
        for key in _claim_keys(pod):
            users = self._users.get(key, set())
            users.discard(pod.uid)
            self._dirty_claims.add(key)
            if not users:
                self._users.pop(key, None)

    def plain_job(self, job: Job) -> Job:
        """The Job without what devices of its pods count as."""
        template = job.template
        plain = None if template is None else self.without_charge(template.pod_class)
        if template is None or plain is None or plain is template.pod_class:
            return job
        return attrs.evolve(job, template=attrs.evolve(template, pod_class=plain))

    def on_job(self, job: Job) -> Job:
        """The Job with the charge of now for the pods that it would make: claims from templates."""
        template = job.template
        if template is None or not template.pod_class.claims:
            return job
        pod_class = self.without_charge(template.pod_class)
        charge = total(
            self._of_template(pod_class.namespace, each)
            for each in pod_class.claims
            if each.template
        )
        priced = self._priced_class(pod_class, charge)
        if priced is template.pod_class:
            return job
        return attrs.evolve(job, template=attrs.evolve(template, pod_class=priced))

    # -- what changed ------------------------------------------------------------------------
    def follow_catalog(self, catalog: DeviceCatalog) -> tuple[list[UID], bool]:
        """Follow the catalog; pods that are charged otherwise now, and whether prices changed."""
        rows = gpu_resources().device_quota
        before, self._catalog = self._catalog, catalog
        repriced = before.templates is not catalog.templates
        if not self._worth.is_of(rows, catalog):
            self._worth = DeviceWorth(rows, catalog, self._worth)
            self._dirty_claims.update(catalog.claims)
            repriced = True
        if repriced:
            self._dirty.update(self._pods)
        if before.claims is not catalog.claims:
            known, there = before.claims, catalog.claims
            self._dirty_claims.update(
                key for key, claim in there.items() if known.get(key) is not claim
            )
            self._dirty_claims.update(key for key in known if key not in there)
        held = self._count_others() if self._dirty_claims else False
        if held or repriced:
            self.totals = self._published_totals()
            self.everywhere = total(self.totals.values())
        for key in self._dirty_claims:
            self._dirty.update(self._users.get(key, ()))
        self._dirty_claims.clear()
        changed = [uid for uid in sorted(self._dirty) if self._is_repriced(uid)]
        self._dirty.clear()
        return changed, repriced

    def _is_repriced(self, uid: UID) -> bool:
        pod = self._pods.get(uid)
        if pod is None:
            return False
        claims = pod.pod_class.claims
        if len(claims) == 1:
            charge = self._of_claim(pod, claims[0])
        else:
            charge = total(self._of_claim(pod, each) for each in claims)
        if charge == self._charges.get(uid, NOTHING):
            return False
        self._charges[uid] = charge
        return True

    def _of_claim(self, pod: Pod, named: PodClaim) -> Resources:
        """What a pod is charged for one of its claims."""
        key = _claim_key(pod, named)
        claim = None if key is None else self._catalog.claims.get(key)
        if claim is None or key is None:
            unneeded = dict(pod.generated_claims).get(named.name) == ""
            return NOTHING if unneeded else self._of_template(pod.namespace, named)
        if named.claim and self._find_payer(key, claim) != pod.uid:
            return NOTHING
        if claim.allocation is None:
            return self._worth.of_claim(claim.spec)
        return self._worth.of_allocation(claim.spec, claim.allocation)

    def _of_template(self, namespace: str, named: PodClaim) -> Resources:
        template = self._catalog.templates.get(ObjectKey(namespace, named.template))
        return NOTHING if template is None else self._worth.of_claim(template.spec)

    def _find_payer(self, key: ObjectKey, claim: ResourceClaim) -> UID:
        """The pod that is charged for a claim: the first that has it, else the oldest that names it."""
        users = {
            uid: self._pods[uid]
            for uid in self._users.get(key, ())
            if not self._pods[uid].finished and self._is_ours(uid)
        }
        having = next((each.uid for each in claim.reserved_for if each.uid in users), None)
        if having is not None:
            return having
        return min(
            (pod.created, pod.key, uid) for uid, pod in users.items()
        )[2] if users else UID("")  # fmt: skip

    # -- what there is -----------------------------------------------------------------------
    def _count_others(self) -> bool:
        """Count again what pods of others hold by claims that changed; whether any of it did."""
        changed = False
        for key in self._dirty_claims:
            claim = self._catalog.claims.get(key)
            held: tuple[tuple[str, Resources], ...] = ()
            if (
                claim is not None
                and claim.allocation is not None
                and claim.reserved_for
                and not self._is_counted(claim)
                and not any(
                    self._is_ours(each.uid)
                    if each.resource == "pods"
                    else each.resource != GROUPS or self._is_used_by_us(key)
                    for each in claim.reserved_for
                )
            ):
                held = tuple(self._worth.of_devices(claim.spec, claim.allocation))
            if held != self._others.get(key, ()):
                changed = True
                self._others.pop(key, None)
                if held:
                    self._others[key] = held
        return changed

    def _is_counted(self, claim: ResourceClaim) -> bool:
        """Whether a claim's pod holds its devices as amounts of its node, by what its containers request."""
        owner = self._pods.get(claim.owner) if claim.extended else None
        return (
            owner is not None
            and owner.namespace == claim.namespace
            and any(each.extended for each in owner.pod_class.claims)
        )

    def _is_used_by_us(self, key: ObjectKey) -> bool:
        return any(map(self._is_ours, self._users.get(key, ())))

    @property
    def pools(self) -> Mapping[PoolId, PublishedPool]:
        """Devices as they are published now."""
        return self._worth.pools

    def leave_out(self, amounts: Mapping[str, Resources]) -> None:
        """Nodes offer so much as amounts of their own, which is not to be counted twice."""
        if amounts == self._left_out:
            return
        self._left_out = amounts
        self.totals = self._published_totals()
        self.everywhere = total(self.totals.values())

    def _published_totals(self) -> Mapping[str, Resources]:
        held: dict[str, list[Resources]] = {}
        for parts in self._others.values():
            for node, amounts in parts:
                held.setdefault(node, []).append(amounts)
        found = {}
        for node, amounts in sorted(self._worth.totals_by_node().items()):
            there = _subtract_amounts(amounts, total(held.get(node, ())))
            twice = self._left_out.get(node, NOTHING)
            named = Resources(tuple(item for item in twice.items if item[0] in there))
            found[node] = there.plus(named, times=-1)
        return found

    # -- classes -----------------------------------------------------------------------------
    def _priced_class(self, pod_class: PodClass, charge: Resources) -> PodClass:
        if not charge:
            return pod_class
        key = (pod_class.digest, charge)
        known = self._priced.get(key)
        if known is None:
            text = f"{pod_class.digest} devices {charge.items}"
            digest = blake2b(text.encode(), digest_size=16).hexdigest()
            known = attrs.evolve(pod_class, charge=pod_class.requests.plus(charge), digest=digest)
            self._priced[key] = known
            self._plain[digest] = (ref(known, partial(self._forget_class, digest)), pod_class)
        return known

    def _forget_class(self, digest: str, priced: ref[PodClass]) -> None:
        made = self._plain.get(digest)
        if made is not None and made[0] is priced:
            del self._plain[digest]


def _claim_key(pod: Pod, named: PodClaim) -> ObjectKey | None:
    name = named.claim
    if not name and named.group is None:
        for own, made in pod.generated_claims:
            if own == named.name:
                name = made
    return ObjectKey(pod.namespace, name) if name else None


def _claim_keys(pod: Pod) -> tuple[ObjectKey, ...]:
    keys: Iterable[ObjectKey | None] = (_claim_key(pod, each) for each in pod.pod_class.claims)
    return tuple(key for key in keys if key is not None)


def _subtract_amounts(amounts: Resources, taken: Resources) -> Resources:
    return Resources(tuple((n, max(0, amount - taken.get(n))) for n, amount in amounts.items))
