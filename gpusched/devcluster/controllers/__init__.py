"""The controllers a batch scheduler lives with: jobs, garbage collection, budgets, nodes, quotas."""

from __future__ import annotations

import asyncio

from gpusched.clock import Clock
from gpusched.devcluster.controllers.api_service import ApiServiceKeeper
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
    manager = client.acting_as("kube-controller-manager")
    running = {
        "jobs": JobController(manager, clock).run(),
        "claims": ClaimController(manager, clock).run(),
        "replica sets": ReplicaSetController(manager, clock).run(),
        "deployments": DeploymentController(manager, clock).run(),
        "garbage": GarbageCollector(manager, clock).run(),
        "namespaces": NamespaceController(manager, clock).run(),
        "nodes": NodeController(manager, clock).run(),
        "disruption": DisruptionController(manager, clock).run(),
        "evictions": TaintEvictions(manager, clock).run(),
        "quota": QuotaController(manager, clock).run(),
        "service accounts": ServiceAccountController(manager, clock).run(),
        "service kubernetes": ApiServiceKeeper(client.acting_as("kube-apiserver"), clock).run(),
        "role unions": AggregationController(manager, clock).run(),
    }
    if stages:
        kwok = client.acting_as("kwok")
        engine = StageEngine(kwok, (), clock=clock, rng=rng)
        running["node pools"] = NodePoolController(kwok, clock).run()
        running["stages"] = StageObjects(kwok, engine, clock).run()
    return [group.create_task(work, name=f"devcluster {name}") for name, work in running.items()]
