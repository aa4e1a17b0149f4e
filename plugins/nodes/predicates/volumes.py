"""Volumes: nodes that reach the volumes of a pod's claims, or on which they can be made."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import attrs
import numpy as np
from gpusched_plugins.nodes.predicates.pod_selection import Bools

from gpusched.plugin import (
    ALLOW,
    Gang,
    Hooks,
    ObjectKey,
    PairRule,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodClass,
    Reason,
    Verdict,
    View,
    VolumeCatalog,
    wait,
)

ONE_POD = "ReadWriteOncePod"


@attrs.frozen(cache_hash=True)
class ClaimUsers:
    """Pods that use one PersistentVolumeClaim."""

    claim: ObjectKey
    cautious: bool = True
    needs: None = None

    def counts(self, pod: Pod) -> bool:
        """Whether this pod counts."""
        return self.claim.name in pod.claims and pod.namespace == self.claim.namespace


def register_volumes(hooks: Hooks, view: View) -> None:
    """Register filters for volumes; claims that no node can serve are named in the message."""
    storage = view.volumes()
    reach = VolumeReach(view)
    hooks.gang_ready(lambda gang: _check_claims(gang, storage), concerns=_uses_claims)
    hooks.pair_filter(
        "cannot reach or provide the volumes it claims",
        lambda pod: _volume_rule(pod, view, reach),
        concerns=_uses_claims,
        reads=("uses_claims",),
    )


def _uses_claims(pod_class: PodClass) -> bool:
    return pod_class.uses_claims


def _check_claims(gang: Gang, storage: VolumeCatalog) -> Verdict:
    """Refuse a gang, by the name of the claim, whose minimum needs a pod that no node can serve."""
    told: Verdict = ALLOW
    helpless = 0
    for pod_set in gang.pod_sets:
        if not pod_set.pod_class.uses_claims:
            continue
        for pod in pod_set.pods:
            for name in pod.claims:
                why = _claim_problem(
                    pod, storage.claims.get(ObjectKey(pod.namespace, name)), storage
                )
                if why:
                    helpless += 1
                    told = told if told.refuses else _claim_refusal(pod, name, why)
                    break
    return told if gang.pending - helpless < max(1, gang.missing_members) else ALLOW


def _claim_refusal(pod: Pod, claim: str, why: str) -> Verdict:
    return wait(
        Reason.NO_FEASIBLE_NODE,
        "pod {pod} uses the volume claim {claim}, which {why}",
        pod=pod.name,
        claim=claim,
        why=why,
    )


def _claim_problem(pod: Pod, claim: PersistentVolumeClaim | None, storage: VolumeCatalog) -> str:
    """Why no node helps; empty when one may."""
    if claim is None:
        return "does not exist"
    if claim.deleting:
        return "is being deleted"
    if claim.lost:
        return "has lost its volume"
    if claim.name in pod.own_claims and claim.owner != pod.uid:
        return "was not made for this pod"
    if claim.bound:
        known = claim.volume in storage.volumes
        return "" if known else f"is bound to volume {claim.volume}, which does not exist"
    if storage.waits(claim):
        return ""
    if claim.storage_class and claim.storage_class not in storage.classes:
        return f"is not bound to a volume yet, and its storage class {claim.storage_class} does not exist"
    return "is not bound to a volume yet"


def _volume_rule(pod: Pod, view: View, reach: VolumeReach) -> PairRule | None:
    if not pod.claims:
        return None
    storage = view.volumes()
    found = [storage.claims.get(ObjectKey(pod.namespace, name)) for name in pod.claims]
    claims = [claim for claim in found if claim is not None]
    if len(claims) == len(found) and not any(_claim_problem(pod, each, storage) for each in claims):
        fixed = reach.rows_for(claims)
    else:
        fixed = np.zeros(len(view.nodes()), dtype=np.bool_)
    alone = [ClaimUsers(claim.key) for claim in claims if ONE_POD in claim.modes]
    # Who shares a claim without a volume goes where its first user went: it is made there.
    shared = [ClaimUsers(claim.key) for claim in claims if not claim.bound]

    def allows() -> Bools:
        # A volume for one pod alone: whoever uses it, wherever, is in the way.
        if any(view.pods_by_node(query).any() for query in alone):
            return np.zeros(fixed.shape, dtype=np.bool_)
        allowed = fixed
        for query in shared:
            users = view.pods_by_node(query)
            if users.any():
                allowed = allowed & (users > 0)
        return allowed

    return PairRule(
        (pod.namespace, pod.claims, pod.own_claims),
        allows,
        once=bool(alone),
        detail=lambda: _named_limits(claims, view),
    )


def _named_limits(claims: Sequence[PersistentVolumeClaim], view: View) -> str:
    """``claim data: its volume is reached from nodes with zone In a``: of each claim what binds it."""
    told = [(claim, _limit_text(claim, view)) for claim in claims]
    return "; ".join(f"claim {claim.name}: {text}" for claim, text in told if text)


def _limit_text(claim: PersistentVolumeClaim, view: View) -> str:
    """What binds a claim to some nodes; empty where nothing does."""
    storage = view.volumes()
    users = view.names_of_pods(ClaimUsers(claim.key)) if ONE_POD in claim.modes else ""
    if users:
        return f"it is for one pod alone, and {users} uses it"
    if claim.bound:
        volume = storage.volumes.get(claim.volume)
        where = _places_text(volume) if volume is not None else ""
        return f"its volume is reached from nodes with {where}" if where else ""
    if claim.selected_node:
        return f"its volume is made for node {claim.selected_node}"
    known = storage.classes.get(claim.storage_class)
    if known is not None and known.topologies:
        term = " and ".join(f"{key} In {' '.join(values)}" for key, values in known.topologies[0])
        return f"class {known.name} makes volumes for nodes with {term}"
    if not storage.fitting(claim) and (known is None or not known.makes_volumes):
        return f"no volume of class {claim.storage_class} is free for it"
    return ""


def _places_text(volume: PersistentVolume) -> str:
    """``topology.kubernetes.io/zone In a``: from where a volume is reached; empty for everywhere."""
    for term in volume.nodes or ():
        told = [" ".join((each.key, each.operator, *each.values)) for each in term.labels]
        if told:
            return " and ".join(told)
    return " and ".join(f"{key} In {value}" for key, value in volume.zones)


class VolumeReach:
    """From which nodes volumes can be reached, or made; worked out once for equal ones.

    Args:
        view: of the session.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._storage = view.volumes()
        self._rows: dict[Hashable, Bools] = {}
        self._by_label: dict[str, dict[str, list[int]]] = {}

    def rows_for(self, claims: Sequence[PersistentVolumeClaim]) -> Bools:
        """Nodes on which all claims of one pod can be used, bool of shape (nodes,)."""
        allowed = np.ones(len(self._view.nodes()), dtype=np.bool_)
        waiting: list[PersistentVolumeClaim] = []
        for claim in claims:
            if claim.bound:
                allowed &= self._of_volume(self._storage.volumes[claim.volume])
            elif claim.selected_node:
                allowed &= self._provided(claim) & self._named(claim.selected_node)
            else:
                waiting.append(claim)
        if len(waiting) == 1:
            allowed &= self._provided(waiting[0]) | self._some_volume(waiting[0])
        elif waiting:
            self._match_claims_to_volumes(waiting, allowed)
        return allowed

    def _match_claims_to_volumes(
        self, claims: Sequence[PersistentVolumeClaim], allowed: Bools
    ) -> None:
        """Match claims to volumes, none to two of them; changes ``allowed``."""
        serving = [
            (self._provided(claim), [(v.name, self._of_volume(v)) for v in self._fitting(claim)])
            for claim in sorted(claims, key=lambda each: (each.size, each.name))
        ]
        for row in np.flatnonzero(allowed).tolist():
            taken: set[str] = set()
            for provided, volumes in serving:
                name = next((n for n, rows in volumes if rows[row] and n not in taken), "")
                if not name and not provided[row]:
                    allowed[row] = False
                    break
                taken.add(name)

    def _fitting(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        return self._storage.fitting(claim)

    def _some_volume(self, claim: PersistentVolumeClaim) -> Bools:
        rows = np.zeros(len(self._view.nodes()), dtype=np.bool_)
        for volume in self._fitting(claim):
            rows |= self._of_volume(volume)
        return rows

    def _named(self, name: str) -> Bools:
        return np.array([node.name == name for node in self._view.nodes()], dtype=np.bool_)

    def _provided(self, claim: PersistentVolumeClaim) -> Bools:
        """Where a volume can be made for it."""
        known = self._storage.classes.get(claim.storage_class)
        rows = self._rows.get(claim.storage_class)
        if rows is None:
            nodes = self._view.nodes()
            rows = np.array(
                [known is not None and known.provides(node) for node in nodes], dtype=np.bool_
            )
            self._rows[claim.storage_class] = rows
        return rows

    def _of_volume(self, volume: PersistentVolume) -> Bools:
        place = (volume.nodes, *volume.zones)
        rows = self._rows.get(place)
        if rows is None:
            nodes = self._view.nodes()
            rows = np.zeros(len(nodes), dtype=np.bool_)
            for row in self._candidates(volume):
                rows[row] = volume.reachable(nodes[row])
            self._rows[place] = rows
        return rows

    def _candidates(self, volume: PersistentVolume) -> Iterable[int]:
        """Rows that may do: of a volume on one host it is one row, found without a search."""
        everywhere = range(len(self._view.nodes()))
        found: set[int] = set()
        for term in volume.nodes or ():
            exact = next((each for each in term.labels if each.operator == "In"), None)
            if exact is None:
                return everywhere
            index = self._index(exact.key)
            found.update(row for value in exact.values for row in index.get(value, ()))
        return everywhere if volume.nodes is None else sorted(found)

    def _index(self, key: str) -> dict[str, list[int]]:
        index = self._by_label.get(key)
        if index is None:
            index = self._by_label[key] = {}
            for row, node in enumerate(self._view.nodes()):
                value = node.labels.get(key)
                if value is not None:
                    index.setdefault(value, []).append(row)
        return index
