"""In what state a workload is, from its objects and pods as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusched.api.pod.gang_annotations import GROUP_LABEL
from gpusched.base.classes import frozen
from gpusched.lab.scenario.judge.object_index import (
    WorkloadObjects,
    event_message,
    reason_of,
    text_without_numbers,
)

Obj = Mapping[str, Any]
STATES: Final = (
    "waiting",
    "admitted",
    "started",
    "running",
    "complete",
    "failed",
    "suspended",
    "gone",
)
_OVER: Final = ("Succeeded", "Failed")
_LET_IN: Final = ("Inqueue", "Running", "Unknown", "Completed")
_MIN_MEMBER: Final = "gpusched.io/min-member"
_WAITS: Final = "FailedScheduling"


@frozen
class WaitExplanation:
    """What is said about a workload that waits: reason of the contract, and sentence."""

    reason: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.sentence}" if self.reason else self.sentence


def was_seen(work: WorkloadObjects) -> bool:
    """Whether it is or was there itself, not only pods that name it."""
    return bool(work.objects or work.last)


def workload_states(work: WorkloadObjects) -> frozenset[str]:
    """Every state it is in: a running one has started and was admitted; a finished one may be gone."""
    found: set[str] = set()
    if not work.objects:
        found.add("gone")
    ended = _end(work)
    if ended:
        found |= {ended} if ended == "failed" else {"admitted", "started", ended}
        return frozenset(found)
    if not work.objects:
        return frozenset(found)
    if _suspended(work):
        found.add("suspended")
    needed = minimum_pods(work)
    bound, running = len(bound_pods(work)) + _succeeded(work), _running(work) + _succeeded(work)
    if bound >= needed:
        found |= {"admitted", "started"}
    elif not (_suspended(work) and not _queued(work)):
        found.add("waiting")
    if running >= needed:
        found.add("running")
    if _admitted(work):
        found.add("admitted")
    return frozenset(found)


def main_state(work: WorkloadObjects) -> str:
    """The one state that says most."""
    there = workload_states(work)
    order = ("complete", "failed", "running", "started", "suspended", "waiting", "admitted")
    return next((each for each in order if each in there), "gone")


def minimum_pods(work: WorkloadObjects) -> int:
    """So many of its pods must be bound at once before it counts as started."""
    objects = work.objects or work.last
    if group := objects.get("PodGroup"):
        return int(group["spec"].get("minMember", 1))
    if job := objects.get("Job"):
        spec = job["spec"]
        pods = int(spec.get("parallelism", 1))
        total = spec.get("completions")
        gang = spec.get("completionMode") == "Indexed" or total == pods
        return _asked(job) or (min(pods, int(total or pods)) if gang else min(pods, 1))
    if deployment := objects.get("Deployment"):
        return _asked(deployment) or int(deployment["spec"].get("replicas", 1))
    return 1


def wanted_pods(work: WorkloadObjects) -> int:
    """How many pods it wants."""
    objects = work.objects or work.last
    if job := objects.get("Job"):
        return int(job["spec"].get("parallelism", 1))
    if deployment := objects.get("Deployment"):
        return int(deployment["spec"].get("replicas", 1))
    return max(len(work.pods), minimum_pods(work))


def bound_pods(work: WorkloadObjects) -> list[Obj]:
    """Pods that are bound and not over, in the order of their names."""
    return [pod for pod in _sorted(work) if pod["spec"].get("nodeName") and not _is_over(pod)]


def last_bound_pods(work: WorkloadObjects) -> list[Obj]:
    """The same, and once none is left those that were bound and are still listed."""
    return bound_pods(work) or [pod for pod in _sorted(work) if pod["spec"].get("nodeName")]


def wait_reasons(work: WorkloadObjects) -> list[WaitExplanation]:
    """Everything that is said now about why it waits: of its group, its pods, of itself."""
    found = []
    if group := work.objects.get("PodGroup"):
        found = [
            WaitExplanation(each.get("reason", ""), each.get("message", ""))
            for each in _conditions(group)
            if each.get("type") in ("Scheduled", "Admitted") and each.get("status") == "False"
        ]
    for pod in _sorted(work):
        if pod["spec"].get("nodeName") or _is_over(pod):
            continue
        for each in _conditions(pod):
            if each.get("type") == "PodScheduled" and each.get("status") == "False":
                said = each.get("message", "")
                if reason := work.told.get(text_without_numbers(said)):
                    found.append(WaitExplanation(reason, said))
                found.append(WaitExplanation(each.get("reason", ""), said))
    event = work.refused
    if event is not None and not bound_pods(work) and "waiting" in workload_states(work):
        found.append(WaitExplanation(reason_of(event), event_message(event)))
    unique = dict.fromkeys(found)
    return list(unique)


def workload_message(work: WorkloadObjects) -> str:
    """The workload in a sentence of numbers, with what is said about its waiting."""
    there = main_state(work)
    if there == "gone":
        return f"{work.name} is gone"
    if there in ("complete", "failed"):
        return f"{work.name} is {there}{_why_failed(work) if there == 'failed' else ''}"
    text = (
        f"{work.name} is {there}, {len(bound_pods(work))} of {wanted_pods(work)} pods bound"
        f" and {_running(work)} running"
    )
    why = wait_reasons(work)
    return f"{text}: {why[0]}" if why and there in ("waiting", "suspended") else text


def nodes_of_workload(work: WorkloadObjects) -> list[str]:
    """Nodes of its bound pods, each once, sorted."""
    return sorted({pod["spec"]["nodeName"] for pod in last_bound_pods(work)})


# -- parts -------------------------------------------------------------------------------------
def _end(work: WorkloadObjects) -> str:
    objects = work.objects or work.last
    if job := objects.get("Job"):
        return _job_end(job)
    if group := objects.get("PodGroup"):
        if (group.get("status") or {}).get("phase") == "Completed":
            return "complete"
        over = bool(work.pods) and all(_is_over(pod) for pod in work.pods.values())
        return "failed" if over and _succeeded(work) < minimum_pods(work) else ""
    if "Deployment" in objects:
        return ""
    phase = (objects.get("Pod", {}).get("status") or {}).get("phase")
    # A lone pod that is deleted is Failed on its way: it went, it did not fail.
    leaving = objects.get("Pod", {}).get("metadata", {}).get("deletionTimestamp")
    if phase == "Failed" and leaving:
        return ""
    return {"Succeeded": "complete", "Failed": "failed"}.get(phase or "", "")


def _job_end(job: Obj) -> str:
    for each in _conditions(job):
        if each.get("status") == "True" and each.get("type") in ("Complete", "Failed"):
            return "complete" if each["type"] == "Complete" else "failed"
    return ""


def _why_failed(work: WorkloadObjects) -> str:
    job = (work.objects or work.last).get("Job", {})
    for each in _conditions(job):
        if each.get("type") == "Failed" and each.get("status") == "True":
            return f": {WaitExplanation(each.get('reason', ''), each.get('message', ''))}"
    failed = [pod for pod in _sorted(work) if (pod.get("status") or {}).get("phase") == "Failed"]
    for pod in failed:
        status = pod["status"]
        if status.get("reason") or status.get("message"):
            return f": {WaitExplanation(status.get('reason', ''), status.get('message', ''))}"
    return f": {len(failed)} of its pods failed" if failed else ""


def _suspended(work: WorkloadObjects) -> bool:
    return bool(work.objects.get("Job", {}).get("spec", {}).get("suspend"))


def _queued(work: WorkloadObjects) -> bool:
    """Whether a queue lets it in: a Job that is suspended by hand does not wait."""
    job = work.objects.get("Job", {})
    labels = job.get("metadata", {}).get("labels") or {}
    inner = job.get("spec", {}).get("template", {}).get("metadata", {}).get("labels") or {}
    keys = {*labels, *inner}
    return "gpusched.io/queue" in keys or GROUP_LABEL in keys


def _admitted(work: WorkloadObjects) -> bool:
    if _suspended(work):
        return False
    if group := work.objects.get("PodGroup"):
        if (group.get("status") or {}).get("phase") in _LET_IN:
            return True
        return any(
            each.get("type") == "Admitted" and each.get("status") == "True"
            for each in _conditions(group)
        )
    return "Job" in work.objects


def _succeeded(work: WorkloadObjects) -> int:
    return sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in work.pods.values())


def _running(work: WorkloadObjects) -> int:
    return sum((pod.get("status") or {}).get("phase") == "Running" for pod in work.pods.values())


def _asked(obj: Obj) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(_MIN_MEMBER, "")
    return int(text) if text.isdigit() else 0


def _sorted(work: WorkloadObjects) -> Sequence[Obj]:
    return sorted(work.pods.values(), key=lambda pod: str(pod["metadata"]["name"]))


def _is_over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in _OVER


def _conditions(obj: Obj) -> Sequence[Obj]:
    return (obj.get("status") or {}).get("conditions") or ()
