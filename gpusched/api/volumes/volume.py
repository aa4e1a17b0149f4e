"""Claims of volumes, volumes and their classes, and which volume may serve a claim where."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from gpusched.api.affinity.selector import NodeTerm, Selector
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.node.node import Node
from gpusched.base.classes import frozen

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ZONES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


@frozen(slots=True, kw_only=True)
class PersistentVolumeClaim:
    """A PersistentVolumeClaim.

    Attributes:
        volume: the name of its volume, empty while it has none.
        bound: whether both sides agree on that volume.
        storage_class: empty for claims of no class.
        selected_node: where the first pod that uses it is to run, empty when not chosen yet.
        owner: UID of the controller, for claims that are made for one pod.
        size: bytes asked for.
        selector: of volumes; None for any.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    volume: str
    bound: bool
    lost: bool
    deleting: bool
    storage_class: str
    selected_node: str
    owner: UID
    modes: tuple[str, ...]
    block: bool
    size: int
    selector: Selector | None

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the claim."""
        return ObjectKey(self.namespace, self.name)


@frozen(slots=True, kw_only=True)
class PersistentVolume:
    """A PersistentVolume.

    Attributes:
        nodes: from where it can be reached, ORed; None for everywhere.
        promised: the claim it is kept for, None when it is free for any.
        promised_uid: of that claim, empty when only its name was given.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    labels: Mapping[str, str]
    nodes: tuple[NodeTerm, ...] | None
    storage_class: str
    modes: tuple[str, ...]
    block: bool
    size: int
    promised: ObjectKey | None
    promised_uid: str
    available: bool
    deleting: bool

    @property
    def zones(self) -> tuple[tuple[str, str], ...]:
        """Its labels that bind it to a zone or region."""
        return tuple((key, self.labels[key]) for key in _ZONES if key in self.labels)

    def reachable(self, node: Node) -> bool:
        """Whether pods on the node can use it: its node affinity, and its zone and region."""
        if self.nodes is not None and not any(
            term.matches(node.labels, name=node.name) for term in self.nodes
        ):
            return False
        if not any(key in node.labels for key in _ZONES):
            return True
        return all(node.labels.get(key) in value.split("__") for key, value in self.zones)


@frozen(slots=True, kw_only=True)
class StorageClass:
    """A StorageClass.

    Attributes:
        waits: whether claims get their volume only when a pod that uses them has a node.
        topologies: labels of nodes for which it makes volumes, ORed terms of ANDed keys; empty
            for all nodes.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    provisioner: str
    waits: bool
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]

    @property
    def makes_volumes(self) -> bool:
        """Whether something makes volumes of it, so that they need not be there."""
        return bool(self.provisioner) and self.provisioner != NO_PROVISIONER

    def provides(self, node: Node) -> bool:
        """Whether it can make a volume for pods on the node."""
        return self.makes_volumes and self._made_for(node)

    def _made_for(self, node: Node) -> bool:
        """Whether its volumes may be for pods on the node."""
        return not self.topologies or any(
            all(node.labels.get(key) in values for key, values in term) for term in self.topologies
        )


@frozen(slots=True, eq=False)
class VolumeCatalog:
    """All of it at one moment, by key and by name."""

    claims: Mapping[ObjectKey, PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]

    def waits(self, claim: PersistentVolumeClaim) -> bool:
        """Whether an unbound claim waits for a pod to get its node."""
        known = self.classes.get(claim.storage_class)
        return known is not None and known.waits and not claim.volume

    def match(
        self, claim: PersistentVolumeClaim, node: Node, taken: Collection[str] = ()
    ) -> PersistentVolume | None:
        """The smallest free volume that serves the claim on the node.

        Args:
            claim: that waits for a volume.
            node: where the pod is to run.
            taken: names of volumes that are given away already.
        """
        free = (each for each in self.fitting(claim) if each.name not in taken)
        return next((each for each in free if each.reachable(node)), None)

    def fitting(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Free volumes that serve the claim, wherever they are: promised first, then small."""
        found = (each for each in self.volumes.values() if _serves(each, claim))
        return sorted(found, key=lambda each: (each.promised is None, each.size, each.name))


def _serves(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    if volume.promised is not None:
        if volume.promised != claim.key or volume.promised_uid not in ("", claim.uid):
            return False
    elif not volume.available:
        return False
    if volume.deleting or volume.size < claim.size:
        return False
    if (volume.storage_class, volume.block) != (claim.storage_class, claim.block):
        return False
    if not set(claim.modes) <= set(volume.modes):
        return False
    return claim.selector is None or claim.selector.matches(volume.labels)
