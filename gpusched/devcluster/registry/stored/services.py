# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Services: cluster addresses and node ports are assigned, each once; there is no traffic.

The store is the record of what is taken: an address or port is free when no service has it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import label_errors, name_errors
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]

ADDRESSES: Final = ipaddress.IPv4Network("10.96.0.0/12")
"""Addresses of services, as kubeadm sets them up."""
_FIRST_ADDRESS: Final = 257
"""Lower addresses are assigned only to services that request them."""
NODE_PORTS: Final = range(30000, 32768)
_FIRST_NODE_PORT: Final = 86
_AFFINITY_S: Final = 10800
_HEADLESS: Final = "None"
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_WITH_NODE_PORTS: Final = frozenset({"NodePort", "LoadBalancer"})
_PRINTED_UNLESS_ZERO: Final = (
    "clusterIP",
    "externalName",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "loadBalancerIP",
    "name",
    "nodePort",
    "publishNotReadyAddresses",
    "sessionAffinity",
    "type",
)
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_PORT_TEXT: Final = "must be between 1 and 65535, inclusive"
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9]|-(?!-))*[a-z0-9]|[a-z]")


class ServiceStrategy(Strategy):
    """Services of all four types."""

    label_name = True
    returns_object = True
    has_status = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start without a load balancer."""
        obj["status"] = {"loadBalancer": {}}
        spec = obj.setdefault("spec", {})
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]

    def default(self, obj: Obj) -> None:
        """Fill in type, affinity, traffic policies, protocols and target ports."""
        spec = obj["spec"]
        for part in (spec, *(spec.get("ports") or ())):  # zeros that some encodings carry
            for key in [k for k in _PRINTED_UNLESS_ZERO if k in part and not part[k]]:
                del part[key]
        kind = spec.setdefault("type", "ClusterIP")
        if spec.setdefault("sessionAffinity", "None") == "None":
            spec.pop("sessionAffinityConfig", None)
        elif spec["sessionAffinity"] == "ClientIP":
            config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            config.setdefault("timeoutSeconds", _AFFINITY_S)
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if not port.get("targetPort"):
                port["targetPort"] = port.get("port")
        if kind in _WITH_NODE_PORTS:
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if kind != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check name and spec of a service."""
        name = obj["metadata"].get("name") or ""
        errors: list[FieldError] = []
        if name[:1].isdigit() and not _NAME.fullmatch(name):
            errors.append(invalid("metadata.name", name, _NAME_TEXT))
        return errors + list(_spec_errors(obj["spec"]))

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep what was given out unless the type no longer has it."""
        super().prepare_update(new, old)
        spec, was = new.setdefault("spec", {}), old["spec"]
        if spec is was:
            return
        _follow_first_address(spec, was)
        kind = spec.get("type") or "ClusterIP"
        if kind == "ExternalName":
            if was["type"] != "ExternalName":
                for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                    if spec.get(key) == was.get(key):
                        spec.pop(key, None)
        elif was["type"] != "ExternalName":
            for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if not spec.get(key) and key in was:
                    spec[key] = was[key]
        if kind in _WITH_NODE_PORTS:
            _keep_node_ports(spec, was)
        elif was["type"] in _WITH_NODE_PORTS:
            _drop_node_ports(spec, was)

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a changed service, whose address is immutable."""
        now, was = new["spec"], old["spec"]
        errors = self.validate(new)
        immutable = was.get("clusterIPs") and "ExternalName" not in {now["type"], was["type"]}
        if immutable and now.get("clusterIPs", [])[:1] != was["clusterIPs"][:1]:
            why = "may not change once set"
            errors.append(invalid("spec.clusterIPs[0]", now.get("clusterIPs") or [], why))
        return errors

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec; the load balancer's state is printed even when there is none."""
        super().prepare_status(new, old)
        new["status"] = {"loadBalancer": {}, **(new.get("status") or {})}

    def allocate(self, new: Obj, old: Obj | None, core: ServerContext) -> None:
        """Assign the address and the node ports that the service needs and lacks."""
        spec = new["spec"]
        others = [
            stored.obj["spec"]
            for _, stored in core.store.collection("services").scan()
            if stored.obj["metadata"]["uid"] != new["metadata"]["uid"]
        ]
        name = new["metadata"]["name"]
        if spec["type"] != "ExternalName":
            _allocate_address(spec, others, name=name)
        if spec["type"] in _WITH_NODE_PORTS and spec.get("allocateLoadBalancerNodePorts", True):
            _allocate_ports(spec, others, name=name)


def _refused(name: str, error: FieldError) -> status.StatusError:
    return status.invalid("Service", "", name, errors=[error])


def _follow_first_address(spec: Obj, was: Obj) -> None:
    """Let the list of addresses follow the single field, when only that was changed."""
    if spec.get("clusterIP") == was.get("clusterIP"):
        return
    if spec.get("clusterIPs") in (None, was.get("clusterIPs")):
        if spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        else:
            spec.pop("clusterIPs", None)


def _key(port: Obj) -> tuple[Any, str]:
    return port.get("port"), port.get("protocol") or "TCP"


def _keep_node_ports(spec: Obj, was: Obj) -> None:
    had = {_key(port): port["nodePort"] for port in was.get("ports") or () if port.get("nodePort")}
    for port in spec.get("ports") or ():
        if not port.get("nodePort") and _key(port) in had:
            port["nodePort"] = had[_key(port)]


def _drop_node_ports(spec: Obj, was: Obj) -> None:
    had = {port.get("nodePort") for port in was.get("ports") or ()}
    for port in spec.get("ports") or ():
        if port.get("nodePort") in had:
            port.pop("nodePort", None)
    for key in ("externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"):
        if spec.get(key) == was.get(key):
            spec.pop(key, None)


def _allocate_address(spec: Obj, others: list[Obj], *, name: str) -> None:
    headless = spec.get("clusterIP") == _HEADLESS
    two = headless and not spec.get("selector") and "ipFamilyPolicy" not in spec
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if two else "SingleStack")
    families = spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if two else ["IPv4"])
    if not headless:
        if spec["ipFamilyPolicy"] == "RequireDualStack":
            why = "this cluster is not configured for dual-stack services"
            raise _refused(name, invalid("spec.ipFamilyPolicy", "RequireDualStack", why))
        if families != ["IPv4"]:
            at = f"spec.ipFamilies[{next(i for i, f in enumerate(families) if f != 'IPv4')}]"
            raise _refused(name, invalid(at, "IPv6", "not configured on this cluster"))
        taken = {address for other in others for address in other.get("clusterIPs") or ()}
        asked = spec.get("clusterIP") or ""
        if not asked:
            spec["clusterIP"] = _free_address(taken)
        elif why := _address_fault(asked, taken):
            text = f"failed to allocate IP {asked}: {why}"
            raise _refused(name, invalid("spec.clusterIPs", [asked], text))
    spec["clusterIPs"] = [spec["clusterIP"]]


def _address_fault(asked: str, taken: set[str]) -> str:
    if ipaddress.IPv4Address(asked) not in ADDRESSES:
        return (
            f"the provided IP ({asked}) is not in the valid range. The range of valid IPs is "
            f"{ADDRESSES}"
        )
    return "provided IP is already allocated" if asked in taken else ""


def _free_address(taken: set[str]) -> str:
    for offset in range(_FIRST_ADDRESS, ADDRESSES.num_addresses - 1):
        address = str(ADDRESSES[offset])
        if address not in taken:
            return address
    raise status.failure(
        500,
        "InternalError",
        "Internal error occurred: failed to allocate a serviceIP: range is full",
    )


def _allocate_ports(spec: Obj, others: list[Obj], *, name: str) -> None:
    taken = {number for other in others for number in _ports_of(other)}
    for i, port in enumerate(spec.get("ports") or ()):
        at, asked = f"spec.ports[{i}].nodePort", port.get("nodePort")
        if not asked:
            port["nodePort"] = _free_port({*taken, *_ports_of(spec)})
        elif asked not in NODE_PORTS:
            why = (
                "provided port is not in the valid range. The range of valid ports is "
                f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            )
            raise _refused(name, invalid(at, asked, why))
        elif asked in taken:
            raise _refused(name, invalid(at, asked, "provided port is already allocated"))
    local = spec.get("externalTrafficPolicy") == "Local" and spec["type"] == "LoadBalancer"
    if local and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = _free_port({*taken, *_ports_of(spec)})


def _ports_of(spec: Obj) -> Iterator[int]:
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            yield port["nodePort"]
    if spec.get("healthCheckNodePort"):
        yield spec["healthCheckNodePort"]


def _free_port(taken: set[int]) -> int:
    for number in NODE_PORTS[_FIRST_NODE_PORT:]:
        if number not in taken:
            return number
    raise status.failure(
        500,
        "InternalError",
        "Internal error occurred: failed to allocate a nodePort: range is full",
    )


def _spec_errors(spec: Obj) -> Iterator[FieldError]:
    kind, ports = spec["type"], spec.get("ports") or []
    addresses = spec.get("clusterIPs") or []
    headless = addresses[:1] == [_HEADLESS]
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    if kind in _WITH_NODE_PORTS and headless:
        why = f"may not be set to 'None' for {kind} services"
        yield invalid("spec.clusterIPs[0]", addresses[0], why)
    if kind == "ExternalName":
        yield from _external_errors(spec)
    elif kind not in _TYPES:
        yield not_supported("spec.type", kind, _TYPES)
    for i, address in enumerate(addresses):
        if address != _HEADLESS and not _is_address(address):
            why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            yield invalid(f"spec.clusterIPs[{i}]", address, why)
    if spec["sessionAffinity"] not in {"ClientIP", "None"}:
        yield not_supported("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None"))
    yield from label_errors(spec.get("selector"), "spec.selector")
    yield from _port_list_errors(kind, ports)


def _external_errors(spec: Obj) -> Iterator[FieldError]:
    if spec.get("clusterIPs"):
        yield forbidden("spec.clusterIPs", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    if name:
        yield from name_errors(name, field="spec.externalName")
    else:
        yield required("spec.externalName")


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _port_list_errors(kind: str, ports: list[Obj]) -> Iterator[FieldError]:
    names: set[str] = set()
    seen: set[tuple[Any, str]] = set()
    for i, port in enumerate(ports):
        at, name = f"spec.ports[{i}]", port.get("name") or ""
        if not name and len(ports) > 1:
            yield required(f"{at}.name")
        elif name:
            yield from name_errors(name, field=f"{at}.name", label=True)
            if name in names:
                yield duplicate(f"{at}.name", name)
            names.add(name)
        number = port.get("port") or 0
        if not 1 <= number <= 65535:
            yield invalid(f"{at}.port", number, _PORT_TEXT)
        if port["protocol"] not in _PROTOCOLS:
            yield not_supported(f"{at}.protocol", port["protocol"], _PROTOCOLS)
        yield from _target_errors(port.get("targetPort"), f"{at}.targetPort")
        if kind == "ClusterIP" and port.get("nodePort"):
            yield forbidden(f"{at}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if _key(port) in seen:
            yield duplicate(at, {"port": number, "protocol": port["protocol"]})
        seen.add(_key(port))


def _target_errors(target: Any, at: str) -> Iterator[FieldError]:
    if isinstance(target, int) and not 1 <= target <= 65535:
        yield invalid(at, target, _PORT_TEXT)
    elif isinstance(target, str) and len(target) > 15:
        yield invalid(at, target, "must be no more than 15 characters")
    elif isinstance(target, str) and not _PORT_NAME.fullmatch(target):
        why = (
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-), must contain "
            "at least one letter (a-z), and hyphens must not be at the ends or adjacent"
        )
        yield invalid(at, target, why)
