"""Where each group of a tree stands: CompositePodGroups and PodGroups below the one that is decided."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.foreign.native_trees import needed_children, sub_group_name
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import Reason, pods_text, truncate_message
from gpusched.session.state.plan import GangStatus, PendingReason


def statuses_of_tree(gang: Gang, status: GangStatus) -> Iterator[GangStatus]:
    """The status of each group that is a sub-group of a gang; none where it has no tree.

    Args:
        gang: as the session sees it.
        status: of the gang as a whole, whose reason counts for all that wait.
    """
    counts = _ready_counts(gang)
    root = f"{COMPOSITE} {gang.key.name}"
    for group in gang.tree:
        have, needed = counts[group.kind, group.name], _needed_members(group)
        placed = have >= needed
        text = _counts_message(group, have, needed)
        waits = status.pending_reason or status.scheduled
        reason = Reason.NOT_ENOUGH_MEMBERS if waits.reason == Reason.SCHEDULED else waits.reason
        said = PendingReason(
            reason=Reason.SCHEDULED if placed else reason,
            message=truncate_message(
                f"{text}; in {root}" if placed else f"{text}; {root}: {waits.message}"
            ),
        )
        yield attrs.evolve(
            status,
            gang=GangKey(group.kind, group.namespace, group.name),
            uid=group.uid,
            generation=group.generation,
            scheduled=said,
            is_scheduled=placed,
            phase=_tree_phase(group, status, placed=placed),
            waiting_pods=(),
            told_members=(),
            nominated=(),
            pending_reason=None,
            placement=(),
            eviction_warning=None,
            key_warning="",
            preempted=None if group.our_condition("Preempted") is None else status.preempted,
        )


def _tree_phase(group: PodGroup, status: GangStatus, *, placed: bool) -> str:
    if status.phase == "Completed":
        return "Completed"
    if placed:
        return "Running"
    return "Unknown" if group.native is not None and group.native.started else status.phase


def _ready_counts(gang: Gang) -> dict[tuple[str, str], int]:
    """Members that count of each PodGroup, complete children of each CompositePodGroup."""
    ready = dict(gang.ready_sub_groups)
    found = {(group.kind, group.name): ready.get(sub_group_name(group), 0) for group in gang.tree}
    for group in reversed(gang.tree):  # PodGroups are last, parents before their children
        if group.kind == COMPOSITE:
            found[group.kind, group.name] = sum(
                found[child.kind, child.name] >= _needed_members(child)
                for child in gang.tree
                if child.native is not None and child.native.parent == group.name
            )
    return found


def _needed_members(group: PodGroup) -> int:
    return needed_children(group) if group.kind == COMPOSITE else group.min_member


def _counts_message(group: PodGroup, have: int, needed: int) -> str:
    if group.kind == COMPOSITE:
        return f"{have} of its groups placed, {needed} needed"
    return f"{pods_text(have)} placed, {needed} needed"
