"""Puts a recorded cluster into an embedded one, as it was: UIDs, times and states included.

Objects go to the store without admission, which would give them new identities. Nothing acts on
them before the caller lets the loop run. Who wants to play on from there has to mind two things.
Controllers collect objects whose owner is not there, and only kinds that the daemon reads are
recorded: pods of a ReplicaSet, say, come without it. And fake nodes live by an annotation,
``kwok.x-k8s.io/node: fake``, that the nodes of a real cluster do not have.
"""

from __future__ import annotations

from gpusched.devcluster.cluster import DevCluster
from gpusched.io.recordings.snapshot_file import SnapshotFile


def restore_snapshot(cluster: DevCluster, snapshot: SnapshotFile) -> tuple[str, ...]:
    """Store every object; what is there under the same name is replaced.

    Returns:
        Plural names with group of kinds of which the snapshot has objects and that this cluster
        does not serve; their objects are left out.
    """
    left_out = []
    for resource, items in snapshot.objects.items():
        if not items:
            continue
        first = items[0]
        kind = cluster.client.kind_of(first["apiVersion"], first["kind"])
        if kind is None:
            left_out.append(resource)
            continue
        collection = cluster.core.store.collection(kind.qualified)
        for item in items:
            meta = dict(item["metadata"])
            key = kind.key(meta.get("namespace", ""), meta["name"])
            # The store writes its version into the metadata; the snapshot stays as it was read.
            collection.write(key, {**item, "metadata": meta})
    return tuple(left_out)
