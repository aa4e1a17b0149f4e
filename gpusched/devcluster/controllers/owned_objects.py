"""Owners that controllers watch, and the pods of each: of two states of a pod the newer one stays."""

from __future__ import annotations

from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue
from gpusched.devcluster.controllers import pod_state


async def watch_owners(
    client: LocalClient, kind: str, *, names: dict[str, tuple[str, str]], queue: WorkQueue[str]
) -> None:
    """Give every object of a kind its turn when it changes, until the task is cancelled.

    Args:
        client: the cluster.
        kind: what is watched.
        names: gets namespace and name of each by its uid.
        queue: gets the uid of each.
    """
    async for item in client.watch(kind):
        metadata = item.object["metadata"]
        names[metadata["uid"]] = (metadata["namespace"], metadata["name"])
        queue.add(metadata["uid"])


class PodIndex:
    """Pods of controllers of one kind.

    Args:
        kind: of the owners; pods that other kinds control are not kept.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._owned: dict[str, dict[str, Obj]] = {}
        self._loose: dict[str, dict[str, Obj]] = {}
        self._kept: dict[str, dict[str, Obj]] = {}

    def owner(self, pod: Obj | None) -> str:
        """The uid of a pod's owner of this kind; empty when there is none."""
        reference = None if pod is None else pod_state.controller_of(pod)
        if reference is None or reference.get("kind") != self._kind:
            return ""
        return str(reference.get("uid") or "")

    def take(self, pod: Obj) -> None:
        """Keep a pod's state, unless a newer one is known."""
        metadata = pod["metadata"]
        uid: str = metadata["uid"]
        place = self._kept.get(uid, {})
        have = place.get(uid)
        if have is not None and _version(have) >= _version(pod):
            return
        place.pop(uid, None)
        owner = self.owner(pod)
        if owner:
            place = self._owned.setdefault(owner, {})
        elif pod_state.controller_of(pod) is None:
            place = self._loose.setdefault(metadata["namespace"], {})
        else:
            self._kept.pop(uid, None)
            return
        place[uid] = pod
        self._kept[uid] = place

    def see(self, item: WatchItem) -> list[str]:
        """Take in what was watched; the uids of owners that it concerns."""
        if item.type == "DELETED":
            self.drop(item.object)
        else:
            self.take(item.object)
        return [uid for pod in (item.previous, item.object) if (uid := self.owner(pod))]

    def drop(self, pod: Obj) -> None:
        """Remove a pod from the index."""
        uid = pod["metadata"]["uid"]
        self._kept.pop(uid, {}).pop(uid, None)

    def owned_by(self, owner: str) -> list[Obj]:
        """Pods that an owner controls."""
        return list(self._owned.get(owner, {}).values())

    def loose(self, namespace: str) -> list[Obj]:
        """Pods of a namespace that no controller owns."""
        return list(self._loose.get(namespace, {}).values())

    def forget(self, owner: str) -> None:
        """Drop what is kept for an owner that has gone, once it has no pods."""
        if not self._owned.get(owner):
            self._owned.pop(owner, None)


def _version(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])
