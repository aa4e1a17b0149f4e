"""A status write as a request, and how it is compared with what the API shows."""

from __future__ import annotations

from typing import Final

import msgspec

from gpusched.api.meta.identity import ResourceVersion
from gpusched.api.serializer.requests import ConditionUpdate
from gpusched.base.classes import frozen
from gpusched.io.client.api_client import MERGE_PATCH
from gpusched.session.state.plan import PendingReason


@frozen(slots=True)
class StatusRequest:
    """A PATCH of one object's status.

    Attributes:
        seen: version of the object that it was made for.
    """

    path: str
    content_type: str
    body: bytes
    seen: ResourceVersion


@frozen(slots=True)
class WrittenStatus:
    """Our own last write, until the watch shows a newer version than ``seen``.

    Attributes:
        version: that it left.
    """

    seen: ResourceVersion
    status: bytes = b"{}"
    reason_and_message: tuple[str, str] = ("", "")
    version: str = ""


def last_status(
    written: WrittenStatus | None, shown: ResourceVersion, status: bytes
) -> tuple[bytes, ResourceVersion]:
    """The status that a patch begins with, and its version: as shown, or as we left it."""
    if written is not None and written.seen == shown:
        return written.status, ResourceVersion(written.version or shown)
    return status, shown


class _WireStatusPatch(msgspec.Struct):
    metadata: dict[str, str]
    status: msgspec.Raw


_PATCH: Final = msgspec.json.Decoder(_WireStatusPatch)


def merge_request(
    path: str, body: bytes | None, *, version: ResourceVersion, seen: ResourceVersion
) -> StatusRequest | None:
    """The merge PATCH for one version of its object alone; None where nothing changes.

    What a leader sent that was paused in the middle must not write over what its successor says,
    nor over a condition that somebody else wrote meanwhile.
    """
    if body is None:
        return None
    patch = _PATCH.decode(body)
    patch.metadata["resourceVersion"] = version
    return StatusRequest(path, MERGE_PATCH, msgspec.json.encode(patch), seen)


def condition_update(
    kind: str, ask: PendingReason, *, holds: bool, generation: int
) -> ConditionUpdate:
    """A condition that holds or not for the reason that is told."""
    return ConditionUpdate(
        type=kind, holds=holds, reason=ask.reason, message=ask.message, generation=generation
    )
