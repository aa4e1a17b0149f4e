"""Which strategy serves which built-in kind."""

from __future__ import annotations

from typing import Final

from gpusched.devcluster.custom import DefinitionStrategy
from gpusched.devcluster.strategies import (
    ConfigMapStrategy,
    DisruptionBudgetStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    PriorityClassStrategy,
    QuotaStrategy,
    SecretStrategy,
    ServiceAccountStrategy,
    Strategy,
)
from gpusched.devcluster.strategies.events import EventStrategy
from gpusched.devcluster.strategies.jobs import JobStrategy
from gpusched.devcluster.strategies.nodes import NodeStrategy
from gpusched.devcluster.strategies.pods import PodStrategy
from gpusched.devcluster.strategies.rbac import BindingStrategy, RoleStrategy

_BY_PLURAL: Final[dict[str, Strategy]] = {
    "clusterrolebindings": BindingStrategy(namespaced=False),
    "clusterroles": RoleStrategy(namespaced=False),
    "configmaps": ConfigMapStrategy(),
    "customresourcedefinitions": DefinitionStrategy(),
    "events": EventStrategy(),
    "jobs": JobStrategy(),
    "leases": LeaseStrategy(),
    "namespaces": NamespaceStrategy(),
    "nodes": NodeStrategy(),
    "poddisruptionbudgets": DisruptionBudgetStrategy(),
    "pods": PodStrategy(),
    "priorityclasses": PriorityClassStrategy(),
    "resourcequotas": QuotaStrategy(),
    "rolebindings": BindingStrategy(namespaced=True),
    "roles": RoleStrategy(namespaced=True),
    "secrets": SecretStrategy(),
    "serviceaccounts": ServiceAccountStrategy(),
}


def builtin_strategy(plural: str) -> Strategy:
    """Return the strategy of a built-in kind; plain storage when it has none of its own."""
    return _BY_PLURAL.get(plural) or Strategy()
