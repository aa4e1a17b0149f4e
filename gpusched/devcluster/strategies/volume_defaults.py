"""Values that absent fields of a volume stand for."""

from __future__ import annotations

from typing import Any, Final

Obj = dict[str, Any]

_MODE: Final = 420
_TOKEN_S: Final = 3600


def default_volume(volume: Obj) -> None:
    """Fill in a volume; one without any source is an empty directory."""
    if all(value is None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
    for key in ("configMap", "secret", "downwardAPI", "projected"):
        if (source := volume.get(key)) is not None:
            source.setdefault("defaultMode", _MODE)
    if (host := volume.get("hostPath")) is not None:
        host.setdefault("type", "")
    if (downward := volume.get("downwardAPI")) is not None:
        _default_items(downward)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", _TOKEN_S)
        if (downward := source.get("downwardAPI")) is not None:
            _default_items(downward)
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        tag = (image.get("reference") or "").rpartition("/")[2].partition(":")[2]
        image["pullPolicy"] = "Always" if tag in {"", "latest"} else "IfNotPresent"
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_items(source: Obj) -> None:
    for item in source.get("items") or ():
        if (field := item.get("fieldRef")) is not None:
            field["apiVersion"] = field.get("apiVersion") or "v1"
        if (resource := item.get("resourceFieldRef")) is not None:
            resource.setdefault("divisor", "0")
