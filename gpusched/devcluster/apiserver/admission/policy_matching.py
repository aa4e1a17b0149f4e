"""Which requests a policy or its binding is about: rules, selectors, other versions of a kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apiserver.admission_attributes import Attributes
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource

Obj = dict[str, Any]


@frozen
class PolicyMatch:
    """A match, with the version of the kind in which the policy wants to see objects."""

    resource: Resource


def match_request(core: ServerState, criteria: Obj, asked: Attributes) -> PolicyMatch | None:
    """Return how a request matches ``matchConstraints`` or ``matchResources``, if it does.

    Raises:
        StatusError: 404, the rules match and the namespace whose labels count does not exist.
    """
    if not _object_fits(criteria.get("objectSelector"), asked):
        return None
    policy = criteria.get("matchPolicy") or "Exact"
    if _by_rules(core, criteria.get("excludeResourceRules") or (), asked, policy=policy):
        return None
    rules = criteria.get("resourceRules") or ()
    found = _by_rules(core, rules, asked, policy=policy) if rules else PolicyMatch(asked.resource)
    if found is None or not _namespace_fits(core, criteria.get("namespaceSelector"), asked):
        return None
    return found


def _by_rules(
    core: ServerState, rules: Iterable[Obj], asked: Attributes, *, policy: str
) -> PolicyMatch | None:
    rules = list(rules)
    if any(_fits(rule, asked.resource, asked) for rule in rules):
        return PolicyMatch(asked.resource)
    if policy != "Equivalent":
        return None
    for other in _equivalents(core, asked.resource):
        if any(_fits(rule, other, asked) for rule in rules):
            return PolicyMatch(other)
    return None


def _equivalents(core: ServerState, resource: Resource) -> list[Resource]:
    """The other versions, and for events the other group, of what is stored once."""
    return [
        other
        for other in core.registry.resources()
        if other.storage == resource.storage and other is not resource
    ]


def _fits(rule: Obj, resource: Resource, asked: Attributes) -> bool:
    scope = rule.get("scope") or "*"
    whole_cluster = not resource.namespaced
    if (scope == "Namespaced" and whole_cluster) or (scope == "Cluster" and not whole_cluster):
        return False
    names = rule.get("resourceNames") or ()
    return (
        _listed(rule.get("operations"), asked.operation)
        and _listed(rule.get("apiGroups"), resource.group)
        and _listed(rule.get("apiVersions"), resource.version)
        and any(_resource_fits(r, resource, asked) for r in rule.get("resources") or ())
        and (not names or asked.name in names)
    )


def _listed(values: Iterable[str] | None, wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values or ())


def _resource_fits(rule: str, resource: Resource, asked: Attributes) -> bool:
    plural, _, subresource = rule.partition("/")
    return plural in ("*", resource.plural) and subresource in ("*", asked.subresource)


def _empty(selector: Obj | None) -> bool:
    return not selector or not (selector.get("matchLabels") or selector.get("matchExpressions"))


def _object_fits(selector: Obj | None, asked: Attributes) -> bool:
    if _empty(selector):
        return True
    return any(
        label_selector_matches(selector, (obj.get("metadata") or {}).get("labels") or {})
        for obj in (asked.obj, asked.old)
        if obj is not None
    )


def _namespace_fits(core: ServerState, selector: Obj | None, asked: Attributes) -> bool:
    """Objects of the whole cluster are never left out by the labels of a namespace."""
    of_namespace = asked.resource.storage == "namespaces"
    if _empty(selector) or not (asked.namespace or of_namespace):
        return True
    if of_namespace and not asked.subresource and asked.obj is not None:
        labels = asked.obj["metadata"].get("labels") or {}
    else:
        labels = namespace_of(core, asked.namespace)["metadata"].get("labels") or {}
    return label_selector_matches(selector, labels)


def namespace_of(core: ServerState, name: str) -> Obj:
    """Return a namespace; raises StatusError 404."""
    found = core.store.collection("namespaces").get(name)
    if found is None:
        raise status.not_found("namespaces", "", name)
    return found.obj
