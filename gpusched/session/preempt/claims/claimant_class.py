"""Which claimants share victims and refusals, and which members of a gang others may be evicted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import PODS
from gpusched.api.pod.pod import PodClass
from gpusched.base.classes import frozen
from gpusched.cache.gangs.equivalence import Omit, PlacementKey, placement_key
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.pod_by_pod import has_inter_pod_rules
from gpusched.session.preempt.victim_selection import ClaimantClass, VictimSelector
from gpusched.session.state.equivalence import EquivalenceClass, GangCache
from gpusched.session.state.session import Session


class KeptClaimants:
    """What is read of claimants alone, kept from session to session."""

    def __init__(self) -> None:
        self._eligible: GangCache[tuple[Gang | None]] = GangCache()
        self._keys: GangCache[PlacementKey] = GangCache()

    def eligible(self, gang: Gang) -> Gang | None:
        """As ``eligible_claimant``."""
        known = self._eligible.get(gang)
        if known is None:
            known = (eligible_claimant(gang),)
            self._eligible.set(gang, known)
        return known[0]

    def placement_key(self, claimant: Gang) -> PlacementKey:
        """All that decides where a claimant may be placed, whatever its size where that is compared, and its length."""
        known = self._keys.get(claimant)
        if known is None:
            known = placement_key(claimant, without=sizes_compared(claimant) | Omit.LENGTH)
            self._keys.set(claimant, known)
        return known

    def keep_only(self, gangs: Sequence[Gang]) -> None:
        """Forget all other gangs, to bound memory."""
        self._eligible.keep_only(gangs, len(gangs))
        self._keys.keep_only(gangs, len(gangs))


def _kept_claimants(session: Session) -> KeptClaimants:
    return session.cache.kept.get_or_make(KeptClaimants, KeptClaimants)


@frozen(slots=True, eq=False)
class _PlacedAlike:
    """Claimants with one ``KeptClaimants.placement_key``: one object in a session, which costs less to compare."""

    key: PlacementKey


class _SessionKeys:
    """These of one session, which equal gangs are not asked for again."""

    def __init__(self) -> None:
        self._by_class: dict[tuple[EquivalenceClass, str], _PlacedAlike] = {}
        self._by_key: dict[PlacementKey, _PlacedAlike] = {}

    def key_of(self, session: Session, claimant: Gang) -> _PlacedAlike:
        """That of a claimant."""
        alike = session.cache.equivalence.class_of(claimant)  # of any namespace
        known = self._by_class.get((alike, claimant.key.namespace)) if alike is not None else None
        if known is None:
            key = _kept_claimants(session).placement_key(claimant)
            known = self._by_key.setdefault(key, _PlacedAlike(key))
            if alike is not None:
                self._by_class[alike, claimant.key.namespace] = known
        return known


def eligible_claimants(session: Session, gangs: Sequence[Gang]) -> dict[GangKey, Gang]:
    """Of some gangs those for which others may be evicted, each with the members that count, by key."""
    kept = _kept_claimants(session)
    kept.keep_only(session.snapshot.gangs)
    return {gang.key: claimant for gang in gangs if (claimant := kept.eligible(gang))}


def claimant_class(session: Session, claimant: Gang) -> ClaimantClass:
    """The key of claimants that share victims and refusals, whatever their sizes and lengths.

    Members of several classes are counted, as other counts may start. Rules between pods read
    labels and volumes: pods of one class for which they say the same share one pod info.
    """
    key: Hashable = session.cycle_state.get_or_make(_SessionKeys, _SessionKeys).key_of(
        session, claimant
    )
    closed = session.windows.class_key(claimant)
    if closed:
        key = (key, closed)
    if not has_inter_pod_rules(
        session, [(pod_set, len(pod_set.pods)) for pod_set in claimant.pod_sets]
    ):
        return key
    infos = [
        Counter(id(session.pod_info(pod)) for pod in pod_set.pods) for pod_set in claimant.pod_sets
    ]
    return (key, tuple(frozenset(each.items()) for each in infos))


def claimant_classes(
    session: Session, claimants: Mapping[GangKey, Gang]
) -> dict[GangKey, ClaimantClass]:
    """The class of each claimant, by key."""
    return {key: claimant_class(session, claimant) for key, claimant in claimants.items()}


def sizes_compared(claimant: Gang) -> Omit:
    """The size, where what a claimant needs at once tells all about it: pods of one class."""
    return Omit.SIZE if len(claimant.pod_sets) == 1 else Omit.NOTHING


def amounts_suffice(session: Session, chooser: VictimSelector, claimant: Gang) -> bool:
    """Whether amounts of nodes say all that counts for a claimant: of pods of one class, whose devices numbers tell."""
    several = len({pod_set.pod_class.digest for pod_set in claimant.pod_sets}) > 1
    if several or claimant.requests_gpu_share or claimant.sub_groups:
        return False
    pod_class = claimant.pod_sets[0].pod_class
    if not pod_class.claims:
        return True
    allowed = session.class_info(pod_class).class_fit.allowed
    return chooser.device_columns(claimant, allowed).exact


def eligible_claimant(gang: Gang) -> Gang | None:
    """The gang with those members for which others may be evicted; None when they do not suffice.

    Members that ask for nothing take no room from others: for them alone none is evicted.
    """
    if len(gang.pod_sets) == 1 and not gang.min_roles:  # most are one pod, or many of a kind
        pod_set = gang.pod_sets[0]
        if all(map(_may_preempt, pod_set.pods)):
            enough = len(pod_set.pods) >= gang.members_at_start
            return gang if enough and _asks_for_resources(pod_set.pod_class) else None
    pod_sets = []
    for pod_set in gang.pod_sets:
        pods = tuple([pod for pod in pod_set.pods if pod.may_preempt])
        if len(pods) == len(pod_set.pods):
            pod_sets.append(pod_set)
        elif pods:
            pod_sets.append(attrs.evolve(pod_set, pods=pods))
    if sum(len(pod_set.pods) for pod_set in pod_sets) < gang.members_at_start:
        return None
    for role, missing in gang.missing_roles if gang.min_roles else ():
        if sum(len(pod_set.pods) for pod_set in pod_sets if pod_set.role == role) < missing:
            return None
    if not any(_asks_for_resources(pod_set.pod_class) for pod_set in pod_sets):
        return None
    return (
        attrs.evolve(gang, pod_sets=tuple(pod_sets)) if tuple(pod_sets) != gang.pod_sets else gang
    )


_may_preempt = attrgetter("may_preempt")


def _asks_for_resources(pod_class: PodClass) -> bool:
    return bool(pod_class.claims) or any(
        amount for name, amount in pod_class.requests.items if name != PODS
    )
