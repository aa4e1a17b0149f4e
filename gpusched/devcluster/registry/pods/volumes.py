"""Volumes of pods: stored without effect, but named once and of one known type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.cel.quantities import is_negative
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import name_errors

Obj = dict[str, Any]

_MODE_TEXT: Final = "must be a number between 0 and 0777 (octal), both inclusive"
_MODE_MAX: Final = 0o777
_NEEDED: Final = {
    "hostPath": "path",
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "csi": "driver",
}
_HOST_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def volume_errors(volumes: Sequence[Obj], at: str) -> Iterator[FieldError]:
    """Check volumes; names must be unique, and each has one source."""
    names: set[str] = set()
    for i, volume in enumerate(volumes):
        here = f"{at}[{i}]"
        yield from _source_errors(volume, here)
        name = volume.get("name") or ""
        if not name:
            yield required(f"{here}.name")
            continue
        yield from name_errors(name, field=f"{here}.name", label=True)
        if name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)


def _source_errors(volume: Obj, at: str) -> Iterator[FieldError]:
    given = [key for key, value in volume.items() if key != "name" and value is not None]
    for i, key in enumerate(given):
        if i:
            yield forbidden(f"{at}.{key}", "may not specify more than 1 volume type")
        else:
            yield from _one_source_errors(key, volume[key], f"{at}.{key}")
    if not given:
        yield required(at, "must specify a volume type")


def _one_source_errors(key: str, source: Obj, at: str) -> Iterator[FieldError]:
    needed = _NEEDED.get(key)
    if needed and not source.get(needed):
        yield required(f"{at}.{needed}")
    if key == "hostPath":
        if ".." in str(source.get("path") or "").split("/"):
            yield invalid(f"{at}.path", source["path"], "must not contain '..'")
        if source.get("type") not in {None, *_HOST_TYPES}:
            yield not_supported(f"{at}.type", source["type"], _HOST_TYPES)
    if key == "emptyDir" and source.get("sizeLimit") and is_negative(source["sizeLimit"]):
        yield forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity")
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= _MODE_MAX:
        yield invalid(f"{at}.defaultMode", mode, _MODE_TEXT)
