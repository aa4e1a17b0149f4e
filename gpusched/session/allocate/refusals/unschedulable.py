"""Why a gang finds no place, in words with numbers: what is needed, what there is, and which gangs hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.devices.slots import accelerator
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import PODS
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.class_fit import ClassFit
from gpusched.placement.model.problem import Certificate, SearchOutcome, Solution
from gpusched.session.allocate.node_sets import (
    ALL_NODES,
    LevelConstraint,
    NodeSet,
    Unschedulable,
    no_domain_message,
)
from gpusched.session.allocate.refusals.device_claims import device_shortage, lacking_devices_text
from gpusched.session.allocate.refusals.holders import gangs_in_the_way_text
from gpusched.session.allocate.start_members import choose_start_members
from gpusched.session.framework.hooks import Filter
from gpusched.session.framework.reasons import (
    Reason,
    insufficient_room_message,
    node_cause_text,
    nodes_text,
    pods_text,
    pods_with_requests_text,
    truncate_message,
)
from gpusched.session.state.session import Session
from gpusched.topology.levels import TopologyLevel


@frozen(kw_only=True, eq=False)
class Shortage:
    """A class that did not find its places.

    Attributes:
        filters, refused: each filter and the rows it refuses, shape (nodes,).
        placed: of pods with rules about each other, how many found a place; None for others.
        within, where: the domain that was looked at, as rows (None: all) and as words.
    """

    pod_class: PodClass
    node_usage: NodeUsage
    class_fit: ClassFit
    filters: Sequence[Filter]
    refused: Sequence[Bools]
    within: Bools | None = None
    where: str = ""
    placed: int | None = None

    def reason_and_sentence(
        self, count: int, causes: list[tuple[int, str]] | None = None
    ) -> tuple[Reason, str]:
        """Reason and sentence for so many pods that do not all fit.

        Args:
            count: of the pods.
            causes: what ``refusal_causes`` says, where that is known.
        """
        total = len(self.node_usage.nodes) if self.within is None else int(self.within.sum())
        failed = self.failed_filters_text()
        if failed:
            return Reason.BACK_OFF, failed
        asked = pods_with_requests_text(count, self.pod_class)
        if total == 0:
            return Reason.NO_FEASIBLE_NODE, truncate_message(
                f"needs {asked}; there is no usable node"
            )
        fit = self.placed
        if fit is None:
            fit = self.class_fit.count_fitting(self.within, most=count)
        message = insufficient_room_message(
            asked,
            fit=fit,
            total=total,
            refused=self.refusal_causes() if causes is None else causes,
            where=self.where,
        )
        never = never_fits(self.pod_class, self.node_usage, self.class_fit.fixed)
        if never:
            return Reason.NO_FEASIBLE_NODE, truncate_message(f"{message}; {never}")
        room = self._room_when_empty(count)
        # That none fits even then was said of each node already, where it is the share that is too big.
        if room < count and (room or self.pod_class.share is None):
            message = truncate_message(f"{message}; even empty they have room for {room} only")
        return Reason.INSUFFICIENT_RESOURCES, message

    def failed_filters_text(self) -> str:
        """That a filter gave no answer and so no node is accepted; empty when all did."""
        for each, mask in zip(self.filters, self.refused, strict=True):
            if each.failed and len(mask) and mask.all():
                return truncate_message(f"{each.failed}; no node is accepted until it works")
        return ""

    def _room_when_empty(self, most: int) -> int:
        """How many would fit if nothing else ran there, counted up to ``most`` a node."""
        return int(self.room_on_empty_nodes(most).sum())

    def room_on_empty_nodes(self, most: int) -> Ints:
        """How many would fit each node if nothing else ran there, up to ``most``, shape (nodes,)."""
        rows = self.class_fit.fixed if self.within is None else self.class_fit.fixed & self.within
        ask = self.class_fit.request
        if ask.missing or (ask.share is not None and ask.gpu < 0):
            return np.zeros(len(rows), dtype=np.int64)
        fits = how_many_fit(self.node_usage.nodes.allocatable[:, ask.columns], ask.amounts)
        if ask.share is not None:
            gpus = self.node_usage.nodes.allocatable[:, ask.gpu] // DEVICE
            fits = np.minimum(fits, gpus * (DEVICE // self.node_usage.parts_of(ask.share)))
        return np.where(rows, np.minimum(fits, most), 0)

    def refusal_causes(self) -> list[tuple[int, str]]:
        """Numbers of nodes and why they take none more, the largest first."""
        nodes = self.node_usage.nodes
        left = np.ones(len(nodes), dtype=np.bool_) if self.within is None else self.within.copy()
        causes: list[tuple[int, str]] = []
        for each, mask in zip(self.filters, self.refused, strict=True):
            hit = int((left & mask).sum())
            if hit:
                rows = np.flatnonzero(left & mask).tolist()
                words = each.refusal_text(self.pod_class, [nodes.nodes[row] for row in rows])
                causes.append((hit, words))
            left &= ~mask
        causes += self._causes_of_full_nodes(left & (self.class_fit.fits == 0))
        return sorted(causes, key=lambda cause: (-cause[0], cause[1]))

    def _causes_of_full_nodes(self, full: Bools) -> list[tuple[int, str]]:
        """What nodes that no filter refuses lack; each is counted once, with all that it lacks."""
        if not full.any():
            return []
        wanting = self._lacking_resources(full)
        kinds = np.zeros(len(full), dtype=np.int64)
        for number, (_, rows) in enumerate(wanting):
            kinds |= rows.astype(np.int64) << number
        found = []
        there, counts = np.unique(kinds[full], return_counts=True)
        for kind, count in zip(there.tolist(), counts.tolist(), strict=True):
            words = [text for number, (text, _) in enumerate(wanting) if kind >> number & 1]
            found.append((count, _joined_wants(words) if words else self._unexplained_text()))
        return found

    def _lacking_resources(self, full: Bools) -> list[tuple[str, Bools]]:
        """Words for each thing that some of these nodes lack, and the rows that do; GPUs first."""
        nodes, gpu = self.node_usage.nodes, self.pod_class.gpu
        found: list[tuple[str, Bools]] = []
        for name, amount in sorted(
            self.pod_class.requests.items, key=lambda item: (item[0] != gpu, item[0])
        ):
            column = nodes.columns.get(name)
            if not amount:
                continue
            if name == shared_resource() and self.pod_class.share is not None:
                found += self._rows_without_share(full)
                continue
            offered = nodes.allocatable[:, column] if column is not None else np.zeros(len(full))
            none, small = full & (offered == 0), full & (offered > 0) & (offered < amount)
            lacking = full & ~none & ~small
            if column is not None:
                lacking &= offered - self.node_usage.used[:, column] < amount
            if name == PODS:
                found.append(("have no room for another pod", lacking | none | small))
                continue
            least = format_quantity(amount, resource=name)
            found += [
                (f"{_LACK}{name}", lacking),
                (f"{_NONE}{name}", none),
                (f"{_SMALL}{least} {name}{_IN_ALL}", small),
            ]
        return [each for each in found if each[1].any()][:_WANTS_MAX]

    def _unexplained_text(self) -> str:
        """What a node lacks that has room by every amount."""
        if self.pod_class.claims:
            return "lack free devices for its claims"
        return "have no NUMA node with room for it"

    def _rows_without_share(self, full: Bools) -> list[tuple[str, Bools]]:
        """Nodes none of whose GPUs has room for its share, and those that could never have it."""
        ask = self.class_fit.request
        if ask.share is None or ask.gpu < 0:
            return [(f"{_LACK}{shared_resource()}", full)]
        never = full & (self.node_usage.parts_of(ask.share) > DEVICE)
        lacking = full & ~never & (self.node_usage.shares_fit(slice(None), ask) == 0)
        words = "do not tell of GPUs with so much memory"
        if ask.share.thousandths:
            words = "have no GPU that can be shared"
        return [(words, never), ("have no GPU with room for its share", lacking)]


_LACK: Final = "lack free "
_NONE: Final = "have no "
_SMALL: Final = "have less than "
_IN_ALL: Final = " in all"
_WANTS_MAX: Final = 30
"""Resources of one pod that are looked at for a sentence."""


def _joined_wants(words: Sequence[str]) -> str:
    """``lack free nvidia.com/gpu, cpu and memory and have no room for another pod``, as one node does."""
    lacks = [each.removeprefix(_LACK) for each in words if each.startswith(_LACK)]
    parts = [each for each in words if not each.startswith(_LACK)]
    if lacks:
        *most, last = lacks
        parts.insert(0, _LACK + (f"{', '.join(most)} and {last}" if most else last))
    return " and ".join(parts)


def never_fits(pod_class: PodClass, node_usage: NodeUsage, allowed: Bools) -> str:
    """Why no node could take one such pod even if it were empty; empty when one could."""
    nodes = node_usage.nodes
    if not allowed.any():
        return "no node is allowed to take it"
    for name, amount in pod_class.requests.items:
        if not amount:
            continue
        column = nodes.columns.get(name)
        largest = 0
        if column is not None:
            largest = int(nodes.allocatable[:, column].max(where=allowed, initial=0))
        if not largest:
            return f"no allowed node offers {name}{_accelerators_text(node_usage, allowed, name)}"
        if amount > largest:
            have = format_quantity(largest, resource=name)
            return f"no allowed node offers more than {have} {name}"
    return ""


def _accelerators_text(node_usage: NodeUsage, allowed: Bools, name: str) -> str:
    """Which accelerators such nodes offer in place of one that they do not; empty for other resources."""
    if not accelerator(name):
        return ""
    nodes = node_usage.nodes
    there = sorted(
        each
        for each, column in nodes.columns.items()
        if accelerator(each) and nodes.allocatable[allowed, column].any()
    )
    more = f" and {len(there) - _NAMED_MAX} more" if len(there) > _NAMED_MAX else ""
    return f"; they have {', '.join(there[:_NAMED_MAX])}{more}" if there else ", nor other GPUs"


_NAMED_MAX: Final = 2


NOT_FOUND = "no placement was found within the time budget of the search"
NOT_SEARCHED = "a quick pass finds no place, and placement.solver allows no more than that"
DEVICES_BOUNDED = "the devices of some nodes were not searched to the end in time"
PROVEN = "a complete search proves that no placement exists now"


def explain_unsolved(
    session: Session, gang: Gang, solution: Solution, confines: LevelConstraint
) -> Unschedulable:
    """The refusal of a gang whose problem has no answer, or of which none was found.

    Args:
        session: on whose nodes.
        gang: whose pod sets are the problem's roles.
        solution: without counts.
        confines: within which it was to be placed.
    """
    for pod_set in gang.pod_sets:
        if pod_set.pod_class.unsupported:
            return explain_shortage(session, pod_set, 1, ALL_NODES, pod=pod_set.pods[0])
    unanswered = _explain_failed_filter(session, gang)
    if unanswered is not None:
        return unanswered
    proof = solution.certificate
    if confines.required:
        return _explain_level(session, gang, solution, confines)
    pod_set, count = _lacking_task(gang, proof)
    refusal = explain_shortage(session, pod_set, count, ALL_NODES, pod=pod_set.pods[0])
    more = _gpus_together_text(session, gang) + certainty_text(session, gang, solution)
    return Unschedulable(refusal.reason, truncate_message(refusal.message + more))


def _gpus_together_text(session: Session, gang: Gang) -> str:
    """How many GPUs the members need together, where pods differ and fewer than that are free."""
    chosen, _ = choose_start_members(gang, largest_first=False)
    if len(chosen) < 2:
        return ""
    needed: Counter[str] = Counter()
    for pod_set, count in chosen:
        if pod_set.pod_class.gpu:
            needed[pod_set.pod_class.gpu] += pod_set.pod_class.gpus * count
    nodes, used = session.node_usage.nodes, session.node_usage.used
    for gpu, count in sorted(needed.items()):
        column = nodes.columns.get(gpu)
        spare = np.zeros(0) if column is None else nodes.allocatable[:, column] - used[:, column]
        free = int(np.maximum(spare, 0).sum()) // DEVICE
        if free < count:
            return f"; together they need {count} {gpu}, and {free} are free"
    return ""


def has_bounded_devices(session: Session, gang: Gang) -> bool:
    """Whether devices of some node were not searched to the end for a gang's pods."""
    return any(
        pod_set.pod_class.claims and session.devices.counts.is_bounded(pod_set.pod_class)
        for pod_set in gang.pod_sets
    )


def certainty_text(session: Session, gang: Gang, solution: Solution) -> str:
    """Whether it is proven that there is no place, where counting does not show it."""
    if solution.outcome is SearchOutcome.INFEASIBLE and has_bounded_devices(session, gang):
        return f"; {DEVICES_BOUNDED}"
    if solution.outcome is not SearchOutcome.INFEASIBLE:
        return f"; {NOT_FOUND if session.effort.solver else NOT_SEARCHED}"
    counted = solution.certificate is not None and solution.certificate.kind in ("role", "domain")
    return "" if counted and solution.method in ("bounds", "tree") else f"; {PROVEN}"


def _lacking_task(gang: Gang, proof: Certificate | None) -> tuple[PodSet, int]:
    """The pod set that is told about, and how many of it are needed."""
    if proof is not None and len(proof.roles) == 1:
        return gang.pod_sets[proof.roles[0]], proof.needed
    pod_sets, _ = choose_start_members(gang, largest_first=True)
    return pod_sets[0] if pod_sets else (gang.pod_sets[0], gang.members_at_start)


def _explain_level(
    session: Session, gang: Gang, solution: Solution, confines: LevelConstraint
) -> Unschedulable:
    """No domain of the required level holds the gang: how far the best one gets."""
    proof = solution.certificate
    if proof is None or not proof.roles or proof.domain < 0:
        alone = _lacking_task(gang, proof) if proof is not None and len(proof.roles) == 1 else None
        return explain_no_domain(
            session, gang, confines, of=alone, more=certainty_text(session, gang, solution)
        )
    pod_set = gang.pod_sets[proof.roles[0]]
    several = len(proof.roles) > 1
    asked = (
        pods_text(proof.needed)
        if several
        else pods_with_requests_text(proof.needed, pod_set.pod_class)
    )
    text = _best_domain_text(session, gang, pod_set, proof, name=confines.required, asked=asked)
    text += certainty_text(session, gang, solution) + _max_wait_text(gang, confines)
    return Unschedulable(_topology_reason(confines), truncate_message(text))


def _best_domain_text(
    session: Session, gang: Gang, pod_set: PodSet, proof: Certificate, *, name: str, asked: str
) -> str:
    """``needs 3 pods with 8 GPUs in one rack; best rack r3 has room for 2 (1 held by b/llm-7)``."""
    level = next(each for each in session.levels if each.name == name)
    text = f"needs {asked} in one {name}"
    if not level.names:
        return no_domain_message(session, name)
    if not 0 <= proof.domain < len(level.names):
        return f"{text}; no {name} has room for them"
    path = level.names[proof.domain]
    inside = level.domain == proof.domain
    alone = proof.needed <= len(pod_set.pods)  # else pods of other sets are counted, too
    devices = alone and lacking_devices_text(
        session, pod_set.pod_class, proof.needed, NodeSet(inside, "")
    )
    if devices:
        return f"{text}; best {name} {path} has room for {proof.room}: {devices}"
    never = _no_domain_ever_text(session, pod_set, level, proof.needed) if alone else ""
    if never:
        return f"{text}; best {name} {path} has room for {proof.room}; {never}"
    held = gangs_in_the_way_text(
        session, pod_set, inside, lacking=proof.needed - proof.room, claimant=gang.key
    )
    text = f"{text}; best {name} {path} has room for {proof.room}"
    if held:
        text = f"{text} ({held})"
    why = _causes_text(session, pod_set, inside)
    return f"{text}: {why}" if why and not held else text


def _no_domain_ever_text(
    session: Session, pod_set: PodSet, level: TopologyLevel, needed: int
) -> str:
    """That no domain could hold so many even if nothing ran there; empty where one could."""
    shortage = _measure_shortage(session, pod_set, None)
    allowed = shortage.class_fit.fixed & (level.domain >= 0)
    if allowed.any():
        never = never_fits(pod_set.pod_class, session.node_usage, allowed)
        if never:
            return never
    rooms = shortage.room_on_empty_nodes(needed)
    inside = level.domain >= 0
    sums = np.zeros(len(level.names), dtype=np.int64)
    np.add.at(sums, level.domain[inside], rooms[inside])
    most = int(sums.max(initial=0))
    if most >= needed or not most:
        return ""
    return f"even empty no {level.name} has room for more than {most}"


def _explain_failed_filter(session: Session, gang: Gang) -> Unschedulable | None:
    """That a filter failed for a pod set of the gang, so that its nodes are unknown."""
    if not session.hooks.faults:
        return None
    for pod_set in gang.pod_sets:
        failed = (
            _measure_shortage(session, pod_set, None).failed_filters_text() if pod_set.pods else ""
        )
        if failed:
            return Unschedulable(Reason.BACK_OFF, failed)
    return None


def _measure_shortage(session: Session, pod_set: PodSet, within: Bools | None) -> Shortage:
    info = session.pod_info(pod_set.pods[0])
    filters, refused = session.class_infos.refusal_causes(info)
    return Shortage(
        pod_class=pod_set.pod_class, node_usage=session.node_usage, class_fit=info.class_fit, filters=filters,
        refused=refused, within=within,
    )  # fmt: skip


def _causes_text(session: Session, pod_set: PodSet, inside: Bools) -> str:
    shortage = _measure_shortage(session, pod_set, inside)
    causes = ", ".join(node_cause_text(*cause) for cause in shortage.refusal_causes()[:3])
    return f"of its {nodes_text(int(inside.sum()))} {causes}" if causes else ""


def _topology_reason(confines: LevelConstraint) -> Reason:
    return Reason.WAITING_FOR_TOPOLOGY if confines.waits else Reason.TOPOLOGY_UNSATISFIABLE


def _max_wait_text(gang: Gang, confines: LevelConstraint) -> str:
    if not confines.waits:
        return ""
    return f", holds out for it up to {gang.topology.max_wait_ns // 10**9} s"


def explain_split_placement(
    session: Session, rows: list[int], confines: LevelConstraint
) -> Unschedulable | None:
    """That the placed members are not in one domain of the required level."""
    if not confines.required or not rows:
        return None
    level = next(each for each in session.levels if each.name == confines.required)
    if len(np.unique(level.domain[rows])) == 1 and level.domain[rows[0]] >= 0:
        return None
    return Unschedulable(
        _topology_reason(confines), f"its placed pods do not share one {confines.required}"
    )


def explain_no_domain(
    session: Session,
    gang: Gang,
    confines: LevelConstraint,
    *,
    of: tuple[PodSet, int] | None = None,
    more: str = "",
) -> Unschedulable:
    """No domain holds the minimum: how far the best one gets, each pod set counted alone.

    Args:
        session: as its bench is looked at.
        gang: that finds no domain.
        confines: within which it was to be placed.
        of: the pod set that alone finds too little room anywhere, and how many of it are needed.
        more: how sure that is, appended.
    """
    name = confines.required
    level = next(each for each in session.levels if each.name == name)
    if not level.names:
        return Unschedulable(_topology_reason(confines), no_domain_message(session, name))
    found, _ = choose_start_members(gang, largest_first=True)
    pod_sets = [of] if of is not None else found or [(gang.pod_sets[0], gang.members_at_start)]
    for pod_set, count in pod_sets:
        if pod_set.pod_class.unsupported:
            return explain_shortage(session, pod_set, count, ALL_NODES, pod=pod_set.pods[0])
    unanswered = _explain_failed_filter(session, gang)
    if unanswered is not None:
        return unanswered
    places = range(len(level.names))
    rooms = [
        _pods_that_fit_by_domain(session, pod_set, count, level) for pod_set, count in pod_sets
    ]
    # A pod set that no domain holds says more than all of them together.
    short = [at for at, (_, count) in enumerate(pod_sets) if max(rooms[at]) < count]
    if short:
        pod_sets, rooms = [pod_sets[short[0]]], [rooms[short[0]]]
    total = [sum(each[number] for each in rooms) for number in places]
    best = max(places, key=lambda number: (total[number], -number))
    count = sum(count for _, count in pod_sets)
    pod_set = pod_sets[0][0]
    asked = (
        pods_text(count) if len(pod_sets) > 1 else pods_with_requests_text(count, pod_set.pod_class)
    )
    if total[best] < count:
        proof = Certificate("domain", -1, best, (), count, total[best])
        text = _best_domain_text(session, gang, pod_set, proof, name=name, asked=asked)
    else:
        text = (
            f"needs {asked} in one {name}; counted one by one they fit {level.names[best]}, "
            f"but no {name} was found that takes them together"
        )
    return Unschedulable(
        _topology_reason(confines), truncate_message(text + more + _max_wait_text(gang, confines))
    )


def _pods_that_fit_by_domain(
    session: Session, pod_set: PodSet, count: int, level: TopologyLevel
) -> list[int]:
    """How many of so many members of a pod set each domain of a level takes, with nothing else new in it."""
    class_fit = session.class_info(pod_set.pod_class).class_fit
    found = class_fit.count_fitting_by_domain(level.domain, len(level.names), most=count)
    return [min(count, each) for each in found]


def explain_shortage(
    session: Session, pod_set: PodSet, count: int, area: NodeSet, *, pod: Pod, placed: int = 0
) -> Unschedulable:
    """Why so many of a pod set find no place; ``pod`` is the first that did not."""
    if pod_set.pod_class.unsupported:
        return Unschedulable(
            Reason.INVALID_SPEC,
            truncate_message(
                f"pod {pod_set.pods[0].name} {pod_set.pod_class.unsupported}, which this version of "
                f"gpusched does not place; remove it or use another schedulerName"
            ),
        )
    info = session.pod_info(pod)
    lacking = device_shortage(session, pod_set.pod_class, count, area)
    if lacking is not None:
        return lacking
    if info.gate is None and info.class_fit.count_fitting(area.rows, most=count) >= count:
        alone = pods_with_requests_text(count, pod_set.pod_class)
        verb, they = ("finds", "it") if count == 1 else ("find", "they")
        message = (
            f"{alone} {verb} no place beside the gang's other members, though alone {they} would"
        )
        return Unschedulable(Reason.INSUFFICIENT_RESOURCES, truncate_message(message))
    with session.view.told_of(pod_set.pods):
        filters, refused = session.class_infos.refusal_causes(info)
    shortage = Shortage(
        pod_class=pod_set.pod_class,
        node_usage=session.node_usage,
        class_fit=info.class_fit,
        filters=filters,
        refused=refused,
        within=area.rows,
        where=area.where,
        placed=placed if info.gate is not None else None,
    )
    plain = area.rows is None and info.gate is None and not pod_set.pod_class.claims
    causes = _causes_on_all_nodes(session, shortage) if plain else None
    return Unschedulable(*shortage.reason_and_sentence(count, causes))


def _causes_on_all_nodes(session: Session, shortage: Shortage) -> list[tuple[int, str]] | None:
    """Why nodes take no more pods of a class, counted once as long as nothing moves; None where a filter tells more."""
    for each, rows in zip(shortage.filters, shortage.refused, strict=True):
        if (each.detail is not None or each.failed) and rows.any():
            return None
    known = session.cycle_state.get_or_make(_KnownCauses, _KnownCauses).of_class
    moved = len(session.node_usage.touched_rows)
    found = known.get(shortage.class_fit)  # another one on other nodes
    if found is None or found[0] != moved:
        found = known[shortage.class_fit] = (moved, shortage.refusal_causes())
    return found[1]


class _KnownCauses:
    """Causes by class, each with how much had moved in the session when they were counted."""

    def __init__(self) -> None:
        self.of_class: dict[ClassFit, tuple[int, list[tuple[int, str]]]] = {}
