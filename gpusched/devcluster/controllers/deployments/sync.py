"""One look at one Deployment: sizes of its replica sets, a new one for a new template, its status."""

from __future__ import annotations

from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments import revisions
from gpusched.devcluster.controllers.deployments import rollout_sizes as sizes
from gpusched.devcluster.controllers.deployments import status as states
from gpusched.devcluster.controllers.deployments.replica_sets import REPLICA_SETS

DEPLOYMENTS = "deployments.apps"
_NO_LIMIT = 2**31 - 1


class DeploymentSync:
    """Works on one Deployment at one moment; every write shows in what it reads next.

    Args:
        client: the cluster.
        deployment: as stored.
        sets: the replica sets it controls.
        now: epoch seconds.
    """

    def __init__(
        self, client: LocalClient, deployment: Obj, sets: list[Obj], *, now: float
    ) -> None:
        self._client = client
        self._now = now
        self.deployment = deployment
        self.newest, self.old = revisions.split_by_template(deployment, sets)

    @property
    def sets(self) -> list[Obj]:
        """All replica sets, the newest template's last."""
        return [*self.old, *([] if self.newest is None else [self.newest])]

    def run(self) -> float | None:
        """Do what is due; return the seconds after which a stuck rollout must be reported.

        Raises StatusError when a write is refused.
        """
        deployment = self.deployment
        if "deletionTimestamp" in deployment["metadata"]:
            self._find_newest(create=False)
            self._write(self._status())
            return None
        self._report_pause()
        if deployment["spec"].get("paused") or self._resized():
            self._find_newest(create=False)
            self._resize()
            if deployment["spec"].get("paused"):
                self._clean_up()
            self._write(self._status())
            return None
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            acted = self._recreate()
        else:
            acted = self._roll()
        if not acted and states.is_complete(deployment, self.deployment.get("status") or {}):
            self._clean_up()
        return self._report_progress()

    # -- rollouts ----------------------------------------------------------------------------

    def _roll(self) -> bool:
        self._find_newest(create=True)
        newest = self.newest
        assert newest is not None
        if sizes.wanted_replicas(newest) > sizes.wanted_replicas(self.deployment):
            size = sizes.wanted_replicas(self.deployment)
        else:
            size = sizes.new_replica_set_size(
                self.deployment, self.sets, sizes.wanted_replicas(newest)
            )
        return self._scale(newest, size) or self._shrink_old()

    def _shrink_old(self) -> bool:
        """Take from old sets what availability allows, broken pods first."""
        newest = self.newest
        assert newest is not None
        if not sizes.total_wanted(self.old):
            return False
        least = sizes.wanted_replicas(self.deployment) - sizes.max_unavailable(self.deployment)
        fresh = sizes.wanted_replicas(newest) - sizes.total_reported([newest], "availableReplicas")
        room = sizes.total_wanted(self.sets) - least - fresh
        if room <= 0:
            return False
        acted = False
        for one in revisions.oldest_first(self.old):
            broken = sizes.wanted_replicas(one) - sizes.total_reported([one], "availableReplicas")
            cut = min(room, broken)
            if cut > 0:
                room -= cut
                acted = self._scale(one, sizes.wanted_replicas(one) - cut) or acted
        spare = sizes.total_reported(self.sets, "availableReplicas") - least
        for one in revisions.oldest_first(self.old):
            cut = min(spare, sizes.wanted_replicas(one))
            if cut > 0:
                spare -= cut
                acted = self._scale(one, sizes.wanted_replicas(one) - cut) or acted
        return acted

    def _recreate(self) -> bool:
        """No pod of the new template before all old ones are gone."""
        self._find_newest(create=False)
        acted = False
        for one in list(self.old):
            acted = (sizes.wanted_replicas(one) > 0 and self._scale(one, 0)) or acted
        if acted or self._old_pods_left():
            return True
        self._find_newest(create=True)
        assert self.newest is not None
        return self._scale(self.newest, sizes.wanted_replicas(self.deployment))

    def _old_pods_left(self) -> bool:
        if sizes.total_reported(self.old):
            return True
        uids = {one["metadata"]["uid"] for one in self.old}
        if not uids:
            return False
        return any(
            (pod_state.controller_of(pod) or {}).get("uid") in uids
            and not pod_state.is_terminal(pod)
            for pod in self._client.list("pods", self.deployment["metadata"]["namespace"])
        )

    # -- sizes -------------------------------------------------------------------------------

    def _resized(self) -> bool:
        """Tell whether the Deployment was scaled since its active sets were last sized."""
        replicas = sizes.wanted_replicas(self.deployment)
        known = [
            sizes.size_annotations(one, sizes.DESIRED)
            for one in self.sets
            if sizes.wanted_replicas(one)
        ]
        return any(desired is not None and desired != replicas for desired in known)

    def _resize(self) -> None:
        """Bring the only active set, or all in proportion, to the size that is asked for."""
        replicas = sizes.wanted_replicas(self.deployment)
        active = [one for one in self.sets if sizes.wanted_replicas(one)]
        if len(active) <= 1:
            latest = self.newest or next(reversed(revisions.oldest_first(self.old)), None)
            only = active[0] if active else latest
            if only is not None:
                self._scale(only, replicas)
        elif self._saturated():
            for one in active:
                if one is not self.newest:
                    self._scale(one, 0)
        elif self.deployment["spec"]["strategy"]["type"] == "RollingUpdate":
            planned = sizes.proportional_sizes(self.deployment, active)
            for one in active:
                self._scale(one, planned[one["metadata"]["name"]])

    def _saturated(self) -> bool:
        newest, replicas = self.newest, sizes.wanted_replicas(self.deployment)
        if newest is None:
            return False
        known = (sizes.wanted_replicas(newest), sizes.size_annotations(newest, sizes.DESIRED))
        available = sizes.total_reported([newest], "availableReplicas")
        return known == (replicas, replicas) and available == replicas

    def _scale(self, one: Obj, size: int) -> bool:
        """Give a set its size and note what it is a part of; tell whether the size changed."""
        before, name = sizes.wanted_replicas(one), one["metadata"]["name"]
        noted = {**(one["metadata"].get("annotations") or {}), **self._goals()}
        if before == size and noted == one["metadata"].get("annotations"):
            return False
        self._replace(
            one,
            {
                **one,
                "metadata": {**one["metadata"], "annotations": noted},
                "spec": {**one["spec"], "replicas": size},
            },
        )
        if before == size:
            return False
        way = "up" if size > before else "down"
        message = f"Scaled {way} replica set {name} from {before} to {size}"
        self._event("ScalingReplicaSet", message)
        return True

    def _goals(self) -> dict[str, str]:
        replicas = sizes.wanted_replicas(self.deployment)
        most = replicas + sizes.max_surge(self.deployment)
        return {sizes.DESIRED: str(replicas), sizes.MAXIMUM: str(most)}

    def _replace(self, one: Obj, changed: Obj) -> None:
        """Write a set and go on with what was stored."""
        stored = self._client.update(REPLICA_SETS, changed)
        if one is self.newest:
            self.newest = stored
        else:
            self.old = [stored if other is one else other for other in self.old]

    # -- the set of the current template -----------------------------------------------------

    def _find_newest(self, *, create: bool) -> None:
        """Number the set of the current template; make it when there is none and that is asked."""
        number = max((revisions.revision_number(one) for one in self.old), default=0) + 1
        newest = self.newest
        if newest is None:
            if create:
                self._make_newest(number)
            return
        noted = revisions.annotations_of_revision(self.deployment, newest, number)
        least = self.deployment["spec"].get("minReadySeconds", 0)
        spec = newest["spec"]
        if noted != (newest["metadata"].get("annotations") or {}) or least != spec.get(
            "minReadySeconds", 0
        ):
            metadata = {**newest["metadata"], "annotations": noted}
            changed = {**newest, "metadata": metadata, "spec": {**spec, "minReadySeconds": least}}
            self._replace(newest, changed)
            newest = self.newest
            assert newest is not None
        fresh = None
        before = self.deployment.get("status")
        if (
            states.has_deadline(self.deployment)
            and states.find_condition(before, states.PROGRESSING) is None
        ):
            message = f'Found new replica set "{newest["metadata"]["name"]}"'
            fresh = self._progressing("True", "FoundNewReplicaSet", message)
        self._note(revisions.revision_number(newest), fresh)

    def _make_newest(self, number: int) -> None:
        deployment = self.deployment
        made = revisions.new_replica_set(deployment, revisions.template_hash(deployment))
        size = sizes.new_replica_set_size(deployment, self.old, 0)
        made["spec"]["replicas"] = size
        made["metadata"]["annotations"] = {
            **revisions.annotations_of_revision(deployment, made, number),
            **self._goals(),
        }
        name = made["metadata"]["name"]
        try:
            self.newest = self._client.create(REPLICA_SETS, made)
        except StatusError as refusal:
            if refusal.reason == "AlreadyExists":
                self._note_collision()
            elif not _leaving(refusal):
                self._report_failure(
                    f'Failed to create new replica set "{name}": {refusal.message}'
                )
            raise
        if size:
            message = f"Scaled up replica set {name} from 0 to {size}"
            self._event("ScalingReplicaSet", message)
        fresh = None
        if states.has_deadline(deployment):
            message = f'Created new replica set "{name}"'
            fresh = self._progressing("True", "NewReplicaSetCreated", message)
        self._note(number, fresh)

    def _note_collision(self) -> None:
        status = dict(self.deployment.get("status") or {})
        status["collisionCount"] = status.get("collisionCount", 0) + 1
        self._write(status)

    def _report_failure(self, message: str) -> None:
        reason = "ReplicaSetCreateError"
        if states.has_deadline(self.deployment):
            self._note(0, self._progressing("False", reason, message))
        self._event(reason, message, "Warning")

    def _progressing(self, status: str, reason: str, message: str) -> Obj:
        return states.new_condition(states.PROGRESSING, status, reason, message, now=self._now)

    def _note(self, number: int, fresh: Obj | None) -> None:
        """Write the revision (0: as it is) and a condition of the Deployment where they changed."""
        deployment = self.deployment
        status = dict(deployment.get("status") or {})
        if fresh is not None:
            states.set_condition(status, fresh)
        metadata = deployment["metadata"]
        if number and number != revisions.revision_number(deployment):
            noted = {**(metadata.get("annotations") or {}), revisions.REVISION: str(number)}
            metadata = {**metadata, "annotations": noted}
        changed = {**deployment, "metadata": metadata, "status": status}
        if changed != deployment:
            self.deployment = self._client.update(DEPLOYMENTS, changed, "status")

    def _report_pause(self) -> None:
        have = states.find_condition(self.deployment.get("status"), states.PROGRESSING)
        reason = "" if have is None else have.get("reason")
        if not states.has_deadline(self.deployment) or reason == states.TIMED_OUT:
            return
        paused = bool(self.deployment["spec"].get("paused"))
        if paused and reason != "DeploymentPaused":
            reason_and_message = ("DeploymentPaused", "Deployment is paused")
        elif not paused and reason == "DeploymentPaused":
            reason_and_message = ("DeploymentResumed", "Deployment is resumed")
        else:
            return
        self._note(0, self._progressing("Unknown", *reason_and_message))

    def _clean_up(self) -> None:
        """Delete old sets beyond the limit of the history."""
        limit = self.deployment["spec"].get("revisionHistoryLimit", _NO_LIMIT)
        if limit == _NO_LIMIT:
            return
        for one in revisions.beyond_history_limit(self.old, limit):
            metadata = one["metadata"]
            self._client.delete(
                REPLICA_SETS, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )

    # -- status ------------------------------------------------------------------------------

    def _status(self) -> Obj:
        return states.status_of(self.deployment, self.sets, self.newest, now=self._now)

    def _report_progress(self) -> float | None:
        status = self._status()
        states.judge_progress(self.deployment, status, self.newest, now=self._now)
        failure = states.replica_failure(self.sets, self.newest)
        if failure is None:
            states.remove_condition(status, "ReplicaFailure")
        else:
            states.set_condition(status, failure)
        self._write(status)
        return states.seconds_to_deadline(self.deployment, status, now=self._now)

    def _write(self, status: Obj) -> None:
        if status != (self.deployment.get("status") or {}):
            changed = {**self.deployment, "status": status}
            self.deployment = self._client.update(DEPLOYMENTS, changed, "status")

    def _event(self, reason: str, message: str, type_: str = "Normal") -> None:
        self._client.event(
            self.deployment, reason, message, type_, component="deployment-controller"
        )


def _leaving(refusal: StatusError) -> bool:
    """Tell whether a create was refused because its namespace is being deleted."""
    causes = (refusal.body.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
