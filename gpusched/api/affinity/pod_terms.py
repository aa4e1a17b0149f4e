"""What a pod asks of the pods around it: ports of the host, nearness, distance, even spread.

The meaning is that of kube-scheduler. Label keys of a term stand for the pod's own values; an
API server that has written those values into the selector already is not contradicted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.base.classes import frozen

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - what a port without an address means


@frozen(slots=True, order=True)
class HostPort:
    """A port on the node itself."""

    address: str
    protocol: str
    port: int

    def conflicts(self, other: HostPort) -> bool:
        """Whether both cannot be had on one node."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.address == other.address or ANY_ADDRESS in (self.address, other.address)


@frozen(slots=True)
class PodTerm:
    """Pods in some namespaces with some labels, in one domain of a topology key.

    Attributes:
        selector: None selects no pod at all.
        namespaces: sorted; with no namespace selector either, the pod's own one is meant.
        namespace_selector: None selects no namespace, an empty one all.
        same_keys, other_keys: labels in which the others must agree with this pod, or differ.
    """

    topology_key: str
    selector: Selector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    same_keys: tuple[str, ...] = ()
    other_keys: tuple[str, ...] = ()

    def selector_for(self, labels: Mapping[str, str]) -> Selector | None:
        """The selector of this term for a pod with these labels."""
        same = selector_with_pod_labels(self.selector, self.same_keys, labels, operator="In")
        return selector_with_pod_labels(same, self.other_keys, labels, operator="NotIn")

    def namespaces_for(
        self, namespace: str, labels: Mapping[str, Mapping[str, str]]
    ) -> frozenset[str] | None:
        """Where it looks when a pod of this namespace asks; None is everywhere.

        Args:
            namespace: of the pod.
            labels: of each namespace, by its name.
        """
        chosen = self.namespace_selector
        if chosen is None:
            return frozenset(self.namespaces or (namespace,))
        if not chosen.requirements:
            return None
        found = (name for name, own in labels.items() if chosen.matches(own))
        return frozenset((*self.namespaces, *found))

    def keys(self) -> frozenset[str]:
        """Labels, of the pod or of others, on which its meaning depends."""
        return label_keys(self.selector, self.same_keys, self.other_keys)


@frozen(slots=True)
class SpreadTerm:
    """Even numbers of pods over the domains of a topology key.

    Attributes:
        selector: None selects no pod at all.
        min_domains: with fewer domains the emptiest counts as empty.
        by_affinity: count only nodes that the pod's node selector and node affinity admit.
        by_taints: count only nodes whose taints the pod tolerates.
        same_keys: labels in which the others must agree with this pod.
    """

    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False
    same_keys: tuple[str, ...] = ()

    def selector_for(self, labels: Mapping[str, str]) -> Selector | None:
        """The selector of pods that it counts, for a pod with these labels."""
        return selector_with_pod_labels(self.selector, self.same_keys, labels, operator="In")

    def keys(self) -> frozenset[str]:
        """Labels, of the pod or of others, on which its meaning depends."""
        return label_keys(self.selector, self.same_keys)


def selector_with_pod_labels(
    selector: Selector | None,
    keys: Collection[str],
    labels: Mapping[str, str],
    *,
    operator: str,
) -> Selector | None:
    """The selector with the pod's own values of these labels; what it names already stays."""
    if selector is None or not keys:
        return selector
    named = {each.key for each in selector.requirements}
    added = tuple(
        Requirement(key, operator, (labels[key],))
        for key in keys
        if key in labels and key not in named
    )
    return Selector((*selector.requirements, *added)) if added else selector


def label_keys(selector: Selector | None, *more: Iterable[str]) -> frozenset[str]:
    """All label keys that a selector and these lists name."""
    own = (each.key for each in selector.requirements) if selector else ()
    return frozenset(own).union(*more)
