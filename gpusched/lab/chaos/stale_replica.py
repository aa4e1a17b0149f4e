"""A replica of the API server that is behind: its lists and watches show the cluster of the past.

Writes, and reads of single objects, are answered as ever: those ask for the present.
"""

from __future__ import annotations

from typing import Final

from gpusched.devcluster.cluster import DevCluster
from gpusched.devcluster.control.fault_rules import parse_rules
from gpusched.devcluster.storage.store import Change

_NAME: Final = "replica"
_READS: Final = ("list", "watch")


class StaleReplica:
    """Stands still at a version: what it answers is what was there then.

    Args:
        cluster: whose replica it is.
        agent: pattern of the user agents that are connected to it.
        behind: by so many versions it is behind already.
    """

    def __init__(self, cluster: DevCluster, agent: str, behind: int) -> None:
        self._cluster = cluster
        self._agent = agent
        store = cluster.core.store
        self._version = max(1, store.version - behind)
        self._arm(store.version)
        store.observers.append(self._see)

    def catch_up(self) -> None:
        """From now on it answers like any other."""
        self._cluster.core.store.observers.remove(self._see)
        self._disarm()

    def _see(self, _kind: str, change: Change) -> None:
        self._disarm()
        self._arm(change.version)

    def _disarm(self) -> None:
        for verb in _READS:
            self._cluster.faults.remove(f"{_NAME}-{verb}")

    def _arm(self, version: int) -> None:
        faults = (
            {"type": "lag", "versions": version - self._version},
            {"type": "stall", "afterEvents": 0},
        )
        rules = [
            {
                "name": f"{_NAME}-{verb}",
                "match": {"verbs": [verb], "agents": [self._agent]},
                "fault": fault,
            }
            for verb, fault in zip(_READS, faults, strict=True)
        ]
        self._cluster.faults.add(parse_rules(rules))
