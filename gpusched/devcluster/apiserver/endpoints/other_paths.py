"""Paths that are no resource: versions, discovery, schemas, metrics, and what is nowhere."""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.endpoints.discovery import documents, openapi_v3
from gpusched.devcluster.apiserver.endpoints.messages import ApiAnswer, ApiRequest
from gpusched.devcluster.apiserver.endpoints.routes import Route
from gpusched.devcluster.apiserver.reading import representations
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry import unsupported
from gpusched.devcluster.registry.kinds import Registry

Obj = dict[str, Any]
_PLAIN: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_ROUTED: Final = frozenset({"version", "api", "apis"})


def answer_path(core: ServerState, request: ApiRequest, *, address: str) -> ApiAnswer:
    """Answer a request whose path names no resource; raises StatusError 403, 404 or 405."""
    request.access.check_path(request.user, request.path, request.method)
    registry = core.registry
    parts = request.path.strip("/").split("/")
    match parts:
        case ["api" | "apis"] if documents.wants_aggregated(request.accept):
            body = documents.aggregated(registry, core=parts[0] == "api")
            return ApiAnswer(body=representations.encode(body), content_type=documents.AGGREGATED)
        case ["openapi", "v2"]:
            frame, media_type = openapi_v3.version_2(registry, request.accept)
            return ApiAnswer(body=frame, content_type=media_type)
        case ["openapi", "v3"]:
            return ApiAnswer(
                body=openapi_v3.openapi_index(registry), content_type=openapi_v3.INDEX_TYPE
            )
        case ["openapi", "v3", *rest]:
            found = openapi_v3.openapi_document(registry, "/".join(rest))
            return unknown_path() if found is None else ApiAnswer(body=found)
        case ["metrics"]:
            return ApiAnswer(body=_metrics(core), content_type=_METRICS)
    document = _document(registry, parts, address=address)
    if document is None:
        return unknown_path()
    if parts[0] in _ROUTED and request.method != "GET":
        raise status.method_not_allowed()
    return ApiAnswer(body=representations.encode(document))


def unserved_resource(registry: Registry, route: Route) -> ApiAnswer:
    """Answer a resource path of which nothing is served: 501, 404 as a Status, or 404 as text."""
    known = registry.unsupported.get((route.group, route.version, route.plural))
    if known:
        raise status.not_implemented(f"resource {known}")
    if _built_in(registry, route.group):
        raise status.unknown_resource()
    return unknown_path()


def unknown_path() -> ApiAnswer:
    """Return the 404 of a path that is not served."""
    return ApiAnswer(body=b"404 page not found\n", code=404, content_type=_PLAIN)


def _document(registry: Registry, parts: list[str], *, address: str) -> Obj | None:
    document: Obj | None = None
    match parts:
        case [""]:
            document = _root(registry)
        case ["version"]:
            document = documents.VERSION
        case ["devcluster", "features"]:
            document = unsupported.unsupported_features(registry)
        case ["api"]:
            document = documents.api_versions(address)
        case ["apis"]:
            document = documents.group_list(registry)
        case ["apis", group]:
            document = documents.one_group(registry, group)
        case ["api", version]:
            document = _of_version(registry, "", version)
        case ["apis", group, version]:
            document = _of_version(registry, group, version)
    return document


def _of_version(registry: Registry, group: str, version: str) -> Obj | None:
    if registry.has_version(group, version):
        return documents.resource_list(registry, group, version)
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


def _metrics(core: ServerState) -> bytes:
    """What a monitor can count here: the build and the stored objects."""
    labels = ",".join(
        f'{name}="{documents.VERSION[key]}"'
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
