"""String formats that the API server checks; it ignores any it does not know."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable
from urllib.parse import urlsplit

_DATE = re.compile(r"^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$")
_DATE_TIME = re.compile(
    r"^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(?:[.,]\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?$"
)
_GO_DURATION = re.compile(r"^[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)$")
_WORD_DURATION = re.compile(
    r"^\s*\d+\s*(?:ns|nano|nanos?econds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?"
    r"|s|secs?|seconds?|m|mins?|minutes?|h|hr|hours?|d|days?|w|wks?|weeks?)\s*$"
)
_HOSTNAME = re.compile(
    r"^(?=.{1,255}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_-]{1,63})*$"
)
_EMAIL = re.compile(r"^[^@\s]+@[^@\s]+$")


def _by_parser(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _cidr(text: str) -> object:
    if "/" not in text:
        raise ValueError(text)
    return ipaddress.ip_network(text, strict=False)


def _uri(text: str) -> bool:
    try:
        return bool(urlsplit(text).scheme) or text.startswith("/")
    except ValueError:
        return False


def _duration(text: str) -> bool:
    return bool(_GO_DURATION.match(text) or _WORD_DURATION.match(text))


CHECKS: dict[str, Callable[[str], bool]] = {
    "byte": _by_parser(_base64),
    "cidr": _by_parser(_cidr),
    "date": lambda text: bool(_DATE.match(text)),
    "date-time": lambda text: bool(_DATE_TIME.match(text)),
    "datetime": lambda text: bool(_DATE_TIME.match(text)),
    "duration": _duration,
    "email": lambda text: bool(_EMAIL.match(text)),
    "hostname": lambda text: bool(_HOSTNAME.match(text)),
    "ipv4": _by_parser(ipaddress.IPv4Address),
    "ipv6": _by_parser(ipaddress.IPv6Address),
    "uri": _uri,
    "uuid": _by_parser(uuid.UUID),
}
"""Format name to whether a text has that form."""
