"""The public library of plugins and actions: the one module that their authors import.

A plugin is a frozen attrs class with ``name``, ``api = 1`` and ``open(hooks, view)``; an action
has a name and ``run(session)``. ``plugins/README.md`` has a worked plugin and docs/plugins.md a
worked action, each with a test without a cluster. Shipped plugins and actions use nothing else,
so that each of them is a template.

Where thousands of victims are judged, hooks about them are given a second form, ``for_all``, that
answers for a list at once: see ``Hooks.victim_filter`` and plugins/README.md.

What is here leaves reservations whole: ``place_minimum``, ``grow`` and ``GangStarts`` find no room
that is kept for a gang whose turn comes before.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import NodeTerm, Selector, Taint, Toleration
from gpusched.api.devices.slots import accelerator
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.gang.turn_record import turn_limit_s
from gpusched.api.meta.identity import GangKey, ObjectKey, format_time
from gpusched.api.meta.pool_resources import dimension, pool_of, resource_of
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import NOTHING, PODS, Resources
from gpusched.api.meta.units import DEVICE, unit_of
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.queue.budget import format_gpu_hours
from gpusched.api.queue.queue import Queue, QueueUsage
from gpusched.api.queue.user_limits import RUNNING_GANGS, UserLimit, account_of
from gpusched.api.volumes.volume import PersistentVolume, PersistentVolumeClaim, VolumeCatalog
from gpusched.cache.gangs.gang import Gang, Placed, PodSet
from gpusched.cache.queues.tree import QueueNode
from gpusched.session.admission.admission_age import admission_age_verdict
from gpusched.session.admission.queue_gate import queue_admission, queue_gate
from gpusched.session.admission.quota_order import refuse_beyond_quota
from gpusched.session.admission.readiness import gangs_to_place
from gpusched.session.allocate.gang_repair import broken_since, nominate_for_repair, split_repairs
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.backfill.estimates.start_estimates import expected_starts
from gpusched.session.backfill.reservation_guard import (
    keep_reserved,
    make_reservations,
    place_minimum,
)
from gpusched.session.backfill.reservations import session_reservations
from gpusched.session.framework.accounts.queue_accounts import BudgetUse, less
from gpusched.session.framework.guard import DependsOn
from gpusched.session.framework.hook_calls import Fullness
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.inter_pod_rules import DomainLimit, PairRule, PairScore
from gpusched.session.framework.plugin import ActionNeeds, Capability, Plugin
from gpusched.session.framework.pod_counts import PodQuery
from gpusched.session.framework.proposal import (
    CONSOLIDATE,
    PREEMPT,
    RECLAIM,
    Chunk,
    EvictionLimits,
    EvictionRight,
    Moving,
    Proposal,
    Stable,
)
from gpusched.session.framework.reasons import (
    Reason,
    nodes_text,
    pods_text,
    request_text,
    shorten,
    truncate_message,
)
from gpusched.session.framework.sort_keys import Key, KeyMeaning
from gpusched.session.framework.verdict import ABSTAIN, ALLOW, Verdict, deny, first_refusal, wait
from gpusched.session.framework.view import NodeRows, View
from gpusched.session.preempt.claims.claimants import (
    gang_text,
    may_have_claimants,
    preempt_rules,
    preemption_claimants,
    reclaim_rules,
)
from gpusched.session.preempt.claims.growing_gangs import GrowingGangs, growth_rules
from gpusched.session.preempt.claims.late_claims import LateClaims, late_claims
from gpusched.session.preempt.claims.native_extras import extras_of_native_groups, extras_rules
from gpusched.session.preempt.preemption import Preemption, session_victims
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.preempt.victims import Victims
from gpusched.session.rebalance.consolidation import Consolidation
from gpusched.session.start.gang_start import GangStarts, withdraw_idle_nominations
from gpusched.session.start.growth import grow, grow_in_turn
from gpusched.session.start.waiting_order import number_positions, retry_reserved, waiting_gangs
from gpusched.session.state.policy import Action
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation, Statement

__all__ = [
    "ABSTAIN",
    "ALLOW",
    "CONSOLIDATE",
    "DEVICE",
    "NOTHING",
    "PODS",
    "PREEMPT",
    "RECLAIM",
    "RUNNING_GANGS",
    "Action",
    "ActionNeeds",
    "BudgetUse",
    "Capability",
    "Chunk",
    "Consolidation",
    "DependsOn",
    "DomainLimit",
    "EvictOperation",
    "EvictionLimits",
    "EvictionRight",
    "Fullness",
    "Gang",
    "GangKey",
    "GangStarts",
    "GrowingGangs",
    "Hooks",
    "HostPort",
    "Key",
    "KeyMeaning",
    "LateClaims",
    "Moving",
    "Node",
    "NodeRows",
    "NodeTerm",
    "ObjectKey",
    "PairRule",
    "PairScore",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Placed",
    "Plugin",
    "Pod",
    "PodClass",
    "PodGroup",
    "PodQuery",
    "PodSet",
    "PodTerm",
    "Preemption",
    "Proposal",
    "Queue",
    "QueueNode",
    "QueueUsage",
    "Reason",
    "Resources",
    "Selector",
    "Session",
    "SpreadTerm",
    "Stable",
    "Statement",
    "Taint",
    "Toleration",
    "UserLimit",
    "Verdict",
    "VictimRules",
    "Victims",
    "View",
    "VolumeCatalog",
    "accelerator",
    "account_of",
    "admission_age_verdict",
    "broken_since",
    "deny",
    "dimension",
    "expected_starts",
    "extras_of_native_groups",
    "extras_rules",
    "first_refusal",
    "format_gpu_hours",
    "format_quantity",
    "format_time",
    "gang_text",
    "gangs_to_place",
    "grow",
    "grow_in_turn",
    "growth_rules",
    "in_queue_order",
    "keep_reserved",
    "late_claims",
    "less",
    "make_reservations",
    "may_have_claimants",
    "nodes_text",
    "nominate_for_repair",
    "number_positions",
    "place_minimum",
    "pods_text",
    "pool_of",
    "preempt_rules",
    "preemption_claimants",
    "queue_admission",
    "queue_gate",
    "reclaim_rules",
    "refuse_beyond_quota",
    "request_text",
    "resource_of",
    "retry_reserved",
    "session_reservations",
    "session_victims",
    "shorten",
    "split_repairs",
    "truncate_message",
    "turn_limit_s",
    "unit_of",
    "wait",
    "waiting_gangs",
    "withdraw_idle_nominations",
]

_RENAMED: Final = {
    "Claim": "PersistentVolumeClaim",
    "Storage": "VolumeCatalog",
    "Task": "PodSet",
    "Usage": "QueueUsage",
    "Volume": "PersistentVolume",
    "turns": "in_queue_order",
}
"""Names of version 0.1.0 and those that they have now."""

if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> object:
        """Find what has another name since version 0.1.0, with a warning."""
        known = _RENAMED.get(name)
        if known is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warnings.warn(
            f"gpusched.plugin.{name} is called {known} now", DeprecationWarning, stacklevel=2
        )
        return globals()[known]
