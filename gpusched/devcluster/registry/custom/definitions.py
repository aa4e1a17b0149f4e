"""What a CustomResourceDefinition may say, checked in the order of the API server.

What all versions share (their schema, subresources, columns, selectable fields) is reported as if it
stood in the spec itself, because the server keeps it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import subdomain_problems
from gpusched.devcluster.registry.custom.validation import SchemaRefused, compile_version

Obj = dict[str, Any]

_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    "byte", "date", "date-time", "double", "float", "int32", "int64", "password",
)  # fmt: skip
_SELECTABLE_MAX: Final = 8
_PROTECTED: Final = (".k8s.io", ".kubernetes.io")
_APPROVAL: Final = "api-approved.kubernetes.io"


def definition_errors(definition: Obj) -> list[FieldError]:
    """Every error of the spec of a definition with its names completed."""
    spec = definition["spec"]
    versions: list[Obj] = spec.get("versions") or []
    errors = [*_group(spec), *_scope(spec)]
    for i, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            at = f"spec.versions[{i}].schema.openAPIV3Schema"
            errors.append(required(at, "schemas are required"))
    places = _places(versions)
    for i, version in enumerate(versions):
        at = f"spec.versions[{i}]"
        errors += _label(f"{at}.name", version.get("name") or "")
        errors += _version(version, places=places, here=at)
    errors += _counts(versions)
    errors += _names(spec["names"])
    if versions:
        errors += _version(versions[0], places=places, here="spec")
    errors += _conversion(spec)
    return errors


def protected_group_errors(definition: Obj) -> list[FieldError]:
    """Groups of the project itself need a note of approval."""
    group = definition["spec"].get("group") or ""
    annotations = definition["metadata"].get("annotations") or {}
    if not group.endswith(_PROTECTED) or annotations.get(_APPROVAL):
        return []
    why = (
        f'protected groups must have approval annotation "{_APPROVAL}", '
        "see https://github.com/kubernetes/enhancements/pull/1111"
    )
    return [required(f"metadata.annotations[{_APPROVAL}]", why)]


def stored_version_errors(definition: Obj) -> list[FieldError]:
    """Versions in which objects may be stored cannot leave the spec."""
    known = {v.get("name") for v in definition["spec"].get("versions") or ()}
    stored = (definition.get("status") or {}).get("storedVersions") or ()
    return [
        invalid(
            f"status.storedVersions[{i}]",
            name,
            f"missing from spec.versions; {name} was previously a storage version, and must "
            "remain in spec.versions until a storage migration ensures no data remains persisted "
            f"in {name} and removes {name} from status.storedVersions",
        )
        for i, name in enumerate(stored)
        if name not in known
    ]


_SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def _places(versions: list[Obj]) -> dict[str, bool]:
    """For each part of a version: whether all versions share it, so that it stands in the spec."""
    if not versions:
        return {}
    return {key: all(v.get(key) == versions[0].get(key) for v in versions) for key in _SHARED}


def _group(spec: Obj) -> Iterator[FieldError]:
    group = spec.get("group") or ""
    if not group:
        yield required("spec.group")
    elif problems := subdomain_problems(group):
        yield invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _scope(spec: Obj) -> Iterator[FieldError]:
    scope, known = spec.get("scope") or "", ("Cluster", "Namespaced")
    if not scope:
        yield required("spec.scope")
    elif scope not in known:
        yield not_supported("spec.scope", scope, known)


def _counts(versions: list[Obj]) -> Iterator[FieldError]:
    names = [v.get("name") for v in versions]
    if len(set(names)) != len(names):
        yield invalid("spec.versions", versions, "must contain unique version names")
    if sum(bool(v.get("storage")) for v in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", versions, why)


def _label(field: str, value: str, *, mixed: bool = False) -> Iterator[FieldError]:
    tested = value.lower() if mixed else value
    problems = ["must be no more than 63 bytes"] if len(tested) > 63 else []
    if not _LABEL_1035.fullmatch(tested):
        problems.append(_LABEL_1035_TEXT)
    if problems:
        why = ",".join(problems)
        if mixed:
            why = f"may have mixed case, but should otherwise match: {why}"
        yield invalid(field, value, why)


def _names(names: Obj) -> Iterator[FieldError]:
    at = "spec.names"
    for key in ("plural", "singular", "kind", "listKind"):
        if not names.get(key):
            yield required(f"{at}.{key}")
    for key in ("plural", "singular", "kind", "listKind"):
        if value := names.get(key):
            yield from _label(f"{at}.{key}", value, mixed=key in {"kind", "listKind"})
    for i, short in enumerate(names.get("shortNames") or ()):
        yield from _label(f"{at}.shortNames[{i}]", short)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        why = "kind and listKind may not be the same"
        yield invalid(f"{at}.listKind", names["listKind"], why)
    for i, category in enumerate(names.get("categories") or ()):
        yield from _label(f"{at}.categories[{i}]", category)


def _version(version: Obj, *, places: dict[str, bool], here: str) -> Iterator[FieldError]:
    """Errors of those parts of a version that stand ``here``: in the version or in the spec."""
    shared = here == "spec"
    raw = (version.get("schema") or {}).get("openAPIV3Schema")
    scale = (version.get("subresources") or {}).get("scale")
    if raw and places["schema"] is shared:
        at = f"{here}.{'validation' if shared else 'schema'}.openAPIV3Schema"
        try:
            compile_version(raw, scale=scale, path=at)
        except SchemaRefused as e:
            yield from e.errors
    if scale is not None and places["subresources"] is shared:
        yield from _scale(scale, f"{here}.subresources.scale")
    if places["additionalPrinterColumns"] is shared:
        for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column(column, f"{here}.additionalPrinterColumns[{i}]")
    if raw and places["selectableFields"] is shared:
        yield from _selectable(version.get("selectableFields") or [], raw, here)


def _simple_path(path: str, at: str) -> Iterator[FieldError]:
    if not path.startswith("."):
        yield invalid(at, path, "must be a simple json path starting with .")


def _scale(scale: Obj, at: str) -> Iterator[FieldError]:
    for key, below in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        path = scale.get(key) or ""
        if not path:
            yield required(f"{at}.{key}")
        elif not path.startswith("."):
            yield from _simple_path(path, f"{at}.{key}")
        elif not path.startswith(below):
            yield invalid(f"{at}.{key}", path, f"should be a json path under {below[:-1]}")
    path = scale.get("labelSelectorPath") or ""
    if path and not path.startswith("."):
        yield from _simple_path(path, f"{at}.labelSelectorPath")
    elif path and not path.startswith((".spec.", ".status.")):
        why = "should be a json path under either .spec or .status"
        yield invalid(f"{at}.labelSelectorPath", path, why)


def _column(column: Obj, at: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{at}.name")
    kind, form = column.get("type") or "", column.get("format") or ""
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield required(f"{at}.type", types)
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{at}.type", kind, types)
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{at}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column.get("jsonPath"):
        yield required(f"{at}.jsonPath")
    else:
        yield from _simple_path(column["jsonPath"], f"{at}.jsonPath")


def _selectable(fields: list[Obj], schema: Obj, here: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, field in enumerate(fields):
        at, path = f"{here}.selectableFields[{i}].jsonPath", field.get("jsonPath") or ""
        if not path:
            yield required(at)
            continue
        found = _field_schema(path, schema)
        if found is None:
            yield invalid(at, path, "is an invalid path: does not refer to a valid field")
            continue
        if path.startswith(".metadata"):
            yield invalid(at, path, "must not point to fields in metadata")
        if found.get("type") not in {"string", "boolean", "integer"}:
            why = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            yield invalid(at, path, why)
        if path in seen:
            yield duplicate(at, path)
        seen.add(path)
    if len(seen) > _SELECTABLE_MAX:
        yield too_many(f"{here}.selectableFields", len(fields), _SELECTABLE_MAX)


def _field_schema(path: str, schema: Obj) -> Obj | None:
    found: Obj | None = schema
    for key in path.removeprefix(".").split("."):
        found = (found or {}).get("properties", {}).get(key)
        if found is None:
            return None
    return found


def _conversion(spec: Obj) -> Iterator[FieldError]:
    conversion = spec.get("conversion") or {}
    strategy, known = conversion.get("strategy") or "", ("None", "Webhook")
    at = "spec.conversion"
    if not strategy:
        yield required(f"{at}.strategy")
    elif strategy not in known:
        yield not_supported(f"{at}.strategy", strategy, known)
    if spec.get("preserveUnknownFields"):
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        yield invalid("spec.preserveUnknownFields", value=True, detail=why)


def immutable_name_errors(new: Obj, old: Obj) -> list[FieldError]:
    """What an update of a definition may not change."""
    spec, before = new["spec"], old["spec"]
    conditions = (old.get("status") or {}).get("conditions") or ()
    established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
    places: list[tuple[str, Any, Any]] = []
    if established:
        places.append(("spec.scope", spec.get("scope"), before.get("scope")))
        places.append(("spec.names.kind", spec["names"].get("kind"), before["names"].get("kind")))
    places.append(("spec.group", spec.get("group"), before.get("group")))
    plural = spec["names"].get("plural"), before["names"].get("plural")
    places.append(("spec.names.plural", *plural))
    return [invalid(at, now, "field is immutable") for at, now, then in places if now != then]
