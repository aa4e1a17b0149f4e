"""Whether the CRD of a kind of ours is installed, as discovery tells it."""

from __future__ import annotations

from typing import Final

import msgspec

from gpusched import API_VERSION
from gpusched.base import errors, limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.watch.kind_spec import KindSpec


class _WireResource(msgspec.Struct):
    name: str = ""


class _WireResources(msgspec.Struct):
    resources: list[_WireResource] = []


_RESOURCES: Final = msgspec.json.Decoder(_WireResources)


async def is_installed(api: ApiClient, kind: KindSpec) -> bool:
    """Whether the API server serves a kind of ours, in whatever version.

    A group without our version is that of another release, whose objects count: it is installed.

    Raises:
        GpuschedError: no answer, or none that can be read.
    """
    group, _, _ = API_VERSION.partition("/")
    body = await _read(api, f"/apis/{API_VERSION}")
    if body is None:
        return await _read(api, f"/apis/{group}") is not None
    try:
        page = _RESOURCES.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise errors.UndecodableObject(f"what is served of {API_VERSION} cannot be read") from error
    plural = kind.path.rpartition("/")[2]
    return any(each.name == plural for each in page.resources)


async def _read(api: ApiClient, path: str) -> bytes | None:
    """The body; None where there is nothing."""
    answer = await api.request("GET", path, timeout_s=limits.REQUEST_TIMEOUT_S)
    if answer.status == 404:
        return None
    if not answer.ok:
        raise api_error(answer, doing=f"read {path}")
    return answer.body
