"""Jobs over HTTP: what is refused, what may change while suspended, what deletion keeps."""

from __future__ import annotations

from typing import Any

import pytest

Obj = dict[str, Any]
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PATCH = "merge-patch+json"


def job(*, pod: Obj | None = None, **spec: Any) -> Obj:
    """A job with one container."""
    template = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}],
        **(pod or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": template}, **spec},
    }


CODES = {"operator": "In", "values": [1]}
REFUSED: list[tuple[Obj, list[str] | None]] = [
    (
        job(completionMode="Indexed", parallelism=2),
        ["spec.completions: Required value: when completion mode is Indexed"],
    ),
    (
        job(backoffLimitPerIndex=1),
        ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
    ),
    (
        job(completionMode="Indexed", completions=2, maxFailedIndexes=3, backoffLimitPerIndex=1),
        ["spec.maxFailedIndexes: Invalid value: 3: must be less than or equal to completions"],
    ),
    (
        job(podFailurePolicy={"rules": [{"action": "FailIndex", "onExitCodes": CODES}]}),
        [
            'spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set'
        ],
    ),
    (
        job(podFailurePolicy={"rules": [{"action": "Ignore"}]}),
        [
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"
        ],
    ),
    (
        job(
            podFailurePolicy={
                "rules": [
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3, 0]}}
                ]
            }
        ),
        [
            "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [3,0]: must be ordered",
        ],
    ),
    (
        job(
            completionMode="Indexed",
            completions=3,
            successPolicy={"rules": [{"succeededIndexes": "0,7", "succeededCount": 4}]},
        ),
        [
            'spec.successPolicy.rules[0].succeededIndexes: Invalid value: "0,7": error parsing succeededIndexes: too large index: "7"',
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified completions)",
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 0 (the number of indexes in the specified succeededIndexes field)",
        ],
    ),
    (
        job(pod={"restartPolicy": "Always"}),
        ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
    ),
    (
        job(selector={"matchLabels": {"a": "b"}}),
        None,
    ),
]


@pytest.mark.parametrize(("body", "texts"), REFUSED)
async def test_a_wrong_job_is_refused(http: Any, body: Obj, texts: list[str] | None) -> None:
    """Each wrong field is named in the server's words and order."""
    reply = await http.post(JOBS, body)
    assert reply.code == 422
    if texts is None:
        assert "`selector` not auto-generated" in reply.message
        assert "`selector` does not match template `labels`" in reply.message
        return
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    assert reply.message == f'Job.batch "j" is invalid: {joined}'


async def test_policies_by_index_are_served(http: Any) -> None:
    """Limits by index and success policies are accepted and shown with their defaults."""
    body = job(
        completionMode="Indexed",
        completions=3,
        parallelism=3,
        backoffLimitPerIndex=1,
        maxFailedIndexes=2,
        successPolicy={"rules": [{"succeededCount": 2}]},
        podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]},
    )
    reply = await http.post(JOBS, body)
    assert reply.code == 201
    spec = reply.body["spec"]
    assert [spec["backoffLimit"], spec["podReplacementPolicy"]] == [2**31 - 1, "Failed"]
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


async def test_a_suspended_job_may_ask_for_less(http: Any) -> None:
    """Resources, labels and node selectors change while suspended; images never do."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    container = {"name": "c", "image": "i"}
    await http.post(JOBS, job(pod={"containers": [{**container, **limits}]}, suspend=True))
    limits["resources"]["limits"]["nvidia.com/gpu"] = "4"
    spec = {"containers": [{**container, **limits}], "nodeSelector": {"a": "b"}}
    change = {"spec": {"template": {"metadata": {"labels": {"x": "y"}}, "spec": spec}}}
    assert (await http.patch(f"{JOBS}/j", change, PATCH)).code == 200
    change["spec"]["template"]["spec"]["containers"] = [{**container, "image": "other"}]
    reply = await http.patch(f"{JOBS}/j", change, PATCH)
    field = reply.body["details"]["causes"][0]["field"]
    assert (reply.code, field) == (422, "spec.template.spec")  # as Kubernetes 1.36.2 answers


async def test_an_indexed_job_grows_as_a_whole(http: Any) -> None:
    """Completions follow parallelism; alone they do not change."""
    await http.post(JOBS, job(completionMode="Indexed", completions=2, parallelism=2))
    reply = await http.patch(f"{JOBS}/j", {"spec": {"completions": 3}}, PATCH)
    text = (
        "spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"
    )
    assert reply.message == f'Job.batch "j" is invalid: {text}'
    both = {"spec": {"completions": 3, "parallelism": 3}}
    assert (await http.patch(f"{JOBS}/j", both, PATCH)).code == 200


async def test_a_job_deleted_without_a_word_leaves_its_pods(http: Any) -> None:
    """By old custom dependents of jobs are orphaned, and the client is warned."""
    await http.post(JOBS, job())
    reply = await http.delete(f"{JOBS}/j")
    assert reply.body["metadata"]["finalizers"] == ["orphan"]
    assert "child pods are preserved by default" in reply.headers["Warning"]


async def test_a_finished_job_needs_its_first_verdict(http: Any) -> None:
    """Complete without its criteria is refused, and counts of failures only grow."""
    await http.post(JOBS, job())
    done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    reply = await http.patch(f"{JOBS}/j/status", done, PATCH)
    assert reply.code == 422
    assert [c["field"] for c in reply.body["details"]["causes"]] == [
        "status.completionTime",
        "status.conditions",
        "status.startTime",
    ]
    await http.patch(f"{JOBS}/j/status", {"status": {"failed": 2}}, PATCH)
    reply = await http.patch(f"{JOBS}/j/status", {"status": {"failed": 1}}, PATCH)
    text = "status.failed: Invalid value: 1: cannot decrease the failed counter"
    assert reply.message == f'Job.batch "j" is invalid: {text}'


async def test_options_of_deletions_are_checked(http: Any) -> None:
    """Unknown policies and two at once are refused before anything happens."""
    await http.post(JOBS, job())
    for query, field in (
        ("propagationPolicy=Sideways", "propagationPolicy"),
        ("propagationPolicy=Orphan&orphanDependents=true", "propagationPolicy"),
        ("dryRun=Some", "dryRun"),
    ):
        reply = await http.delete(f"{JOBS}/j?{query}")
        assert (reply.code, reply.body["details"]["causes"][0]["field"]) == (422, field)
    assert (await http.get(f"{JOBS}/j")).code == 200


async def test_a_terminating_pod_waits_for_its_kubelet(http: Any) -> None:
    """A second deletion without a period changes nothing; a negative one means a second."""
    pods = "/api/v1/namespaces/default/pods"
    await http.create_pod("p", nodeName="n")
    await http.delete(f"{pods}/p")
    await http.patch(f"{pods}/p/status", {"status": {"phase": "Succeeded"}}, PATCH)
    again = await http.delete(f"{pods}/p")
    assert again.body["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = await http.delete(f"{pods}/p?gracePeriodSeconds=-5")
    assert shorter.body["metadata"]["deletionGracePeriodSeconds"] == 1
    await http.delete(f"{pods}/p?gracePeriodSeconds=0")
    assert (await http.get(f"{pods}/p")).code == 404


async def test_long_names_of_jobs(http: Any) -> None:
    """A name too long for a label is told of the template; one too long for hosts of itself."""
    body = job()
    body["metadata"]["name"] = "j" * 64
    reply = await http.post(JOBS, body)
    assert {c["field"] for c in reply.body["details"]["causes"]} == {"spec.template.labels"}
    body = job(completionMode="Indexed", completions=11)
    body["metadata"]["name"] = "j" * 61
    reply = await http.post(JOBS, body)
    last = f"will not able to create pod with invalid DNS label: {'j' * 61}-10"
    assert last in reply.message
