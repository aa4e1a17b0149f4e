"""How hooks are called: what a plugin answers is checked, and what a fault of it means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from gpusched.api.gang.running_kind import RunningKind
from gpusched.api.meta.identity import GangKey
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.base.errors import PluginFault
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.session.framework.guard import FOR_ALL, FULLNESS, RESTS_ON, Guard
from gpusched.session.framework.proposal import VictimFilterHook, VictimHook, VictimKeyHook
from gpusched.session.framework.reasons import Reason, shorten
from gpusched.session.framework.sort_keys import Excluded, Key
from gpusched.session.framework.verdict import ALLOW, Verdict, error
from gpusched.session.framework.view import NodeRows

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

VictimFilter = Callable[[Gang, Gang, str], Verdict]
VictimsFilter = Callable[[Gang, Sequence[Gang], str], "Sequence[bool] | npt.NDArray[np.bool_]"]
ClaimantsFilter = Callable[[Sequence[Gang], Gang, str], "Sequence[bool] | npt.NDArray[np.bool_]"]
VictimOrder = Callable[[Gang, Gang, str], Key]
VictimsOrder = Callable[[Gang, Sequence[Gang], str], Sequence[Key]]
NodeScore = Callable[[PodClass, NodeRows], Ints | None]
FilterDetail = Callable[[PodClass, Sequence[Node]], str]
JointCheck = Callable[[Sequence[Gang]], "Sequence[bool] | npt.NDArray[np.bool_]"]
Fields = Sequence[str]
"""Names of fields of a class of pods."""
SCORE_MAX = 1_000_000
"""One plugin's score of one node lies within plus and minus this."""
_FEW = 8
"""Rows up to which their scores are compared as ints."""
_OF_CLAIMS = frozenset(
    {"quota_check", "reserve_check", "reclaim_check", "victim_filter", "reclaim_gate", "eviction_limits"}
)  # fmt: skip
"""Hooks that say whether a queue may take from others."""
NO_EVICTION = "nobody is evicted for it"


class ReadyCheck:
    """A check of whether gangs have what placing them needs, with the classes of pods that it concerns.

    Args:
        check: asked about gangs with a waiting member of such a class; contained already.
        concerns: asked about each class once; contained already, None for all classes.
    """

    def __init__(
        self, check: Callable[[Gang], Verdict], concerns: Callable[[PodClass], bool] | None
    ) -> None:
        self._check = check
        self._concerns = concerns
        self._known: dict[str, bool] = {}

    def concerns_class(self, pod_class: PodClass) -> bool:
        """Whether it is asked about gangs with a waiting member of the class."""
        if self._concerns is None:
            return True
        answer = self._known.get(pod_class.digest)
        if answer is None:
            answer = self._known[pod_class.digest] = self._concerns(pod_class)
        return answer

    def __call__(self, gang: Gang) -> Verdict:
        """The verdict on a gang; ALLOW for one that it does not concern."""
        if self._concerns is None:
            return self._check(gang)
        for pod_set in gang.pod_sets:
            if self.concerns_class(pod_set.pod_class):
                return self._check(gang)
        return ALLOW


@frozen(slots=True)
class Fullness:
    """Points of a node by how full it is with a pod, in resources that the pod asks for.

    The sum of ``weight * (full * used // offered)`` over resources, where no more counts as used than is offered,
    divided by ``divisor`` and rounded down.

    Attributes:
        weights: by resource; below zero where nodes are better that are empty.
        full: points of a node that is full in one.
        divisor: of the sum, above zero.
    """

    weights: tuple[tuple[str, int], ...]
    full: int
    divisor: int

    @property
    def is_sound(self) -> bool:
        """Whether all are ints, and no node gets more points than scores may have."""
        numbers = (self.full, self.divisor, *(weight for _, weight in self.weights))
        if not all(type(number) is int for number in numbers) or min(numbers[:2]) < 1:
            return False
        most = self.full * sum(abs(weight) for _, weight in self.weights)
        return most <= SCORE_MAX * self.divisor

    def of_rows(self, pod_class: PodClass, rows: NodeRows) -> Ints:
        """Points of some rows for a class of pods without a share."""
        points: Ints = np.zeros(len(rows), dtype=np.int64)
        for name, weight in self.weights:
            offered = np.maximum(rows.allocatable(name), 1)
            used = np.minimum(rows.used(name) + pod_class.requests.get(name), offered)
            points += weight * (self.full * used // offered)
        return points // self.divisor


FullnessOf = Callable[[tuple[str, ...], str], Fullness | None]
"""Given names of the resources that pods ask for, sorted, and of that of their GPUs, empty for none."""


@frozen
class NodeScoreHook:
    """One score of nodes.

    Attributes:
        alike: whether nodes that offer and hold the same amounts get the same points from it.
        only_with: fields of a class of which one must be set for it to be asked; none for all classes.
        fullness: the same points as data, for pods without a share; None where there is no such form.
        weight: by which these are multiplied.
    """

    score: NodeScore
    alike: bool
    only_with: tuple[str, ...] = ()
    fullness: FullnessOf | None = None
    weight: int = 1

    def concerns(self, pod_class: PodClass) -> bool:
        """Whether it is asked about a class."""
        return _has_any(pod_class, self.only_with)


def _has_any(pod_class: PodClass, fields: tuple[str, ...]) -> bool:
    """Whether some of these fields of a class are set, or none are named."""
    return not fields or any(getattr(pod_class, name) for name in fields)


class HookCalls:
    """Callables of plugins, each contained, and its answers checked.

    Args:
        guard: contains faults; every callable is wrapped by it.

    Attributes:
        plugin: who registers now.
        faults: sentences of what went wrong, for metrics and events.
        unordered: why gangs, by key, or queues, by name, are left out of the order of this session.
    """

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.plugin = ""
        self.faults: list[str] = []
        self.unordered: dict[GangKey | str, str] = {}
        self._parts: Counter[tuple[str, str]] = Counter()
        self._monotone: set[str] = set()

    def monotone_claims(self) -> None:
        """State of all that the plugin registers that equal claims of a queue may be judged together.

        ``quota_check``, ``reserve_check``, ``reclaim_check``, ``victim_filter``, ``reclaim_gate`` and ``eviction_limits``
        then refuse no ``reclaim`` that they allow where the claimant's queue and those above it hold more and others
        less. They read of a claimant what ``gang_order`` may read that is ``alike``, and so of
        a victim what such a ``victim_filter`` may.
        """
        self._monotone.add(self.plugin)

    @property
    def all_monotone(self) -> bool:
        """Whether every plugin that judges claims has stated that it does so by amounts that only grow or shrink."""
        return all(name in self._monotone for name, hook in self._parts if hook in _OF_CLAIMS)

    def _wrap_hook(
        self,
        hook: str,
        fn: Callable[P, R],
        fallback: Callable[Concatenate[PluginFault, P], R],
    ) -> Callable[P, R]:
        """The callable, contained by the guard; callables of one plugin and hook are numbered."""
        number = self._parts[self.plugin, hook]
        self._parts[self.plugin, hook] += 1
        part = str(number + 1) if number else ""
        return contain_when_called(self.guard, (self.plugin, hook, part), fn, fallback)

    def _wrap_provider(
        self, hook: str, provider: Callable[..., T], fits: Callable[[Any], bool], nothing: T
    ) -> Callable[..., T]:
        """A hook that gives a value: one that does not fit is a fault, and ``nothing`` stands."""
        plugin = self.plugin

        def sound(*about: Any) -> T:
            answer = provider(*about)
            if not fits(answer):
                raise PluginFault(plugin, hook, f"answered with a {type(answer).__name__}")
            return answer

        def unknown(fault: PluginFault, *_about: Any) -> T:
            self.faults.append(str(fault))
            return nothing

        return self._wrap_hook(hook, sound, unknown)

    def _wrap_check(
        self, hook: str, check: Callable[..., Verdict], otherwise: Verdict | str
    ) -> Callable[..., Verdict]:
        """A check; ``otherwise`` is what a fault means: a verdict, or what its refusal entails."""
        plugin = self.plugin

        def sound(*about: Any) -> Verdict:
            verdict = check(*about)
            if not isinstance(verdict, Verdict):
                raise PluginFault(plugin, hook, f"answered {type(verdict).__name__}, no Verdict")
            return verdict

        def failed(fault: PluginFault, *_about: Any) -> Verdict:
            self.faults.append(str(fault))
            if isinstance(otherwise, Verdict):
                return otherwise
            return error(Reason.BACK_OFF, f"{fault}; {otherwise}")

        return self._wrap_hook(hook, sound, failed)

    def _wrap_joint(
        self, hook: str, check: Callable[[Gang], Verdict], for_all: JointCheck
    ) -> JointCheck:
        """The form for many gangs of the check that was wrapped last; of what fails, it is sure of nobody."""
        plugin, compares = self.plugin, self.guard.compares_lists

        def sound(gangs: Sequence[Gang]) -> Sequence[bool]:
            answers = _bools(plugin, hook, for_all(gangs), len(gangs))
            for gang, sure in zip(gangs, answers, strict=True) if compares else ():
                if sure and check(gang).refuses:
                    raise PluginFault(
                        plugin, hook, f"for_all is sure of gang {gang.key}, by itself it is refused"
                    )
            return answers

        def unsure(fault: PluginFault, gangs: Sequence[Gang]) -> Sequence[bool]:
            self.faults.append(str(fault))
            return [False] * len(gangs)

        named = (plugin, hook, self._part_name(hook, FOR_ALL))
        return contain_when_called(self.guard, named, sound, unsure)

    def _wrap_score(
        self,
        score: NodeScore,
        weight: int,
        alike: bool,
        only_with: Fields,
        fullness: FullnessOf | None,
    ) -> NodeScoreHook:
        """A score of nodes; what is no int for each of them is a fault, and no opinion then."""
        plugin, compares = self.plugin, alike and self.guard.compares_lists
        fields = tuple(only_with)
        told: FullnessOf | None = None

        def rated(pod_class: PodClass, rows: NodeRows) -> Ints | None:
            answer = score(pod_class, rows)
            if answer is None:
                return None
            points = np.asarray(answer)
            if points.dtype != np.int64 or points.shape != (len(rows),):
                castable = not len(rows) or np.can_cast(points.dtype, np.int64)
                if points.shape != (len(rows),) or not castable:
                    found = f"{points.dtype} of shape {points.shape}"
                    raise PluginFault(plugin, "node_score", f"{found}, not {len(rows)} ints")
                points = points.astype(np.int64, copy=False)
            return points

        def weighed(pod_class: PodClass, rows: NodeRows) -> Ints | None:
            points = rated(pod_class, rows)
            if points is None:
                return None
            if compares and pod_class.share is None:
                _hold_alike(plugin, partial(rated, pod_class), rows)
                _hold_fullness(plugin, told, pod_class, rows, points)
            if not _has_any(pod_class, fields) and points.any():
                said = f"only_with {', '.join(fields)}, but rates a class without"
                raise PluginFault(plugin, "node_score", said)
            return weight * _clamped(points)

        def neutral(fault: PluginFault, _pod: PodClass, _rows: NodeRows) -> Ints | None:
            self.faults.append(str(fault))
            return None

        asked = () if self.guard.compares_lists else fields
        wrapped = self._wrap_hook("node_score", weighed, neutral)
        if alike and fullness is not None:
            told = self._wrap_fullness(fullness)
        return NodeScoreHook(wrapped, alike, asked, told, weight)

    def _wrap_fullness(self, fullness: FullnessOf) -> FullnessOf:
        """The form as data of the score that was wrapped last; None, so that the score is asked, for a fault."""
        plugin = self.plugin

        def sound(resources: tuple[str, ...], gpu: str) -> Fullness | None:
            answer: Any = fullness(resources, gpu)
            if answer is None or (isinstance(answer, Fullness) and answer.is_sound):
                return answer
            raise PluginFault(plugin, "node_score", f"fullness: answered {shorten(repr(answer))}")

        def unknown(fault: PluginFault, _resources: tuple[str, ...], _gpu: str) -> None:
            self.faults.append(str(fault))

        named = (plugin, "node_score", self._part_name("node_score", FULLNESS))
        return contain_when_called(self.guard, named, sound, unknown)

    def _wrap_victim_filter(
        self,
        hook: str,
        allows: VictimFilter,
        for_all: VictimsFilter | None,
        *,
        alike: bool,
        for_claimants: ClaimantsFilter | None = None,
    ) -> VictimFilterHook:
        """A filter of victims; what is no bool for each of them is a fault."""
        plugin = self.plugin

        def sound(claimant: Gang, victims: Sequence[Gang], action: str) -> list[bool]:
            assert for_all is not None
            return _bools(plugin, hook, for_all(claimant, victims, action), len(victims))

        def of_one(claimant: Gang, victim: Gang, action: str) -> bool:
            return not allows(claimant, victim, action).refuses

        one = self._wrap_check(hook, allows, NO_EVICTION)
        listed = None if for_all is None else self._wrap_list(hook, sound, of_one, alike=alike)
        turned = for_claimants and self._wrap_claimants(hook, for_claimants, of_one)
        return VictimHook(one, listed, alike and not self.guard.compares_lists, turned)

    def _wrap_claimants(
        self, hook: str, for_claimants: ClaimantsFilter, of_one: Callable[[Gang, Gang, str], bool]
    ) -> Callable[[Sequence[Gang], Gang, str], Sequence[bool] | None]:
        """The form for many claimants of the filter that was wrapped last; a fault answers None."""
        plugin, compares = self.plugin, self.guard.compares_lists

        def sound(claimants: Sequence[Gang], victim: Gang, action: str) -> Sequence[bool] | None:
            said = for_claimants(claimants, victim, action)
            answers = _bools(plugin, hook, said, len(claimants), form="for_claimants")
            for claimant, answer in zip(claimants, answers, strict=True) if compares else ():
                alone = of_one(claimant, victim, action)
                if alone != answer:
                    told = f"for_claimants says {answer!r} of gang {claimant.key}, by itself it is {alone!r}"
                    raise PluginFault(plugin, hook, told)
            return answers

        def unknown(
            fault: PluginFault, _claimants: Sequence[Gang], _victim: Gang, _action: str
        ) -> Sequence[bool] | None:
            self.faults.append(str(fault))
            return None

        named = (plugin, hook, self._part_name(hook, f"claimants {FOR_ALL}"))
        return contain_when_called(self.guard, named, sound, unknown)

    def _wrap_victim_key(
        self, hook: str, key: VictimOrder, for_all: VictimsOrder | None, *, alike: bool
    ) -> VictimKeyHook:
        """An order of victims; what is no key for each of them is a fault."""
        plugin = self.plugin

        def sound(claimant: Gang, victims: Sequence[Gang], action: str) -> list[Key]:
            assert for_all is not None
            keys = list(for_all(claimant, victims, action))
            if len(keys) != len(victims):
                raise PluginFault(plugin, hook, f"for_all: {len(keys)} keys, not {len(victims)}")
            shared: dict[int, Any] = {id(each): each for each in keys}  # as queues share one
            for each in shared.values():
                if not isinstance(each, tuple) or not all(isinstance(p, (int, str)) for p in each):
                    said = f"for_all: answered {each!r}, no tuple of ints and texts"
                    raise PluginFault(plugin, hook, said)
            return keys

        one = self._wrap_key(hook, key)
        listed = None if for_all is None else self._wrap_list(hook, sound, key, alike=alike)
        return VictimHook(one, listed, alike and not self.guard.compares_lists)

    def _wrap_list(
        self,
        hook: str,
        for_all: Callable[[Gang, Sequence[Gang], str], Sequence[T]],
        of_one: Callable[[Gang, Gang, str], T],
        *,
        alike: bool,
    ) -> Callable[[Gang, Sequence[Gang], str], Sequence[T] | None]:
        """A hook for lists of victims beside the one that was wrapped last; a fault answers None."""
        plugin, compares = self.plugin, self.guard.compares_lists

        def sound(claimant: Gang, victims: Sequence[Gang], action: str) -> Sequence[T] | None:
            answers = for_all(claimant, victims, action)
            for victim, answer in zip(victims, answers, strict=True) if compares else ():
                alone = of_one(claimant, victim, action)
                if alone != answer:
                    said = (
                        f"for_all says {answer!r} of gang {victim.key}, by itself it is {alone!r}"
                    )
                    raise PluginFault(plugin, hook, said)
            if compares and alike:
                _hold_kinds_alike(plugin, hook, victims, answers)
            return answers

        def unknown(
            fault: PluginFault, _claimant: Gang, _victims: Sequence[Gang], _action: str
        ) -> Sequence[T] | None:
            self.faults.append(str(fault))
            return None

        named = (plugin, hook, self._part_name(hook, FOR_ALL))
        return contain_when_called(self.guard, named, sound, unknown)

    def _wrap_key(self, hook: str, key: Callable[..., Key]) -> Callable[..., Key]:
        def exclude(fault: PluginFault, *items: Any) -> Key:
            self.faults.append(str(fault))
            for item in items:
                if isinstance(item, Gang):
                    self.unordered[item.key] = str(fault)
                elif isinstance(item, QueueNode):
                    self.unordered[item.queue.name] = str(fault)
            raise Excluded(str(fault))

        plugin = self.plugin

        def sound(*items: Any) -> Key:
            parts: Any = key(*items)
            for part in parts:  # not by all(): a generator costs more than the few parts
                if not isinstance(part, (int, str)):
                    said = f"answered {parts!r}, no tuple of ints and texts"
                    raise PluginFault(plugin, hook, said)
            answer: Key = parts
            return answer

        return self._wrap_hook(hook, sound, exclude)

    def _wrap_basis(self, rests_on: Callable[[], Hashable]) -> Callable[[], Hashable | None]:
        """What keys of gangs rest on; None, on which nothing can rest, for a fault. Made after their hook."""

        def unknown(fault: PluginFault) -> Hashable | None:
            self.faults.append(str(fault))
            return None

        def sound() -> Hashable:
            basis = rests_on()
            hash(basis)
            return basis

        named = (self.plugin, "gang_order", self._part_name("gang_order", RESTS_ON))
        return contain_when_called(self.guard, named, sound, unknown)

    def _part_name(self, hook: str, part: str) -> str:
        number = self._parts[self.plugin, hook]
        return f"{number} {part}" if number > 1 else part


def contain_when_called(
    guard: Guard,
    named: tuple[str, str, str],
    fn: Callable[P, R],
    fallback: Callable[Concatenate[PluginFault, P], R],
) -> Callable[P, R]:
    """The callable as ``guard.wrap_hook`` contains it, which is done when it is called first.

    Seventy are registered in each session, and a session in which nothing is contested calls a dozen.

    Args:
        guard: of the session.
        named: plugin, hook and part.
        fn: as there.
        fallback: as there.
    """
    plugin, hook, part = named
    guard.register_hook(plugin, hook, part)
    contained: Callable[P, R] | None = None

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal contained
        if contained is None:
            contained = guard.wrap_hook(plugin, hook, fn, fallback, part=part)
        return contained(*args, **kwargs)

    return call


def _bools(
    plugin: str, hook: str, answers: object, count: int, *, form: str = "for_all"
) -> list[bool]:
    """What a form for many answered, if it is a bool for each."""
    mask = np.asarray(answers)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        found = f"{mask.dtype} of shape {mask.shape}"
        raise PluginFault(plugin, hook, f"{form}: {found}, not {count} bools")
    checked: list[bool] = mask.tolist()
    return checked


def _clamped(points: Ints) -> Ints:
    """Points, none of which counts more than scores may: of a placed pod they are few, of which ints tell at less cost."""
    if 0 < len(points) <= _FEW:
        some: list[int] = points.tolist()
        if min(some) >= -SCORE_MAX and max(some) <= SCORE_MAX:
            return points
    # Two ufuncs: np.clip costs ten times as much.
    clamped: Ints = np.minimum(np.maximum(points, -SCORE_MAX), SCORE_MAX)
    return clamped


def fields_of(pod_class: PodClass, fields: tuple[str, ...]) -> Any:
    """Some fields of a class and no others: whoever reads more than was declared fails."""
    return SimpleNamespace(**{name: getattr(pod_class, name) for name in fields})


def _hold_kinds_alike(
    plugin: str, hook: str, victims: Sequence[Gang], answers: Sequence[object]
) -> None:
    """A hook that says that it is alike answers the same for all victims of one kind."""
    known: dict[RunningKind, tuple[Gang, object]] = {}
    for victim, answer in zip(victims, answers, strict=True):
        if victim.running_kind is None:
            continue
        first, said = known.setdefault(victim.running_kind, (victim, answer))
        if said != answer:
            about = f"alike, but says {said!r} of gang {first.key} and {answer!r} of {victim.key}"
            raise PluginFault(plugin, hook, f"{about}, which are equal")


def _hold_alike(plugin: str, rated: Callable[[NodeRows], Ints | None], rows: NodeRows) -> None:
    """A score that says that it is alike is no other for nodes that offer and hold the same."""
    pair = rows.unlike_pair(rated)
    if pair is not None:
        names = " and ".join(node.name for node in pair)
        raise PluginFault(plugin, "node_score", f"alike, but rates {names} unlike, which are equal")


def text_of(plugin: str, detail: FilterDetail) -> FilterDetail:
    """The callable, whose answer is a text or a fault of the plugin; one line of it, cut."""

    def sound(pod_class: PodClass, nodes: Sequence[Node]) -> str:
        answer = detail(pod_class, nodes)
        if not isinstance(answer, str):
            raise PluginFault(plugin, "node_filter", f"detail answered {type(answer).__name__}")
        return shorten(answer)

    return sound


def _hold_fullness(
    plugin: str, fullness: FullnessOf | None, pod_class: PodClass, rows: NodeRows, points: Ints
) -> None:
    """A score that is told as data, too, is the same by it."""
    names = tuple([name for name, amount in pod_class.requests.items if amount])
    told = fullness and fullness(names, pod_class.gpu)
    if not told:
        return
    differ = np.flatnonzero(told.of_rows(pod_class, rows) != points).tolist()
    if differ:
        name, said = rows.nodes()[differ[0]].name, int(points[differ[0]])
        told_points = int(told.of_rows(pod_class, rows)[differ[0]])
        raise PluginFault(
            plugin, "node_score", f"fullness: {told_points} points of {name}, by itself {said}"
        )
