"""Paths of the Kubernetes API, taken apart."""

from __future__ import annotations

from typing import Final

from gpusched.base.classes import frozen


@frozen(slots=True)
class Route:
    """One resource path; ``name`` and ``subresource`` are empty when the path has none.

    Attributes:
        watch: whether it is one of the old paths that watch by themselves.
        deep: whether it goes on behind a subresource.
    """

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    deep: bool
    watch: bool = False


_OF_NAMESPACES: Final = frozenset({"status", "finalize"})


def parse_route(path: str) -> Route | None:
    """Return the route of a resource path, or None for any other path."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    padded = [*rest, "", ""]
    return Route(
        group=group,
        version=version,
        plural=padded[0],
        namespace=namespace,
        name=padded[1],
        subresource=padded[2],
        deep=len(rest) > 3,
        watch=watch,
    )


def authorization_verb(method: str, route: Route, *, watch: bool) -> str:
    """Return the verb that authorization speaks of."""
    if method == "GET":
        if route.name and not route.watch:
            return "get"
        return "watch" if watch else "list"
    if method == "DELETE":
        return "delete" if route.name else "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method.lower())
