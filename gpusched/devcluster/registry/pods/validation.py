"""Pods and pod templates as wholes; parts have modules of their own.

Errors come in the order in which a real server finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.json_values import json_fingerprint
from gpusched.devcluster.apimachinery.limits import POD_SPECS_KNOWN_MAX
from gpusched.devcluster.apimachinery.metadata import key_errors, label_errors, name_errors
from gpusched.devcluster.registry.devices.resource_claims import pod_claim_errors
from gpusched.devcluster.registry.pods.containers import (
    container_errors,
    init_container_errors,
    pod_security_errors,
)
from gpusched.devcluster.registry.pods.resources import (
    pod_level_errors,
    standard_name_errors,
    value_errors,
)
from gpusched.devcluster.registry.pods.scheduling import (
    affinity_errors,
    gate_errors,
    spread_errors,
    toleration_errors,
)
from gpusched.devcluster.registry.pods.volumes import volume_errors

Obj = dict[str, Any]

INT32_MAX: Final = 2**31 - 1
_RESTART: Final = ("Always", "OnFailure", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION: Final = ("PreemptLowerPriority", "Never")


class SpecCheck:
    """Checks pods and remembers valid specs: the pods of a gang share theirs."""

    def __init__(self) -> None:
        self._good: set[bytes] = set()

    def errors(self, obj: Obj) -> list[FieldError]:
        """Check a pod on creation."""
        spec = obj.get("spec") or {}
        known = json_fingerprint(spec)
        if known in self._good:
            return []
        errors = _new_spec_errors(spec)
        if not errors:
            if len(self._good) >= POD_SPECS_KNOWN_MAX:
                self._good.clear()
            self._good.add(known)
        return errors


def _new_spec_errors(spec: Obj) -> list[FieldError]:
    errors = [*spec_errors(spec, "spec"), *image_errors(spec)]
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden("spec.nodeName", why))
    return errors


def image_errors(spec: Obj) -> Iterator[FieldError]:
    """Check what is asked of images in pods but not in templates."""
    for part in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(part) or ()):
            image = container.get("image") or ""
            if image != image.strip():
                why = "must not have leading or trailing whitespace"
                yield invalid(f"spec.{part}[{i}].image", image, why)


def spec_errors(spec: Obj, at: str) -> list[FieldError]:
    """Check the spec of a pod or of a pod template."""
    return [
        *_container_part_errors(spec, at),
        *_placement_errors(spec, at),
        *_name_part_errors(spec, at),
        *_policy_errors(spec, at),
    ]


def _container_part_errors(spec: Obj, at: str) -> Iterator[FieldError]:
    volumes = spec.get("volumes") or ()
    yield from volume_errors(volumes, f"{at}.volumes")
    names = {volume.get("name") or "" for volume in volumes}
    yield from pod_claim_errors(spec, at)
    containers = spec.get("containers") or ()
    yield from container_errors(containers, f"{at}.containers", spec=spec, volumes=names)
    yield from init_container_errors(spec, f"{at}.initContainers", volumes=names)
    if spec.get("resources"):
        yield from pod_level_errors(spec, f"{at}.resources")
    if not spec.get("hostNetwork"):
        return
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort") != port.get("containerPort"):
                field = f"{at}.containers[{i}].ports[{j}].hostPort"
                why = "must match `containerPort` when `hostNetwork` is true"
                yield invalid(field, port.get("hostPort", 0), why)


def _placement_errors(spec: Obj, at: str) -> Iterator[FieldError]:
    for key, known in (("restartPolicy", _RESTART), ("dnsPolicy", _DNS)):
        if spec.get(key) not in known:
            yield not_supported(f"{at}.{key}", spec.get(key), known)
    yield from label_errors(spec.get("nodeSelector"), f"{at}.nodeSelector")
    if (context := spec.get("securityContext")) is not None:
        yield from pod_security_errors(context, f"{at}.securityContext")
    if (affinity := spec.get("affinity")) is not None:
        yield from affinity_errors(affinity, f"{at}.affinity")
    if spec.get("dnsPolicy") == "None":
        yield from _own_dns_errors(spec.get("dnsConfig"), f"{at}.dnsConfig")
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        yield from key_errors(kind, f"{at}.readinessGates[{i}].conditionType")
    yield from gate_errors(spec.get("schedulingGates") or (), f"{at}.schedulingGates")
    spread = spec.get("topologySpreadConstraints") or ()
    yield from spread_errors(spread, f"{at}.topologySpreadConstraints")


def _own_dns_errors(config: Obj | None, at: str) -> Iterator[FieldError]:
    if config is None:
        yield required(at, "must provide `dnsConfig` when `dnsPolicy` is None")
    elif not config.get("nameservers"):
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield required(f"{at}.nameservers", why)


def _name_part_errors(spec: Obj, at: str) -> Iterator[FieldError]:
    for key in ("serviceAccountName", "nodeName"):
        if spec.get(key):
            yield from name_errors(spec[key], field=f"{at}.{key}")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= INT32_MAX:
        why = f"must be between 1 and {INT32_MAX}, inclusive"
        yield invalid(f"{at}.activeDeadlineSeconds", deadline, why)
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            yield from name_errors(spec[key], field=f"{at}.{key}", label=True)


def _policy_errors(spec: Obj, at: str) -> Iterator[FieldError]:
    yield from toleration_errors(spec.get("tolerations") or (), f"{at}.tolerations")
    for key in ("priorityClassName", "runtimeClassName"):
        if spec.get(key):
            yield from name_errors(spec[key], field=f"{at}.{key}")
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in _PREEMPTION:
        yield not_supported(f"{at}.preemptionPolicy", policy, _PREEMPTION)
    for name, value in (spec.get("overhead") or {}).items():
        field = f"{at}.overhead[{name}]"
        yield from standard_name_errors(name, field)
        yield from value_errors(name, value, field)
    if (system := spec.get("os")) is not None:
        name = system.get("name") or ""
        if not name:
            yield required(f"{at}.os.name", "cannot be empty")
        elif name not in {"linux", "windows"}:
            yield not_supported(f"{at}.os", name, ("linux", "windows"))
    if (group := spec.get("schedulingGroup")) is not None:
        yield from _group_errors(group, f"{at}.schedulingGroup.podGroupName")


def _group_errors(group: Obj, at: str) -> list[FieldError]:
    """Check the name of the group that a pod belongs to; the group may be missing."""
    name = group.get("podGroupName")
    if name is None:
        return [invalid(at, None, "must specify one of: `podGroupName`")]
    return name_errors(name, field=at)
