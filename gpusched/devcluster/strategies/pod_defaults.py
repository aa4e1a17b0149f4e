"""Values that absent fields of a pod stand for, in pods and in pod templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Obj = dict[str, Any]

_MODE: Final = 420
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def containers(spec: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield path and container of every container that a pod starts by itself."""
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or ()):
            yield f"spec.{part}[{i}]", container


def default_template_spec(spec: Obj) -> None:
    """Fill in the defaults that pods and pod templates share."""
    for key in [k for k, v in spec.items() if v is None]:
        del spec[key]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for _, container in containers(spec):
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


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


def _default_container(container: Obj, *, host_network: bool) -> None:
    if container.get("resources") is None:
        container["resources"] = {}
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort", 0)
    for variable in container.get("env") or ():
        source = (variable.get("valueFrom") or {}).get("fieldRef")
        if source is not None:
            source.setdefault("apiVersion", "v1")
    for key in _PROBES:
        if probe := container.get(key):
            _default_probe(probe)


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    tag = last.partition(":")[2]
    return "Always" if tag in {"", "latest"} else "IfNotPresent"


def _default_probe(probe: Obj) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if (http := probe.get("httpGet")) is not None:
        http.setdefault("path", "/")
        http.setdefault("scheme", "HTTP")


def _default_volume(volume: Obj) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}
    for key in ("configMap", "secret", "downwardAPI", "projected"):
        if (source := volume.get(key)) is not None:
            source.setdefault("defaultMode", _MODE)
    if (host := volume.get("hostPath")) is not None:
        host.setdefault("type", "")


def qos_class(spec: Obj) -> str:
    """Return the quality-of-service class; only cpu and memory count."""
    guaranteed = True
    anything = False
    for _, container in containers(spec):
        resources = container.get("resources") or {}
        requests = resources.get("requests") or {}
        limits = resources.get("limits") or {}
        for name in ("cpu", "memory"):
            if name in requests or name in limits:
                anything = True
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
