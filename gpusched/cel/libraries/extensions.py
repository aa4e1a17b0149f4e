"""Kubernetes' libraries for CEL: addresses, links, sets, lists, numbers, encodings."""

from __future__ import annotations

import base64
import ipaddress
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from gpusched.base.classes import frozen
from gpusched.cel.errors import CelError

_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)


@frozen
class IpAddress:
    """An IP address, as ``ip()`` returns it."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address

    def __str__(self) -> str:
        """The address in its usual form."""
        return str(self.address)


@frozen
class IpNetwork:
    """An address with the length of its network."""

    interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface

    def __str__(self) -> str:
        """The address and the length."""
        return str(self.interface)


@frozen
class Semver:
    """A semantic version: three numbers and what precedes a release."""

    numbers: tuple[int, ...]
    before: tuple[tuple[int, int, str], ...]

    @property
    def order(self) -> tuple[Any, ...]:
        """A key by which versions sort."""
        return (self.numbers, not self.before, self.before)


def _ip(text: Any) -> IpAddress:
    if isinstance(text, IpNetwork):
        return IpAddress(text.interface.ip)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CelError(f'IP Address "{text}" parse error during conversion from string') from None
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise CelError(f'IP Address "{text}" is not allowed')
    return IpAddress(address)


def _cidr(text: Any) -> IpNetwork:
    why = f"network address parse error during conversion from string: {text}"
    if not isinstance(text, str) or "/" not in text:
        raise CelError(why)
    try:
        return IpNetwork(ipaddress.ip_interface(text))
    except ValueError:
        raise CelError(why) from None


def _works(make: Callable[..., Any]) -> Callable[..., bool]:
    def test(*args: Any) -> bool:
        try:
            make(*args)
        except CelError:
            return False
        return True

    return test


def _network(value: Any) -> Any:
    return (value if isinstance(value, IpNetwork) else _cidr(value)).interface.network


def _contains_ip(cidr: IpNetwork, address: Any) -> bool:
    inner = address if isinstance(address, IpAddress) else _ip(address)
    return inner.address in cidr.interface.network


def _contains_cidr(cidr: IpNetwork, other: Any) -> bool:
    inner, outer = _network(other), cidr.interface.network
    return inner.version == outer.version and bool(inner.subnet_of(outer))


def _url(text: Any) -> SplitResult:
    try:
        found: SplitResult = urlsplit(text)
        _ = found.port
    except (ValueError, AttributeError):
        raise CelError(f"URL parse error during conversion from string: {text}") from None
    if not (found.scheme or text.startswith("/")) or re.search(r"\s", text):
        raise CelError(f"URL parse error during conversion from string: {text}")
    return found


def _in(element: Any, values: Sequence[Any]) -> bool:
    return any(element == other and type(element) is type(other) for other in values)


def _holds(values: list[Any], others: list[Any]) -> bool:
    return all(_in(other, values) for other in others)


def _greatest(*values: Any) -> Any:
    return max(values[0] if len(values) == 1 and isinstance(values[0], list) else values)


def _smallest_value(*values: Any) -> Any:
    return min(values[0] if len(values) == 1 and isinstance(values[0], list) else values)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise CelError("illegal base64 data") from None


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(values):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not _in(value, found):
            found.append(value)
    return found


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    if depth == 0:
        return values
    parts = (_flatten(v, depth - 1) if isinstance(v, list) else [v] for v in values)
    return list(itertools.chain.from_iterable(parts))


def semver_value(text: Any, *_normalize: bool) -> Semver:
    """A semantic version from its text; CelError when it is none."""
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise CelError(f'Semver "{text}" is invalid')
    parts = (found[4] or "").split(".") if found[4] else []
    before = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts)
    return Semver(tuple(int(found[i]) for i in (1, 2, 3)), before)


LIBRARIES: Final[dict[str, Callable[..., Any]]] = {
    "ip": _ip,
    "isIP": _works(_ip),
    "ip.isCanonical": lambda text: str(_ip(text)) == text,
    "family": lambda ip: ip.address.version,
    "isUnspecified": lambda ip: ip.address.is_unspecified,
    "isLoopback": lambda ip: ip.address.is_loopback,
    "isLinkLocalMulticast": lambda ip: (
        ip.address in ipaddress.ip_network("224.0.0.0/24")
        if ip.address.version == 4
        else str(ip.address).startswith("ff02:")
    ),
    "isLinkLocalUnicast": lambda ip: ip.address.is_link_local,
    "isGlobalUnicast": lambda ip: (
        not (
            ip.address.is_unspecified
            or ip.address.is_loopback
            or ip.address.is_multicast
            or ip.address.is_link_local
            or str(ip.address) == "255.255.255.255"
        )
    ),
    "cidr": _cidr,
    "isCIDR": _works(_cidr),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "masked": lambda cidr: IpNetwork(ipaddress.ip_interface(str(cidr.interface.network))),
    "prefixLength": lambda cidr: cidr.interface.network.prefixlen,
    "url": _url,
    "isURL": _works(_url),
    "getScheme": lambda url: url.scheme,
    "getHost": lambda url: url.netloc.rpartition("@")[2],
    "getHostname": lambda url: url.hostname or "",
    "getPort": lambda url: str(url.port) if url.port is not None else "",
    "getEscapedPath": lambda url: url.path,
    "getQuery": lambda url: parse_qs(url.query, keep_blank_values=True),
    "sets.contains": _holds,
    "sets.equivalent": lambda a, b: _holds(a, b) and _holds(b, a),
    "sets.intersects": lambda a, b: any(_in(x, b) for x in a),
    "math.greatest": _greatest,
    "math.least": _smallest_value,
    "base64.encode": lambda raw: base64.b64encode(raw).decode(),
    "base64.decode": _decoded,
    "lists.range": lambda count: list(range(count)),
    "slice": _slice,
    "sort": sorted,
    "distinct": _distinct,
    "flatten": _flatten,
    "semver": semver_value,
    "isSemver": _works(semver_value),
    "major": lambda v: v.numbers[0],
    "minor": lambda v: v.numbers[1],
    "patch": lambda v: v.numbers[2],
}
"""Name of a function or method to its meaning; a method's receiver is its first argument."""
