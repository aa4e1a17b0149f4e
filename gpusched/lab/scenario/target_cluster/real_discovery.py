"""Which kinds an API server serves and where, as far as a scenario needs to know."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.io.client.responses import ApiResponse
from gpusched.lab.scenario.target_cluster.interface import WriteRefused

_OWN_GROUP: Final = "scheduling.gpusched.io"
Get = Callable[[str], Awaitable[ApiResponse]]


@frozen
class DiscoveredKind:
    """One kind.

    Attributes:
        root: path of its version: ``/api/v1`` or ``/apis/GROUP/VERSION``.
    """

    kind: str
    api_version: str
    plural: str
    namespaced: bool
    root: str

    @property
    def name(self) -> str:
        """Plural with its group, as reflectors name it."""
        group = self.api_version.rpartition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural

    def collection(self, namespace: str = "") -> str:
        """Path of all its objects, or of those of a namespace."""
        if self.namespaced and namespace:
            return f"{self.root}/namespaces/{namespace}/{self.plural}"
        return f"{self.root}/{self.plural}"

    def path(self, namespace: str, name: str) -> str:
        """Path of one object."""
        return f"{self.collection(namespace)}/{name}"


class DiscoveredKinds:
    """What is served, as it was when it was asked last."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._served: list[DiscoveredKind] = []

    async def read(self) -> None:
        """Ask the server, group by group; a group that does not answer serves nothing."""
        places = [("v1", "/api/v1")]
        for group in _items(await self._get("/apis"), "groups"):
            versions = [group.get("preferredVersion") or {}, *(group.get("versions") or ())]
            names = dict.fromkeys(each.get("groupVersion", "") for each in versions)
            places += [(name, f"/apis/{name}") for name in names if name]
        found = []
        for api_version, root in places:
            resources = _items(await self._get(root), "resources")
            found += [
                DiscoveredKind(each["kind"], api_version, each["name"], each["namespaced"], root)
                for each in resources
                if "/" not in each["name"] and {"list", "watch"} <= set(each.get("verbs") or ())
            ]
        self._served = found

    def find(self, kind: str, api_version: str = "") -> DiscoveredKind | None:
        """The one of a kind; without a version ours comes first, then Kubernetes' own."""
        found = [
            each
            for each in self._served
            if each.kind == kind and api_version in {"", each.api_version}
        ]
        return min(found, key=_rank) if found else None

    def serves(self, api_version: str) -> bool:
        """Whether anything of a group version is served."""
        return any(each.api_version == api_version for each in self._served)

    def need(self, kind: str, api_version: str = "") -> DiscoveredKind:
        """The kind as the cluster serves it; see ``find``.

        Raises:
            Refused: there is none.
        """
        found = self.find(kind, api_version)
        if found is None:
            of = f" of {api_version}" if api_version else ""
            raise WriteRefused(f"the cluster serves no kind {kind}{of}")
        return found


def _rank(served: DiscoveredKind) -> tuple[bool, bool]:
    group = served.api_version.rpartition("/")[0]
    foreign = "." in group and not group.endswith(".k8s.io")
    return (group != _OWN_GROUP, foreign)


def _items(answer: ApiResponse, key: str) -> Sequence[dict[str, Any]]:
    if not answer.ok:
        return ()
    found = json.loads(answer.body).get(key)
    return found if isinstance(found, list) else ()
