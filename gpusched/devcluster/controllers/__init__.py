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

    def manager(account: str) -> LocalClient:
        return client.acting_as("kube-controller-manager", account=account)

    running = {
        "jobs": JobController(manager("job-controller"), clock).run(),
        "claims": ClaimController(manager("resource-claim-controller"), clock).run(),
        "replica sets": ReplicaSetController(manager("replicaset-controller"), clock).run(),
        "deployments": DeploymentController(manager("deployment-controller"), clock).run(),
        "garbage": GarbageCollector(manager("generic-garbage-collector"), clock).run(),
        "namespaces": NamespaceController(manager("namespace-controller"), clock).run(),
        "nodes": NodeController(manager("node-controller"), clock).run(),
        "disruption": DisruptionController(manager("disruption-controller"), clock).run(),
        "evictions": TaintEvictions(manager("taint-eviction-controller"), clock).run(),
        "quota": QuotaController(manager("resourcequota-controller"), clock).run(),
        "service accounts": ServiceAccountController(
            manager("service-account-controller"), clock
        ).run(),
        "service kubernetes": ApiServiceKeeper(client.acting_as("kube-apiserver"), clock).run(),
        "role unions": AggregationController(
            manager("clusterrole-aggregation-controller"), clock
        ).run(),
    }
    if stages:
        kwok = client.acting_as("kwok", account="kwok-controller")
        engine = StageEngine(kwok, (), clock=clock, rng=rng)
        running["node pools"] = NodePoolController(kwok, clock).run()
        running["stages"] = StageObjects(kwok, engine, clock).run()
    return [group.create_task(work, name=f"devcluster {name}") for name, work in running.items()]
