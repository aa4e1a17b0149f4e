"""Under which names the server may be addressed.

On a loopback address a request without credentials is the administrator's. A page of any site can
let its own name point there (DNS rebinding) and then speaks to this server as to its own; the name
that the browser sends tells it apart.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from gpusched.devcluster import status

_PORT = re.compile(r":\d{0,5}")


@attrs.frozen
class HostNames:
    """The names that count.

    Attributes:
        listening: the address that is listened on; on another than a loopback one every request
            needs a token, so that a page has nothing to gain, and any name will do.
        told: further names, as of a container's host or a tunnel; without ports.
    """

    listening: str
    told: frozenset[str] = frozenset()

    @classmethod
    def of(cls, listening: str, told: Iterable[str]) -> HostNames:
        """Return those of an address and names in any case."""
        return cls(listening, frozenset(name.lower().rstrip(".") for name in told))

    def check(self, sent: Sequence[str]) -> None:
        """Refuse a request by its ``Host`` headers; raises StatusError 400 or 421."""
        if not _loopback(self.listening):
            return
        if len(sent) != 1 or not sent[0].strip():
            raise status.bad_request("the request must have one Host header, with a name in it")
        name = _name(sent[0].strip())
        if name and (_loopback(name) or name == "localhost" or name in self.told):
            return
        why = (
            f"the Host {sent[0][:80]!r} is not this server: use localhost or {self.listening}, "
            "or start it with --host-names and that name"
        )
        raise status.failure(421, "MisdirectedRequest", why)


def _name(host: str) -> str:
    """The name or address of a Host header, without its port; empty when it makes no sense."""
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        return address.lower() if bracket and (not port or _PORT.fullmatch(port)) else ""
    name, colon, port = host.partition(":")
    if colon and not _PORT.fullmatch(f":{port}"):
        return ""
    return name.lower().rstrip(".")


def _loopback(name: str) -> bool:
    address: Any
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
