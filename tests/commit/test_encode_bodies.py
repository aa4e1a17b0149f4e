"""Request bodies, word for word as a real API server 1.36 accepted them."""

from __future__ import annotations

import json

import pytest

from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.serializer import requests
from gpusched.api.serializer.requests import ConditionUpdate, EventNote, ObjectRef
from gpusched.base.errors import UndecodableObject
from gpusched.commit.observed_pod import read_pod, read_pod_group

KEY = ObjectKey("default", "b-2")
NOW = 1_767_225_600.25


def test_binding():
    """UID in the metadata, node as target, the decision in annotations."""
    body = requests.binding_body(
        KEY,
        UID("u"),
        node="bn-1",
        slots=0b11,
        rank=7,
        plan="p",
        fence="f/1",
        proof="best",
        seal="s",
    )
    assert json.loads(body) == {
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {
            "name": "b-2", "namespace": "default", "uid": "u",
            "annotations": {
                "gpusched.io/charged": "", "gpusched.io/fence": "f/1", "gpusched.io/plan": "p",
                "gpusched.io/proof": "best", "gpusched.io/rank": "7", "gpusched.io/seal": "s",
                "gpusched.io/slots": "0,1",
            },
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "bn-1"},
    }  # fmt: skip


def test_binding_without_slots_or_rank():
    """What does not apply is written empty: it replaces what somebody wrote there before."""
    body = requests.binding_body(KEY, UID("u"), node="n", slots=0, rank=-1, plan="p", fence="f/1")
    notes = json.loads(body)["metadata"]["annotations"]
    assert notes == {
        "gpusched.io/charged": "", "gpusched.io/fence": "f/1", "gpusched.io/plan": "p",
        "gpusched.io/proof": "", "gpusched.io/rank": "", "gpusched.io/seal": "", "gpusched.io/slots": "",
    }  # fmt: skip


def test_eviction():
    """Of exactly this pod."""
    assert json.loads(requests.eviction_body(KEY, UID("u"), fence="f/1")) == {
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {
            "name": "b-2", "namespace": "default", "annotations": {"gpusched.io/fence": "f/1"},
        },
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }  # fmt: skip


@pytest.mark.parametrize("since", [None, NOW])
def test_pod_unscheduled(since):
    """One condition, joined by its type; guarded by UID and version."""
    body = requests.pod_unscheduled_patch(
        UID("u"), ResourceVersion("7"), reason="Unschedulable", message="0/4 nodes", since=since
    )
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/4 nodes",
    }  # fmt: skip
    if since:
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assert json.loads(body) == {
        "metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"conditions": [condition]},
    }  # fmt: skip


def _note(**more):
    ref = ObjectRef("Pod", ObjectKey("default", "p-lim"), UID("u"))
    fields = {"regarding": ref, "type": "Warning", "reason": "FailedScheduling",
              "action": "Scheduling", "note": "0/4 nodes"}  # fmt: skip
    return EventNote(**{**fields, **more})


def test_event():
    """As recorded, with the UID of what it is about."""
    assert json.loads(requests.event_body(_note(), instance="gpusched-0", now=NOW)) == {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": _note().name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.250000Z",
        "reportingController": "gpusched", "reportingInstance": "gpusched-0",
        "action": "Scheduling", "reason": "FailedScheduling", "type": "Warning",
        "note": "0/4 nodes",
        "regarding": {
            "apiVersion": "v1", "kind": "Pod", "name": "p-lim", "namespace": "default", "uid": "u",
        },
    }  # fmt: skip


def test_an_event_carries_the_reason_of_the_contract():
    """Where its own reason is another: a suspended Job has no condition that could."""
    told = json.loads(
        requests.event_body(_note(why="QuotaExceeded"), instance="gpusched-0", now=NOW)
    )
    assert told["metadata"]["annotations"] == {"gpusched.io/reason": "QuotaExceeded"}


def test_event_names_are_those_of_their_content():
    """The same news has the same name in every process; other news another one."""
    assert _note().name == _note().name
    others = {_note(note="x").name, _note(reason="x").name, _note().name}
    assert len(others) == 3
    long = ObjectRef("Pod", ObjectKey("default", "a" * 199 + "." + "b" * 53), UID("u"))
    assert len(_note(regarding=long).name) <= 253
    assert ".." not in _note(regarding=long).name


def test_event_series():
    """Told again, so often."""
    assert json.loads(requests.event_series_patch(count=3, now=NOW)) == {
        "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:00.250000Z"}
    }


@pytest.mark.parametrize("text", ["x" * 2000, "\u00fc" * 2000, "\U0001f600" * 900, "short"])
def test_texts_are_cut_at_the_servers_limit(text):
    """In bytes, and never inside a character."""
    cut = requests.clip_text(text)
    assert len(cut.encode()) <= 1024
    assert cut == text or (cut.endswith("...") and text.startswith(cut[:-3]))


def test_status_that_is_said_already_is_no_patch():
    """Applying a patch and asking again gives none."""
    says = (ConditionUpdate(type="Ready", holds=True, reason="Ready", message="m", generation=1),)
    fields = {"state": "Open", "allocated": {"cpu": "1"}, "gone": None}
    patch = json.loads(requests.status_patch(UID("u"), b"{}", fields, says=says, now=NOW))
    assert patch["metadata"] == {"uid": "u"}
    assert "gone" not in patch["status"]
    current = json.dumps(patch["status"]).encode()
    assert requests.status_patch(UID("u"), current, fields, says=says, now=NOW + 99) is None
    fields["allocated"] = {"memory": "1Gi"}
    patch = json.loads(requests.status_patch(UID("u"), current, fields, says=says, now=NOW))
    assert patch["status"] == {"allocated": {"cpu": None, "memory": "1Gi"}}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"metadata": 1}', b'{"metadata":{"uid":2}}'])
def test_garbage_is_no_read_back(body):
    """An answer that cannot be read counts as none."""
    with pytest.raises(UndecodableObject):
        read_pod(body)
    with pytest.raises(UndecodableObject):
        read_pod_group(body)


def test_a_read_back_reads_what_matters():
    """Node, plan, fence, gates and deletion."""
    facts = read_pod(
        b'{"metadata":{"uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z","annotations":'
        b'{"gpusched.io/plan":"p","gpusched.io/fence":"f"}},'
        b'"spec":{"nodeName":"n","schedulingGates":[{"name":"g"}]}}'
    )
    assert (facts.uid, facts.node, facts.plan, facts.fence) == ("u", "n", "p", "f")
    assert facts.deleting
    assert facts.gated
