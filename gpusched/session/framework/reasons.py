"""The closed list of reasons, and the sentences that go with them.

Every sentence says what is needed, what there is, and where a number helps, the number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import PODS, Resources
from gpusched.api.pod.pod import PodClass
from gpusched.base.limits import FOREIGN_TEXT_MAX, TEXT_MAX

_NONE: Final = "no resources"
_GATES_NAMED_MAX: Final = 2
_VERBS: Final = {"are": "is", "have": "has", "do": "does", "lack": "lacks", "break": "breaks"}
"""Verbs with which words about nodes begin, of several and of one."""


class Reason(StrEnum):
    """Reasons of conditions and events, as the contract lists them."""

    NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    QUEUE_STOPPED = "QueueStopped"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    QUOTA_EXCEEDED = "QuotaExceeded"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    USER_LIMIT = "UserLimit"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    TOPOLOGY_UNSATISFIABLE = "TopologyUnsatisfiable"
    WAITING_FOR_TOPOLOGY = "WaitingForTopology"
    TOPOLOGY_CONFLICT = "TopologyConflict"
    NO_FEASIBLE_NODE = "NoFeasibleNode"
    BACK_OFF = "BackOff"
    WAITING_FOR_TURN = "WaitingForTurn"
    GATED = "Gated"
    HELD = "Held"
    INVALID_SPEC = "InvalidSpec"
    SCHEDULED = "Scheduled"
    STALE_GANG = "StaleGang"
    RESERVED = "Reserved"
    PREEMPTION_IN_PROGRESS = "PreemptionInProgress"
    PREEMPTED = "Preempted"
    RECLAIMED = "Reclaimed"
    SCHEDULER_ERROR = "SchedulerError"
    """Ours to mend; kube-scheduler uses the same word on pods."""


def shorten(text: str) -> str:
    """A user's text inside our sentence: one line, cut."""
    return " ".join(text.split())[:FOREIGN_TEXT_MAX]


def truncate_message(message: str) -> str:
    """A sentence that fits a condition."""
    return message if len(message) <= TEXT_MAX else message[: TEXT_MAX - 3] + "..."


def pods_text(count: int) -> str:
    """``1 pod``, ``3 pods``."""
    return f"{count} pod" if count == 1 else f"{count} pods"


def nodes_text(count: int) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{count} node" if count == 1 else f"{count} nodes"


def node_cause_text(count: int, words: str) -> str:
    """``2 lack free cpu``, ``1 lacks free cpu``: some nodes and what is wrong with them.

    Args:
        count: of the nodes.
        words: as for several, with what is in the way in brackets.
    """
    if count != 1:
        return f"{count} {words}"
    told, bracket, rest = words.partition(" (")
    for several, one in _VERBS.items():
        told = re.sub(rf"(^| and ){several} ", rf"\g<1>{one} ", told)
    return f"{count} {told}{bracket}{rest}"


def request_text(requests: Resources, *, gpu: str = "") -> str:
    """Amounts that one pod requests, GPUs first: ``8 nvidia.com/gpu, 4 cpu``."""
    parts = [
        f"{format_quantity(amount, resource=name)} {name}"
        for name, amount in sorted(requests.items, key=lambda item: (item[0] != gpu, item[0]))
        if amount and name != PODS
    ]
    return ", ".join(parts) or _NONE


def pods_with_requests_text(count: int, pod_class: PodClass) -> str:
    """``3 pods with 8 nvidia.com/gpu, 4 cpu``, ``1 pod with 10Gi of the memory of one GPU``."""
    share = pod_class.share
    if share is None or not share.memory:
        return f"{pods_text(count)} with {request_text(pod_class.requests, gpu=pod_class.gpu)}"
    # What it counts as in quotas is not what it requests.
    rest = Resources.of(
        {key: each for key, each in pod_class.requests.items if key != shared_resource()}
    )
    part = f"{format_quantity(share.memory, resource='memory')} of the memory of one GPU"
    more = request_text(rest)
    return f"{pods_text(count)} with {part}" + ("" if more == _NONE else f", {more}")


def gates_text(names: Sequence[str]) -> str:
    """``gate example.com/quota``, ``gates a and b``, of pods that are held; at most two are named."""
    told = [shorten(name) for name in names[:_GATES_NAMED_MAX] if name]
    if not told:
        return "a gate"
    if len(names) > _GATES_NAMED_MAX:
        return f"gates {', '.join(told)} and {len(names) - _GATES_NAMED_MAX} more"
    return f"gate{'s' if len(told) > 1 else ''} {' and '.join(told)}"


def not_enough_members_message(
    need: int, *, have: int, gated: int, leaving: int, gates: Sequence[str] = ()
) -> str:
    """Fewer pods exist than must start together."""
    parts = [f"{pods_text(have)} can run"]
    if gated:
        parts.append(f"{gated} held by {gates_text(gates)}")
    if leaving:
        parts.append(f"{leaving} being deleted")
    together = " together" if need > 1 else ""
    return f"needs {pods_text(need)}{together}; " + ", ".join(parts)


def insufficient_room_message(
    asked: str, *, fit: int, total: int, refused: list[tuple[int, str]], where: str = ""
) -> str:
    """Not enough places.

    Args:
        asked: from ``what``.
        fit: pods that would fit now.
        total: nodes that were looked at.
        refused: numbers of nodes and why they take none, largest first.
        where: ``in one rack`` and the like.
    """
    place = f" {where}" if where else ""
    verb = "fits" if fit == 1 else "fit"
    why = ", ".join(node_cause_text(count, text) for count, text in refused)
    of = f"of {nodes_text(total)}: {why}" if why else f"on {nodes_text(total)}"
    return truncate_message(f"needs {asked}{place}; {fit or 'none'} {verb} now; {of}")
