"""The controllers a batch scheduler lives with: jobs, garbage collection, budgets, nodes, quotas."""

from __future__ import annotations

import asyncio

from gpusched.clock import Clock
from gpusched.devcluster.controllers.claims import ClaimController
from gpusched.devcluster.controllers.cluster_roles import AggregationController
from gpusched.devcluster.controllers.deployments import DeploymentController
from gpusched.devcluster.controllers.gc import GarbageCollector
from gpusched.devcluster.controllers.jobs import JobController
from gpusched.devcluster.controllers.namespaces import NamespaceController
from gpusched.devcluster.controllers.node_pools import NodePoolController
from gpusched.devcluster.controllers.nodes import NodeController
from gpusched.devcluster.controllers.pdb import DisruptionController
from gpusched.devcluster.controllers.quota import QuotaController
from gpusched.devcluster.controllers.replicasets import ReplicaSetController
from gpusched.devcluster.controllers.service_accounts import ServiceAccountController
from gpusched.devcluster.controllers.taint_evictions import TaintEvictions
from gpusched.devcluster.draws import KeyedRandom
from gpusched.devcluster.local_client import LocalClient
from gpusched.devcluster.stages.engine import StageEngine
from gpusched.devcluster.stages.objects import StageObjects


def start_all(
    group: asyncio.TaskGroup,
    client: LocalClient,
    *,
    clock: Clock,
    rng: KeyedRandom,
    stages: bool = False,
) -> list[asyncio.Task[None]]:
    """Start every controller, and the stage engine where it is wanted, in a task group.

    They run until cancelled; a fault of one ends the group with it.

    Args:
        group: owns the tasks.
        client: the cluster they work on.
        clock: their only source of time.
        rng: draws of the stage engine.
        stages: whether the Stage objects of the cluster drive fake nodes and pods.
    """
    running = {
        "jobs": JobController(client, clock).run(),
        "claims": ClaimController(client, clock).run(),
        "replica sets": ReplicaSetController(client, clock).run(),
        "deployments": DeploymentController(client, clock).run(),
        "garbage": GarbageCollector(client, clock).run(),
        "namespaces": NamespaceController(client, clock).run(),
        "nodes": NodeController(client, clock).run(),
        "disruption": DisruptionController(client, clock).run(),
        "evictions": TaintEvictions(client, clock).run(),
        "quota": QuotaController(client, clock).run(),
        "service accounts": ServiceAccountController(client, clock).run(),
        "role unions": AggregationController(client, clock).run(),
    }
    if stages:
        engine = StageEngine(client, (), clock=clock, rng=rng)
        running["node pools"] = NodePoolController(client, clock).run()
        running["stages"] = StageObjects(client, engine, clock).run()
    return [group.create_task(work, name=f"devcluster {name}") for name, work in running.items()]
