"""Paths that are no resource: versions, discovery, schemas, metrics, and what is nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusched.devcluster import status, unsupported, views
from gpusched.devcluster.http import discovery, openapi
from gpusched.devcluster.http.messages import Answer, Request
from gpusched.devcluster.http.routes import Route

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core
    from gpusched.devcluster.kinds import Registry

Obj = dict[str, Any]
_PLAIN: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_ROUTED: Final = frozenset({"version", "api", "apis"})


def answer(core: Core, request: Request, *, address: str) -> Answer:
    """Answer a request whose path names no resource; raises StatusError 403, 404 or 405."""
    request.access.check_path(request.user, request.path, request.method)
    registry = core.registry
    parts = request.path.strip("/").split("/")
    match parts:
        case ["api" | "apis"] if discovery.wants_aggregated(request.accept):
            body = discovery.aggregated(registry, core=parts[0] == "api")
            return Answer(body=views.encode(body), content_type=discovery.AGGREGATED)
        case ["openapi", "v2"]:
            frame, media_type = openapi.version_2(registry, request.accept)
            return Answer(body=frame, content_type=media_type)
        case ["openapi", "v3"]:
            return Answer(body=openapi.index(registry), content_type=openapi.INDEX_TYPE)
        case ["openapi", "v3", *rest]:
            found = openapi.document(registry, "/".join(rest))
            return missing() if found is None else Answer(body=found)
        case ["metrics"]:
            return Answer(body=_metrics(core), content_type=_METRICS)
    told = _told(registry, parts, address=address)
    if told is None:
        return missing()
    if parts[0] in _ROUTED and request.method != "GET":
        raise status.method_not_allowed()
    return Answer(body=views.encode(told))


def unserved(registry: Registry, route: Route) -> Answer:
    """Answer a resource path of which nothing is served: 501, 404 as a Status, or 404 as text."""
    known = registry.unsupported.get((route.group, route.version, route.plural))
    if known:
        raise status.not_implemented(f"resource {known}")
    if _built_in(registry, route.group):
        raise status.unknown_resource()
    return missing()


def missing() -> Answer:
    """404 of a path that nobody serves."""
    return Answer(body=b"404 page not found\n", code=404, content_type=_PLAIN)


def _told(registry: Registry, parts: list[str], *, address: str) -> Obj | None:
    told: Obj | None = None
    match parts:
        case [""]:
            told = _root(registry)
        case ["version"]:
            told = discovery.VERSION
        case ["devcluster", "features"]:
            told = unsupported.features(registry)
        case ["api"]:
            told = discovery.api_versions(address)
        case ["apis"]:
            told = discovery.group_list(registry)
        case ["apis", group]:
            told = discovery.one_group(registry, group)
        case ["api", version]:
            told = _of_version(registry, "", version)
        case ["apis", group, version]:
            told = _of_version(registry, group, version)
    return told


def _of_version(registry: Registry, group: str, version: str) -> Obj | None:
    if registry.has_version(group, version):
        return discovery.resource_list(registry, group, version)
    if _built_in(registry, group):
        raise status.unknown_resource()
    return None


def _built_in(registry: Registry, group: str) -> bool:
    """Whether a group is one of the server's own: its paths are routed, though they lead nowhere."""
    return any(r.group == group and r.custom is None for r in registry.resources())


def _root(registry: Registry) -> Obj:
    """The list of what is served, in order."""
    paths = {"/api", "/apis", "/apis/", "/healthz", "/livez", "/readyz", "/metrics"}
    paths |= {"/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"}
    for resource in registry.resources():
        if resource.group:
            paths.add(f"/apis/{resource.group}")
            paths.add(f"/apis/{resource.group}/{resource.version}")
        else:
            paths.add(f"/api/{resource.version}")
    return {"paths": sorted(paths)}


def _metrics(core: Core) -> bytes:
    """What a monitor can count here: the build and the stored objects."""
    labels = ",".join(
        f'{name}="{discovery.VERSION[key]}"'
        for name, key in (
            ("git_version", "gitVersion"),
            ("major", "major"),
            ("minor", "minor"),
            ("platform", "platform"),
        )
    )
    lines = [
        "# HELP apiserver_storage_objects [STABLE] Number of stored objects by kind.",
        "# TYPE apiserver_storage_objects gauge",
    ]
    named = sorted({(r.qualified, r.storage) for r in core.registry.resources()})
    lines += [
        f'apiserver_storage_objects{{resource="{name}"}} {len(core.store.collection(storage))}'
        for name, storage in named
    ]
    lines += [
        "# HELP kubernetes_build_info [ALPHA] The version whose behaviour is served.",
        "# TYPE kubernetes_build_info gauge",
        f"kubernetes_build_info{{{labels}}} 1",
        "",
    ]
    return "\n".join(lines).encode()
