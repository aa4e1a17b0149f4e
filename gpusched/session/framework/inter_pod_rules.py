"""Rules between pods: what a plugin registers, and the gate that a class fit consults.

A rule is made for one pod and may hold for many: its key says for which, so that pods that only
differ in what no rule reads share one class fit. A rule is evaluated again after every move that
could change its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Bools, Ints
from gpusched.base.classes import frozen
from gpusched.base.errors import PluginFault
from gpusched.session.framework.guard import Guard
from gpusched.session.framework.hook_calls import contain_when_called, fields_of
from gpusched.session.framework.pod_counts import PodCounts
from gpusched.session.framework.reasons import shorten

POINTS_MAX = 1_000_000
"""One rule's score of one node lies within plus and minus this."""


@frozen(eq=False)
class DomainLimit:
    """What a rule says of its own pods among each other: how many of them one domain takes.

    Attributes:
        key: label of nodes whose domains are meant; empty for single nodes.
        counts: whether a pod counts, so that it takes of the room.
        room: pods that may still come to each domain as the session stands, int64, shape
            (domains of the key,) or (nodes,); None where all must come to one domain.
        rises: whether the room may grow as pods come, as with even spread.
    """

    key: str
    counts: Callable[[Pod], bool]
    room: Callable[[], Ints] | None
    rises: bool = False


@frozen(eq=False)
class PairRule:
    """What one rule says for a pod, and for all pods for which it has the same key.

    Attributes:
        key: equal keys of one filter mean equal answers.
        allows: where one more such pod may go as the session stands, bool, shape (nodes,).
        once: whether two pods with this key never share a node.
        exact: whether pods with this key, placed one by one, find places if there are any: where
            the first goes never decides how many can follow.
        limits: limits of domains that say, with ``allowed_rows`` as it stands, all that the rule means
            for several of its pods that are placed together; no callable, or an answer of None,
            where limits cannot say it: such gangs are placed pod by pod, and nothing is proven.
    """

    key: Hashable
    allows: Callable[[], Bools]
    once: bool = False
    exact: bool = False
    limits: Callable[[], Sequence[DomainLimit] | None] | None = None
    failed: Callable[[], str] = str
    """Error of its filter when it was evaluated last, empty when it answered."""
    detail: Callable[[], str] | None = None
    """A few words that name what is in the way, such as other pods; asked when a sentence is made."""


@frozen(eq=False)
class PairScore:
    """Points of one preference, int64, shape (nodes,); larger is better."""

    key: Hashable
    points: Callable[[], Ints]


RuleOf = Callable[[Pod], PairRule | None]
ScoreOf = Callable[[Pod], PairScore | None]
Concerns = Callable[[PodClass], bool]


@frozen(eq=False)
class PairFilter:
    """A filter between pods that a plugin registered."""

    plugin: str
    reason: str
    rule: RuleOf
    concerns: Concerns
    reads: tuple[str, ...] | None = None
    """Fields of a class that ``concerns`` depends on; None for all."""


@frozen(eq=False)
class PairScorer:
    """A preference between pods that a plugin registered."""

    score: ScoreOf
    concerns: Concerns
    reads: tuple[str, ...] | None = None
    """As of ``PairFilter``."""


class PairHooks:
    """Wraps what plugins register: a faulty filter refuses, a faulty score says nothing.

    Args:
        guard: contains faults.
        faults: takes their sentences.
    """

    def __init__(self, guard: Guard, faults: list[str]) -> None:
        self._guard = guard
        self._faults = faults
        self.filters: list[PairFilter] = []
        self.scorers: list[PairScorer] = []
        self.rows = 0
        """Number of nodes of the session; what rules answer is checked against it."""

    def add_filter(
        self,
        plugin: str,
        reason: str,
        rule: RuleOf,
        concerns: Concerns,
        reads: Sequence[str] | None,
    ) -> None:
        """Register a filter, see ``Hooks.pair_filter``."""
        part = f"filter {len(self.filters)}"

        def nowhere(fault: PluginFault, _pod: Pod) -> PairRule | None:
            self._faults.append(str(fault))
            failed = filter_failure_message(fault)
            return PairRule(str(fault), lambda: np.zeros(1, dtype=np.bool_), failed=lambda: failed)

        def sound(pod: Pod) -> PairRule | None:
            made = rule(pod)
            if made is None:
                return None
            hash(made.key)
            rule_allows = made.allows
            last = ""

            def checked() -> Bools:
                nonlocal last
                last = ""
                mask = np.asarray(rule_allows())
                if mask.shape != (self.rows,) or mask.dtype != np.bool_:
                    found = f"{mask.dtype} of shape {mask.shape}"
                    raise PluginFault(plugin, "pair_filter", f"{found}, not {self.rows} bools")
                return mask

            def refuse(fault: PluginFault) -> Bools:
                nonlocal last
                last = filter_failure_message(fault)
                self._faults.append(str(fault))
                return np.zeros(1, dtype=np.bool_)

            allows = self._guard.wrap_hook(
                plugin, "pair_filter", checked, refuse, part=f"{part} allows"
            )
            return PairRule(
                made.key,
                allows,
                bool(made.once),
                bool(made.exact),
                limits=self._wrap_limits(plugin, made, part),
                failed=lambda: last,
                detail=self._wrap_detail(plugin, made, part),
            )

        wrapped = contain_when_called(self._guard, (plugin, "pair_filter", part), sound, nowhere)
        fields = None if reads is None else tuple(reads)
        sure = self._validated_concerns(plugin, "pair_filter", concerns, fields)
        named = (plugin, "pair_filter", f"{part} concerns")
        concerned = contain_when_called(self._guard, named, sure, self._all)
        self.filters.append(PairFilter(plugin, reason, wrapped, concerned, fields))

    def _wrap_limits(
        self, plugin: str, made: PairRule, part: str
    ) -> Callable[[], Sequence[DomainLimit] | None] | None:
        """The rule's limits, contained; None where it has none."""
        if made.limits is None:
            return None

        def unknown(fault: PluginFault) -> Sequence[DomainLimit] | None:
            self._faults.append(str(fault))
            return None

        return self._guard.wrap_hook(
            plugin, "pair_filter", made.limits, unknown, part=f"{part} limits"
        )

    def _wrap_detail(self, plugin: str, made: PairRule, part: str) -> Callable[[], str] | None:
        """The rule's detail, contained; None where it has none."""
        detail: Callable[[], object] | None = made.detail
        if detail is None:
            return None

        def text() -> str:
            answer = detail()
            if not isinstance(answer, str):
                found = type(answer).__name__
                raise PluginFault(plugin, "pair_filter", f"detail answered {found}")
            return shorten(answer)

        def untold(fault: PluginFault) -> str:
            self._faults.append(str(fault))
            return ""

        return self._guard.wrap_hook(plugin, "pair_filter", text, untold, part=f"{part} detail")

    def add_score(
        self,
        plugin: str,
        score: ScoreOf,
        concerns: Concerns,
        weight: int,
        reads: Sequence[str] | None,
    ) -> None:
        """Register a score, see ``Hooks.pair_score``."""
        part = f"score {len(self.scorers)}"

        def silent(fault: PluginFault, _pod: Pod) -> PairScore | None:
            self._faults.append(str(fault))
            return None

        def zero(fault: PluginFault) -> Ints:
            self._faults.append(str(fault))
            return np.zeros(1, dtype=np.int64)

        def sound(pod: Pod) -> PairScore | None:
            made = score(pod)
            if made is None:
                return None
            hash(made.key)
            score_points = made.points

            def weighed() -> Ints:
                points = np.asarray(score_points())
                if points.shape != (self.rows,) or not np.can_cast(points.dtype, np.int64):
                    found = f"{points.dtype} of shape {points.shape}"
                    raise PluginFault(plugin, "pair_score", f"{found}, not {self.rows} ints")
                points = points.astype(np.int64, copy=False)
                clamped: Ints = np.minimum(np.maximum(points, -POINTS_MAX), POINTS_MAX)
                return clamped * weight

            points_of = self._guard.wrap_hook(
                plugin, "pair_score", weighed, zero, part=f"{part} points"
            )
            return PairScore(made.key, points_of)

        wrapped = contain_when_called(self._guard, (plugin, "pair_score", part), sound, silent)
        fields = None if reads is None else tuple(reads)
        sure = self._validated_concerns(plugin, "pair_score", concerns, fields)
        named = (plugin, "pair_score", f"{part} concerns")
        concerned = contain_when_called(self._guard, named, sure, self._none)
        self.scorers.append(PairScorer(wrapped, concerned, fields))

    def _validated_concerns(
        self, plugin: str, hook: str, concerns: Concerns, fields: tuple[str, ...] | None
    ) -> Concerns:
        if fields is None or not self._guard.compares_lists:
            return validated_concerns(plugin, hook, concerns)
        return validated_concerns(plugin, hook, lambda shown: concerns(fields_of(shown, fields)))

    def _all(self, fault: PluginFault, _pod_class: PodClass) -> bool:
        self._faults.append(str(fault))
        return True

    def _none(self, fault: PluginFault, _pod_class: PodClass) -> bool:
        self._faults.append(str(fault))
        return False


def filter_failure_message(fault: PluginFault) -> str:
    """``filter predicates/node_filter failed: KeyError: 'zone'``."""
    return f"filter {fault.plugin}/{fault.hook} failed: {fault.why}"


def validated_concerns(plugin: str, hook: str, concerns: Concerns) -> Concerns:
    """The callable, whose answer is a bool or a fault of the plugin."""

    def sound(pod_class: PodClass) -> bool:
        answer = concerns(pod_class)
        if not isinstance(answer, bool):
            raise PluginFault(plugin, hook, f"concerns answered {type(answer).__name__}, no bool")
        return answer

    return sound


class InterPodGate:
    """All rules and preferences of equal pods together, for their class fit.

    Args:
        pod_counts: pods on each node, as the session stands.
        rules: each with the words under which a refused node is counted.
        scores: preferences.
        size: number of nodes.
    """

    def __init__(
        self,
        pod_counts: PodCounts,
        rules: Sequence[tuple[str, PairRule]],
        scores: Sequence[PairScore],
        size: int,
    ) -> None:
        self._pod_counts = pod_counts
        self._rules = rules
        self._scores = scores
        self._size = size
        self.once = any(rule.once for _, rule in rules)
        self.exact = all(rule.exact for _, rule in rules)

    @property
    def version(self) -> object:
        """What changes when the answer may, see ``PodDependentRules``."""
        return self._pod_counts.version

    def domain_limits(self) -> list[DomainLimit] | None:
        """Limits of all rules as things stand; None where one cannot be said by limits."""
        found: list[DomainLimit] = []
        for _, rule in self._rules:
            limits = None if rule.limits is None else rule.limits()
            if limits is None:
                return None
            found += limits
        return found

    def allowed_rows(self) -> Bools:
        """Nodes that the rules admit, bool of shape (nodes,)."""
        allowed = np.ones(self._size, dtype=np.bool_)
        for _, rule in self._rules:
            allowed &= rule.allows()
        return allowed

    def row_points(self) -> Ints | None:
        """Points of each node, int64 of shape (nodes,); None for no opinion."""
        if not self._scores:
            return None
        total = np.zeros(self._size, dtype=np.int64)
        for score in self._scores:
            total += score.points()
        return total

    def refused_rows(self) -> list[tuple[str, Bools, str]]:
        """Words of each rule, rows that it refuses as things stand, and its error."""
        full = np.ones(self._size, dtype=np.bool_)
        refused = [~(full & rule.allows()) for _, rule in self._rules]
        return [
            (_with_detail(words, rule) if mask.any() else words, mask, rule.failed())
            for (words, rule), mask in zip(self._rules, refused, strict=True)
        ]


def _with_detail(words: str, rule: PairRule) -> str:
    """The words of a rule with what is in the way."""
    told = rule.detail() if rule.detail is not None else ""
    return f"{words} ({told})" if told else words
