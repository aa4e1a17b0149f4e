"""The controllers that a batch scheduler depends on: jobs, garbage collection, budgets, nodes, quotas."""

from __future__ import annotations

import asyncio

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.seeded_random import KeyedRandom
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.controllers.bootstrap.cluster_role_aggregation import (
    ClusterRoleAggregationController,
)
from gpusched.devcluster.controllers.bootstrap.kubernetes_service import (
    KubernetesServiceController,
)
from gpusched.devcluster.controllers.bootstrap.service_accounts import ServiceAccountController
from gpusched.devcluster.controllers.deletion.garbage_collector import GarbageCollector
from gpusched.devcluster.controllers.deletion.namespaces import NamespaceController
from gpusched.devcluster.controllers.deletion.pod_groups import PodGroupProtectionController
from gpusched.devcluster.controllers.deployments.controller import DeploymentController
from gpusched.devcluster.controllers.deployments.replica_sets import ReplicaSetController
from gpusched.devcluster.controllers.disruption import DisruptionController
from gpusched.devcluster.controllers.jobs.controller import JobController
from gpusched.devcluster.controllers.jobs.gangs import JobGangs
from gpusched.devcluster.controllers.nodes.devices.device_drivers import DeviceDrivers
from gpusched.devcluster.controllers.nodes.devices.taint_eviction import DeviceTaintEviction
from gpusched.devcluster.controllers.nodes.lifecycle import NodeController
from gpusched.devcluster.controllers.nodes.node_pools import NodePoolController
from gpusched.devcluster.controllers.nodes.taint_eviction import TaintEvictionController
from gpusched.devcluster.controllers.resource_claims import ResourceClaimController
from gpusched.devcluster.controllers.resource_quota import ResourceQuotaController
from gpusched.devcluster.controllers.stateful_sets.controller import StatefulSetController
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures
from gpusched.devcluster.stages.engine import StageEngine
from gpusched.devcluster.stages.stage_watch import StageWatch


def start_all(
    group: asyncio.TaskGroup,
    client: LocalClient,
    *,
    clock: Clock,
    rng: KeyedRandom,
    stages: bool = False,
    gangs: GangFeatures = OFF,
) -> list[asyncio.Task[None]]:
    """Start every controller, and the stage engine where it is wanted, in a task group.

    They run until cancelled; a fault of one ends the group with it.

    Args:
        group: owns the tasks.
        client: the cluster they work on.
        clock: their only source of time.
        rng: draws of the stage engine.
        stages: whether the Stage objects of the cluster drive fake nodes and pods.
        gangs: what is served of Kubernetes' own gangs.
    """

    def manager(account: str) -> LocalClient:
        return client.acting_as("kube-controller-manager", account=account)

    jobs = manager("job-controller")
    running = {
        "jobs": JobController(jobs, clock, gangs=JobGangs(jobs, gangs)).run(),
        "claims": ResourceClaimController(manager("resource-claim-controller"), clock, gangs).run(),
        "replica sets": ReplicaSetController(manager("replicaset-controller"), clock).run(),
        "deployments": DeploymentController(manager("deployment-controller"), clock).run(),
        "stateful sets": StatefulSetController(manager("statefulset-controller"), clock).run(),
        "garbage": GarbageCollector(manager("generic-garbage-collector"), clock).run(),
        "namespaces": NamespaceController(manager("namespace-controller"), clock).run(),
        "nodes": NodeController(manager("node-controller"), clock).run(),
        "disruption": DisruptionController(manager("disruption-controller"), clock).run(),
        "evictions": TaintEvictionController(manager("taint-eviction-controller"), clock).run(),
        "device evictions": DeviceTaintEviction(manager("device-taint-eviction"), clock).run(),
        "quota": ResourceQuotaController(manager("resourcequota-controller"), clock).run(),
        "service accounts": ServiceAccountController(
            manager("service-account-controller"), clock
        ).run(),
        "service kubernetes": KubernetesServiceController(
            client.acting_as("kube-apiserver"), clock
        ).run(),
        "role unions": ClusterRoleAggregationController(
            manager("clusterrole-aggregation-controller"), clock
        ).run(),
    }
    if gangs.served:
        protection = manager("podgroup-protection-controller")
        running["pod groups"] = PodGroupProtectionController(protection, clock).run()
    if stages:
        kwok = client.acting_as("kwok", account="kwok-controller")
        engine = StageEngine(kwok, (), clock=clock, rng=rng)
        running["node pools"] = NodePoolController(kwok, clock).run()
        running["devices"] = DeviceDrivers(kwok, clock).run()
        running["stages"] = StageWatch(kwok, engine, clock).run()
    return [group.create_task(work, name=f"devcluster {name}") for name, work in running.items()]
