"""Lists: selectors, pages, past versions; objects come from their cached bytes."""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    quote_value,
)
from gpusched.devcluster.apimachinery.limits import LIST_CONTINUE_MAX
from gpusched.devcluster.apimachinery.selectors import Match, parse_fields, parse_labels
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.storage.store import Stored

Obj = dict[str, Any]
_NO_LABELS: Final[dict[str, str]] = {}


@frozen(kw_only=True)
class ListOptions:
    """The query of a list or watch, checked.

    Attributes:
        match: predicate of both selectors; None when everything matches.
        version: asked resourceVersion; None when absent.
    """

    match: Match | None
    selective: bool
    version: int | None
    version_match: str
    limit: int
    token: str
    watch: bool
    timeout_s: float | None
    bookmarks: bool
    initial_events: bool | None


@frozen(kw_only=True)
class ListResult:
    """One page of a list at a version."""

    items: list[Stored]
    version: int
    token: str = ""
    remaining: int | None = None


def options_from(resource: Resource, query: dict[str, str]) -> ListOptions:
    """Read a query; raises StatusError 400 or 422."""
    match = object_predicate(
        resource, query.get("labelSelector", ""), field_text=query.get("fieldSelector", "")
    )
    options = ListOptions(
        match=match,
        selective=match is not None,
        version=_version(query.get("resourceVersion", ""), resource, watch=_flag(query, "watch")),
        version_match=query.get("resourceVersionMatch", ""),
        limit=_count(query, "limit"),
        token=query.get("continue", ""),
        watch=_flag(query, "watch"),
        timeout_s=_count(query, "timeoutSeconds") or None,
        bookmarks=_flag(query, "allowWatchBookmarks"),
        initial_events=_flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
    )
    if errors := _option_errors(options):
        raise status.invalid("ListOptions", "meta.k8s.io", "", errors=errors)
    return options


_COMMON_FIELDS: Final = {"metadata.name", "metadata.namespace"}


def object_predicate(resource: Resource, label_text: str, *, field_text: str) -> Match | None:
    """Join a label and a field selector to one predicate on objects."""
    labels = parse_labels(label_text)
    common = resource.custom is None and resource.fields.keys() <= _COMMON_FIELDS
    fields = parse_fields(field_text, resource.fields, common=common)
    if labels is None:
        return fields

    def by_labels(obj: Obj) -> bool:
        return labels(obj["metadata"].get("labels") or _NO_LABELS)

    if fields is None:
        return by_labels
    return lambda obj: by_labels(obj) and fields(obj)


def _option_errors(options: ListOptions) -> list[FieldError]:
    if options.watch:
        return _watch_errors(options)
    field, match = "resourceVersionMatch", options.version_match
    errors: list[FieldError] = []
    if match and options.version is None:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(forbidden(field, why))
    if match and options.token:
        errors.append(forbidden(field, _NOT_IN_PAGES))
    if match not in {"", "Exact", "NotOlderThan"}:
        errors.append(not_supported(field, match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and options.version == 0:
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(forbidden(field, why))
    if options.initial_events is not None:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


_NOT_IN_PAGES: Final = "resourceVersionMatch is forbidden when continue is provided"


def _watch_errors(options: ListOptions) -> list[FieldError]:
    field, match = "resourceVersionMatch", options.version_match
    errors: list[FieldError] = []
    if options.initial_events is not None and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(forbidden(field, why))
    if not match:
        return errors
    if options.initial_events is None:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(forbidden(field, why))
    if match != "NotOlderThan":
        errors.append(not_supported(field, match, ("NotOlderThan",)))
    if options.token:
        errors.append(forbidden(field, _NOT_IN_PAGES))
    return errors


def _version(text: str, resource: Resource, *, watch: bool) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and int(text) < 1 << 64:
        return int(text)
    digits = text.isascii() and text.isdigit()
    why = "value out of range" if digits else "invalid syntax"
    error = invalid(
        "resourceVersion", text, f"strconv.ParseUint: parsing {quote_value(text)}: {why}"
    )
    if watch:
        raise status.invalid(resource.plural, resource.group, "", errors=[error])
    raise status.bad_request(f"invalid resource version: {error.field}: {error.text}")


def _count(query: dict[str, str], key: str) -> int:
    text = query.get(key, "")
    if not text:
        return 0
    try:
        number = int(text)
    except ValueError:
        why = "invalid syntax"
    else:
        if abs(number) < 2**63:
            return number
        why = "value out of range"
    raise status.bad_request(f"strconv.ParseInt: parsing {quote_value(text)}: {why}")


def _flag(query: dict[str, str], key: str) -> bool:
    return query.get(key, "0").lower() not in {"", "0", "false", "f"}


def list_page(
    core: ServerState,
    resource: Resource,
    namespace: str,
    *,
    options: ListOptions,
    newest: int | None = None,
) -> ListResult:
    """Return the asked page; raises StatusError 400, 410 or 504.

    ``newest`` is the version at which a lagging server stands, None for the present.
    """
    collection = core.store.collection(resource.storage)
    version, after = core.store.version, ""
    if newest is not None:
        version = max(min(newest, version), collection.trimmed_version)
    if options.token:
        if options.version:
            raise status.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        asked, after = _read_token(options.token, namespace)
        version = asked if asked >= 0 else version
    elif options.version:
        if options.version > version:
            raise too_large(options.version, version)
        # Pages of a given version are exact whether the client says so or not.
        if options.version_match == "Exact" or (options.limit > 0 and not options.version_match):
            version = options.version
    found = collection.scan_at(version, namespace, after=after)
    if found is None:
        raise _too_old(options, namespace, after)
    return _cut(core, resource, found, namespace=namespace, version=version, options=options)


def _cut(
    core: ServerState,
    resource: Resource,
    found: Iterator[tuple[str, Stored]],
    *,
    namespace: str,
    version: int,
    options: ListOptions,
) -> ListResult:
    match = options.match
    if match is not None:
        found = ((key, stored) for key, stored in found if match(stored.obj))
    if options.limit <= 0:
        return ListResult(items=[stored for _, stored in found], version=version)
    page = list(itertools.islice(found, options.limit + 1))
    if len(page) <= options.limit:
        return ListResult(items=[stored for _, stored in page], version=version)
    last = page[options.limit - 1][0]
    remaining = None
    if match is None:
        remaining = core.store.collection(resource.storage).count(namespace, after=last)
    return ListResult(
        items=[stored for _, stored in page[: options.limit]],
        version=version,
        token=_make_token(last, namespace, version=version),
        remaining=remaining,
    )


def _too_old(options: ListOptions, namespace: str, after: str) -> status.StatusError:
    """410: history no longer holds the version; pages may go on with what is there now."""
    if not options.token:
        return status.expired("The resourceVersion for the provided list is too old.")
    error = status.expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted between "
        "the time the first chunk was returned and now may show up in the list."
    )
    error.body["metadata"] = {"continue": _make_token(after, namespace, version=-1)}
    return error


def too_large(asked: int, current: int) -> status.StatusError:
    """504: the asked version lies in the future."""
    return status.failure(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )


def _make_token(last: str, namespace: str, *, version: int) -> str:
    start = last[len(namespace) + 1 :] if namespace else last
    raw = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": start + "\0"})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read_token(token: str, namespace: str) -> tuple[int, str]:
    if len(token) > LIST_CONTINUE_MAX:
        raise _bad_token("it is too long")
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad_token("illegal base64 data at input byte 0") from None
    try:
        content = msgspec.json.decode(raw)
        version, start = content["rv"], content["start"]
        if not isinstance(version, int) or not isinstance(start, str):
            raise _bad_token("incorrect encoded start or version")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        first = raw[:1].decode("latin-1")
        raise _bad_token(f"invalid character '{first}' looking for beginning of value") from None
    except (KeyError, TypeError):
        raise _bad_token("incorrect encoded start or version") from None
    last = start.removesuffix("\0")
    return version, f"{namespace}/{last}" if namespace else last


def _bad_token(why: str) -> status.StatusError:
    return status.bad_request(f"invalid continue token: continue key is not valid: {why}")
