"""A page of pods as bytes from one process of ours to another: a column for each field.

Decoding a pod costs ten times what it costs to read one of these: what is equal in all pods of a
page is there once, and classes that the reader has met go by their digest.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from io import BytesIO
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from gpusched.api.meta.codec import ObjectPage
from gpusched.api.meta.fields import shared_labels
from gpusched.api.meta.identity import NO_CREATOR, Creator
from gpusched.api.pod.decode import intern_decoded_class
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations, Pod, PodClass
from gpusched.base.shared_texts import shared_text

_FIELDS: Final = Pod.__struct_fields__
_CLASS: Final = _FIELDS.index("pod_class")
_UNLIKE: Final = frozenset({"name", "uid", "resource_version", "seal"})
"""Texts that are another one in each pod."""


class _Columns(NamedTuple):
    """Pods by field: what they have in common, and the values of the others in their order.

    Attributes:
        first: the first pod, with the digest of its class in its place.
        names: fields that are not the same in all.
        columns: values of each.
        met: classes that were not in any page of this writer before.
        version, token: of the list, see ``ObjectPage``.
    """

    first: tuple[Any, ...]
    names: tuple[str, ...]
    columns: tuple[list[Any], ...]
    met: tuple[PodClass, ...]
    version: str
    token: str


def _labels(labels: MappingProxyType[str, str]) -> tuple[Any, ...]:
    return shared_labels, (tuple(labels.items()),)


def _or_none(none: object, name: str) -> Callable[[Any], Any]:
    """How a value is written of which one object stands for nothing, by its name."""
    return lambda value: name if value is none else value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table | {
        MappingProxyType: _labels,
        Creator: _or_none(NO_CREATOR, "NO_CREATOR"),
        GangAnnotations: _or_none(NO_GANG_ANNOTATIONS, "NO_GANG_ANNOTATIONS"),
    }


class PodsWriter:
    """Writes pages for one reader, which gets all of them in this order."""

    def __init__(self) -> None:
        self._met: set[str] = set()

    def write(self, page: ObjectPage[Pod]) -> bytes:
        """One page; nothing for one that is empty, or holds what is not to be believed."""
        pods = [item for item in page.items if isinstance(item, Pod)]
        if not pods or len(pods) < len(page.items):
            return b""
        columns = [[getattr(pod, name) for pod in pods] for name in _FIELDS]
        met = {each.digest: each for each in columns[_CLASS] if each.digest not in self._met}
        self._met.update(met)
        columns[_CLASS] = [each.digest for each in columns[_CLASS]]
        unlike = [at for at, values in enumerate(columns) if values.count(values[0]) < len(values)]
        found = _Columns(
            first=tuple([values[0] for values in columns]),
            names=tuple([_FIELDS[at] for at in unlike]),
            columns=tuple([columns[at] for at in unlike]),
            met=tuple(met.values()),
            version=page.resource_version,
            token=page.continue_token,
        )
        into = BytesIO()
        _Pickler(into, pickle.HIGHEST_PROTOCOL).dump(tuple(found))
        return into.getvalue()


class PodsReader:
    """Reads the pages of one writer, in their order."""

    def __init__(self) -> None:
        self._classes: dict[str, PodClass] = {}

    def read(self, raw: bytes | memoryview) -> ObjectPage[Pod]:
        """A page whose pods share their classes with all that were decoded here."""
        page = _Columns(*pickle.loads(raw))  # noqa: S301 - from a process of ours
        for each in page.met:
            self._classes[each.digest] = intern_decoded_class(each)
        first = dict(zip(_FIELDS, page.first, strict=True))
        first["pod_class"] = self._classes[first["pod_class"]]
        pattern = Pod(**{name: _shared(name, [value])[0] for name, value in first.items()})
        return ObjectPage(self._pods(pattern, page), page.version, page.token)

    def _pods(self, pattern: Pod, page: _Columns) -> tuple[Pod, ...]:
        if not page.names:
            return (pattern,)
        columns = [
            self._class_column(values) if name == "pod_class" else _shared(name, values)
            for name, values in zip(page.names, page.columns, strict=True)
        ]
        names, replaced = page.names, msgspec.structs.replace
        rows = zip(*columns, strict=True)
        return tuple([replaced(pattern, **dict(zip(names, row, strict=True))) for row in rows])

    def _class_column(self, digests: list[str]) -> list[PodClass]:
        known = self._classes
        return [known[digest] for digest in digests]


def _shared(name: str, values: list[Any]) -> list[Any]:
    """The values, each text held once in the process where many pods have it."""
    if name in _UNLIKE or type(values[0]) is not str:
        return values
    return list(map(shared_text, values))
