"""Nearness to and distance from other pods, required: the pod's own terms and those of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np
from gpusched_plugins.nodes.predicates.pod_selection import (
    Bools,
    Ints,
    PodSelection,
    is_selected,
    named_pods,
    namespaced_selector,
    rows_with_pods_in_domain,
)

from gpusched.plugin import DomainLimit, Hooks, PairRule, Pod, PodTerm, Selector, View

HOST = "kubernetes.io/hostname"


def register_inter_pod_affinity(hooks: Hooks, view: View) -> None:
    """Own affinity, own anti-affinity, and the anti-affinity of pods that are there or come."""
    hooks.pair_filter(
        "do not satisfy its pod affinity",
        lambda pod: _affinity_rule(pod, view),
        concerns=lambda pod_class: bool(pod_class.pod_affinity),
        reads=("pod_affinity",),
    )
    hooks.pair_filter(
        "break its pod anti-affinity",
        lambda pod: _anti_affinity_rule(pod, view),
        concerns=lambda pod_class: bool(pod_class.pod_anti_affinity),
        reads=("pod_anti_affinity",),
    )
    wards = AntiAffinityRules(view.pods_with_anti_affinity(), view)
    if wards.some:
        hooks.pair_filter(
            "break the anti-affinity of pods there",
            wards.rule,
            concerns=lambda _pod_class: True,
            reads=(),
        )


def _affinity_rule(pod: Pod, view: View) -> PairRule | None:
    terms = pod.pod_class.pod_affinity
    if not terms:
        return None
    keys = tuple(term.topology_key for term in terms)
    parts = tuple(namespaced_selector(term, pod, view) for term in terms)
    # The first of a series that wants to be near its own kind has nobody to be near to.
    own_kind = all(is_selected(part, pod) for part in parts)
    query = PodSelection(parts)

    def allows() -> Bools:
        counts = view.pods_by_node(query)
        labelled = np.ones(counts.shape, dtype=np.bool_)
        near = np.ones(counts.shape, dtype=np.bool_)
        anybody = False
        for key in keys:
            domains = view.domain_numbers(key)
            labelled &= domains >= 0
            close = rows_with_pods_in_domain(counts, domains)
            anybody = anybody or bool(close.any())
            near &= close
        return labelled if own_kind and not anybody else near

    def limits() -> list[DomainLimit] | None:
        counts = view.pods_by_node(query)
        if any(rows_with_pods_in_domain(counts, view.domain_numbers(key)).any() for key in keys):
            return []  # near those who are there, and where that is does not change
        if not own_kind:
            return None
        return [DomainLimit(key, query.counts, None) for key in keys]

    return PairRule(
        (keys, parts, own_kind),
        allows,
        limits=limits,
        detail=lambda: _missing_neighbours(terms, query, view),
    )


def _missing_neighbours(terms: Sequence[PodTerm], query: PodSelection, view: View) -> str:
    """``no node has the label zone``, ``no pod that it wants to be near has a place``."""
    for term in terms:
        if not (view.domain_numbers(term.topology_key) >= 0).any():
            return f"no node has the label {term.topology_key}"
    if not view.pods_by_node(query).any():
        return "no pod that it wants to be near runs"
    return f"near {view.names_of_pods(query)} by {terms[0].topology_key}"


def _anti_affinity_rule(pod: Pod, view: View) -> PairRule | None:
    terms = pod.pod_class.pod_anti_affinity
    if not terms:
        return None
    asked = tuple(
        (term.topology_key, PodSelection((namespaced_selector(term, pod, view),), cautious=True))
        for term in terms
    )

    def allows() -> Bools:
        allowed = np.ones(len(view.nodes()), dtype=np.bool_)
        for key, query in asked:
            allowed &= ~rows_with_pods_in_domain(view.pods_by_node(query), view.domain_numbers(key))
        return allowed

    def limits() -> list[DomainLimit]:
        return [_one_in_each_domain(key, query.counts, view) for key, query in asked]

    once = any(key == HOST and query.counts(pod) for key, query in asked)
    return PairRule(
        asked,
        allows,
        once=once,
        limits=limits,
        detail=lambda: named_pods(view, [query for _, query in asked]),
    )


def _one_in_each_domain(key: str, counts: Callable[[Pod], bool], view: View) -> DomainLimit:
    """One pod in each domain of a label; domains with one already are not allowed anyway."""

    def room() -> Ints:
        return np.ones(int(view.domain_numbers(key).max(initial=-1)) + 1, dtype=np.int64)

    return DomainLimit(key, counts, room)


@attrs.frozen(cache_hash=True)
class AntiAffinityRule:
    """A term by which some pods keep others away, with all that it says of its owner filled in."""

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None

    def repels(self, pod: Pod, labels: Mapping[str, str]) -> bool:
        """Whether this pod is meant; ``labels`` of its namespace."""
        by_name = pod.namespace in self.namespaces
        chosen = self.namespace_selector
        if not by_name and (chosen is None or not chosen.matches(labels)):
            return False
        return self.selector.matches(pod.labels)


def anti_affinity_rule_of(term: PodTerm, owner: Pod) -> AntiAffinityRule | None:
    """The term as its owner means it; None when it selects no pod."""
    selector = term.selector_for(owner.labels)
    if selector is None:
        return None
    spaces = term.namespaces
    if not spaces and term.namespace_selector is None:
        spaces = (owner.namespace,)
    return AntiAffinityRule(term.topology_key, selector, spaces, term.namespace_selector)


@attrs.frozen(cache_hash=True)
class AntiAffinityOwners:
    """Pods that have this ward."""

    ward: AntiAffinityRule
    cautious: bool = True
    needs: None = None

    def counts(self, pod: Pod) -> bool:
        """Whether this pod counts."""
        return any(
            anti_affinity_rule_of(term, pod) == self.ward
            for term in pod.pod_class.pod_anti_affinity
        )


class AntiAffinityIndex:
    """Wards by the labels that a pod must have to be meant: few of many concern any one pod."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], list[int]] = {}
        self._keys: dict[str, list[int]] = {}
        self._others: list[int] = []

    def add(self, number: int, selector: Selector) -> None:
        """Enter a ward under a label that its selector insists on, where there is one."""
        for each in selector.requirements:
            if each.operator == "In":
                for value in dict.fromkeys(each.values):
                    self._pairs.setdefault((each.key, value), []).append(number)
                return
        for each in selector.requirements:
            if each.operator == "Exists":
                self._keys.setdefault(each.key, []).append(number)
                return
        self._others.append(number)

    def wards_of(self, labels: Mapping[str, str]) -> Iterator[int]:
        """Numbers of wards that may mean a pod with these labels, each once."""
        yield from self._others
        for key, value in labels.items():
            yield from self._pairs.get((key, value), ())
            yield from self._keys.get(key, ())


class AntiAffinityRules:
    """All wards in play: of pods on nodes, and of pods that may be placed in this session.

    Args:
        owners: pods with required anti-affinity.
        view: of the session.
    """

    def __init__(self, owners: Iterable[Pod], view: View) -> None:
        found: dict[AntiAffinityRule, None] = {}
        for owner in owners:
            for term in owner.pod_class.pod_anti_affinity:
                ward = anti_affinity_rule_of(term, owner)
                if ward is not None:
                    found[ward] = None
        self._wards = tuple(found)
        self._view = view
        self._near: dict[str, AntiAffinityIndex] = {}
        """Those that name namespaces, by each of these."""
        self._far = AntiAffinityIndex()
        """Those that select namespaces by their labels."""
        for number, ward in enumerate(self._wards):
            for namespace in ward.namespaces:
                self._near.setdefault(namespace, AntiAffinityIndex()).add(number, ward.selector)
            if ward.namespace_selector is not None:
                self._far.add(number, ward.selector)
        self._known: dict[tuple[int, ...], PairRule] = {}

    @property
    def some(self) -> bool:
        """Whether there is any."""
        return bool(self._wards)

    def rule(self, pod: Pod) -> PairRule | None:
        """What they say for a pod; pods that the same wards mean share it."""
        near = self._near.get(pod.namespace)
        maybe = {*(near.wards_of(pod.labels) if near else ()), *self._far.wards_of(pod.labels)}
        if not maybe:
            return None
        labels = self._view.namespace_labels().get(pod.namespace, {})
        meant = tuple(number for number in sorted(maybe) if self._wards[number].repels(pod, labels))
        if not meant:
            return None
        if meant not in self._known:
            self._known[meant] = self._rule(meant)
        return self._known[meant]

    def _rule(self, meant: tuple[int, ...]) -> PairRule:
        view = self._view
        against = [AntiAffinityOwners(self._wards[number]) for number in meant]

        def allows() -> Bools:
            allowed = np.ones(len(view.nodes()), dtype=np.bool_)
            for query in against:
                domains = view.domain_numbers(query.ward.topology_key)
                allowed &= ~rows_with_pods_in_domain(view.pods_by_node(query), domains)
            return allowed

        def limits() -> list[DomainLimit]:
            return [
                _one_in_each_domain(query.ward.topology_key, query.counts, view)
                for query in against
            ]

        return PairRule(
            frozenset(query.ward for query in against),
            allows,
            limits=limits,
            detail=lambda: named_pods(view, against),
        )
