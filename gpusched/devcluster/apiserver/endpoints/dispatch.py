"""From a request to an answer: which verb of which kind, in which shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.endpoints import other_paths, scale
from gpusched.devcluster.apiserver.endpoints.media_types import encode_as, negotiate_media_type
from gpusched.devcluster.apiserver.endpoints.messages import ApiAnswer, ApiRequest
from gpusched.devcluster.apiserver.endpoints.routes import Route, authorization_verb, parse_route
from gpusched.devcluster.apiserver.endpoints.write_options import write_option_errors
from gpusched.devcluster.apiserver.rbac import reviews, tokens
from gpusched.devcluster.apiserver.reading import representations
from gpusched.devcluster.apiserver.reading.lists import (
    ListOptions,
    list_page,
    options_from,
    too_large,
)
from gpusched.devcluster.apiserver.reading.watches import Watcher
from gpusched.devcluster.apiserver.resource_api import PATCH_TYPES, ResourceApi
from gpusched.devcluster.apiserver.writing import bodies
from gpusched.devcluster.apiserver.writing.bodies import repeated_fields
from gpusched.devcluster.apiserver.writing.deletion import DeleteOptions
from gpusched.devcluster.apiserver.writing.verbs import WriteOptions
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.storage.store import Stored

Obj = dict[str, Any]
_JSON: Final = "application/json"


class ResourceEndpoints:
    """All paths but health, on one ``ResourceApi``."""

    def __init__(self, api: ResourceApi, address: str = "") -> None:
        self._api = api
        self._core = api.core
        self.address = address

    def serve(self, request: ApiRequest) -> ApiAnswer:
        """Answer a request; raises StatusError for every failure a client caused."""
        route = parse_route(request.path)
        if route is None:
            return other_paths.answer_path(self._core, request, address=self.address)
        if route.watch:
            request, route = _as_list(request, route)
        watch = request.query.get("watch", "0").lower() in {"1", "true"}
        request.access.check(
            request.user, route, authorization_verb(request.method, route, watch=watch)
        )
        resource = self._core.registry.find(route.group, route.version, route.plural)
        if resource is None:
            return other_paths.unserved_resource(self._core.registry, route)
        media = negotiate_media_type(request.accept, custom=resource.custom is not None)
        if resource.verbs == ("create",):
            return encode_as(self._review(request, resource, route), media)
        if route.subresource and not resource.has(route.subresource):
            raise self._no_subresource(resource, route)
        if route.deep:
            raise status.unknown_resource()
        if resource.custom is not None and _misplaced(resource, route, request.method):
            return other_paths.unknown_path()
        return encode_as(self._resource(request, resource, route), media)

    def _no_subresource(self, resource: Resource, route: Route) -> status.StatusError:
        if resource.custom is not None:
            return status.not_found(resource.plural, resource.group, route.name)
        if resource.offers(route.subresource):
            return status.not_implemented(f"{resource.plural}/{route.subresource}")
        return status.unknown_resource()

    def _review(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        if request.method != "POST" or route.name:
            raise status.method_not_allowed()
        if resource.only_read:
            raise status.not_implemented(f"resource {resource.qualified}")
        body: Any = {}
        if resource.plural != "selfsubjectreviews":  # it asks nothing, so its body is not read
            body = bodies.decode_request_body(
                request.body, request.content_type, kind=resource.kind, custom=False
            )
        body = bodies.as_object(self._core, resource, body)
        if resource.plural == "bindings":
            name = body["metadata"].get("name") or ""
            if not name:
                raise status.bad_request("Name parameter required.")
            options = self._posted(request)
            self._api.connect(
                route.namespace, name, "binding", body=body, options=options, alone=True
            )
            return _done(status.success(), options)
        bodies.as_options(body, resource.kind, group=resource.group)
        if resource.plural == "tokenreviews":
            answer = tokens.review_token(request.access.read_token, body)
        else:
            answer = reviews.answer_review(
                request.access.authorizer,
                request.user,
                resource.plural,
                body=body,
                namespace=route.namespace,
            )
        return ApiAnswer(body=representations.encode(answer), code=201)

    # -- resources ---------------------------------------------------------------------------

    def _resource(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        method = request.method
        if _misplaced(resource, route, method) and (route.name or route.namespace):
            raise status.unknown_resource()
        if not route.name:
            if method == "GET":
                return self._list(request, resource, route)
            if resource.namespaced and not route.namespace:
                raise status.method_not_allowed()
            if method == "POST":
                return self._create(request, resource, route)
            if method == "DELETE" and "deletecollection" in resource.verbs:
                return self._delete_all(request, resource, route)
            raise status.method_not_allowed()
        if route.subresource:
            return self._subresource(request, resource, route)
        if method == "GET":
            return self._get(request, resource, route)
        if method == "PUT":
            return self._replace(request, resource, route)
        if method == "PATCH":
            return self._patch(request, resource, route)
        if method == "DELETE":
            return self._delete(request, resource, route)
        raise status.method_not_allowed()

    def _subresource(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        sub, method = route.subresource, request.method
        if sub in {"binding", "eviction"}:
            if method != "POST":
                raise status.method_not_allowed()
            body = bodies.decode_request_body(
                request.body, request.content_type, kind=sub.capitalize(), custom=False
            )
            options = self._posted(request)
            done = self._api.connect(route.namespace, route.name, sub, body=body, options=options)
            return _done(done, options)
        if sub == "scale":
            options = self._options(request)
            body = scale.answer_scale(self._api, request, resource, route=route, options=options)
            return ApiAnswer(body=body, warnings=options.warnings)
        if sub == "token":
            return self._token(request, resource, route)
        if sub == "log" and method == "GET":
            self._api.get(resource, route.namespace, route.name)
            return ApiAnswer(body=b"", content_type="text/plain")
        if method == "GET" and sub == "status":
            return self._get(request, resource, route)
        if method == "PUT":
            return self._replace(request, resource, route)
        if method == "PATCH" and sub != "finalize":
            return self._patch(request, resource, route)
        raise status.method_not_allowed()

    def _token(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        if request.method != "POST":
            raise status.method_not_allowed()
        kind = "TokenRequest"
        body = bodies.decode_request_body(
            request.body, request.content_type, kind=kind, custom=False
        )
        account = self._api.get(resource, route.namespace, route.name)
        asked, options = bodies.as_options(body, kind), self._posted(request)
        self._api.issue(resource, account, asked, options=options)
        return _done(request.access.tokens.issue(account.obj, asked), options)

    def _get(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        asked, current = request.query.get("resourceVersion", ""), self._core.store.version
        if asked.isascii() and asked.isdigit() and int(asked[:20]) > current:
            raise too_large(int(asked[:20]), current)
        stored = self._api.get(resource, route.namespace, route.name)
        return self._shaped(request, resource, stored)

    def _list(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        options = options_from(resource, request.query)
        if options.watch:
            return self._watch(request, resource, route, options=options)
        page = list_page(
            self._core, resource, route.namespace, options=options, newest=request.as_of
        )
        shape = representations.shape_of(request.accept)
        if shape == "table":
            return ApiAnswer(body=self._tables(request, resource).of_list(page))
        if shape == "metadata":
            return ApiAnswer(body=representations.partial_list_bytes(page))
        return ApiAnswer(body=representations.list_bytes(resource, page))

    def _watch(
        self, request: ApiRequest, resource: Resource, route: Route, *, options: ListOptions
    ) -> ApiAnswer:
        shape = representations.shape_of(request.accept)
        render = representations.view_function(resource)
        if shape == "metadata":
            render = representations.metadata_only
        elif shape == "table":
            render = self._tables(request, resource).of_event
        watcher = Watcher(self._core, resource, route.namespace, options=options, render=render)
        return ApiAnswer(stream=watcher.stream())

    def _create(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        options = self._options(request)
        body = self._body(request, resource, options)
        stored = self._api.create(resource, route.namespace, body, options=options)
        return self._shaped(request, resource, stored, code=201, warnings=options.warnings)

    def _replace(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        options = self._options(request)
        stored, created = self._api.replace(
            resource,
            route.namespace,
            route.name,
            body=self._body(request, resource, options),
            options=options,
            subresource=route.subresource,
        )
        code = 201 if created else 200
        return self._shaped(request, resource, stored, code=code, warnings=options.warnings)

    def _patch(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        media = bodies.media_type(request.content_type)
        patch_type = PATCH_TYPES.get(media)
        custom = resource.custom is not None
        if patch_type is None or (custom and patch_type == "strategic"):
            raise bodies.unknown_patch_type(custom=custom)
        options = self._options(request, apply=patch_type == "apply")
        if patch_type != "apply":  # what is to be patched is looked up before the patch is read
            self._api.get(resource, route.namespace, route.name)
        stored, created = self._api.patch(
            resource,
            route.namespace,
            route.name,
            patch=_patch_body(request, patch_type, options),
            patch_type=patch_type,
            options=options,
            subresource=route.subresource,
        )
        code = 201 if created else 200
        return self._shaped(request, resource, stored, code=code, warnings=options.warnings)

    def _delete(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        options, by = self._delete_options(request), WriteOptions(user=request.user)
        answer, _gone = self._api.delete(
            resource, route.namespace, route.name, options=options, by=by
        )
        warning = resource.strategy.deletion_warning if not options.propagation else ""
        warnings = [*([warning] if warning else []), *by.warnings]
        if isinstance(answer, Stored):
            return self._shaped(request, resource, answer, warnings=warnings)
        return ApiAnswer(body=representations.encode(answer), warnings=warnings)

    def _delete_all(self, request: ApiRequest, resource: Resource, route: Route) -> ApiAnswer:
        listing = options_from(resource, request.query)
        options, by = self._delete_options(request), WriteOptions(user=request.user)
        page = list_page(self._core, resource, route.namespace, options=listing)
        for stored in page.items:
            meta = stored.obj["metadata"]
            self._api.delete(
                resource,
                meta.get("namespace", ""),
                meta["name"],
                options=options,
                by=by,
                with_others=True,
            )
        # The answer shows them as they were found, whatever has become of them.
        return ApiAnswer(body=representations.list_bytes(resource, page), warnings=by.warnings)

    def _delete_options(self, request: ApiRequest) -> DeleteOptions:
        body: Obj | None = None
        if request.body:
            kind = "DeleteOptions"
            decoded = bodies.decode_request_body(
                request.body, request.content_type, kind=kind, custom=False
            )
            body = bodies.as_options(decoded, kind)
        return DeleteOptions.from_body(body, request.query)

    # -- bodies and shapes -------------------------------------------------------------------

    def _body(self, request: ApiRequest, resource: Resource, options: WriteOptions) -> Any:
        self._api.schema(resource)  # 501 of a kind that is only read, whatever the body is
        custom = resource.custom is not None
        body = bodies.decode_request_body(
            request.body, request.content_type, kind=resource.kind, custom=custom
        )
        if bodies.media_type(request.content_type) in {"", bodies.JSON}:
            _note_repeated(request, body, options)
        return body

    def _options(self, request: ApiRequest, *, apply: bool = False) -> WriteOptions:
        query = request.query
        manager = query.get("fieldManager", "")
        patch = request.method == "PATCH"
        if errors := write_option_errors(query, patch=patch, apply=apply):
            kinds = {"POST": "CreateOptions", "PUT": "UpdateOptions"}
            kind = kinds.get(request.method, "PatchOptions")
            raise status.invalid(kind, "meta.k8s.io", "", errors=errors)
        if not manager:
            manager = request.agent.partition("/")[0]
        operation: Literal["Update", "Apply"] = "Apply" if apply else "Update"
        return WriteOptions(
            dry_run=query.get("dryRun", "") == "All",
            validation=query.get("fieldValidation", "") or "Warn",
            manager=manager,
            operation=operation,
            force=query.get("force", "").lower() in {"1", "true"},
            user=request.user,
        )

    def _posted(self, request: ApiRequest) -> WriteOptions:
        """The options of what is posted to be done and not stored."""
        return WriteOptions(dry_run=bool(request.query.get("dryRun")), user=request.user)

    def _tables(self, request: ApiRequest, resource: Resource) -> representations.TableView:
        include = request.query.get("includeObject", "") or "Metadata"
        return representations.TableView(resource, self._core.clock, include=include)

    def _shaped(
        self,
        request: ApiRequest,
        resource: Resource,
        stored: Stored,
        *,
        code: int = 200,
        warnings: Sequence[str] = (),
    ) -> ApiAnswer:
        shape = representations.shape_of(request.accept)
        if shape == "table":
            body = self._tables(request, resource).of_object(stored)
        elif shape == "metadata":
            body = representations.encode(representations.metadata_only(stored.obj))
        else:
            body = representations.object_bytes(resource, stored)
        return ApiAnswer(body=body, code=code, warnings=warnings)


def _done(body: Obj, options: WriteOptions) -> ApiAnswer:
    return ApiAnswer(body=representations.encode(body), code=201, warnings=options.warnings)


def _as_list(request: ApiRequest, route: Route) -> tuple[ApiRequest, Route]:
    """Turn one of the old watch paths into the list that it abbreviates."""
    if request.method != "GET":
        raise status.method_not_allowed()
    query = {**request.query, "watch": "1"}
    if route.name:
        terms = filter(None, (query.get("fieldSelector"), f"metadata.name={route.name}"))
        query["fieldSelector"] = ",".join(terms)
    return attrs.evolve(request, query=query), attrs.evolve(route, name="")


def _misplaced(resource: Resource, route: Route, method: str) -> bool:
    """Whether a path names a namespace for what has none, or none for what needs one."""
    if bool(route.namespace) == resource.namespaced:
        return False
    return not (resource.namespaced and method == "GET" and not route.name)


def _patch_body(request: ApiRequest, patch_type: str, options: WriteOptions) -> Any:
    if patch_type == "apply":
        return bodies.decode_applied(request.body)
    body = bodies.decode_patch(request.body, patch_type)
    if patch_type != "json":
        _note_repeated(request, body, options)
    return body


def _note_repeated(request: ApiRequest, body: Any, options: WriteOptions) -> None:
    if options.validation != "Ignore":
        options.repeated.extend(repeated_fields(request.body, body))
