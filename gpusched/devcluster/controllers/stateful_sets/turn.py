"""What a StatefulSet needs next, done at once: pods in order, updates from the last one down.

Where pods come one after the other, the first one that is not available holds up all others. A set
whose pods are managed in parallel makes and deletes all of them in one turn, and updates them one
after the other all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gpusched.base.classes import define
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments.ownership import reference_to
from gpusched.devcluster.controllers.stateful_sets.pods import (
    POD_NAME,
    claims_of,
    is_available,
    is_ready,
    new_pod,
    ordinal_of,
    revision_of,
)
from gpusched.devcluster.controllers.stateful_sets.revisions import RevisionPair, template_of

Obj = dict[str, Any]

CLAIMS: Final = "persistentvolumeclaims"
_COMPONENT: Final = "statefulset-controller"


@define
class StatefulSetTurn:
    """One look at a set.

    Attributes:
        client: the cluster.
        owner: the set as stored.
        pods: its pods, those being deleted too.
        revisions: which its pods are of, and which they are to become.
        now: epoch seconds.
        changed: told of each pod that was made or deleted, in its new state.
    """

    client: LocalClient
    owner: Obj
    pods: Sequence[Obj]
    revisions: RevisionPair
    now: float
    changed: Callable[[Obj], None]

    def status(self) -> Obj:
        """The counts before anything is done; ``work`` may take one off ``currentReplicas``."""
        spec, uids = self.owner["spec"], self.revisions
        alive = [pod for pod in self.pods if not pod_state.is_deleting(pod)]
        current = uids.current["metadata"]["name"]
        update = uids.update["metadata"]["name"]
        counts = {
            "readyReplicas": sum(is_ready(pod) for pod in self.pods),
            "currentReplicas": sum(revision_of(pod) == current for pod in alive),
            "updatedReplicas": sum(revision_of(pod) == update for pod in alive),
        }
        return {
            "observedGeneration": self.owner["metadata"].get("generation", 0),
            "replicas": len(self.pods),
            **{key: count for key, count in counts.items() if count},
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": uids.collisions,
            "availableReplicas": sum(
                is_available(pod, spec.get("minReadySeconds", 0), self.now) for pod in self.pods
            ),
        }

    def work(self, status: Obj) -> None:
        """Make, delete and update pods as far as it goes now.

        Raises:
            StatusError: a pod or a claim is refused.
        """
        replicas, condemned = self._sorted()
        one_by_one = self.owner["spec"]["podManagementPolicy"] != "Parallel"
        for ordinal in range(self._start, self._start + self.owner["spec"]["replicas"]):
            if self._holds_up(replicas.get(ordinal), ordinal, one_by_one) and one_by_one:
                return
        if self._shrink(replicas, condemned, one_by_one):
            return
        self._update(replicas, status)

    @property
    def _start(self) -> int:
        return int((self.owner["spec"].get("ordinals") or {}).get("start", 0))

    def _sorted(self) -> tuple[dict[int, Obj], list[Obj]]:
        """The pods that stay, by their number, and the others, highest number first."""
        end = self._start + self.owner["spec"]["replicas"]
        numbered = {ordinal_of(self.owner, pod): pod for pod in self.pods}
        replicas = {n: pod for n, pod in numbered.items() if self._start <= n < end}
        left = sorted((n for n in numbered if n >= 0 and n not in replicas), reverse=True)
        return replicas, [numbered[n] for n in left]

    def _available(self, pod: Obj) -> bool:
        return is_available(pod, self.owner["spec"].get("minReadySeconds", 0), self.now)

    # -- pods that stay ------------------------------------------------------------------------

    def _holds_up(self, pod: Obj | None, ordinal: int, one_by_one: bool) -> bool:
        """Bring one pod into being; tell whether those after it have to wait."""
        if pod is None:
            self._create(ordinal)
            return True
        if pod_state.is_terminal(pod):
            if not pod_state.is_deleting(pod):
                self._delete(pod)
            return True
        if pod_state.pod_phase(pod) == "Pending":
            self._make_claims(pod["metadata"]["name"], ordinal)
        if one_by_one and (pod_state.is_deleting(pod) or not self._available(pod)):
            return True
        self._name(pod)
        return False

    def _name(self, pod: Obj) -> None:
        """Give a pod the label of its name, which services find it by."""
        metadata = pod["metadata"]
        if (metadata.get("labels") or {}).get(POD_NAME) != metadata["name"]:
            patch = {"metadata": {"labels": {POD_NAME: metadata["name"]}}}
            self.changed(self.client.patch("pods", metadata["namespace"], metadata["name"], patch))

    def _create(self, ordinal: int) -> None:
        name = f"{self.owner['metadata']['name']}-{ordinal}"
        self._make_claims(name, ordinal)
        chosen = self.revisions.current if self._keeps_old(ordinal) else self.revisions.update
        pod = new_pod(self.owner, template_of(chosen), chosen["metadata"]["name"], ordinal)
        try:
            made = self.client.create("pods", pod)
        except StatusError as refusal:
            self._told("Create", f"Pod {name} in", "failed error: " + refusal.message, failed=True)
            raise
        self.changed(made)
        self._told("Create", f"Pod {name} in", "successful")

    def _keeps_old(self, ordinal: int) -> bool:
        """Whether the pod of a number is still made of the current revision."""
        update = self.owner["spec"]["updateStrategy"]
        if update["type"] != "RollingUpdate":
            return False
        rolling = update.get("rollingUpdate")
        if rolling is None:
            count = (self.owner.get("status") or {}).get("currentReplicas", 0)
        else:
            count = rolling.get("partition", 0)
        return bool(ordinal < self._start + count)

    def _make_claims(self, pod: str, ordinal: int) -> None:
        retention = self.owner["spec"]["persistentVolumeClaimRetentionPolicy"]
        for claim in claims_of(self.owner, ordinal):
            metadata = claim["metadata"]
            if self.client.get(CLAIMS, metadata["namespace"], metadata["name"]) is not None:
                continue
            if retention["whenDeleted"] == "Delete":
                metadata["ownerReferences"] = [reference_to(self.owner)]
            try:
                self.client.create(CLAIMS, claim)
            except StatusError as refusal:
                about = f"Claim {metadata['name']} for Pod {pod} in"
                self._told("Create", about, "failed error: " + refusal.message, failed=True)
                raise
            self._told("Create", f"Claim {metadata['name']} Pod {pod} in", "success")

    # -- pods that go --------------------------------------------------------------------------

    def _shrink(self, replicas: dict[int, Obj], condemned: list[Obj], one_by_one: bool) -> bool:
        """Delete pods beyond the number wanted; tell whether the turn ends with that."""
        everyone = [*(replicas[n] for n in sorted(replicas)), *reversed(condemned)]
        ill = [p for p in everyone if pod_state.is_deleting(p) or not self._available(p)]
        for pod in condemned:
            if pod_state.is_deleting(pod):
                if one_by_one:
                    return True
                continue
            if one_by_one and not self._available(pod) and pod is not ill[0]:
                return True
            self._leave_claims(pod)
            self._delete(pod)
            if one_by_one:
                return True
        return False

    def _leave_claims(self, pod: Obj) -> None:
        """Let the claims of a pod that goes for good go with it, where the set says so."""
        if self.owner["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] != "Delete":
            return
        for claim in claims_of(self.owner, ordinal_of(self.owner, pod)):
            metadata = claim["metadata"]
            if self.client.get(CLAIMS, metadata["namespace"], metadata["name"]) is None:
                continue
            reference = reference_to({"apiVersion": "v1", "kind": "Pod", **pod})
            patch = {"metadata": {"ownerReferences": [reference]}}
            self.client.patch(CLAIMS, metadata["namespace"], metadata["name"], patch)

    def _update(self, replicas: dict[int, Obj], status: Obj) -> None:
        """Delete the last pod that is not of the newest revision, if those after it are well."""
        update = self.owner["spec"]["updateStrategy"]
        if update["type"] != "RollingUpdate":
            return
        least = self._start + (update.get("rollingUpdate") or {}).get("partition", 0)
        newest = self.revisions.update["metadata"]["name"]
        for ordinal in range(self._start + self.owner["spec"]["replicas"] - 1, least - 1, -1):
            pod = replicas.get(ordinal)
            if pod is None:
                return
            if revision_of(pod) != newest and not pod_state.is_deleting(pod):
                self._delete(pod)
                status["currentReplicas"] = status.get("currentReplicas", 0) - 1
                return
            if pod_state.is_deleting(pod) or not self._available(pod):
                return

    def _delete(self, pod: Obj) -> None:
        metadata = pod["metadata"]
        try:
            self.client.delete("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"])
        except StatusError as refusal:
            if refusal.code not in {404, 409}:  # gone, or another pod by that name
                raise
        self._told("Delete", f"Pod {metadata['name']} in", "successful")

    def _told(self, verb: str, about: str, outcome: str, *, failed: bool = False) -> None:
        reason = f"{'Failed' if failed else 'Successful'}{verb}"
        text = f"{verb} {about} StatefulSet {self.owner['metadata']['name']} {outcome}"
        kind = "Warning" if failed else "Normal"
        self.client.event(self.owner, reason, text, kind, component=_COMPONENT)


def complete_update(owner: Obj, status: Obj) -> None:
    """Make the newest revision the current one when every pod is of it and ready, in place."""
    wanted = owner["spec"]["replicas"]
    keys = ("updatedReplicas", "readyReplicas", "replicas")
    if owner["spec"]["updateStrategy"]["type"] != "RollingUpdate":
        return
    if all(status.get(key, 0) == wanted for key in keys):
        status["currentReplicas"] = status.get("updatedReplicas", 0)
        status["currentRevision"] = status["updateRevision"]
