"""Object metadata: names, labels, and what a client may not choose for itself."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from gpusched.devcluster.field_errors import FieldError, forbidden, invalid, required, too_long

Obj = dict[str, Any]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_ANNOTATIONS_MAX: Final = 256 * 1024

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
    " start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_PART_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def name_errors(
    name: str, *, field: str = "metadata.name", label: bool = False
) -> list[FieldError]:
    """Check a name: an RFC 1123 label, or the wider subdomain."""
    limit = 63 if label else 253
    if len(name) > limit:
        return [invalid(field, name, f"must be no more than {limit} characters")]
    if label and not _LABEL.fullmatch(name):
        return [invalid(field, name, _LABEL_TEXT)]
    if not label and not _SUBDOMAIN.fullmatch(name):
        return [invalid(field, name, _SUBDOMAIN_TEXT)]
    return []


def key_errors(key: str, field: str) -> list[FieldError]:
    """Check a label, annotation or taint key: an optional DNS prefix and a name."""
    problem = _key_problem(key)
    return [invalid(field, key, problem)] if problem else []


@lru_cache(maxsize=4096)
def _key_problem(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        return f"prefix part {_SUBDOMAIN_TEXT}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    return "" if _QUALIFIED.fullmatch(name) else _NAME_PART_TEXT


def label_errors(labels: Any, field: str) -> list[FieldError]:
    """Check keys and values of labels."""
    errors: list[FieldError] = []
    for key, value in (labels or {}).items():
        errors += key_errors(key, field)
        if len(value) > 63:
            errors.append(invalid(field, value, "must be no more than 63 characters"))
        elif not _VALUE.fullmatch(value):
            errors.append(invalid(field, value, _VALUE_TEXT))
    return errors


def segment_errors(name: str, field: str = "metadata.name") -> list[FieldError]:
    """Check a name that only has to fit into a path, as those of roles."""
    if name in {".", ".."}:
        return [invalid(field, name, f"may not be '{name}'")]
    return [invalid(field, name, f"may not contain '{c}'") for c in "/%" if c in name]


def metadata_errors(meta: Obj, *, label_name: bool, segment_name: bool = False) -> list[FieldError]:
    """Check the metadata that a client sends with a create or update."""
    errors: list[FieldError] = []
    name = meta.get("name") or ""
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    elif segment_name:
        errors += segment_errors(name)
    else:
        errors += name_errors(name, label=label_name)
    if labels := meta.get("labels"):
        errors += label_errors(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        for key in annotations:
            errors += key_errors(key.lower(), "metadata.annotations")
        total = sum(len(key) + len(value) for key, value in annotations.items())
        if total > _ANNOTATIONS_MAX:
            errors.append(too_long("metadata.annotations", _ANNOTATIONS_MAX))
    for finalizer in meta.get("finalizers") or ():
        errors += key_errors(finalizer, "metadata.finalizers")
    return errors


def new_finalizer_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Refuse finalizers that appear on an object already being deleted."""
    if not old.get("deletionTimestamp"):
        return []
    added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
    if not added:
        return []
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
    return [forbidden("metadata.finalizers", why)]


def clean_for_create(meta: Obj) -> None:
    """Drop what only the server may set."""
    for key in (
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ):
        meta.pop(key, None)
    for key in [k for k, v in meta.items() if v in (None, "", {}, [])]:
        del meta[key]


KEPT: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "resourceVersion",
)


def keep_server_fields(new: Obj, old: Obj) -> None:
    """Carry over what an update cannot change."""
    for key in KEPT:
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)
    for key in [k for k, v in new.items() if v in (None, "", {}, [])]:
        del new[key]


def copy_tree(value: Any) -> Any:
    """Copy dicts and lists all the way down; scalars are shared."""
    kind = type(value)
    if kind is dict:
        return {
            k: (copy_tree(v) if type(v) in _CONTAINERS else v)  # skip the call for scalars
            for k, v in value.items()
        }
    if kind is list:
        return [copy_tree(v) if type(v) in _CONTAINERS else v for v in value]
    return value


_CONTAINERS: Final = (dict, list)
