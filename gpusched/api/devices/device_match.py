"""What a gang says about the devices of all its members together: one value of an attribute, one type.

A claim's ``matchAttribute`` is about the devices of one claim; here it is about those of the gang.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from gpusched.api.meta.fields import explain_decode_error, quoted
from gpusched.base.classes import frozen

FIELD: Final = "spec.devices"
ANNOTATION: Final = "gpusched.io/devices"
ANNOTATION_FIELD: Final = f"metadata.annotations[{ANNOTATION}]"
REQUESTS_MAX: Final = 32
_LENGTH_MAX: Final = 4_096
"""Bytes of a request, which is remembered."""
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]{0,31}")
_REQUEST: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?"
)


@frozen(slots=True, kw_only=True)
class DeviceMatchRequest:
    """What a gang says about the devices of all its members.

    Attributes:
        match_attribute: fully qualified attribute of which all devices have one value in common;
            empty for none.
        requests: names of the requests of claims that both are about, sorted; empty for all.
        same_type: whether all devices of one driver are of one type.
        error: field and reason why it cannot be read; empty when it can.
    """

    match_attribute: str = ""
    requests: tuple[str, ...] = ()
    same_type: bool = False
    error: str = ""


NO_DEVICE_MATCH: Final = DeviceMatchRequest()


class _WireDevices(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    match_attribute: str | None = None
    requests: list[str] | None = None
    same_type: bool | None = None


_READ: Final = msgspec.json.Decoder(_WireDevices)


def parse_device_match(raw: bytes, *, field: str) -> DeviceMatchRequest:
    """A request as JSON; one that cannot be read holds the reason, so that its gang can be told.

    Args:
        raw: the object, or ``null``; empty for nothing said.
        field: where it stands, for the reason.
    """
    if not raw or raw == b"null":
        return NO_DEVICE_MATCH
    if len(raw) > _LENGTH_MAX:
        return DeviceMatchRequest(
            error=f"{field}: has {len(raw):,} bytes, more than {_LENGTH_MAX:,}"
        )
    return _parse(raw, field)


@lru_cache(maxsize=1024)
def _parse(raw: bytes, field: str) -> DeviceMatchRequest:
    try:
        parsed = _READ.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        invalid = explain_decode_error(error, under=field)
        return DeviceMatchRequest(error=f"{invalid.field}: {invalid.why}")
    attribute = parsed.match_attribute or ""
    requests = tuple(sorted(set(parsed.requests or ())))
    wrong = _attribute_error(attribute) or _requests_error(requests)
    if wrong:
        return DeviceMatchRequest(error=f"{field}.{wrong}")
    if not attribute and not parsed.same_type:
        if requests:
            return DeviceMatchRequest(
                error=f"{field}.requests: say of what, with matchAttribute or sameType"
            )
        return NO_DEVICE_MATCH
    return DeviceMatchRequest(
        match_attribute=attribute, requests=requests, same_type=bool(parsed.same_type)
    )


def _attribute_error(attribute: str) -> str:
    if not attribute or _ATTRIBUTE.fullmatch(attribute):
        return ""
    return (
        f"matchAttribute: {quoted(attribute)} is no attribute with its domain, such as "
        f"resource.kubernetes.io/pcieRoot"
    )


def _requests_error(requests: tuple[str, ...]) -> str:
    if len(requests) > REQUESTS_MAX:
        return f"requests: names {len(requests)} requests, more than {REQUESTS_MAX}"
    wrong = next((each for each in requests if not _REQUEST.fullmatch(each)), None)
    return "" if wrong is None else f"requests: {quoted(wrong)} is no request of a claim"
