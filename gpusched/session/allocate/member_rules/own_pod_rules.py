"""Rules between a gang's own pods as a problem of placement can say them: caps and one domain.

Anti-affinity, host ports and even spread limit how many members a node or a domain takes;
affinity to pods of the same gang means one domain. Where all rules of a gang are of these sorts
its places are searched and proven as those of any other gang.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.problem import NODES, DomainLevel, MemberCap
from gpusched.session.framework.inter_pod_rules import DomainLimit
from gpusched.session.framework.reasons import pods_text, truncate_message
from gpusched.session.state.nodes.class_info import PodClassInfo
from gpusched.session.state.session import Session
from gpusched.topology.levels import HOST

_ANY_NUMBER: Final = 2**31


@frozen(eq=False)
class OwnPodRules:
    """Rules of a gang's members that waits, by numbers of its pod sets.

    Attributes:
        infos: of each pod set, one for all of its pods.
        limits: pairs of a limit and the pod sets whose pods it counts together.
        together: names of levels of which one domain must hold all, widest first.
        rises: whether more may fit than limits say, as domains fill up evenly.
    """

    infos: tuple[PodClassInfo, ...]
    limits: tuple[tuple[DomainLimit, tuple[int, ...]], ...]
    together: tuple[str, ...]
    rises: bool

    def build_member_caps(
        self, session: Session, levels: Sequence[DomainLevel]
    ) -> tuple[MemberCap, ...]:
        """The limits as caps of a problem with these levels."""
        return tuple(
            _member_cap(session, levels, limit, counted)
            for limit, counted in self.limits
            if limit.room is not None
        )


def own_pod_rules(session: Session, gang: Gang) -> OwnPodRules | None:
    """What rules between pods say of the gang's members; None where caps cannot say it."""
    infos = [_shared_info(session, pod_set) for pod_set in gang.pod_sets]
    found: dict[tuple[str, bool, tuple[int, ...]], list[tuple[int, DomainLimit]]] = {}
    for number, info in enumerate(infos):
        if info is None:
            return None
        limits = [] if info.gate is None else info.gate.domain_limits()
        if limits is None:
            return None
        for limit in limits:
            counted = _counted_pod_sets(limit, gang.pod_sets)
            if counted is None or (counted and number not in counted):
                return None
            if counted:
                key = (limit.key, limit.room is None, counted)
                found.setdefault(key, []).append((number, limit))
    kept = []
    for (_, _, counted), owned in found.items():
        # A rule that only some of the counted pods have is no limit of their sum.
        if {number for number, _ in owned} != set(counted):
            return None
        kept += [(limit, counted) for _, limit in owned]
    return _with_levels(session, gang, [each for each in infos if each is not None], kept)


def contradiction_message(session: Session, gang: Gang, rules: OwnPodRules, required: str) -> str:
    """That rules between the gang's pods never allow its minimum in the one domain it needs.

    Args:
        session: whose topology counts.
        gang: that waits.
        rules: of its members.
        required: name of the level of which one domain holds it, empty for none.

    Returns:
        What contradicts what and how to mend it; empty where nothing does.
    """
    names = [level.name for level in session.levels]
    for limit, counted in rules.limits:
        level = level_of_label(session, limit.key) or names[-1]
        if not required or limit.room is None or names.index(level) > names.index(required):
            continue
        room = limit.room()
        most, need = int(room.max(initial=0)), _needed_of(gang, counted)
        if most < need and not (limit.rises and len(room) < 2):
            by = "spec.topology" if gang.topology.required == required else "its pod affinity"
            return truncate_message(
                f"needs {pods_text(need)} in one {required}, as {by} requires, but rules between "
                f"its pods allow {most} in each {level}; remove one of the two"
            )
    return ""


def _needed_of(gang: Gang, counted: Sequence[int]) -> int:
    """Members of these pod sets without which the gang does not start."""
    others = sum(
        len(pod_set.pods) for number, pod_set in enumerate(gang.pod_sets) if number not in counted
    )
    return gang.members_at_start - others


def _shared_info(session: Session, pod_set: PodSet) -> PodClassInfo | None:
    """The info that all pods of a set share; None where rules mean some of them otherwise."""
    first = session.pod_info(pod_set.pods[0])
    same = all(session.pod_info(pod) is first for pod in pod_set.pods[1:])
    return first if same else None


def _counted_pod_sets(limit: DomainLimit, pod_sets: Sequence[PodSet]) -> tuple[int, ...] | None:
    """Numbers of the pod sets that a limit counts; None where it counts some pods of one."""
    found = []
    for number, pod_set in enumerate(pod_sets):
        counts = {limit.counts(pod) for pod in pod_set.pods}
        if len(counts) > 1:
            return None
        if counts == {True}:
            found.append(number)
    return tuple(found)


def _with_levels(
    session: Session,
    gang: Gang,
    infos: Sequence[PodClassInfo],
    limits: Sequence[tuple[DomainLimit, tuple[int, ...]]],
) -> OwnPodRules | None:
    every = tuple(range(len(gang.pod_sets)))
    together = set()
    for limit, counted in limits:
        name = level_of_label(session, limit.key)
        if name is None or (limit.room is None and (counted != every or not name)):
            return None
        if limit.room is None:
            together.add(name)
    return OwnPodRules(
        infos=tuple(infos),
        limits=tuple(limits),
        together=tuple(level.name for level in session.levels if level.name in together),
        rises=any(limit.rises for limit, _ in limits),
    )


def level_of_label(session: Session, key: str) -> str | None:
    """The level whose domains are those of a node label; empty for single nodes, None for none.

    A label whose values repeat in other domains, or that is no level at all, divides the nodes
    in a way that no level does.
    """
    if not key:
        return ""
    numbers = session.pod_counts.domain_numbers(key)
    level = next(
        (each for each in session.levels if each.label == key and not each.on_request), None
    )
    if level is None:
        return None
    known = numbers >= 0
    if (level.domain[known] < 0).any():
        return None
    pairs = np.unique(np.stack([numbers[known], level.domain[known]]), axis=1)
    same = pairs.shape[1] == len(np.unique(pairs[0])) == len(np.unique(pairs[1]))
    if level.label == HOST and pairs.shape[1] < int(np.count_nonzero(known)):
        return None  # nodes that claim to be one host
    return level.name if same else None


def _member_cap(
    session: Session, levels: Sequence[DomainLevel], limit: DomainLimit, counted: tuple[int, ...]
) -> MemberCap:
    assert limit.room is not None, "what must be together is no cap"
    room = limit.room()
    nodes = len(session.node_usage.nodes)
    by_node: Ints = np.full(nodes, _ANY_NUMBER, dtype=np.int64)
    name = level_of_label(session, limit.key)
    if not name:
        return MemberCap(roles=counted, most=room)
    numbers = session.pod_counts.domain_numbers(limit.key)
    known = numbers >= 0
    by_node[known] = room[numbers[known]]
    index = next((i for i, level in enumerate(levels) if level.name == name), NODES)
    if index == NODES:
        return MemberCap(roles=counted, most=by_node)
    level = levels[index]
    most: Ints = np.full(max(level.count, level.real), _ANY_NUMBER, dtype=np.int64)
    most[level.domain[known]] = by_node[known]
    return MemberCap(roles=counted, most=most, level=index)
