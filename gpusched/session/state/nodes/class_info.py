"""Nodes that pods fit: one info for each class, and more for pods with rules about other pods.

Most pods have no rule about other pods, and none keeps them away: all pods of their class share
one info. The others share theirs with pods for which all rules have the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from typing import Final, TypeVar

import attrs
import numpy as np

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.identity import UID
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Bools, Ints, NodeColumns, RequestVector, pod_class_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import frozen
from gpusched.placement.model.class_fit import Caps, ClassFit
from gpusched.session.framework.hooks import Filter, Hooks
from gpusched.session.framework.inter_pod_rules import (
    InterPodGate,
    PairFilter,
    PairRule,
    PairScore,
    PairScorer,
)
from gpusched.session.framework.pod_counts import PodCounts
from gpusched.session.state.equivalence import EquivalenceClass
from gpusched.session.state.nodes.class_scores import ClassScores
from gpusched.session.state.nodes.devices.device_room import DeviceRoom
from gpusched.session.state.nodes.numa_fit import make_numa_limit
from gpusched.session.state.nodes.open_nodes import PlainClasses
from gpusched.session.state.nodes.windows.reserved_windows import ClosedNodes
from gpusched.session.state.session_cache import SessionCache

PairHook = TypeVar("PairHook", PairFilter, PairScorer)
_FILTER_FAILED: Final = "are not accepted as a filter failed"


@frozen(slots=True, eq=False)
class PodClassInfo:
    """Pods that are equal in this session.

    Attributes:
        digest: of their class.
        request: amounts that one of them requests.
        refused: rows that each filter refuses, in the order of filters.
        class_fit: how many fit each node, and which node is best.
        gate: rules between pods that concern them, None for none.
        confining: filters behind those of policies in ``refused``: types of GPUs, Reservations.
    """

    digest: str
    request: RequestVector
    refused: list[Bools]
    class_fit: ClassFit
    gate: InterPodGate | None = None
    confining: tuple[Filter, ...] = ()


@frozen(slots=True)
class ConfinedTypes:
    """Types of GPUs that pods are confined to.

    Attributes:
        types: their numbers, ascending; see ``NodeGpuTypes``.
        others: nodes without GPUs of these types, bool, shape (nodes,).
    """

    types: tuple[int, ...]
    others: Bools = attrs.field(eq=False)


@frozen(slots=True, eq=False)
class _ClassRules:
    """Rules and preferences that may concern pods of a class, with their numbers."""

    filters: list[tuple[int, PairFilter]]
    scorers: list[tuple[int, PairScorer]]


class PodClassInfos:
    """Infos of all classes of one session, made when they are first needed.

    Args:
        node_usage: usage of nodes, which they follow.
        pod_counts: pods on each node.
        hooks: what plugins registered.
        session_cache: filter results cached from earlier sessions.
        devices: of the session; asked for only by classes with claims.
    """

    def __init__(
        self,
        node_usage: NodeUsage,
        pod_counts: PodCounts,
        hooks: Hooks,
        session_cache: SessionCache,
        devices: Callable[[], DeviceRoom],
    ) -> None:
        self._devices = devices
        self._node_usage = node_usage
        self._pod_counts = pod_counts
        self._hooks = hooks
        self._session_cache = session_cache
        self._gpu_types: ConfinedTypes | None = None
        self._closed: ClosedNodes | None = None
        self._plain: dict[tuple[str, Hashable], PodClassInfo] = {}
        self._concerned: dict[str, _ClassRules] = {}
        self._concerned_alike: dict[Hashable, _ClassRules] = {}
        self._concerned_kinds: dict[EquivalenceClass, bool] = {}
        self._by_rule_keys: dict[Hashable, PodClassInfo] = {}
        self._filters_known = -1
        self._read_by_filters: list[str] | None = None
        """Fields of a class that filters read; None where one may read any."""
        self._refused_alike: dict[Hashable, list[Bools]] = {}
        self._allowed: dict[Hashable, tuple[Sequence[Bools], Bools]] = {}
        self._by_pod: dict[tuple[UID, str, Hashable], PodClassInfo] = {}
        """Infos by pod and class: a Job that may start in several pools has pods of several."""

    @contextmanager
    def confine_to_types(self, types: ConfinedTypes) -> Iterator[None]:
        """Inside, pods that request GPUs fit nodes with GPUs of these types alone."""
        before, self._gpu_types = self._gpu_types, types
        try:
            yield
        finally:
            self._gpu_types = before

    @property
    def confined_to(self) -> ConfinedTypes | None:
        """Types that pods with GPUs are confined to now; None for all."""
        return self._gpu_types

    @property
    def is_confined(self) -> bool:
        """Whether pods are confined to types of GPUs now, or kept from nodes that Reservations close."""
        return self._gpu_types is not None or self._closed is not None

    @contextmanager
    def close_nodes(self, closed: ClosedNodes | None) -> Iterator[None]:
        """Inside, pods fit no node that Reservations close to their gang, and all others."""
        before, self._closed = self._closed, closed
        try:
            yield
        finally:
            self._closed = before

    def _types_of(self, pod_class: PodClass) -> ConfinedTypes | None:
        return self._gpu_types if pod_class.gpu or pod_class.share is not None else None

    def _confinement_key(self, pod_class: PodClass) -> Hashable:
        """What pods of a class are confined to now: types of GPUs, open nodes, values of devices."""
        types, closed = self._types_of(pod_class), self._closed
        if pod_class.claims:
            return (types, closed, self._devices().claims.hold)
        return types if closed is None else (types, closed)

    @property
    def nodes(self) -> NodeColumns:
        """Columns of the session's nodes."""
        return self._node_usage.nodes

    def class_info(self, pod_class: PodClass) -> PodClassInfo:
        """The class on this session's nodes, up to date, whatever rules its pods have."""
        key = (pod_class.digest, self._confinement_key(pod_class))
        info = self._plain.get(key)
        if info is None:
            info = self._plain[key] = self._build_info(pod_class)
        else:
            info.class_fit.refresh()
        return info

    def may_have_pod_rules(self, pod_class: PodClass) -> bool:
        """Whether pods of the class may have rules about other pods, or be meant by theirs."""
        concerned = self._rules_of_class(pod_class)
        return bool(concerned.filters or concerned.scorers)

    def concern_equivalence_class(self, kind: EquivalenceClass) -> bool:
        """Whether members of gangs of a kind may have such rules, or be meant by them."""
        known = self._concerned_kinds.get(kind)
        if known is None:
            known = any(self.may_have_pod_rules(each) for each in kind.classes)
            self._concerned_kinds[kind] = known
        return known

    def pod_info(self, pod: Pod) -> PodClassInfo:
        """The class of one pod, up to date, with all rules between pods."""
        if not self.may_have_pod_rules(pod.pod_class):
            return self.class_info(pod.pod_class)
        key = (pod.uid, pod.pod_class.digest, self._confinement_key(pod.pod_class))
        info = self._by_pod.get(key)
        if info is None:
            info = self._by_pod[key] = self._info_with_rules(pod)
        info.class_fit.refresh()
        return info

    def refusal_causes(self, info: PodClassInfo) -> tuple[list[Filter], list[Bools]]:
        """Filters with the rows that each refuses as things stand, rules between pods last."""
        unanswered = self._hooks.unanswered
        filters = [
            attrs.evolve(each, reason=_FILTER_FAILED, failed=failed) if failed else each
            for number, each in enumerate(self._hooks.filters)
            for failed in (unanswered.get((info.digest, number), ""),)
        ]
        refused = list(info.refused)
        filters += info.confining
        if info.gate is not None:
            for words, mask, failed in info.gate.refused_rows():
                reason = _FILTER_FAILED if failed else words
                filters.append(Filter("", reason, _refuse_nothing, failed))
                refused.append(mask)
        return filters, refused

    def _rules_of_class(self, pod_class: PodClass) -> _ClassRules:
        known = self._concerned.get(pod_class.digest)
        if known is None:
            known = self._concerned[pod_class.digest] = self._ask_concerns(pod_class)
        return known

    def _ask_concerns(self, pod_class: PodClass) -> _ClassRules:
        """Hooks that say what they read of a class are asked once for classes that are equal in that."""
        key = tuple([getattr(pod_class, name) for name in self._read_by_concerns])
        known = self._concerned_alike.get(key)
        if known is None:
            known = self._concerned_alike[key] = _ClassRules(
                [each for each in self._pair_filters[True] if each[1].concerns(pod_class)],
                [each for each in self._pair_scorers[True] if each[1].concerns(pod_class)],
            )
        filters = [each for each in self._pair_filters[False] if each[1].concerns(pod_class)]
        scorers = [each for each in self._pair_scorers[False] if each[1].concerns(pod_class)]
        if not filters and not scorers:
            return known
        return _ClassRules(
            sorted([*known.filters, *filters], key=itemgetter(0)),
            sorted([*known.scorers, *scorers], key=itemgetter(0)),
        )

    @cached_property
    def _pair_filters(self) -> dict[bool, list[tuple[int, PairFilter]]]:
        """Filters with their numbers, by whether they say what they read of a class."""
        return _by_declaration(self._hooks.pairs.filters)

    @cached_property
    def _pair_scorers(self) -> dict[bool, list[tuple[int, PairScorer]]]:
        return _by_declaration(self._hooks.pairs.scorers)

    @cached_property
    def _read_by_concerns(self) -> tuple[str, ...]:
        """Fields of a class that those read which say it."""
        pairs = self._hooks.pairs
        declared = [each.reads or () for each in pairs.filters]
        declared += [each.reads or () for each in pairs.scorers]
        return tuple(sorted({name for reads in declared for name in reads}))

    def _info_with_rules(self, pod: Pod) -> PodClassInfo:
        concerned = self._rules_of_class(pod.pod_class)
        rules: list[tuple[str, PairRule]] = []
        scores: list[PairScore] = []
        key: list[Hashable] = [pod.pod_class.digest, self._confinement_key(pod.pod_class)]
        for number, filter_ in concerned.filters:
            rule = filter_.rule(pod)
            if rule is not None:
                rules.append((filter_.reason, rule))
                key.append((number, rule.key))
        for number, scorer in concerned.scorers:
            score = scorer.score(pod)
            if score is not None:
                scores.append(score)
                key.append((-1 - number, score.key))
        if not rules and not scores:
            return self.class_info(pod.pod_class)
        rule_keys = tuple(key)
        info = self._by_rule_keys.get(rule_keys)
        if info is None:
            gate = InterPodGate(self._pod_counts, rules, scores, len(self.nodes))
            info = self._by_rule_keys[rule_keys] = self._build_info(pod.pod_class, gate)
        return info

    def accepting_rows(self, pod_class: PodClass) -> Bools:
        """Nodes that filters allow pods of a class, bool, shape (nodes,)."""
        return _rows_no_filter_refuses(pod_class, self._refused_rows(pod_class), len(self.nodes))

    @property
    def plain_classes(self) -> PlainClasses:
        """What filters and rules between pods say of classes, while pods are not confined."""
        return PlainClasses(
            fields=self._fields_read,
            allowed_rows=lambda each: self._allowed_rows(each, self._refused_rows(each)),
            may_have_rules=self.may_have_pod_rules,
            filter_faults=lambda: self._hooks.filter_faults,
        )

    def _fields_read(self) -> frozenset[str] | None:
        """Fields of a class that filters, and those read that say whom rules concern; None where one may read any."""
        filters = [each.reads for each in self._hooks.filters]
        if None in filters or self._pair_filters[False] or self._pair_scorers[False]:
            return None
        names = {name for reads in filters for name in reads or ()}
        return frozenset(names.union(self._read_by_concerns))

    def _refused_rows(self, pod_class: PodClass) -> list[Bools]:
        """Rows that each filter refuses: the same list for classes that are equal in all that filters read."""
        key, faults = self._key_for_filters(pod_class), self._hooks.filter_faults
        refused = self._refused_alike.get(key)
        if refused is None:
            refused = self._session_cache.refused_rows(pod_class, self.nodes, self._hooks.filters)
            if self._hooks.filter_faults > faults:
                self._session_cache.forget(pod_class)
            else:
                self._refused_alike[key] = refused
        return refused

    def _key_for_filters(self, pod_class: PodClass) -> Hashable:
        filters = self._hooks.filters
        if len(filters) != self._filters_known:  # plugins ask while they are opened, too
            reads = [each.reads for each in filters]
            names = {name for each in reads for name in each or ()}
            self._read_by_filters = None if None in reads else sorted(names)
            self._filters_known = len(filters)
        fields = self._read_by_filters
        about = (
            pod_class.digest if fields is None else tuple([getattr(pod_class, n) for n in fields])
        )
        return len(filters), about

    def _build_info(self, pod_class: PodClass, gate: InterPodGate | None = None) -> PodClassInfo:
        nodes = self.nodes
        request = pod_class_vector(pod_class, nodes.columns)
        refused = self._refused_rows(pod_class)
        confining, masks = self._confining_filters(pod_class)
        refused = [*refused, *masks]
        allowed = self._allowed_rows(pod_class, refused)
        node_usage = self._node_usage
        caps = make_numa_limit(node_usage, pod_class)
        if pod_class.share is not None:
            caps = _lower_by_both(caps, _shares_need_slots(nodes))
        if pod_class.claims:
            caps = _lower_by_both(caps, self._devices().class_caps(pod_class))
        scores = ClassScores(node_usage, self._hooks.scores, pod_class)
        class_fit = ClassFit(
            node_usage, request, allowed=allowed, scores=scores, gate=gate, caps=caps
        )
        return PodClassInfo(pod_class.digest, request, refused, class_fit, gate, confining)

    def _allowed_rows(self, pod_class: PodClass, refused: Sequence[Bools]) -> Bools:
        """Rows that nothing refuses: the same array for classes of which all filters said the same."""
        key = (pod_class.unsupported, *map(id, refused))
        known = self._allowed.get(key)
        if known is None:
            allowed = _rows_no_filter_refuses(pod_class, refused, len(self.nodes))
            # With what it was made of, so that no other array gets the same identity.
            known = self._allowed[key] = (refused, allowed)
        return known[1]

    def _confining_filters(self, pod_class: PodClass) -> tuple[tuple[Filter, ...], list[Bools]]:
        """What stands behind the filters of policies now, and the rows that it refuses."""
        filters: list[Filter] = []
        masks: list[Bools] = []
        types = self._types_of(pod_class)
        if types is not None:
            filters.append(_OTHER_GPU_TYPE)
            masks.append(types.others)
        for words, rows in self._closed.masks if self._closed is not None else ():
            filters.append(Filter("", words, _refuse_nothing))
            masks.append(rows)
        return tuple(filters), masks


def _by_declaration(hooks: Sequence[PairHook]) -> dict[bool, list[tuple[int, PairHook]]]:
    """Hooks with their numbers, by whether they say what they read."""
    found: dict[bool, list[tuple[int, PairHook]]] = {True: [], False: []}
    for number, each in enumerate(hooks):
        found[each.reads is not None].append((number, each))
    return found


def _rows_no_filter_refuses(pod_class: PodClass, refused: Sequence[Bools], nodes: int) -> Bools:
    allowed = np.full(nodes, not pod_class.unsupported, dtype=np.bool_)
    for mask in refused:
        allowed &= ~mask
    return allowed


def _shares_need_slots(nodes: NodeColumns) -> Caps | None:
    """No share fits a node that has its GPUs as devices only: a share has no claim for them."""
    rows = [row for row, node in enumerate(nodes.nodes) if shared_resource() in node.devices_only]
    if not rows:
        return None
    closed = frozenset(rows)

    def lower(asked: Sequence[int] | slice, fits: Ints) -> None:
        numbers = range(len(fits)) if isinstance(asked, slice) else asked
        for position, row in enumerate(numbers):
            if row in closed:
                fits[position] = 0

    return lower


def _lower_by_both(first: Caps | None, second: Caps | None) -> Caps | None:
    """What lowers as both do."""
    if first is None or second is None:
        return first or second

    def lower(rows: Sequence[int] | slice, fits: Ints) -> None:
        first(rows, fits)
        second(rows, fits)

    return lower


def _refuse_nothing(_pod: PodClass, _nodes: Sequence[object]) -> None:
    """Stand in for a filter whose answer is known already."""


def _not_refused_lately(pod_class: PodClass, nodes: Sequence[Node]) -> list[bool] | None:
    if not any(node.avoided for node in nodes):
        return None
    return [pod_class.requests not in node.avoided for node in nodes]


_OTHER_GPU_TYPE: Final = Filter("", "have GPUs of another type", _refuse_nothing)
REFUSED_LATELY: Final = Filter(
    "", "refused such a pod lately", _not_refused_lately, reads=("requests",)
)
"""The session's own filter, which holds whatever policies are configured."""
