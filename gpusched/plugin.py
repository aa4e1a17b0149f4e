"""The one module that authors of plugins and actions import.

A plugin is a frozen attrs class with ``name``, ``api = 1`` and ``open(hooks, view)``; see
``plugins/README.md`` for a worked example and a test without a cluster.
"""

from __future__ import annotations

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import NodeTerm, Selector, Taint, Toleration
from gpusched.api.devices.slots import accelerator
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.meta.pool_resources import dimension, pool_of, resource_of
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import NOTHING, PODS, Resources
from gpusched.api.meta.units import DEVICE, unit_of
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.queue.queue import Queue, QueueUsage
from gpusched.api.volumes.volume import PersistentVolume, PersistentVolumeClaim, VolumeCatalog
from gpusched.cache.gangs.gang import Gang, Placed, PodSet
from gpusched.cache.queues.tree import QueueNode
from gpusched.session.allocate.elastic_members import grow
from gpusched.session.allocate.gang_placement import place_minimum
from gpusched.session.allocate.gang_repair import broken_since
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.inter_pod_rules import PairRule, PairScore
from gpusched.session.framework.plugin import Plugin
from gpusched.session.framework.pod_counts import PodQuery
from gpusched.session.framework.proposal import (
    CONSOLIDATE,
    PREEMPT,
    RECLAIM,
    Chunk,
    Moving,
    Proposal,
)
from gpusched.session.framework.queue_accounts import less
from gpusched.session.framework.reasons import Reason, request_text
from gpusched.session.framework.sort_keys import Key
from gpusched.session.framework.verdict import ABSTAIN, ALLOW, Verdict, deny, first_refusal, wait
from gpusched.session.framework.view import NodeRows, View
from gpusched.session.state.policy import Action
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

__all__ = [
    "ABSTAIN",
    "ALLOW",
    "CONSOLIDATE",
    "DEVICE",
    "NOTHING",
    "PODS",
    "PREEMPT",
    "RECLAIM",
    "Action",
    "Chunk",
    "Gang",
    "GangKey",
    "Hooks",
    "HostPort",
    "Key",
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
    "Proposal",
    "Queue",
    "QueueNode",
    "QueueUsage",
    "Reason",
    "Resources",
    "Selector",
    "Session",
    "SpreadTerm",
    "Statement",
    "Taint",
    "Toleration",
    "Verdict",
    "View",
    "VolumeCatalog",
    "accelerator",
    "broken_since",
    "deny",
    "dimension",
    "first_refusal",
    "format_quantity",
    "grow",
    "in_queue_order",
    "less",
    "place_minimum",
    "pool_of",
    "request_text",
    "resource_of",
    "unit_of",
    "wait",
]
