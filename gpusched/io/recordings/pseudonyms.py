"""Names without a meaning, the same ones for the same names wherever they stand.

Every text is replaced, word by word, but those of ``known_words``, numbers, and the names of
resources: ``llama-70b-worker-0`` becomes ``k3xq2a-f7wz1m-bq8d0c-0``. So what controllers build of
names stays so (the pod of a Job begins with the Job's name), a selector still finds what it
found, a toleration what it tolerated, a level its nodes. Messages are left out.

Words are hashed with a key. Without the key nobody can tell whether ``k3xq2a`` is ``llama``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from gpusched.api.devices.gpu_types import ANNOTATION as GPU_TYPES
from gpusched.io.recordings.public_words import (
    DEVICE_NAMES,
    GPU_WORD,
    GPU_WORDS,
    PLAIN,
    PRODUCT,
    PRODUCT_KEYS,
    STORAGE_QUOTA,
    VALUES,
)

_WORD: Final = re.compile(r"[^-._/:]+")
_LETTERS: Final = 6
_LABEL_MAX: Final = 63
_IDENTITY: Final = frozenset({"apiVersion", "kind"})
"""Of the object itself: they are those of the list it was read from."""
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_AMOUNTS: Final = frozenset(
    {
        "allocatable", "capacity", "requests", "limits", "hard", "used", "deserved", "capability",
        "resource", "minResources", "overhead", "allocatedResources", "allocated", "requested",
        "borrowed", "fairShare", "average", "share",
    }
)  # fmt: skip
"""Members whose own members are named after resources."""
_OF_DEVICES: Final = frozenset({"capacity", "counters"})
"""Members whose own members drivers name, where these are objects."""
_BY_NAME: Final = frozenset({"minTaskMember", "placement", "consumedCapacity"})
"""Members whose own members users name."""
_BY_ROLE: Final = "ReplicaSpecs"
"""Ends members whose own members are roles, in capitals that labels do not have."""
_PROOF: Final = re.compile(r"(.*) ([0-9]+), at least ([0-9]+)", re.DOTALL)
_PROOF_SCOPE: Final = re.compile(r" for [0-9]+ pods?(?: beside [0-9]+)?$")
_TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"
_PLAN: Final = re.compile(r"[0-9a-f]{12}(?:-grown|-left[0-9]+)?")
"""The id of a plan, which is a hash, and what of its gang there was beside."""
_RECORDS: Final = frozenset(
    {
        "gpusched.io/charged",
        "gpusched.io/moved",
        "moved",
        "gpusched.io/turn",
        "gpusched.io/evictions",
    }
)
_FIELDS: Final = frozenset(
    {
        "name",
        "minMember",
        "minResource",
        "at",
        "pods",
        "seal",
        "ended",
        "seconds",
        "evictions",
        "time",
        "action",
        "reason",
        "for",
        "forUID",
        "gpuSeconds",
        "queue",
        "user",
        "groups",
    }
)
"""Of records in annotations; other members of theirs users name."""


class Pseudonyms:
    """Pseudonyms of one recording.

    Args:
        key: any bytes; the same key gives the same pseudonyms.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._word = lru_cache(maxsize=100_000)(self._hashed)

    def pseudonym(self, name: str) -> str:
        """The pseudonym of a text; itself where it is well known, a number or a quantity."""
        if name in VALUES or PLAIN.fullmatch(name):
            return name
        text = _WORD.sub(lambda match: self._word(match[0]), name)
        # What had room in a label must have room in one still.
        return self._word(name) * 2 if len(text) > _LABEL_MAX >= len(name) else text

    def of_object(self, item: Any) -> Any:
        """An object, trimmed before, with pseudonyms.

        Args:
            item: is not changed.
        """
        if not isinstance(item, dict):
            return self._walk(item)
        kept = {name: item[name] for name in _IDENTITY if name in item}
        return {**self._walk({n: v for n, v in item.items() if n not in _IDENTITY}), **kept}

    def _hashed(self, word: str) -> str:
        if word.isdecimal() and word.isascii():
            return word
        digest = hmac.new(self._key, word.encode("utf-8", "replace"), hashlib.sha256).digest()
        text = base64.b32encode(digest).decode().lower()
        # A letter in front: some names must begin with one.
        return "abcdefghijklmnopqrstuvwxyz"[digest[-1] % 26] + text[: _LETTERS - 1]

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.pseudonym(value)
        if isinstance(value, list):
            return [self._walk(each) for each in value]
        if isinstance(value, dict):
            walked = {n: self._member(n, part) for n, part in value.items() if n != "message"}
            if value.get("key") in PRODUCT_KEYS and isinstance(value.get("values"), list):
                walked["values"] = [self._label(value["key"], each) for each in value["values"]]
            return walked
        return value

    def _member(self, name: str, part: Any) -> Any:
        if name in _RECORDS and isinstance(part, str):
            return self._record(part)
        if name == "resources" and isinstance(part, list):
            return [self._resource(each) for each in part]
        if not isinstance(part, dict):
            return self._walk(part)
        if name == "gpuTypes" or name in _OF_DEVICES or _are_amounts(name, part):
            return self._named_by_others(name, part)
        if name == "annotations":
            return {self.pseudonym(key): self._note(key, each) for key, each in part.items()}
        if name in _LABELS:
            return {self.pseudonym(key): self._label(key, each) for key, each in part.items()}
        renamed = self._renamed(name)
        if renamed is None:
            return self._walk(part)
        return {renamed(key): self._walk(each) for key, each in part.items()}

    def _named_by_others(self, name: str, part: Mapping[str, Any]) -> dict[str, Any]:
        """What has members named after types of GPUs, resources, or what drivers count."""
        if name == "gpuTypes":
            return self._gpu_types(part)
        if name in _OF_DEVICES and any(isinstance(each, dict) for each in part.values()):
            return self._of_device(part)
        return self._amounts(part)

    def _of_device(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """Capacities and counters, which drivers name; ``requests`` of a claim names them inside."""
        if part.keys() == {"requests"}:
            asked = part["requests"]
            return {"requests": {self._attribute(key): self._walk(v) for key, v in asked.items()}}
        return {self._attribute(key): self._walk(each) for key, each in part.items()}

    def _renamed(self, name: str) -> Callable[[str], str] | None:
        """How members of a member of this name are called; None where the schema names them."""
        if name in _BY_NAME:
            return self.pseudonym
        if name == "attributes":
            return self._attribute
        return self._role if name.endswith(_BY_ROLE) else None

    def _label(self, key: str, value: Any) -> Any:
        if key not in PRODUCT_KEYS or not isinstance(value, str):
            return self._walk(value)
        return value if PRODUCT.fullmatch(value) else self._gpu_type(value)

    def _gpu_type(self, name: str) -> str:
        """A type of GPUs, word by word: those of vendors stay, so that a name means what it meant."""
        words = GPU_WORDS.findall(name.lower())
        return "-".join(each if GPU_WORD.fullmatch(each) else self._word(each) for each in words)

    def _gpu_types(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """What a gang says about types, with the names of types."""
        speeds = part.get("speeds")
        found = {name: self._walk(each) for name, each in part.items() if name != "speeds"}
        if isinstance(speeds, dict):
            found["speeds"] = {
                self._gpu_type(key): self._walk(each) for key, each in speeds.items()
            }
        return found

    def _note(self, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            return self._walk(value)
        if key in _RECORDS or key == _TASK_GROUPS:
            return self._record(value)
        if key == GPU_TYPES:
            return self._gpu_types_text(value)
        if key == "gpusched.io/proof":
            return self._proof(value)
        if key == "gpusched.io/plan" and _PLAN.fullmatch(value):
            return value
        return self.pseudonym(value)

    def _gpu_types_text(self, text: str) -> str:
        """The same as JSON in an annotation; what is none is a name like others."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return self.pseudonym(text)
        if not isinstance(found, dict):
            return self.pseudonym(text)
        known = {name: found[name] for name in ("sameType", "speeds") if name in found}
        return json.dumps(self._gpu_types(known), separators=(",", ":"))

    def _proof(self, text: str) -> str:
        """What is proven, without names of levels, and for how many pods."""
        scope = _PROOF_SCOPE.search(text)
        end = scope[0] if scope else ""
        told = text.removesuffix(end)
        proof = _PROOF.fullmatch(told)
        if proof is None:
            return f"{self.pseudonym(told)}{end}"
        return f"{self.pseudonym(proof[1])} {proof[2]}, at least {proof[3]}{end}"

    def _record(self, text: str) -> str:
        """JSON inside a text; what is none is a name like others."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return self.pseudonym(text)
        if not isinstance(found, dict | list):
            return self.pseudonym(text)
        return json.dumps(self._rename_values(found), separators=(",", ":"))

    def _rename_values(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._rename_values(each) for each in value]
        if not isinstance(value, dict):
            return self._walk(value)
        found: dict[str, Any] = {}
        for name, part in value.items():
            if isinstance(part, dict) and name in ("requests", "minResource"):
                found[name] = self._amounts(part)
            elif isinstance(part, dict) and name == "nodes":
                found[name] = {self.pseudonym(key): self._walk(each) for key, each in part.items()}
            else:
                found[name if name in _FIELDS else self.pseudonym(name)] = self._rename_values(part)
        return found

    def _amounts(self, part: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, value in part.items():
            before, mark, after = name.partition(STORAGE_QUOTA)
            key = f"{self.pseudonym(before)}{mark}{after}" if mark else name
            found[key] = self._walk(value)
        return found

    def _resource(self, item: Any) -> Any:
        """One of a zone's resources: they are named by a member, and not by their key."""
        walked = self._walk(item)
        if isinstance(item, dict) and isinstance(walked, dict) and "name" in item:
            walked["name"] = item["name"]
        return walked

    def _role(self, name: str) -> str:
        return name if name in VALUES else self.pseudonym(name.lower())

    def _attribute(self, key: str) -> str:
        domain, slash, name = key.rpartition("/")
        kept = name if name.lower() in DEVICE_NAMES else self.pseudonym(name)
        return f"{self.pseudonym(domain)}{slash}{kept}"


def _are_amounts(name: str, part: Mapping[str, Any]) -> bool:
    """Whether the members of a member are named after resources; those of ``resources`` hold such in containers."""
    whole = name == "resources" and not any(isinstance(each, dict | list) for each in part.values())
    return name in _AMOUNTS or whole
