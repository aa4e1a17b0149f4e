"""The one module that authors of plugins and actions import.

A plugin is a frozen attrs class with ``name``, ``api = 1`` and ``open(hooks, view)``; see
``plugins/README.md`` for a worked example and a test without a cluster.
"""

from __future__ import annotations

from gpusched.cache.gangs import Gang, Placed, Task
from gpusched.cache.queues import QueueNode
from gpusched.objects.dimension import dimension, pool_of, resource_of
from gpusched.objects.group import PodGroup, Queue, Usage
from gpusched.objects.meta import GangKey, ObjectKey
from gpusched.objects.node import Node
from gpusched.objects.pod import Pod, PodClass
from gpusched.objects.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.objects.quantity import format_quantity
from gpusched.objects.resources import NOTHING, PODS, Resources
from gpusched.objects.selector import NodeTerm, Selector, Taint, Toleration
from gpusched.objects.slot import accelerator
from gpusched.objects.units import DEVICE, unit_of
from gpusched.objects.volumes import Claim, Storage, Volume
from gpusched.session.broken import broken_since
from gpusched.session.demand import less
from gpusched.session.growing import grow
from gpusched.session.hooks import Hooks
from gpusched.session.keys import Key
from gpusched.session.pairs import PairRule, PairScore
from gpusched.session.placing import place_minimum
from gpusched.session.proposal import CONSOLIDATE, PREEMPT, RECLAIM, Chunk, Moving, Proposal
from gpusched.session.protocols import Action, Plugin
from gpusched.session.reasons import Reason, request_text
from gpusched.session.residents import PodQuery
from gpusched.session.session import Session
from gpusched.session.statement import Statement
from gpusched.session.turns import turns
from gpusched.session.verdict import ABSTAIN, ALLOW, Verdict, deny, first_refusal, wait
from gpusched.session.view import NodeRows, View

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
    "Claim",
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
    "Placed",
    "Plugin",
    "Pod",
    "PodClass",
    "PodGroup",
    "PodQuery",
    "PodTerm",
    "Proposal",
    "Queue",
    "QueueNode",
    "Reason",
    "Resources",
    "Selector",
    "Session",
    "SpreadTerm",
    "Statement",
    "Storage",
    "Taint",
    "Task",
    "Toleration",
    "Usage",
    "Verdict",
    "View",
    "Volume",
    "accelerator",
    "broken_since",
    "deny",
    "dimension",
    "first_refusal",
    "format_quantity",
    "grow",
    "less",
    "place_minimum",
    "pool_of",
    "request_text",
    "resource_of",
    "turns",
    "unit_of",
    "wait",
]
