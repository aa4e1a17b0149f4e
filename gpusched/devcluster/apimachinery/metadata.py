"""Object metadata: names, labels, and what a client may not choose for itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    invalid_unquoted,
    quote_value,
    required,
    too_long,
)

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
_QUALIFIED_TEXT: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def label_name_problems(value: str, *, unit: str = "characters") -> list[str]:
    """Why a text is no RFC 1123 label, in the API server's order; declared rules count bytes."""
    problems = [_too_long(63, unit)] if len(value.encode()) > 63 else []
    if not _LABEL.fullmatch(value):
        dots = _SUBDOMAIN.fullmatch(value)
        problems.append("must not contain dots" if dots else _LABEL_TEXT)
    return problems


def subdomain_problems(value: str, *, unit: str = "characters") -> list[str]:
    """Why a text is no RFC 1123 subdomain, in the API server's order; declared rules count bytes."""
    problems = [_too_long(253, unit)] if len(value.encode()) > 253 else []
    return problems if _SUBDOMAIN.fullmatch(value) else [*problems, _SUBDOMAIN_TEXT]


@lru_cache(maxsize=4096)
def qualified_name_problems(key: str) -> tuple[str, ...]:
    """Why a text is no name with an optional DNS prefix, in the API server's order."""
    parts = key.split("/")
    if len(parts) > 2:
        example = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {_QUALIFIED_TEXT}{example}",)
    problems: list[str] = []
    if len(parts) == 2:
        if parts[0]:
            problems += [f"prefix part {p}" for p in subdomain_problems(parts[0], unit="bytes")]
        else:
            problems.append("prefix part must be non-empty")
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        problems.append(f"name part {_too_long(63)}")
    if not _QUALIFIED.fullmatch(name):
        problems.append(f"name part {_QUALIFIED_TEXT}")
    return tuple(problems)


@lru_cache(maxsize=4096)
def label_value_problems(value: str) -> tuple[str, ...]:
    """Why a text is no label value, in the API server's order."""
    problems = [_too_long(63)] if len(value.encode()) > 63 else []
    return tuple(problems if _VALUE.fullmatch(value) else [*problems, _VALUE_TEXT])


def _too_long(most: int, unit: str = "bytes") -> str:
    return f"must be no more than {most} {unit}"


def name_errors(
    name: str, *, field: str = "metadata.name", label: bool = False
) -> list[FieldError]:
    """Check a name: an RFC 1123 label, or the wider subdomain."""
    problems = label_name_problems(name) if label else subdomain_problems(name)
    return [invalid(field, name, why) for why in problems]


def key_errors(key: str, field: str) -> list[FieldError]:
    """Check a label, annotation or taint key: an optional DNS prefix and a name."""
    return [invalid(field, key, why) for why in qualified_name_problems(key)]


def label_errors(labels: Any, field: str) -> list[FieldError]:
    """Check keys and values of labels."""
    errors: list[FieldError] = []
    for key, value in (labels or {}).items():
        errors += key_errors(key, field)
        errors += [invalid(field, value, why) for why in label_value_problems(value)]
    return errors


def segment_problems(name: str) -> list[str]:
    """Why a text does not fit into a path, which is all that names of roles must do."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{c}'" for c in "/%" if c in name]


def segment_errors(name: str, field: str = "metadata.name") -> list[FieldError]:
    """Check a name that only has to fit into a path, as those of roles."""
    return [invalid(field, name, why) for why in segment_problems(name)]


@frozen(kw_only=True)
class MetadataRules:
    """What a kind asks of its metadata.

    Attributes:
        label_name: whether the name must be a DNS label and not only a subdomain.
        segment_name: whether the name may be whatever fits into a path.
        any_finalizer: whether finalizers need no domain, as those of custom resources.
    """

    label_name: bool = False
    segment_name: bool = False
    any_finalizer: bool = False

    def name_problems(self, name: str) -> list[str]:
        """Why a name is not acceptable."""
        if self.segment_name:
            return segment_problems(name)
        return label_name_problems(name) if self.label_name else subdomain_problems(name)


def annotation_errors(annotations: Any, field: str) -> list[FieldError]:
    """Check keys and the total size of annotations."""
    errors: list[FieldError] = []
    for key in annotations or ():
        errors += [invalid(field, key, why) for why in qualified_name_problems(key.lower())]
    total = sum(len(k.encode()) + len(v.encode()) for k, v in (annotations or {}).items())
    if total > _ANNOTATIONS_MAX:
        errors.append(too_long(field, _ANNOTATIONS_MAX))
    return errors


def metadata_errors(meta: Obj, *, rules: MetadataRules) -> list[FieldError]:
    """Check the metadata that a client sends with a create or update."""
    errors: list[FieldError] = []
    if prefix := meta.get("generateName") or "":
        masked = prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        problems = rules.name_problems(masked)
        errors += [invalid("metadata.generateName", prefix, why) for why in problems]
    if name := meta.get("name") or "":
        errors += [invalid("metadata.name", name, why) for why in rules.name_problems(name)]
    else:
        errors.append(required("metadata.name", "name or generateName is required"))
    if labels := meta.get("labels"):
        errors += label_errors(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        errors += annotation_errors(annotations, "metadata.annotations")
    errors += owner_errors(meta.get("ownerReferences") or ())
    errors += finalizer_errors(meta.get("finalizers") or (), anyname=rules.any_finalizer)
    return errors


def changed_metadata_errors(meta: Obj) -> list[FieldError]:
    """Check what an update may change of the metadata, beside finalizers."""
    errors = label_errors(meta.get("labels"), "metadata.labels")
    errors += annotation_errors(meta.get("annotations"), "metadata.annotations")
    return errors + owner_errors(meta.get("ownerReferences") or ())


def owner_errors(owners: Sequence[Obj]) -> list[FieldError]:
    """Check owner references, of which only one may be the controller."""
    at = "metadata.ownerReferences"
    errors: list[FieldError] = []
    controller = ""
    for owner in owners:
        errors += _owner_field_errors(owner, at)
        if not owner.get("controller"):
            continue
        named = f"{owner.get('kind', '')}/{owner.get('name', '')}"
        if controller:
            why = (
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {controller} and {named}'
            )
            errors.append(invalid(at, [_printed_owner(item) for item in owners], why))
        controller = controller or named
    return errors


def _owner_field_errors(owner: Obj, at: str) -> list[FieldError]:
    errors: list[FieldError] = []
    version = owner.get("apiVersion", "")
    if not version.rpartition("/")[2]:
        errors.append(invalid(f"{at}.apiVersion", version, "version must not be empty"))
    errors += [
        invalid(f"{at}.{key}", "", "must not be empty")
        for key in ("kind", "name", "uid")
        if not owner.get(key)
    ]
    if (version, owner.get("kind")) == ("v1", "Event"):
        why = "/v1, Kind=Event is disallowed from being an owner"
        errors.append(invalid(at, _printed_owner(owner), why))
    return errors


def _printed_owner(owner: Obj) -> Obj:
    always = ("apiVersion", "kind", "name", "uid")
    keys = (*always, "controller", "blockOwnerDeletion")
    return {k: owner.get(k, "") for k in keys if k in owner or k in always}


STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def finalizer_errors(finalizers: Sequence[str], *, anyname: bool) -> list[FieldError]:
    """Check finalizers: standard ones, or names with a prefix; two ways of deletion exclude."""
    at = "metadata.finalizers"
    errors = [error for name in finalizers for error in key_errors(name, at)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid(at, list(finalizers), why))
    if not anyname:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        errors += [
            invalid(f"{at}[{i}]", name, why)
            for i, name in enumerate(finalizers)
            if "/" not in name and name not in STANDARD_FINALIZERS
        ]
    return errors


def new_finalizer_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Refuse finalizers that appear on an object already being deleted."""
    if not old.get("deletionTimestamp"):
        return []
    added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
    if not added:
        return []
    shown = ", ".join(quote_value(name) for name in sorted(added))
    why = (
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        f"[]string{{{shown}}}"
    )
    return [forbidden("metadata.finalizers", why)]


def immutable_field_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Refuse marks of deletion that an update brings in: only a DELETE sets them."""
    errors: list[FieldError] = []
    why = "field is immutable"
    stamp = new.get("deletionTimestamp")
    if stamp and not old.get("deletionTimestamp"):
        shown = f"{stamp.replace('T', ' ').replace('Z', '')} +0000 UTC"
        errors.append(invalid_unquoted("metadata.deletionTimestamp", f"{shown}: {why}"))
    grace = new.get("deletionGracePeriodSeconds")
    if grace is not None and grace != old.get("deletionGracePeriodSeconds"):
        errors.append(invalid("metadata.deletionGracePeriodSeconds", grace, why))
    return errors


def clean_for_create(meta: Obj) -> None:
    """Drop what only the server may set.

    A generation stays: kinds that have one begin it, in others it is what the client says.
    """
    for key in (
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ):
        meta.pop(key, None)
    for key in [k for k, v in meta.items() if v in (None, "", 0, {}, [])]:
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
