"""Stages see pods and nodes as KWOK's typed client has them: what fails there fails here."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.devcluster.stages import load, rendering
from gpusched.devcluster.stages import matching as match
from gpusched.devcluster.stages.engine import AddressBook
from gpusched.devcluster.stages.expressions import ExpressionInput
from gpusched.devcluster.stages.templates import execution, functions
from gpusched.devcluster.stages.typed_objects import TypedNumber, template_data

NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"
FOLDER = Path(__file__).parents[3] / "kwok-scenarios" / "stages"


def stored(**spec: Any) -> dict[str, Any]:
    """A pod with fields that Go's encoding leaves out, as a lenient server may store them."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "n", "uid": "1",
            "annotations": {"empty": ""}, "labels": {}, "finalizers": [],
        },
        "spec": {
            "nodeName": "a", "hostNetwork": False, "hostname": "", "nodeSelector": {},
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False,
            "tolerations": [], "securityContext": {}, "priority": 0,
            "containers": [{"name": "c", "image": "", "tty": False, "resources": {},
                "env": [{"name": "A", "value": ""}]}],
            **spec,
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "", "reason": "",
                "lastProbeTime": None, "lastTransitionTime": AT}],
        },
    }  # fmt: skip


def with_key(key: str, **spec: Any) -> list[str]:
    """Which stage of one matches by the existence of a key."""
    document = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "s"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [{"key": key, "operator": "Exists"}]},
            "next": {"delete": True},
        },
    }
    stage = load.read_stage(document)
    assert stage is not None
    by_itself = match.matching_stages([stage], ExpressionInput(stored(**spec), now=NOW))
    remembered = match.StageMatcher([stage]).candidates(ExpressionInput(stored(**spec), now=NOW))
    assert by_itself == remembered
    return [one.name for one in by_itself]


@pytest.mark.parametrize(
    "key",
    [
        ".kind",
        ".apiVersion",
        'select( .kind == "Pod" )',
        ".spec.hostNetwork",
        ".spec.hostname",
        ".spec.nodeSelector",
        ".spec.tolerations",
        ".metadata.labels",
        ".metadata.finalizers",
        ".spec.containers.[].tty",
        ".spec.containers.[].env.[].value",
        ".status.conditions.[].reason",
        ".status.conditions.[].lastProbeTime",
        '[ .spec | keys[] ] | select( any( .[]; . == "hostNetwork" ) )',
    ],
)  # fmt: skip
def test_what_gos_encoding_leaves_out_is_not_there(key: str) -> None:
    """A stage that asks for it matches nothing, as on KWOK."""
    assert with_key(key) == []


@pytest.mark.parametrize(
    "key",
    [
        ".metadata.name",
        '.metadata.annotations["empty"]',
        ".spec.terminationGracePeriodSeconds",
        ".spec.automountServiceAccountToken",
        ".spec.priority",
        ".spec.securityContext",
        ".spec.containers.[].image",
        ".spec.containers.[].resources",
        ".status.conditions.[].status",
        '.metadata.ownerReferences.[] | select( .kind == "Job" )',
    ],
)
def test_what_it_writes_is_there(key: str) -> None:
    """Pointers to zero, required texts, entries of maps, and ``kind`` of parts."""
    if "ownerReferences" in key:
        obj = stored()
        obj["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job"}]
        assert ExpressionInput(obj, now=NOW).jq(key)
        return
    assert with_key(key) == ["s"]


def test_other_kinds_are_seen_as_they_are_stored() -> None:
    """KWOK has them without a Go type, so their kind is there."""
    obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": {}}}
    assert ExpressionInput(obj, now=NOW).jq(".kind") == ["Job"]
    assert ExpressionInput(obj, now=NOW).jq(".metadata.labels") == [{}]
    assert template_data(obj) == obj


def test_cel_sees_no_kind_either() -> None:
    """An expression that asks for it has no answer."""
    assert ExpressionInput(stored(), now=NOW).cel("self.kind == 'Pod'") == (None, False)
    assert ExpressionInput(stored(), now=NOW).cel("self.metadata.name == 'p'") == (True, True)


def test_the_stages_as_they_were_start_no_pod() -> None:
    """The mistake that let every scenario hang on a real KWOK is found without one."""
    text = (FOLDER / "pod-lifecycle.yaml").read_text()
    asked = '["gpusched.io/pull-for"] | not ) ) | .metadata.name'
    assert text.count(asked) == 1
    wrong = text.replace(asked, asked.replace(".metadata.name", ".kind"))

    def matching(documents: str) -> list[str]:
        stages = [load.read_stage(each) for each in yaml.safe_load_all(documents)]
        subject = ExpressionInput(stored(), now=NOW)
        found = match.matching_stages([each for each in stages if each is not None], subject)
        return [each.name for each in found]

    assert matching(text) == ["gpusched-pod-start"]
    assert matching(wrong) == []


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ("{{ .kind }}", "<no value>"),
        ("{{ if .spec.priority }}yes{{ else }}no{{ end }}", "yes"),
        ("{{ .spec.priority }} {{ add .spec.priority 2 }}", "0 2"),
        ('{{ printf "%d" .spec.priority }}', "%!d(json.Number=0)"),
        ("{{ .spec.priority | Quote }}", '"0"'),
        ("{{ toJson .spec.terminationGracePeriodSeconds }}", "0"),
        ("{{ or .spec.hostNetwork false }}", "false"),
        ("{{ default 3 .spec.priority }}", "0"),
    ],
)
def test_templates_see_numbers_as_go_does(template: str, want: str) -> None:
    """A number is a text to Go's templates: true even when it is 0; functions count with it."""
    book = AddressBook(lambda _node: "")
    table = functions.functions(stored(), now=AT, start_time=AT, addresses=book)
    assert execution.render_template(template, template_data(stored()), table) == want


def test_numbers_stay_numbers_in_yaml() -> None:
    """A part of an object that is written whole comes back as it was."""
    seen = template_data({"kind": "X", "a": {"n": 3, "f": 1.5, "t": "3"}})
    assert isinstance(seen["a"]["n"], TypedNumber)
    assert yaml.safe_load(functions.as_yaml(seen["a"])) == {"n": 3, "f": 1.5, "t": "3"}


class NoAddresses:
    """A KWOK without ``--node-ip`` whose network is not known: addresses are empty."""

    def node(self, name: str) -> str:
        """No address."""
        return ""

    def pod(self, node: str, *, host_network: bool, uid: str, name: str, namespace: str) -> str:
        """No address."""
        return ""


@pytest.mark.parametrize("kind", ["Pod", "Node"])
def test_no_empty_address_is_written(kind: str) -> None:
    """Where KWOK knows no address there is none in the status: servers refuse or show empty ones."""
    obj = stored()
    if kind == "Node":
        obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {}}
    for phase in ("Pending", "Running"):
        obj.setdefault("status", {})["phase"] = phase
        for asked in ({}, {"gpusched.io/pull-for": "3s"}):
            obj["metadata"]["annotations"] = asked
            stages = [each for each in load.load_stages([FOLDER]) if each.kind == kind]
            choice = match.choose_stage(stages, ExpressionInput(obj, now=NOW), random.Random(1))
            if choice is None:
                continue
            table = functions.functions(obj, now=AT, start_time=AT, addresses=NoAddresses())
            for step in choice.stage.steps:
                effect = rendering.render_effect(step, obj, table)
                if isinstance(effect, rendering.PatchEffect):
                    status = effect.body["status"]
                    told = {key: status[key] for key in status if "ip" in key.lower()}
                    assert told == {}, choice.stage.name
                    addresses = status.get("addresses") or []
                    assert "InternalIP" not in json.dumps(addresses)
