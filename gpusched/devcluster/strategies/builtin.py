"""Which strategy serves which built-in kind."""

from __future__ import annotations

from typing import Final

from gpusched.devcluster.custom import DefinitionStrategy
from gpusched.devcluster.strategies import (
    DisruptionBudgetStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    ServiceAccountStrategy,
    Strategy,
)
from gpusched.devcluster.strategies.admission_policies import (
    AdmissionBindingStrategy,
    AdmissionPolicyStrategy,
)
from gpusched.devcluster.strategies.apps import DeploymentStrategy, ReplicaSetStrategy
from gpusched.devcluster.strategies.claims import ClaimStrategy, ClaimTemplateStrategy
from gpusched.devcluster.strategies.devices import DeviceClassStrategy, ResourceSliceStrategy
from gpusched.devcluster.strategies.events import EventStrategy, NewEventStrategy
from gpusched.devcluster.strategies.jobs import JobStrategy
from gpusched.devcluster.strategies.limit_ranges import LimitRangeStrategy
from gpusched.devcluster.strategies.network_policies import NetworkPolicyStrategy
from gpusched.devcluster.strategies.nodes import NodeStrategy
from gpusched.devcluster.strategies.pods import PodStrategy
from gpusched.devcluster.strategies.priority_classes import PriorityClassStrategy
from gpusched.devcluster.strategies.quotas import QuotaStrategy
from gpusched.devcluster.strategies.rbac import BindingStrategy, RoleStrategy
from gpusched.devcluster.strategies.services import ServiceStrategy
from gpusched.devcluster.strategies.stored_data import ConfigMapStrategy, SecretStrategy
from gpusched.devcluster.strategies.templates import (
    ApiServiceStrategy,
    EndpointsStrategy,
    PodTemplateStrategy,
    RevisionStrategy,
)
from gpusched.devcluster.strategies.volumes import (
    CsiDriverStrategy,
    PlainStrategy,
    StorageClassStrategy,
    VolumeClaimStrategy,
    VolumeStrategy,
)

_BY_PLURAL: Final[dict[str, Strategy]] = {
    "apiservices": ApiServiceStrategy(),
    "clusterrolebindings": BindingStrategy(namespaced=False),
    "clusterroles": RoleStrategy(namespaced=False),
    "configmaps": ConfigMapStrategy(),
    "controllerrevisions": RevisionStrategy(),
    "csidrivers": CsiDriverStrategy(),
    "csinodes": PlainStrategy(),
    "csistoragecapacities": PlainStrategy(),
    "customresourcedefinitions": DefinitionStrategy(),
    "deviceclasses": DeviceClassStrategy(),
    "endpoints": EndpointsStrategy(),
    "deployments": DeploymentStrategy(),
    "events": EventStrategy(),
    "events.events.k8s.io": NewEventStrategy(),
    "jobs": JobStrategy(),
    "leases": LeaseStrategy(),
    "limitranges": LimitRangeStrategy(),
    "namespaces": NamespaceStrategy(),
    "networkpolicies": NetworkPolicyStrategy(),
    "nodes": NodeStrategy(),
    "persistentvolumeclaims": VolumeClaimStrategy(),
    "persistentvolumes": VolumeStrategy(),
    "poddisruptionbudgets": DisruptionBudgetStrategy(),
    "pods": PodStrategy(),
    "podtemplates": PodTemplateStrategy(),
    "priorityclasses": PriorityClassStrategy(),
    "resourceclaims": ClaimStrategy(),
    "resourceclaimtemplates": ClaimTemplateStrategy(),
    "replicasets": ReplicaSetStrategy(),
    "resourcequotas": QuotaStrategy(),
    "rolebindings": BindingStrategy(namespaced=True),
    "roles": RoleStrategy(namespaced=True),
    "resourceslices": ResourceSliceStrategy(),
    "secrets": SecretStrategy(),
    "serviceaccounts": ServiceAccountStrategy(),
    "services": ServiceStrategy(),
    "storageclasses": StorageClassStrategy(),
    "validatingadmissionpolicies": AdmissionPolicyStrategy(),
    "validatingadmissionpolicybindings": AdmissionBindingStrategy(),
    "volumeattributesclasses": PlainStrategy(),
}


def builtin_strategy(plural: str) -> Strategy:
    """Return the strategy of a built-in kind; plain storage when it has none of its own."""
    return _BY_PLURAL.get(plural) or Strategy()
