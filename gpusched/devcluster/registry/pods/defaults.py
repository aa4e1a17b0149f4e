"""Values that absent fields of a pod, its containers and its volumes stand for."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from gpusched.cel.quantities import parse_amount, print_amount

Obj = dict[str, Any]

_MODE: Final = 420
_TOKEN_S: Final = 3600


def default_volume(volume: Obj) -> None:
    """Fill in a volume; one without any source is an empty directory."""
    if all(value is None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
    for key in ("configMap", "secret", "downwardAPI", "projected"):
        if (source := volume.get(key)) is not None:
            source.setdefault("defaultMode", _MODE)
    if (host := volume.get("hostPath")) is not None:
        host.setdefault("type", "")
    if (downward := volume.get("downwardAPI")) is not None:
        _default_items(downward)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", _TOKEN_S)
        if (downward := source.get("downwardAPI")) is not None:
            _default_items(downward)
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        tag = (image.get("reference") or "").rpartition("/")[2].partition(":")[2]
        image["pullPolicy"] = "Always" if tag in {"", "latest"} else "IfNotPresent"
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_items(source: Obj) -> None:
    for item in source.get("items") or ():
        if (field := item.get("fieldRef")) is not None:
            field["apiVersion"] = field.get("apiVersion") or "v1"
        if (resource := item.get("resourceFieldRef")) is not None:
            resource.setdefault("divisor", "0")


_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
_TOLERATION_S: Final = 300
_WAIT_KEYS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TERMS: Final = (
    ("requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
)


def containers(spec: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield path and container of every container that a pod starts by itself."""
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or ()):
            yield f"spec.{part}[{i}]", container


def default_template_spec(spec: Obj) -> None:
    """Fill in the defaults that pods and pod templates share."""
    for key in [k for k, v in spec.items() if v in (None, "")]:
        del spec[key]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for _, container in containers(spec):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        default_volume(volume)


def default_pod(obj: Obj) -> None:
    """Fill in a pod: the shared defaults, and requests that follow limits."""
    spec = obj.setdefault("spec", {})
    default_template_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for _, container in containers(spec):
        resources = container["resources"]
        if limits := resources.get("limits"):
            requests = resources.setdefault("requests", {})
            for name, value in limits.items():
                requests.setdefault(name, value)
        if spec.get("hostNetwork"):
            for port in container.get("ports") or ():
                port["hostPort"] = port.get("hostPort") or port.get("containerPort", 0)
    if spec.get("resources"):
        _default_whole_pod(spec)


def _default_whole_pod(spec: Obj) -> None:
    """Requests of the pod as a whole follow its containers' requests, else its limits."""
    resources: Obj = spec["resources"]
    limits = resources.get("limits") or {}
    if not limits:
        return
    together: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        for name, value in (container["resources"].get("requests") or {}).items():
            together[name] = together.get(name, Fraction(0)) + parse_amount(value)
    requests = resources.setdefault("requests", {})
    for name, total in together.items():
        if name in {"cpu", "memory"}:
            requests.setdefault(name, print_amount(total))
    for name, value in limits.items():
        requests.setdefault(name, value)


def _default_container(container: Obj) -> None:
    if container.get("resources") is None:
        container["resources"] = {}
    for key, value in (
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
    ):
        container[key] = container.get(key) or value
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    for port in container.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
    for variable in container.get("env") or ():
        _default_source(variable.get("valueFrom") or {})
    for key in _PROBES:
        if (probe := container.get(key)) is not None:
            _default_probe(probe)
    for key in _HOOKS:
        if (hook := (container.get("lifecycle") or {}).get(key)) is not None:
            _default_handler(hook)


def _default_source(source: Obj) -> None:
    if (field := source.get("fieldRef")) is not None:
        field["apiVersion"] = field.get("apiVersion") or "v1"
    if (resource := source.get("resourceFieldRef")) is not None:
        resource.setdefault("divisor", "0")


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    tag = last.partition(":")[2]
    return "Always" if tag in {"", "latest"} else "IfNotPresent"


def _default_probe(probe: Obj) -> None:
    for key, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe[key] = probe.get(key) or value
    _default_handler(probe)
    if (grpc := probe.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _default_handler(handler: Obj) -> None:
    if (http := handler.get("httpGet")) is not None:
        http["path"] = http.get("path") or "/"
        http["scheme"] = http.get("scheme") or "HTTP"


def add_default_tolerations(spec: Obj) -> None:
    """Let a pod stay five minutes on a node that stops working, unless it says otherwise."""
    tolerations = list(spec.get("tolerations") or ())
    for key in _WAIT_KEYS:
        if not any(
            t.get("key") in {key, None, ""} and t.get("effect") in {"NoExecute", None, ""}
            for t in tolerations
        ):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_S,
                }
            )
    spec["tolerations"] = tolerations


def match_own_labels(spec: Obj, labels: Obj) -> None:
    """Turn label keys of affinity terms and spread constraints into the pod's own values."""
    for key in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(key) or {}
        for part, inner in _TERMS:
            for item in affinity.get(part) or ():
                term = (item.get(inner) or {}) if inner else item
                _add_expressions(term, "matchLabelKeys", "In", labels=labels)
                _add_expressions(term, "mismatchLabelKeys", "NotIn", labels=labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _add_expressions(constraint, "matchLabelKeys", "In", labels=labels)


def _add_expressions(term: Obj, part: str, operator: str, *, labels: Obj) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for key in term.get(part) or ()
        if key in labels
    ]
    if added:
        selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]


def qos_class(spec: Obj) -> str:
    """Return the quality-of-service class; only cpu and memory count."""
    asking = [spec] if spec.get("resources") else [c for _, c in containers(spec)]
    guaranteed = True
    anything = False
    for one in asking:
        resources = one.get("resources") or {}
        requests, limits = _counted(resources, "requests"), _counted(resources, "limits")
        for name in ("cpu", "memory"):
            if name in requests or name in limits:
                anything = True
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _counted(resources: Obj, part: str) -> dict[str, Fraction]:
    """Amounts above zero: an amount of zero asks for nothing."""
    values = resources.get(part) or {}
    found = {name: parse_amount(values[name]) for name in ("cpu", "memory") if name in values}
    return {name: value for name, value in found.items() if value > 0}
