"""Which strategy serves which built-in kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gpusched.devcluster.registry.custom.kind import DefinitionStrategy
from gpusched.devcluster.registry.devices.classes_and_slices import (
    DeviceClassStrategy,
    ResourceSliceStrategy,
)
from gpusched.devcluster.registry.devices.resource_claims import (
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
)
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures
from gpusched.devcluster.registry.gangs.scheduled_jobs import ScheduledJobStrategy
from gpusched.devcluster.registry.nodes import NodeStrategy
from gpusched.devcluster.registry.pods.strategy import PodStrategy
from gpusched.devcluster.registry.policy.admission_policies import (
    AdmissionBindingStrategy,
    AdmissionPolicyStrategy,
    MutatingBindingStrategy,
    MutatingPolicyStrategy,
)
from gpusched.devcluster.registry.policy.disruption_budgets import DisruptionBudgetStrategy
from gpusched.devcluster.registry.policy.limit_ranges import LimitRangeStrategy
from gpusched.devcluster.registry.policy.network_policies import NetworkPolicyStrategy
from gpusched.devcluster.registry.policy.priority_classes import PriorityClassStrategy
from gpusched.devcluster.registry.policy.resource_quotas import ResourceQuotaStrategy
from gpusched.devcluster.registry.policy.roles import RoleBindingStrategy, RoleStrategy
from gpusched.devcluster.registry.stored.config_maps_and_secrets import (
    ConfigMapStrategy,
    SecretStrategy,
)
from gpusched.devcluster.registry.stored.events import EventsGroupStrategy, EventStrategy
from gpusched.devcluster.registry.stored.leases import LeaseStrategy
from gpusched.devcluster.registry.stored.namespaces import NamespaceStrategy, ServiceAccountStrategy
from gpusched.devcluster.registry.stored.services import ServiceStrategy
from gpusched.devcluster.registry.stored.templates import (
    ApiServiceStrategy,
    ControllerRevisionStrategy,
    EndpointsStrategy,
    PodTemplateStrategy,
)
from gpusched.devcluster.registry.stored.volumes import (
    CsiDriverStrategy,
    PersistentVolumeClaimStrategy,
    PersistentVolumeStrategy,
    StorageClassStrategy,
    StorageObjectStrategy,
)
from gpusched.devcluster.registry.strategy import Strategy
from gpusched.devcluster.registry.workloads.apps import DeploymentStrategy, ReplicaSetStrategy
from gpusched.devcluster.registry.workloads.jobs import JobStrategy
from gpusched.devcluster.registry.workloads.stateful_sets import StatefulSetStrategy

_BY_PLURAL: Final[dict[str, Strategy]] = {
    "apiservices": ApiServiceStrategy(),
    "clusterrolebindings": RoleBindingStrategy(namespaced=False),
    "clusterroles": RoleStrategy(namespaced=False),
    "configmaps": ConfigMapStrategy(),
    "controllerrevisions": ControllerRevisionStrategy(),
    "csidrivers": CsiDriverStrategy(),
    "csinodes": StorageObjectStrategy(),
    "csistoragecapacities": StorageObjectStrategy(),
    "customresourcedefinitions": DefinitionStrategy(),
    "deviceclasses": DeviceClassStrategy(),
    "endpoints": EndpointsStrategy(),
    "deployments": DeploymentStrategy(),
    "events": EventStrategy(),
    "events.events.k8s.io": EventsGroupStrategy(),
    "jobs": JobStrategy(),
    "leases": LeaseStrategy(),
    "limitranges": LimitRangeStrategy(),
    "mutatingadmissionpolicies": MutatingPolicyStrategy(),
    "mutatingadmissionpolicybindings": MutatingBindingStrategy(),
    "namespaces": NamespaceStrategy(),
    "networkpolicies": NetworkPolicyStrategy(),
    "nodes": NodeStrategy(),
    "persistentvolumeclaims": PersistentVolumeClaimStrategy(),
    "persistentvolumes": PersistentVolumeStrategy(),
    "poddisruptionbudgets": DisruptionBudgetStrategy(),
    "pods": PodStrategy(),
    "podtemplates": PodTemplateStrategy(),
    "priorityclasses": PriorityClassStrategy(),
    "resourceclaims": ResourceClaimStrategy(),
    "resourceclaimtemplates": ResourceClaimTemplateStrategy(),
    "replicasets": ReplicaSetStrategy(),
    "resourcequotas": ResourceQuotaStrategy(),
    "rolebindings": RoleBindingStrategy(namespaced=True),
    "roles": RoleStrategy(namespaced=True),
    "resourceslices": ResourceSliceStrategy(),
    "secrets": SecretStrategy(),
    "serviceaccounts": ServiceAccountStrategy(),
    "services": ServiceStrategy(),
    "statefulsets": StatefulSetStrategy(PersistentVolumeClaimStrategy().validate),
    "storageclasses": StorageClassStrategy(),
    "validatingadmissionpolicies": AdmissionPolicyStrategy(),
    "validatingadmissionpolicybindings": AdmissionBindingStrategy(),
    "volumeattributesclasses": StorageObjectStrategy(),
}


def builtin_strategies(features: GangFeatures = OFF) -> Callable[[str], Strategy]:
    """Return what gives the strategy of a built-in kind; plain storage for one without its own.

    Args:
        features: of gangs: Jobs have a field for them in their newest form.
    """
    known: Mapping[str, Strategy] = _BY_PLURAL
    if features.release != OFF.release:
        known = {**_BY_PLURAL, "jobs": ScheduledJobStrategy(features)}
    return lambda plural: known.get(plural) or Strategy()
