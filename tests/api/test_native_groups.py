"""PodGroups of Kubernetes itself, in the words of each version, as they are read."""

from __future__ import annotations

import json

import pytest

from gpusched.api.foreign import kinds, pod_groups
from gpusched.api.meta.identity import Rejected
from gpusched.api.serializer.foreign_status import GroupState, foreign_group_status_patch

RACK = "example.com/rack"


def read(spec, *, status=None, annotations=None, **metadata):
    """A group as it is read."""
    meta = {
        "name": "g", "namespace": "default", "uid": "u", "resourceVersion": "1",
        "annotations": annotations or {}, **metadata,
    }  # fmt: skip
    thing = {"metadata": meta, "spec": spec, "status": status}
    codec = pod_groups.CODECS[kinds.NATIVE]
    return codec.decode_event(json.dumps({"type": "ADDED", "object": thing}).encode()).item


def gang(count=4, **more):
    """A spec with the gang policy."""
    return {"schedulingPolicy": {"gang": {"minCount": count}}, **more}


@pytest.mark.parametrize(
    ("told", "mode"),
    [
        (None, "Pod"),
        ("Pod", "Pod"),
        ("PodGroup", "Group"),
        ({"single": {}}, "Pod"),
        ({"all": {}}, "Group"),
    ],
)
def test_disruption_mode_is_a_word_or_an_object(told, mode):
    """Given either dialect, the gang may lose single members or goes as one, and nothing is remarked."""
    found = read(gang(disruptionMode=told))
    assert (found.terms.disruption, found.warning) == (mode, "")


@pytest.mark.parametrize("told", ["Rack", {"perRack": {}}])
def test_an_unknown_disruption_mode_goes_as_one_and_is_said(told):
    """Given the word of a later version, nothing is broken by it."""
    found = read(gang(disruptionMode=told))
    assert found.terms.disruption == "Group"
    assert "spec.disruptionMode" in found.warning
    assert found.native.error == ("", "")


@pytest.mark.parametrize(
    "link",
    [
        {"podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}},
        {"workloadRef": {"workloadName": "w", "templateName": "t"}},
    ],
)
def test_the_template_is_linked_in_two_ways(link):
    """Given v1alpha2 or a later version, the Workload and its template are known."""
    found = read(gang(**link))
    assert (found.native.workload, found.native.template, found.warning) == ("w", "t", "")


@pytest.mark.parametrize("name", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
def test_a_group_that_was_scheduled_once_has_started(name):
    """Given the condition of any version."""
    found = read(gang(), status={"conditions": [{"type": name, "status": "True"}]})
    assert (found.phase, found.native.started) == ("Running", True)
    waits = read(gang(), status={"conditions": [{"type": name, "status": "False"}]})
    assert (waits.phase, waits.native.started) == ("Pending", False)


def test_resource_claims_of_a_group_are_read_with_what_was_made_of_them():
    """Given claims from a template and by name, and the name of the one that was made."""
    claims = [
        {"name": "g", "resourceClaimTemplateName": "gpus"},
        {"name": "c", "resourceClaimName": "ours"},
    ]
    status = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "a-g-x"}]}
    found = read(gang(resourceClaims=claims), status=status).native
    assert found.error == ("", "")
    assert [(each.name, each.claim, each.template) for each in found.group_claims] == [
        ("c", "ours", ""),
        ("g", "", "gpus"),
    ]
    assert found.made_claims == (("g", "a-g-x"),)


def test_an_unknown_policy_holds_the_group():
    """Given a policy of a later version, no pod of it starts on a guess."""
    found = read({"schedulingPolicy": {"elastic": {"min": 2}}})
    assert "'elastic'" in found.native.error[1]


def test_an_object_without_a_policy_is_held():
    """Given an object of somebody else's CRD of the same name, nothing starts on a guess."""
    found = read({"minMember": 4})
    assert "spec.schedulingPolicy is missing" in found.native.error[1]


def test_unknown_fields_are_named():
    """Given fields of a later version at any depth, each is named and the rest counts."""
    found = read(
        gang(
            schedulingConstraints={"topology": [{"key": RACK, "mode": "Preferred"}]},
            surge={"max": 1},
        )
    )
    assert found.topology.required == RACK
    assert "spec.schedulingConstraints.topology[].mode, spec.surge" in found.warning


def test_policy_priority_and_preemption():
    """Given basic, a number and a policy, they are there as they were written."""
    found = read(
        {
            "schedulingPolicy": {"basic": {}},
            "priorityClassName": "c",
            "priority": 7,
            "preemptionPolicy": "Never",
            "parentCompositePodGroupName": "p",
        }
    )
    assert (found.native.basic, found.min_member, found.native.priority) == (True, 1, 7)
    assert (found.native.preemption_policy, found.native.parent) == ("Never", "p")
    assert found.warning == ""


def test_annotations_say_what_our_own_pod_group_asks():
    """Given annotations of the names of our fields, the native group has them."""
    found = read(
        gang(3),
        labels={"gpusched.io/queue": "team"},
        annotations={
            "gpusched.io/expected-duration": "2h",
            "gpusched.io/min-runtime": "10m",
            "gpusched.io/preemptible": "false",
            "gpusched.io/topology-preferred": "rack",
            "gpusched.io/topology-max-wait": "5m",
            "gpusched.io/schedule-timeout": "1h",
            "gpusched.io/checkpoint-interval": "30m",
            "gpusched.io/min-task-member": '{"master": 1, "worker": 2}',
            "gpusched.io/min-resources": '{"nvidia.com/gpu": 3}',
            "gpusched.io/sub-groups": '[{"name": "a", "minMember": 2}, {"name": "b"}]',
            "gpusched.io/min-sub-groups": "1",
            "gpusched.io/gpu-types": '{"sameType": true}',
        },
    )
    minute = 60 * 10**9
    terms = found.terms
    assert (found.queue, terms.expected_duration_ns) == ("team", 120 * minute)
    assert (terms.min_runtime_ns, terms.preemptible) == (10 * minute, False)
    assert (found.topology.preferred, found.topology.max_wait_ns) == ("rack", 5 * minute)
    assert (terms.schedule_timeout_ns, terms.checkpoint_ns) == (60 * minute, 30 * minute)
    assert found.min_task_member == (("master", 1), ("worker", 2))
    assert found.min_resources.get("nvidia.com/gpu") == 3000
    assert [(each.name, each.min_member) for each in found.sub_groups] == [("a", 2), ("b", 1)]
    assert (found.min_sub_groups, terms.gpu_types.same_type) == (1, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min-task-member", '{"a": 9}'),
        ("min-task-member", "three"),
        ("min-resources", '{"cpu": "much"}'),
        ("sub-groups", '[{"name": "a"}, {"name": "a"}]'),
        ("min-sub-groups", "2"),
        ("topology-max-wait", "soon"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_refused_by_name(name, value):
    """Given a bad value, the object is refused and the annotation is named."""
    found = read(gang(), annotations={f"gpusched.io/{name}": value})
    assert isinstance(found, Rejected)
    assert name in found.field


def state(**more):
    """A gang that waits for room."""
    fields = {
        "phase": "Pending", "is_scheduled": False, "reason": "InsufficientResources",
        "message": "s", "counts": (0, 0, 0, 0), "min_member": 1,
        "api_version": "scheduling.k8s.io/v1alpha2",
    }  # fmt: skip
    return GroupState(**{**fields, **more})


def patched(shown, said):
    """Status and reason of each condition by type, after a patch of what the object shows."""
    current = {"conditions": [{"type": kind, "status": value} for kind, value in shown.items()]}
    body = foreign_group_status_patch(
        kinds.NATIVE, "u", json.dumps(current).encode(), said, now=0.0
    )
    made = json.loads(body or b"{}").get("status", current)
    return {each["type"]: (each["status"], each.get("reason")) for each in made["conditions"]}


def test_the_condition_of_kubernetes_is_never_taken_back():
    """Given True on the object, a gang that lost a member says so in our condition alone."""
    told = patched({"PodGroupScheduled": "True"}, state())
    assert told["PodGroupScheduled"] == ("True", None)
    assert told["gpusched.io/Scheduled"] == ("False", "InsufficientResources")


def test_after_an_upgrade_the_newer_condition_is_true_as_well():
    """Given a group that started under 1.36, its later condition does not say that it waits."""
    told = patched({"PodGroupScheduled": "True"}, state(api_version="scheduling.k8s.io/v1beta1"))
    assert told["PodGroupInitiallyScheduled"] == ("True", "Scheduled")


def test_a_defect_of_ours_is_said_as_kubernetes_says_it():
    """Given a gang that the scheduler fails on, the reason is SchedulerError."""
    told = patched({}, state(reason="SchedulerError"))
    assert told["PodGroupScheduled"] == ("False", "SchedulerError")


def test_completed_members_are_remembered_on_the_object():
    """Given a gang whose members have all succeeded, the object says so and is read so."""
    told = patched({}, state(phase="Completed", is_scheduled=True, reason="Scheduled"))
    assert told["gpusched.io/Scheduled"] == ("True", "Completed")
    conditions = [{"type": "gpusched.io/Scheduled", "status": "True", "reason": "Completed"}]
    assert read(gang(), status={"conditions": conditions}).phase == "Completed"
