"""Network policies: stored as a real server stores them; there is no traffic to rule."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_TYPES: Final = ("Egress", "Ingress")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_SIDES: Final = (("ingress", "from"), ("egress", "to"))


class NetworkPolicyStrategy(Strategy):
    """Network policies, which are stored without effect."""

    generation = True

    def default(self, obj: Obj) -> None:
        """Tell which directions are ruled, and that ports are TCP unless they say otherwise."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("podSelector", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
        for side, _ in _SIDES:
            for rule in spec.get(side) or ():
                for port in rule.get("ports") or ():
                    port.setdefault("protocol", "TCP")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check ports, peers and directions."""
        spec = obj["spec"]
        errors: list[FieldError] = []
        for side, peers in _SIDES:
            for i, rule in enumerate(spec.get(side) or ()):
                at = f"spec.{side}[{i}]"
                for n, port in enumerate(rule.get("ports") or ()):
                    errors += _port_errors(port, f"{at}.ports[{n}]")
                for n, peer in enumerate(rule.get(peers) or ()):
                    errors += _peer_errors(peer, f"{at}.{peers}[{n}]")
        errors += [
            not_supported(f"spec.policyTypes[{i}]", kind, _TYPES)
            for i, kind in enumerate(spec["policyTypes"])
            if kind not in _TYPES
        ]
        return errors


def _port_errors(port: Obj, at: str) -> Iterator[FieldError]:
    if port["protocol"] not in _PROTOCOLS:
        yield not_supported(f"{at}.protocol", port["protocol"], _PROTOCOLS)
    number, end = port.get("port"), port.get("endPort")
    if isinstance(number, int) and not 1 <= number <= 65535:
        yield invalid(f"{at}.port", number, "must be between 1 and 65535, inclusive")
    if end is None:
        return
    if number is None:
        yield required(f"{at}.port", "must be specified when `endPort` is specified")
    elif isinstance(number, str):
        why = "may not be specified when `port` is non-numeric"
        yield invalid(f"{at}.endPort", end, why)
    elif end < number:
        yield invalid(f"{at}.endPort", end, "must be greater than or equal to `port`")


def _peer_errors(peer: Obj, at: str) -> Iterator[FieldError]:
    if not peer:
        yield required(at, "must specify a peer")
        return
    block = peer.get("ipBlock")
    if block is None:
        return
    if len(peer) > 1:
        yield forbidden(at, "may not specify both ipBlock and another peer")
    for field, text in (
        (f"{at}.ipBlock.cidr", block.get("cidr") or ""),
        *((f"{at}.ipBlock.except[{i}]", t) for i, t in enumerate(block.get("except") or ())),
    ):
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield invalid(field, text, why)
