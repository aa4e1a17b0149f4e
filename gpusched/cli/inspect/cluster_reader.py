"""Reading objects of the cluster for commands that print: raw JSON, page by page."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gpusched.api.foreign.kinds import ForeignKind
from gpusched.api.meta.gpu_resources import GpuResources
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ClusterUnreachable, Denied, UsageError
from gpusched.cli.command import age
from gpusched.config.load import configuration_path, load_file
from gpusched.config.model import DEFAULT, Config, LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient, ApiResponse, api_error
from gpusched.io.client.connection_choice import ConnectionChoice, chosen_namespace
from gpusched.io.client.credentials import choose_credentials
from gpusched.io.client.kubeconfig_library import kubeconfig_library
from gpusched.io.client.missing_rights import explain_denied
from gpusched.io.leader.shard_board import find_board

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]

GROUP_PATH: Final = "/apis/scheduling.gpusched.io/v1alpha1"
_BUSY: Final = 429
_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def with_cluster(
    choice: ConnectionChoice | str | None, read: Callable[[ApiClient], Awaitable[T]]
) -> T:
    """Connect, read, close.

    Args:
        choice: of the command line, how to reach the cluster; or a kubeconfig, None for the usual places.
        read: what is done there.

    Raises:
        ClusterUnreachable: there is no way to the API server, or it does not answer.
        Denied: it does not know who we are, or does not allow it.
        ApiError: it refused for another reason.
    """
    if not isinstance(choice, ConnectionChoice):
        choice = ConnectionChoice(kubeconfig=choice)

    async def session() -> T:
        clock = SystemClock()
        source = choose_credentials(choice.kubeconfig, clock=clock, choice=choice)
        api = await ApiClient.connect(source, clock=clock)
        try:
            return await read(api)
        finally:
            await api.close()

    return asyncio.run(session())


def configuration(config: str | None) -> Config:
    """The configuration of a file; None for the mounted one, or the built-in one.

    Raises:
        ConfigError: the file is wrong.
    """
    path = configuration_path(config)
    return load_file(path) if path else DEFAULT


def configured_gpu_resources(config: str | None) -> GpuResources:
    """The GPU resources that a configuration names.

    Args:
        config: a file; None for the mounted one, or the built-in configuration.

    Raises:
        ConfigError: the file is wrong.
    """
    return configuration(config).gpu_resources


async def get_object(api: ApiClient, path: str, *, what: str) -> Json | None:
    """One object, or None when there is none of that name."""
    answer = await _asked(api, path)
    if answer.status == 404:
        return None
    return _body(api, answer, what=what)


async def list_objects(
    api: ApiClient, path: str, *, what: str, query: Mapping[str, str] | None = None
) -> list[Json]:
    """Every object of a collection, in pages.

    Raises:
        NotFound: the cluster does not know the kind.
    """
    items: list[Json] = []
    params = {**(query or {}), "limit": str(limits.LIST_PAGE)}
    while True:
        answer = await _asked(api, path, params)
        page = _body(api, answer, what=what)
        found = page.get("items")
        items.extend(found if isinstance(found, list) else [])
        more = value_at(page, "metadata", "continue")
        if not more or len(items) > limits.OBJECTS_PER_KIND_MAX:
            return items
        params["continue"] = str(more)


def read_entity(kind: str, item: Json) -> Any:
    """An object as the daemon reads it, or ``Rejected``.

    Args:
        kind: plural name.
        item: as the server has it.
    """
    from gpusched.api.serializer.codecs import CODECS  # noqa: PLC0415 - few commands read any

    event = msgspec.json.encode({"type": "ADDED", "object": item})
    return CODECS[kind].decode_event(event).item


async def served_versions(api: ApiClient, kinds: Iterable[ForeignKind]) -> dict[ForeignKind, str]:
    """The best group and version of each of these kinds that the server has."""
    listed = await get_object(api, "/apis", what="the API groups")
    versions = {
        str(value_at(group, "name")): {
            str(value_at(each, "version")) for each in items_at(group, "versions")
        }
        for group in items_at(listed, "groups")
    }
    pages: dict[str, set[str]] = {}
    found = {}
    for kind in kinds:
        for version in kind.versions:
            api_version = f"{kind.group}/{version}"
            if version not in versions.get(kind.group, ()):
                continue
            if api_version not in pages:
                page = await get_object(api, f"/apis/{api_version}", what=f"kinds of {api_version}")
                pages[api_version] = {str(each.get("name")) for each in items_at(page, "resources")}
            if kind.plural in pages[api_version]:
                found[kind] = api_version
                break
    return found


async def leader_text(api: ApiClient, election: LeaderElectionConfig, *, now: float) -> str:
    """Whether a daemon leads, by its Lease; empty where this user may not read that.

    Args:
        api: of the cluster.
        election: names the Lease.
        now: seconds since the epoch.
    """
    name = f"{election.lease_namespace}/{election.lease_name}"
    path = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}".format(*name.split("/"))
    try:
        lease = await get_object(api, path, what=f"Lease {name}")
    except Denied:
        return ""
    holder = str(value_at(lease, "spec", "holderIdentity") or "")
    if not holder and await find_board(api, election) is not None:
        return "daemons decide about their shards: gpusched get shards lists them"
    if not holder:
        return f"no daemon leads: Lease {name} has no holder"
    lasts = value_at(lease, "spec", "leaseDurationSeconds")
    try:
        renewed = parse_time(str(value_at(lease, "spec", "renewTime")))
    except InvalidObject:
        renewed = 0.0
    if now - renewed > (lasts if isinstance(lasts, int) else election.lease_duration_s):
        return f"no daemon leads: {holder} renewed Lease {name} {age(now - renewed)} ago for the last time"
    return f"daemon {holder} leads, and has a second or two to look at it"


async def _asked(api: ApiClient, path: str, query: Mapping[str, str] | None = None) -> ApiResponse:
    """The answer; a server that says it is busy is asked again.

    One that has just got a kind's definition says so for some seconds, too.
    """
    left = limits.COMMAND_TRIES_MAX
    while True:
        answer = await api.request("GET", path, query=query, timeout_s=limits.REQUEST_TIMEOUT_S)
        left -= 1
        if answer.status != _BUSY or not left:
            return answer
        await SystemClock().sleep(min(max(answer.retry_after_s(), 1.0), limits.COMMAND_WAIT_S_MAX))


def _body(api: ApiClient, answer: ApiResponse, *, what: str) -> Json:
    if not answer.ok:
        error = api_error(answer, doing=f"read {what}")
        raise explain_denied(error) if isinstance(error, Denied) else error
    try:
        body = json.loads(answer.body)
    except ValueError as error:
        raise ClusterUnreachable(f"{api.host} does not answer as an API server") from error
    if not isinstance(body, dict):
        raise ClusterUnreachable(f"{api.host} does not answer as an API server")
    return body


def default_namespace(choice: ConnectionChoice | str | None) -> str:
    """The namespace of the context that counts, of the pod we run in, or ``default``."""
    if not isinstance(choice, ConnectionChoice):
        choice = ConnectionChoice(kubeconfig=choice)
    file = choice.kubeconfig or os.environ.get("KUBECONFIG")
    if file is None and not choice.names_entries and _POD_NAMESPACE.is_file():
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip() or "default"
    if file is None:
        file = str(Path.home() / ".kube" / "config")
    if ":" not in file and not Path(file).exists():
        return "default"  # the library would print a line of its own about it
    return chosen_namespace(kubeconfig_library(), file, choice) or "default"


def kubeconfig_entries(kubeconfig: str | None, kind: str) -> list[str]:
    """Names of the contexts, clusters or users of a kubeconfig, None for the usual places.

    Raises:
        ConfigException: there is none, or it cannot be read.
    """
    file = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    merged = kubeconfig_library().config.kube_config.KubeConfigMerger(file).config
    return [str(each.value["name"]) for each in merged.value[kind]]


def checked_object_name(text: str, *, what: str) -> str:
    """A name that can stand in a path.

    Raises:
        UsageError: it cannot.
    """
    if not is_name(text):
        raise UsageError(f"{text[:80]!r} is no name of a {what}")
    return text


def is_name(text: str) -> bool:
    """Whether an object could have this name, and it can therefore stand in a path."""
    return _NAME.fullmatch(text) is not None


def value_at(value: Any, *path: str) -> Any:
    """What stands at a path of keys, or None where any step of it is missing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def items_at(value: Any, *path: str) -> list[Json]:
    """The objects of the list at a path; empty where there is none."""
    found = value_at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
