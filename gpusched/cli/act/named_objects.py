"""Objects that a command line names: ``KIND NAME...`` or ``KIND/NAME...``, found where the server has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpusched import API_VERSION
from gpusched.api.foreign import kinds as foreign_kinds
from gpusched.api.foreign.kinds import ForeignKind
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.cli.inspect.cluster_reader import (
    Json,
    checked_object_name,
    get_object,
    served_versions,
    value_at,
)
from gpusched.io.client.api_client import ApiClient

_POD_GROUP: Final = ForeignKind(
    group=API_VERSION.partition("/")[0],
    versions=(API_VERSION.partition("/")[2],),
    plural="podgroups",
    kind="PodGroup",
)
_JOB: Final = ForeignKind(group="batch", versions=("v1",), plural="jobs", kind="Job")
_POD: Final = ForeignKind(group="", versions=("v1",), plural="pods", kind="Pod")
_KINDS: Final = (
    _POD_GROUP,
    *foreign_kinds.POD_GROUPS.values(),
    *foreign_kinds.COMPOSITES.values(),
    _JOB,
    _POD,
    *(each for each in foreign_kinds.WORKLOADS.values() if each.kind != "Workload"),
)
"""What may be named; of several kinds with one word the first counts that has the name."""
_SHORT: Final = {"po": "pods", "gpg": "podgroups"}
_ALWAYS: Final = (_POD_GROUP, _JOB, _POD)
"""Kinds that are asked for without a look at which are served."""


@frozen(kw_only=True)
class NamedObject:
    """One object.

    Attributes:
        kind: as in the object.
        resource: as kubectl prints it: ``job.batch``.
        path: of the object.
        item: as the server has it.
    """

    kind: str
    resource: str
    path: str
    item: Json

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return str(value_at(self.item, "metadata", "namespace"))

    @property
    def name(self) -> str:
        """The object's name."""
        return str(value_at(self.item, "metadata", "name"))

    @property
    def title(self) -> str:
        """``job.batch/train``."""
        return f"{self.resource}/{self.name}"

    @property
    def controller(self) -> str:
        """Kind and name of what made it, ``JobSet train``; empty for nothing."""
        owners = value_at(self.item, "metadata", "ownerReferences")
        for each in owners if isinstance(owners, list) else ():
            if isinstance(each, dict) and each.get("controller"):
                return f"{each.get('kind')} {each.get('name')}"
        return ""

    def annotation(self, key: str) -> str:
        """Text of one annotation, empty when it is not there."""
        return str((value_at(self.item, "metadata", "annotations") or {}).get(key) or "")

    def label(self, key: str) -> str:
        """Value of one label, empty when it is not there."""
        return str((value_at(self.item, "metadata", "labels") or {}).get(key) or "")


@frozen
class WantedObject:
    """One object as it was asked for: the word for its kind, where it is, and its name."""

    word: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.word}/{self.name}"


def parse_wanted_objects(words: Sequence[str], namespace: str) -> tuple[WantedObject, ...]:
    """What the words of a command line ask for.

    Args:
        words: ``KIND NAME...`` with names that may have a namespace and a slash before them, or
            ``KIND/NAME...``.
        namespace: of names without one.

    Raises:
        UsageError: a kind that is not known, no name, or what is no name.
    """
    first, *names = words
    pairs: list[tuple[str, str]]
    if "/" in first:
        pairs = [(kind, name) for kind, _, name in (word.partition("/") for word in words)]
    else:
        pairs = [(first, name) for name in names]
    if not pairs:
        raise UsageError(f"{first} which? Give KIND NAME, such as job train, or job/train")
    wanted = []
    for word, name in pairs:
        space, slash, last = name.rpartition("/")
        _kinds_of(word)
        wanted.append(
            WantedObject(
                word=word,
                namespace=checked_object_name(space if slash else namespace, what="namespace"),
                name=checked_object_name(last, what=word),
            )
        )
    return tuple(dict.fromkeys(wanted))


def kind_words() -> list[str]:
    """Every word for a kind, as completion offers them."""
    return sorted({each.kind.lower() for each in _KINDS})


def collection_paths(word: str, namespace: str) -> list[str]:
    """Where objects of a kind are listed: of each that the word means, in its best version.

    Raises:
        UsageError: a kind that is not known.
    """
    return [
        (f"/apis/{kind.group}/{kind.versions[0]}" if kind.group else f"/api/{kind.versions[0]}")
        + f"/namespaces/{namespace}/{kind.plural}"
        for kind in _kinds_of(word)
    ]


async def find_object(api: ApiClient, wanted: WantedObject) -> NamedObject | None:
    """The object, None when there is none of that name.

    Raises:
        ApiError: it may not be read.
    """
    kinds = _kinds_of(wanted.word)
    for kind, version in await _served_kinds(api, kinds):
        start = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
        path = f"{start}/namespaces/{wanted.namespace}/{kind.plural}/{wanted.name}"
        item = await get_object(api, path, what=f"{kind.kind} {wanted.namespace}/{wanted.name}")
        if item is not None:
            resource = kind.kind.lower() + (f".{kind.group}" if kind.group else "")
            return NamedObject(kind=kind.kind, resource=resource, path=path, item=item)
    return None


async def _served_kinds(
    api: ApiClient, kinds: Iterable[ForeignKind]
) -> list[tuple[ForeignKind, str]]:
    """Kinds with the version that the server has, those first that need no question."""
    kinds = tuple(kinds)
    found = [(each, each.versions[0]) for each in kinds if each in _ALWAYS]
    others = [each for each in kinds if each not in _ALWAYS]
    served = await served_versions(api, others) if others else {}
    return found + [(kind, version.rpartition("/")[2]) for kind, version in served.items()]


def _kinds_of(word: str) -> tuple[ForeignKind, ...]:
    """Kinds that a word means, with or without their group: ``jobs``, ``job.batch``."""
    name, _, group = word.lower().partition(".")
    name = _SHORT.get(name, name)
    found = tuple(
        each
        for each in _KINDS
        if name in {each.plural, each.kind.lower()} and group in {"", each.group}
    )
    if not found:
        raise UsageError(f"unknown kind {word[:80]!r}: known are {', '.join(kind_words())}")
    return found
