"""The Job controller's decisions, without a cluster."""

from __future__ import annotations

from typing import Any

from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.jobs import indexes
from gpusched.devcluster.controllers.jobs import pods as job_pods
from gpusched.devcluster.controllers.jobs.actions import (
    CreatePod,
    DeleteJob,
    DeletePod,
    PodBackoff,
    RecordEvent,
    RemoveTrackingFinalizer,
    WriteStatus,
)
from gpusched.devcluster.controllers.jobs.reconcile import ReconcileResult, reconcile_job

NOW = 1_800_000_000.0


class World:
    """A Job and its pods; ``step`` reconciles once and does what was asked."""

    def __init__(self, **spec: Any) -> None:
        self.now = NOW
        self.backoff = PodBackoff()
        self.pods: dict[str, dict[str, Any]] = {}
        self.made = 0
        self.events: list[str] = []
        self.deleted_job = False
        self.job: dict[str, Any] = {
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "generation": 1},
            "spec": {
                "parallelism": 1,
                "completions": 1,
                "backoffLimit": 6,
                "suspend": False,
                "completionMode": "NonIndexed",
                "podReplacementPolicy": "TerminatingOrFailed",
                "template": {
                    "metadata": {"labels": {"job-name": "j"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "i"}],
                    },
                },
                **spec,
            },
            "status": {},
        }

    def step(self) -> ReconcileResult:
        """Reconcile once and carry it out."""
        outcome = reconcile_job(
            self.job, list(self.pods.values()), now=self.now, backoff=self.backoff
        )
        self.backoff = outcome.backoff
        for action in outcome.actions:
            self._do(action)
        return outcome

    def _do(self, action: Any) -> None:
        if isinstance(action, CreatePod):
            self.made += 1
            name = f"{action.pod['metadata']['generateName']}{self.made:05}"
            meta = {**action.pod["metadata"], "name": name, "uid": name}
            meta["resourceVersion"] = str(self.made)
            self.pods[name] = {**action.pod, "metadata": meta, "status": {"phase": "Pending"}}
        elif isinstance(action, DeletePod):
            if action.uncounted:
                self._untrack(action.pod)
            self.delete(action.pod["metadata"]["name"])
        elif isinstance(action, RemoveTrackingFinalizer):
            self._untrack(action.pod)
        elif isinstance(action, WriteStatus):
            self.job = {**self.job, "status": action.status}
        elif isinstance(action, RecordEvent):
            self.events.append(action.reason)
        else:
            assert isinstance(action, DeleteJob)
            self.deleted_job = True

    def _untrack(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        meta["finalizers"] = [f for f in meta["finalizers"] if f != job_pods.TRACKING]
        if pod_state.is_deleting(pod) and not pod["spec"].get("nodeName"):
            self.pods.pop(meta["name"], None)

    def delete(self, name: str) -> None:
        """Delete a pod; an unbound, uncounted-for one is gone at once."""
        pod = self.pods[name]
        pod["metadata"]["deletionTimestamp"] = rfc3339(self.now)
        if not job_pods.is_tracked(pod) and not pod["spec"].get("nodeName"):
            del self.pods[name]

    def settle(self) -> None:
        """Reconcile until nothing changes."""
        for _ in range(20):
            before = (self.job["status"], len(self.events), sorted(self.pods))
            self.step()
            if before == (self.job["status"], len(self.events), sorted(self.pods)):
                return
        raise AssertionError("the Job does not settle")

    def end(self, phase: str, *names: str) -> None:
        """Let pods end by themselves; all living ones unless named."""
        for name in names or [n for n, p in self.pods.items() if pod_state.is_active(p)]:
            ended = {"exitCode": int(phase == "Failed"), "finishedAt": rfc3339(self.now)}
            container = {"name": "c", "state": {"terminated": ended}}
            self.pods[name]["status"] = {"phase": phase, "containerStatuses": [container]}

    @property
    def conditions(self) -> list[tuple[str, str, str]]:
        """Type, status and reason of the Job's conditions."""
        return [
            (c["type"], c["status"], c["reason"]) for c in self.job["status"].get("conditions", [])
        ]


def test_indexed_job_makes_pods_as_recorded() -> None:
    """Given an Indexed Job, its pods carry index, hostname, variable and finalizer (J2)."""
    world = World(completionMode="Indexed", parallelism=2, completions=2)
    world.settle()

    pods = list(world.pods.values())
    assert [p["metadata"]["generateName"] for p in pods] == ["j-0-", "j-1-"]
    first = pods[0]
    assert first["metadata"]["labels"][job_pods.INDEX] == "0"
    assert first["metadata"]["annotations"] == {job_pods.INDEX: "0"}
    assert first["metadata"]["finalizers"] == [job_pods.TRACKING]
    assert first["spec"]["hostname"] == "j-0"
    field = first["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.labels['batch.kubernetes.io/job-completion-index']"
    assert "env" not in world.job["spec"]["template"]["spec"]["containers"][0]
    assert world.job["status"] == {
        "startTime": rfc3339(NOW),
        "active": 2,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }


def test_indexed_job_completes() -> None:
    """When all pods succeed, SuccessCriteriaMet comes before Complete, with the indexes (J2)."""
    world = World(completionMode="Indexed", parallelism=2, completions=2)
    world.settle()
    world.end("Succeeded")
    world.step()
    assert world.conditions == [("SuccessCriteriaMet", "True", "CompletionsReached")]
    world.settle()

    assert world.conditions[1:] == [("Complete", "True", "CompletionsReached")]
    status = world.job["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (2, "0,1")
    assert "active" not in status
    assert status["completionTime"] == rfc3339(NOW)
    assert not any(job_pods.is_tracked(pod) for pod in world.pods.values())


def test_suspended_job_has_no_pods_and_no_failures() -> None:
    """Suspending deletes pods without counting them, resuming starts the clock anew (J3)."""
    world = World(parallelism=2, completions=2, suspend=True)
    world.settle()
    assert world.conditions == [("Suspended", "True", "JobSuspended")]
    assert not world.pods
    assert "startTime" not in world.job["status"]

    world.job["spec"]["suspend"] = False
    world.settle()
    assert world.conditions == [("Suspended", "False", "JobResumed")]
    assert world.job["status"]["active"] == 2

    world.job["spec"]["suspend"] = True
    world.settle()
    assert not world.pods
    assert world.job["status"].keys() == {
        "conditions",
        "terminating",
        "uncountedTerminatedPods",
        "ready",
    }


def test_backoff_limit() -> None:
    """A failure beyond backoffLimit fails the Job, in two conditions (J4)."""
    world = World(backoffLimit=0)
    world.settle()
    world.end("Failed")
    world.settle()

    assert world.conditions == [
        ("FailureTarget", "True", "BackoffLimitExceeded"),
        ("Failed", "True", "BackoffLimitExceeded"),
    ]
    assert world.job["status"]["failed"] == 1
    assert len(world.pods) == 1


def test_deadline_counts_pods_that_never_ran() -> None:
    """When activeDeadlineSeconds pass, living pods are deleted and counted as failed (J4)."""
    world = World(activeDeadlineSeconds=2)
    assert world.step().again_s == 2.0
    world.now += 2
    world.settle()

    assert world.conditions[-1] == ("Failed", "True", "DeadlineExceeded")
    assert world.job["status"]["failed"] == 1
    assert not world.pods


def test_failed_pod_is_replaced_after_back_off() -> None:
    """A failed pod is replaced after ten seconds, the next one after twenty."""
    world = World()
    world.settle()
    for wait in (10.0, 20.0):
        world.end("Failed")
        assert world.step().again_s == wait
        assert sum(map(pod_state.is_active, world.pods.values())) == 0
        world.now += wait
        world.settle()
        assert sum(map(pod_state.is_active, world.pods.values())) == 1


def test_success_ends_back_off() -> None:
    """After a success a new failure waits as the first one did."""
    world = World(parallelism=1, completions=3)
    world.settle()
    world.end("Failed")
    world.step()
    world.now += 10
    world.settle()
    world.end("Succeeded")
    world.settle()
    world.end("Failed")
    assert world.step().again_s == 10.0


def test_failed_index_is_made_again() -> None:
    """Only the index whose pod failed gets a new pod."""
    world = World(completionMode="Indexed", parallelism=3, completions=3)
    world.settle()
    world.end("Failed", "j-1-00002")
    world.step()
    world.now += 10
    world.settle()
    alive = [p for p in world.pods.values() if pod_state.is_active(p)]
    assert sorted(job_pods.completion_index(p) for p in alive) == [0, 1, 2]
    assert len(world.pods) == 4


def test_pod_on_its_way_out_counts_as_terminating() -> None:
    """A running pod that is deleted is failed at once, replaced, and still terminating."""
    world = World(backoffLimit=6)
    world.settle()
    (name,) = world.pods
    world.pods[name]["spec"]["nodeName"] = "node"
    world.pods[name]["status"] = {"phase": "Running"}
    world.delete(name)
    world.step()
    assert (world.job["status"]["failed"], world.job["status"]["terminating"]) == (1, 1)
    world.now += 10
    world.settle()
    assert world.job["status"]["active"] == 1


def test_failed_job_waits_for_its_pods() -> None:
    """Failed is said only when no pod is alive any more."""
    world = World(parallelism=2, completions=2, backoffLimit=0)
    world.settle()
    first, second = world.pods
    world.pods[second]["spec"]["nodeName"] = "node"
    world.end("Failed", first)
    world.settle()
    assert [kind for kind, _, _ in world.conditions] == ["FailureTarget"]
    del world.pods[second]
    world.settle()
    assert [kind for kind, _, _ in world.conditions] == ["FailureTarget", "Failed"]
    assert world.job["status"]["failed"] == 2


def test_parallelism_bounds_pods() -> None:
    """No more pods live than parallelism and the missing completions allow."""
    world = World(parallelism=3, completions=4)
    world.settle()
    assert world.job["status"]["active"] == 3
    world.end("Succeeded")
    world.settle()
    assert world.job["status"]["active"] == 1
    world.job["spec"]["parallelism"] = 0
    world.settle()
    assert "active" not in world.job["status"]
    assert world.job["status"].get("failed") is None


def test_without_completions_one_success_is_enough() -> None:
    """A work queue Job is complete when one pod succeeded and none is left."""
    world = World(parallelism=2, completions=None)
    world.settle()
    first, second = world.pods
    world.end("Succeeded", first)
    world.settle()
    assert world.conditions == []
    assert len(world.pods) == 2
    world.end("Succeeded", second)
    world.settle()
    assert world.conditions[-1][0] == "Complete"


def test_finished_job_expires() -> None:
    """A Job is deleted once ttlSecondsAfterFinished have passed, not before."""
    world = World(ttlSecondsAfterFinished=5)
    world.settle()
    world.end("Succeeded")
    world.settle()
    assert world.step().again_s == 5.0
    assert not world.deleted_job
    world.now += 5
    world.step()
    assert world.deleted_job


def failed_with(code: int) -> dict[str, Any]:
    return {
        "phase": "Failed",
        "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}],
    }


def test_pod_failure_policy() -> None:
    """Rules on exit codes and conditions decide whether a failure counts, is ignored, or ends it."""
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    world = World(backoffLimit=0, podFailurePolicy={"rules": rules})
    world.settle()
    (name,) = world.pods
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    world.pods[name]["status"] = {**failed_with(1), "conditions": [disrupted]}
    world.settle()
    assert world.conditions == []
    assert "failed" not in world.job["status"]

    world.pods["j-00002"]["status"] = failed_with(42)
    world.settle()
    assert world.conditions[-1] == ("Failed", "True", "PodFailurePolicy")
    message = world.job["status"]["conditions"][-1]["message"]
    assert message == (
        "Container c for pod n/j-00002 failed with exit code 42 matching FailJob rule at index 0"
    )


def test_limit_per_index() -> None:
    """An index that failed too often is given up; the others go on, then the Job has failed."""
    world = World(
        completionMode="Indexed",
        parallelism=2,
        completions=2,
        backoffLimit=2**31 - 1,
        backoffLimitPerIndex=1,
    )
    world.settle()
    world.end("Failed", "j-0-00001")
    assert world.step().again_s == 10.0
    assert world.job["status"]["failedIndexes"] == ""
    world.now += 10
    world.settle()
    again = world.pods["j-0-00003"]
    assert again["metadata"]["annotations"][indexes.FAILURES] == "1"

    world.end("Failed", "j-0-00003")
    world.settle()
    assert world.job["status"]["failedIndexes"] == "0"
    assert world.conditions == []
    world.end("Succeeded", "j-1-00002")
    world.settle()
    assert world.conditions[-1] == ("Failed", "True", "FailedIndexes")
    assert world.job["status"]["completedIndexes"] == "1"


def test_most_failed_indexes() -> None:
    """More failed indexes than maxFailedIndexes fail the Job at once."""
    world = World(
        completionMode="Indexed",
        parallelism=3,
        completions=3,
        backoffLimitPerIndex=0,
        maxFailedIndexes=0,
    )
    world.settle()
    world.end("Failed", "j-2-00003")
    world.settle()
    assert world.conditions[-1] == ("Failed", "True", "MaxFailedIndexesExceeded")


def test_success_policy() -> None:
    """Once the named indexes have succeeded the Job is complete, and other pods are deleted."""
    rules = [{"succeededIndexes": "0-1", "succeededCount": 1}]
    world = World(
        completionMode="Indexed", parallelism=3, completions=3, successPolicy={"rules": rules}
    )
    world.settle()
    world.end("Succeeded", "j-2-00003")
    world.settle()
    assert world.conditions == []
    world.end("Succeeded", "j-1-00002")
    world.settle()
    assert world.conditions == [
        ("SuccessCriteriaMet", "True", "SuccessPolicy"),
        ("Complete", "True", "SuccessPolicy"),
    ]
    assert world.job["status"]["completedIndexes"] == "1,2"
    assert "failed" not in world.job["status"]


def test_job_of_another_controller() -> None:
    """A Job that says who manages it is left alone."""
    world = World(managedBy="example.com/other")
    world.settle()
    assert (world.pods, world.job["status"]) == ({}, {})


def test_large_job_is_made_in_turns() -> None:
    """A Job of a thousand pods does not hold up others: one turn makes five hundred."""
    world = World(completionMode="Indexed", parallelism=1000, completions=1000)
    assert world.step().again_s == 0.0
    assert len(world.pods) == 500
    world.settle()
    assert len({job_pods.completion_index(p) for p in world.pods.values()}) == 1000


def test_indexes_print_as_the_api_does() -> None:
    """Two neighbours are listed, three are a range."""
    assert job_pods.write_indexes({0, 1}) == "0,1"
    assert job_pods.write_indexes({0, 1, 2, 5}) == "0-2,5"
    assert job_pods.read_indexes("0-2,5", 5) == {0, 1, 2}
