"""The scale subresource over HTTP: which media types it takes, in which shapes it answers."""

from __future__ import annotations

from typing import Any

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.endpoints.messages import ApiRequest
from gpusched.devcluster.apiserver.endpoints.routes import Route
from gpusched.devcluster.apiserver.reading import representations
from gpusched.devcluster.apiserver.reading.tables.table import columns_for, table
from gpusched.devcluster.apiserver.resource_api import PATCH_TYPES, ResourceApi
from gpusched.devcluster.apiserver.writing import bodies
from gpusched.devcluster.apiserver.writing.verbs import WriteOptions
from gpusched.devcluster.registry.kinds import Resource

Obj = dict[str, Any]


def answer_scale(
    api: ResourceApi,
    request: ApiRequest,
    resource: Resource,
    *,
    route: Route,
    options: WriteOptions,
) -> bytes:
    """Read, replace or patch the Scale of an object; raises StatusError."""
    if request.method == "GET":
        scale = api.scale(resource, route.namespace, route.name)
        return _shaped(api, request, scale)
    patch_type, custom = "", resource.custom is not None
    if request.method == "PATCH":
        patch_type = PATCH_TYPES.get(bodies.media_type(request.content_type), "")
        if not patch_type or (custom and patch_type == "strategic"):
            raise bodies.unknown_patch_type(custom=custom)
        if patch_type == "apply":
            raise status.not_implemented("server-side apply of scales")
    elif request.method != "PUT":
        raise status.method_not_allowed()
    if patch_type:
        body = bodies.decode_patch(request.body, patch_type)
    else:
        body = bodies.decode_request_body(
            request.body, request.content_type, kind="Scale", custom=custom
        )
    scale = api.write_scale(
        resource,
        route.namespace,
        route.name,
        body=body,
        patch_type=patch_type,
        options=options,
    )
    return _shaped(api, request, scale)


def _shaped(api: ResourceApi, request: ApiRequest, scale: Obj) -> bytes:
    shape = representations.shape_of(request.accept)
    if shape == "metadata":
        return representations.encode(representations.metadata_only(scale))
    if shape != "table":
        return representations.encode(scale)
    return representations.encode(
        table(
            columns_for("autoscaling", "Scale"),
            [scale],
            now=api.core.clock.now(),
            metadata={"resourceVersion": scale["metadata"]["resourceVersion"]},
        )
    )
