"""The scale subresource over HTTP: which media types it takes, in which shapes it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusched.devcluster import bodies, status, views
from gpusched.devcluster.api import PATCH_TYPES, Api
from gpusched.devcluster.tables import columns_for, table

if TYPE_CHECKING:
    from gpusched.devcluster.http.messages import Request
    from gpusched.devcluster.http.routes import Route
    from gpusched.devcluster.kinds import Resource
    from gpusched.devcluster.verbs import Options

Obj = dict[str, Any]


def answer(
    api: Api, request: Request, resource: Resource, *, route: Route, options: Options
) -> bytes:
    """Read, replace or patch the Scale of an object; raises StatusError."""
    if request.method == "GET":
        scale = api.scale(resource, route.namespace, route.name)
        return _shaped(api, request, scale)
    patch_type, custom = "", resource.custom is not None
    if request.method == "PATCH":
        patch_type = PATCH_TYPES.get(bodies.media_type(request.content_type), "")
        if not patch_type or (custom and patch_type == "strategic"):
            raise bodies.unknown_patch(custom=custom)
        if patch_type == "apply":
            raise status.not_implemented("server-side apply of scales")
    elif request.method != "PUT":
        raise status.method_not_allowed()
    if patch_type:
        body = bodies.decode_patch(request.body, patch_type)
    else:
        body = bodies.decode(request.body, request.content_type, kind="Scale", custom=custom)
    scale = api.write_scale(
        resource,
        route.namespace,
        route.name,
        body=body,
        patch_type=patch_type,
        options=options,
    )
    return _shaped(api, request, scale)


def _shaped(api: Api, request: Request, scale: Obj) -> bytes:
    shape = views.shape_of(request.accept)
    if shape == "metadata":
        return views.encode(views.partial(scale))
    if shape != "table":
        return views.encode(scale)
    return views.encode(
        table(
            columns_for("autoscaling", "Scale"),
            [scale],
            now=api.core.clock.now(),
            metadata={"resourceVersion": scale["metadata"]["resourceVersion"]},
        )
    )
