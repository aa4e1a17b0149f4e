"""The project's own stages on single objects, before any cluster is involved."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpusched.devcluster.stages import load, matching, rendering
from gpusched.devcluster.stages.engine import AddressBook
from gpusched.devcluster.stages.expressions import ExpressionInput
from gpusched.devcluster.stages.templates import functions

STAGES = load.load_stages([Path(__file__).parents[3] / "kwok-scenarios" / "stages"])
NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"
JOB = [{"kind": "Job", "name": "j", "uid": "u"}]


def pod(phase: str, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "n", "uid": "1", **metadata},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": AT}],
            **({"startTime": AT} if phase != "Pending" else {}),
        },
    }


def played(obj: dict[str, Any]) -> tuple[str, float, list[rendering.Effect | None]] | None:
    subject = ExpressionInput(obj, now=NOW)
    stages = [s for s in STAGES if s.kind == obj["kind"]]
    assert len(matching.matching_stages(stages, subject)) <= 1, "stages must exclude each other"
    choice = matching.choose_stage(stages, subject, random.Random(1))
    if choice is None:
        return None
    table = functions.functions(obj, now=AT, start_time=AT, addresses=AddressBook(lambda _node: ""))
    effects = [rendering.render_effect(step, obj, table) for step in choice.stage.steps]
    return choice.stage.name, choice.delay_s, effects


def test_pod_starts_after_its_time() -> None:
    """A bound pod is Running and Ready a moment after its binding, or when it asks to be."""
    found = played(pod("Pending"))
    assert found is not None
    name, delay, (patch,) = found
    assert (name, delay) == ("gpusched-pod-start", 1.0)
    assert isinstance(patch, rendering.PatchEffect)
    status = patch.body["status"]
    assert (status["phase"], status["podIP"]) == ("Running", "10.0.0.1")
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    later = played(pod("Pending", annotations={"gpusched.io/start-after": "1m30s"}))
    assert later is not None
    assert later[1] == 90.0


def test_init_containers_end_and_sidecars_run() -> None:
    """An initContainer without restartPolicy has ended when the pod runs; a sidecar runs on."""
    obj = pod("Pending")
    obj["spec"]["initContainers"] = [
        {"name": "i", "image": "x"},
        {"name": "s", "image": "x", "restartPolicy": "Always"},
    ]
    found = played(obj)
    assert found is not None
    (patch,) = found[2]
    assert isinstance(patch, rendering.PatchEffect)
    states = [list(c["state"]) for c in patch.body["status"]["initContainerStatuses"]]
    assert states == [["terminated"], ["running"]]


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        ({"ownerReferences": JOB}, ("gpusched-pod-succeed", 10.0)),
        ({"annotations": {"gpusched.io/run-for": "30s"}}, ("gpusched-pod-succeed", 30.0)),
        (
            {"annotations": {"gpusched.io/run-for": "junk"}, "ownerReferences": JOB},
            ("gpusched-pod-succeed", 10.0),
        ),
        (
            {"annotations": {"gpusched.io/fail-after": "2m"}, "ownerReferences": JOB},
            ("gpusched-pod-fail", 120.0),
        ),
        ({}, None),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "u"}]}, None),
    ],
)
def test_pod_ends_as_asked(metadata: dict[str, Any], want: tuple[str, float] | None) -> None:
    """Pods of Jobs end by themselves, others run on; annotations overrule both."""
    found = played(pod("Running", **metadata))
    assert (found and found[:2]) == want


def test_exit_code() -> None:
    """A failure has the exit code that was asked for."""
    asked = {"gpusched.io/fail-after": "1s", "gpusched.io/exit-code": "137"}
    found = played(pod("Running", annotations=asked))
    assert found is not None
    (patch,) = found[2]
    assert isinstance(patch, rendering.PatchEffect)
    (container,) = patch.body["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137
    assert patch.body["status"]["phase"] == "Failed"


def test_deleted_pod_ends_and_goes() -> None:
    """A deleted pod has failed after a tenth of a second, and then goes unless it is held."""
    found = played(pod("Running", deletionTimestamp=AT))
    assert found is not None
    assert found[:2] == ("gpusched-pod-stop", 0.1)
    assert played(pod("Failed", deletionTimestamp=AT)) == (
        "gpusched-pod-gone",
        0.0,
        [rendering.DeleteEffect()],
    )
    assert played(pod("Failed", deletionTimestamp=AT, finalizers=["x/y"])) is None


@pytest.mark.parametrize(
    ("asked", "grace", "delay"),
    [("5s", 30, 5.0), ("2m", 30, 30.0), ("-1h", 30, 0.1), ("5s", 0, 0.0)],
)
def test_stopping_takes_no_longer_than_the_grace(asked: str, grace: int, delay: float) -> None:
    """A pod stops after the time it asks for, or when its grace is over."""
    until = datetime.fromtimestamp(NOW + grace, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace}
    found = played(pod("Running", **metadata, annotations={"gpusched.io/stop-after": asked}))
    assert found is not None
    assert found[:2] == ("gpusched-pod-stop", delay)


def test_pulling_comes_before_starting() -> None:
    """A slow pull shows as ContainerCreating and is added to the start; a failed one stays."""
    slow = pod("Pending", annotations={"gpusched.io/pull-for": "40s"})
    found = played(slow)
    assert found is not None
    name, delay, (event, patch) = found
    assert (name, delay) == ("gpusched-pod-pull", 0.0)
    assert isinstance(event, rendering.EventEffect)
    assert isinstance(patch, rendering.PatchEffect)
    slow["status"] |= patch.body["status"]
    (container,) = slow["status"]["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "ContainerCreating"}}
    slow["status"]["conditions"] += pod("Pending")["status"]["conditions"]
    started = played(slow)
    assert started is not None
    assert started[:2] == ("gpusched-pod-start", 41.0)
    broken = pod("Pending", annotations={"gpusched.io/pull-error": "ImagePullBackOff"})
    found = played(broken)
    assert found is not None
    assert found[0] == "gpusched-pod-pull"
    broken["status"]["containerStatuses"] = []
    assert found[2][1].body["status"]["containerStatuses"][0]["state"] == {  # type: ignore[union-attr]
        "waiting": {"reason": "ImagePullBackOff"}
    }
    broken["status"]["containerStatuses"] = [{"name": "c"}]
    assert played(broken) is None


def running(*, policy: str = "Never", args: list[str] | None = None, **metadata: Any) -> Any:
    obj = pod("Running", **metadata)
    obj["spec"]["restartPolicy"] = policy
    if args is not None:
        obj["spec"]["containers"][0]["args"] = args
    return played(obj)


@pytest.mark.parametrize(
    ("args", "seconds"),
    [
        (["sleep", "30"], 30.0),
        (["sh", "-c", "echo hi; sleep 2m"], 120.0),
        (["/bin/sleep", "1.5h"], 5400.0),
        (["sh", "-c", "sleep 10 && sleep 5"], 15.0),
    ],
)
def test_sleep_of_the_container_is_the_run_time(args: list[str], seconds: float) -> None:
    """A pod that may end runs as long as its container sleeps; an annotation overrules it."""
    assert running(args=args)[:2] == ("gpusched-pod-succeed", seconds)
    assert running(args=args, policy="OnFailure")[:2] == ("gpusched-pod-succeed", seconds)
    assert running(args=args, policy="Always") is None
    asked = {"gpusched.io/run-for": "7s"}
    assert running(args=args, annotations=asked)[:2] == ("gpusched-pod-succeed", 7.0)


def test_sleep_without_end_runs_on() -> None:
    """Pods of Jobs too run until they are deleted when they sleep for ever."""
    assert running(args=["sleep", "infinity"], ownerReferences=JOB) is None
    assert running(args=["serve"]) is None


@pytest.mark.parametrize(
    ("jitter", "most"), [("50%", 90), ("30s", 30), ("junk", 0), ("x%", 0), ("0%", 0)]
)
def test_jitter_of_the_run_is_the_pods_own(jitter: str, most: int) -> None:
    """Jitter is spread over its range by the pod's uid, and the same at each look."""
    asked = {"gpusched.io/run-for": "180s", "gpusched.io/run-jitter": jitter}

    def delay(number: int) -> float:
        return float(running(annotations=asked, uid=f"0f31-{number:04}")[1])

    delays = [delay(number) for number in range(100)]
    assert delays == [delay(number) for number in range(100)]
    assert min(delays) >= 180
    assert max(delays) <= 180 + most
    assert sum(delays) / 100 == pytest.approx(180 + most / 2, abs=most / 10 + 1)
    assert len(set(delays)) >= most / 2


def test_start_jitter() -> None:
    """Start times spread over their jitter."""
    asked = {"gpusched.io/start-after": "10s", "gpusched.io/start-jitter": "20s"}
    found = [played(pod("Pending", annotations=asked, uid=f"u{n}")) for n in range(40)]
    delays = {one[1] for one in found if one is not None}
    assert min(delays) >= 10
    assert max(delays) <= 30
    assert len(delays) >= 10


def outcome(annotations: dict[str, str], **metadata: Any) -> str:
    asked = {f"gpusched.io/{key}": value for key, value in annotations.items()}
    asked |= metadata.pop("more", {})
    return str(running(annotations=asked, ownerReferences=JOB, **metadata)[0])


@pytest.mark.parametrize(
    ("asked", "more", "fails"),
    [
        ({"fail-on-attempt": "1"}, {}, True),
        ({"fail-on-attempt": "2"}, {}, False),
        ({"fail-on-attempt": "1,2", "attempt": "2"}, {}, True),
        ({"fail-on-attempt": "2", "attempt": "3"}, {}, False),
        ({"fail-on-attempt": "2"}, {"batch.kubernetes.io/job-index-failure-count": "1"}, True),
        ({"fail-chance": "0"}, {}, False),
        ({"fail-chance": "1"}, {}, True),
        ({"fail-chance": "often"}, {}, False),
        ({"fail-chance": "1", "fail-on-attempt": "2"}, {}, False),
        ({"fail-after": "5s", "fail-chance": "0"}, {}, False),
    ],
)
def test_failure_by_attempt_and_by_chance(
    asked: dict[str, str], more: dict[str, str], *, fails: bool
) -> None:
    """A pod fails on the attempts named, or by the chance given; both must hold."""
    want = "gpusched-pod-fail" if fails else "gpusched-pod-succeed"
    assert outcome(asked, more=more) == want


def test_chance_is_the_share_of_pods() -> None:
    """One in four pods fails with a chance of 0.25, and always the same ones."""
    found = [outcome({"fail-chance": "0.25"}, uid=f"8a-{n:05}") for n in range(200)]
    assert found == [outcome({"fail-chance": "0.25"}, uid=f"8a-{n:05}") for n in range(200)]
    assert 35 <= found.count("gpusched-pod-fail") <= 65


def node(ready: str | None = None, **annotations: str) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "a", "annotations": annotations},
        "status": {"conditions": conditions, "capacity": {"nvidia.com/gpu": "8"}},
    }


def test_node_becomes_ready_and_keeps_its_capacity() -> None:
    """A new node is Ready at once; its capacity stays and becomes allocatable."""
    found = played(node())
    assert found is not None
    name, delay, (patch,) = found
    assert (name, delay) == ("gpusched-node-ready", 0.0)
    assert isinstance(patch, rendering.PatchEffect)
    status = patch.body["status"]
    assert status["conditions"][0]["type"] == "Ready"
    assert status["allocatable"] == {"nvidia.com/gpu": "8"}
    assert "capacity" not in status


def test_node_heartbeat_is_rare_and_failures_last() -> None:
    """A Ready node reports every ten minutes; one that was failed stays so until released."""
    beat = played(node("True"))
    assert beat is not None
    assert beat[0] == "gpusched-node-heartbeat"
    assert 600 <= beat[1] <= 660
    failed = played(node("True", **{"gpusched.io/node-failed": "true"}))
    assert failed is not None
    assert failed[0] == "gpusched-node-failed"
    assert played(node("False", **{"gpusched.io/node-failed": "true"})) is None
    back = played(node("False"))
    assert back is not None
    assert back[0] == "gpusched-node-ready"


def aged(ready: str, **annotations: str) -> dict[str, Any]:
    """A node whose readiness changed at NOW."""
    obj = node(ready, **{f"gpusched.io/{key}": value for key, value in annotations.items()})
    obj["metadata"]["uid"] = "n1"
    obj["status"]["conditions"][0]["lastTransitionTime"] = AT
    return obj


FAIL_AT, RETURN_AT = "2027-01-15T08:10:00Z", "2027-01-15T08:20:00Z"
PAST = "2027-01-15T07:50:00Z"


@pytest.mark.parametrize(
    ("ready", "annotations", "want"),
    [
        ("True", {"fail-at": FAIL_AT}, ("gpusched-node-failed", 600.0)),
        ("True", {"fail-at": PAST}, "gpusched-node-heartbeat"),
        ("True", {"fail-at": "soon"}, "gpusched-node-heartbeat"),
        ("False", {"fail-at": PAST}, None),
        ("False", {"fail-at": PAST, "return-at": RETURN_AT}, ("gpusched-node-ready", 1200.0)),
        ("Unknown", {"fail-at": PAST, "return-at": RETURN_AT}, ("gpusched-node-ready", 1200.0)),
        ("False", {}, ("gpusched-node-ready", 0.0)),
        ("False", {"node-failed": "true"}, None),
        ("True", {"gpus-lost": "2"}, ("gpusched-node-gpus", 0.0)),
        ("True", {"gpus-lost": "2", "fail-at": FAIL_AT}, ("gpusched-node-gpus", 0.0)),
    ],
)
def test_node_fails_and_returns_when_told(
    ready: str, annotations: dict[str, str], want: tuple[str, float] | str | None
) -> None:
    """Moments of failure and return count once each; without a return the node stays away."""
    found = played(aged(ready, **annotations))
    if isinstance(want, str):
        assert found is not None
        assert found[0] == want
    else:
        assert (found and found[:2]) == want


def test_mean_times_between_failures_and_to_repair() -> None:
    """Lives and repairs are spread as exponentials around their means, by node and by life."""
    lives, repairs = [], []
    for number in range(200):
        for ready, found in (("True", lives), ("False", repairs)):
            obj = aged(ready, mtbf="100h", mttr="1h")
            obj["metadata"]["uid"] = f"7c-{number:04}"
            one = played(obj)
            assert one is not None
            found.append(one[1])
    assert sum(lives) / 200 == pytest.approx(360_000, rel=0.2)
    assert sum(repairs) / 200 == pytest.approx(3600, rel=0.2)
    assert len(set(lives)) > 180


def test_lost_node_goes_silent() -> None:
    """A node that is lost has no word about its state, as if its kubelet had gone."""
    found = played(aged("True", **{"node-failed": "true", "failure": "lost"}))
    assert found is not None
    patch = found[2][1]
    assert isinstance(patch, rendering.PatchEffect)
    states = {c["type"]: c["status"] for c in patch.body["status"]["conditions"]}
    assert states == dict.fromkeys(
        ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"], "Unknown"
    )


@pytest.mark.parametrize(("lost", "left"), [("2", "6"), ("9", "0"), ("0", "8")])
def test_gpus_are_lost_and_found(lost: str, left: str) -> None:
    """Lost GPUs leave allocatable, not capacity; once written the node is left alone."""
    obj = aged("True", **{"gpus-lost": lost})
    obj["status"]["conditions"].append({"type": "GpusLost", "status": "True", "message": "1"})
    found = played(obj)
    assert found is not None
    patch = found[2][1]
    assert isinstance(patch, rendering.PatchEffect)
    status = patch.body["status"]
    assert status["allocatable"] == {"nvidia.com/gpu": left}
    (condition,) = status["conditions"]
    assert condition["status"] == ("False" if lost == "0" else "True")
    obj["status"]["conditions"][1] = condition
    again = played(obj)
    assert again is not None
    assert again[0] == "gpusched-node-heartbeat"


def test_addresses_are_unique_and_reused() -> None:
    """Pods get addresses in sequence; a freed one is the next to be given."""
    book = AddressBook({"a": "10.9.0.0/24"}.get)  # type: ignore[arg-type]

    def address(uid: str, node: str = "a") -> str:
        return book.pod(node, host_network=False, uid=uid, name="", namespace="")

    assert [address(u) for u in ("1", "2", "1")] == ["10.9.0.1", "10.9.0.2", "10.9.0.1"]
    book.release("1")
    assert address("3") == "10.9.0.1"
    assert address("4", "other") == "10.0.0.1"
    assert book.pod("a", host_network=True, uid="5", name="", namespace="") == book.node("a")
