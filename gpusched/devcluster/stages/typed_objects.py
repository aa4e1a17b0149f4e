"""Pods and nodes as KWOK's stages see them: out of a typed client, not as they are stored.

KWOK follows pods and nodes by Go types of client-go and encodes those again for jq and for
templates. What Go's encoding leaves out is not there: ``kind`` and ``apiVersion``, and fields
whose zero value is not written. Objects of other kinds reach its stages as they are stored.
"""

from __future__ import annotations

from typing import Any, Final

Obj = dict[str, Any]
Path = tuple[str, ...]

_TYPED: Final = frozenset((("v1", "Pod"), ("v1", "Node")))
_HEAD: Final = frozenset(("apiVersion", "kind"))
_MAPS: Final = frozenset(
    ("allocatable", "allocatedResources", "annotations", "capacity", "labels", "limits",
     "matchLabels", "nodeSelector", "options", "overhead", "requests", "volumeAttributes")
)  # fmt: skip
"""Maps of texts and quantities: left out when empty; their own entries never are."""
_TEXTS: Final = frozenset(
    ("action", "containerID", "dnsPolicy", "externalID", "fsType", "generateName", "hostIP",
     "hostname", "imagePullPolicy", "message", "nodeName", "nominatedNodeName", "phase", "podCIDR",
     "podIP", "priorityClassName", "protocol", "providerID", "qosClass", "reason", "resize",
     "resourceVersion", "restartPolicy", "schedulerName", "selfLink", "serviceAccount",
     "serviceAccountName", "subPath", "subPathExpr", "subdomain", "terminationMessagePath",
     "terminationMessagePolicy", "value", "workingDir")
)  # fmt: skip
"""Texts that are left out when empty; others, such as ``image`` or ``status``, are written."""
_PLAIN: Final = frozenset(
    ("hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty", "unschedulable",
     "failureThreshold", "generation", "hostPort", "initialDelaySeconds", "observedGeneration",
     "periodSeconds", "signal", "sizeBytes", "successThreshold", "timeoutSeconds")
)  # fmt: skip
"""Truths and numbers that are left out when false or 0; pointers, such as ``priority``, are not."""


class TypedNumber(str):
    """A number of JSON in a template: a text to Go, true even when it is 0, no match for numbers."""

    __slots__ = ()


def is_typed(group_version: str, kind: str) -> bool:
    """Whether KWOK follows objects of a kind by their Go type."""
    return (group_version, kind) in _TYPED


def omitted_fields(path: Path, key: str, value: Any) -> bool:
    """Whether Go's encoding of a typed object has no such field.

    Args:
        path: names of the fields that lead to the map that holds it; places in lists have none.
        key: its name there.
        value: what is stored.
    """
    if value is None:
        return True
    if not path:
        return key in _HEAD
    if value or path[-1] in _MAPS:
        return False
    kind = type(value)
    if kind is str:
        return key in _TEXTS
    if kind is dict:
        return key in _MAPS
    return kind is list or key in _PLAIN


def template_data(obj: Obj) -> Obj:
    """An object as its templates see it: numbers as texts, what Go leaves out left out."""
    typed = is_typed(obj.get("apiVersion", ""), obj.get("kind", ""))
    seen: Obj = _template_value(obj, (), typed)
    return seen


def _template_value(value: Any, path: Path, typed: bool) -> Any:
    kind = type(value)
    if kind is dict:
        return {
            key: item if type(item) is str else _template_value(item, (*path, key), typed)
            for key, item in value.items()
            if not (typed and omitted_fields(path, key, item))
        }
    if kind is list:
        return [_template_value(item, path, typed) for item in value]
    if kind is int or kind is float:
        return TypedNumber(value)
    return value


def restore_numbers(value: Any) -> Any:
    """A part of ``template_data`` with its numbers as numbers, for what writes JSON or YAML."""
    if isinstance(value, dict):
        return {key: restore_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restore_numbers(item) for item in value]
    if isinstance(value, TypedNumber):
        return float(value) if set(value) & set(".eE") else int(value)
    return value
