"""Addresses of machines, as text."""

from __future__ import annotations

import ipaddress


def is_loopback(name: str) -> bool:
    """Whether a name or address means this machine and no other."""
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name.lower().rstrip(".") == "localhost"
