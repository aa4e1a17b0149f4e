"""Definitions of operators as they ship them, and the rules that only theirs have."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from gpusched.devcluster.apiserver.writing.bodies import load_all_yaml

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SHARED = Path(os.environ.get("GPUSCHED_SHARED", Path(__file__).parents[5] / "shared")) / "crds"
SHIPPED = sorted(SHARED.glob("*.yaml.gz")) if SHARED.is_dir() else []
TRAINS = "/apis/example.com/v1/namespaces/default/trains"

CLAIM = {
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
        },
    },
}
POLICY = {
    "type": "object",
    "properties": {
        "templates": {"type": "array", "maxItems": 50, "items": CLAIM},
        "for": {"type": "string"},
    },
    "x-kubernetes-validations": [
        {
            "rule": "self.templates.all(t, !has(t.metadata.namespace) || "
            "size(t.metadata.namespace) == 0)",
            "message": "namespace cannot be set for VolumeClaimPolicies templates",
        },
        {"rule": "!has(self.for) || self.for == self.__for__", "message": "never"},
    ],
}
DEFINITION = {
    "metadata": {"name": "trains.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "trains", "kind": "Train"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"policies": {"type": "array", "items": POLICY}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


@pytest.mark.skipif(not SHIPPED, reason="definitions of operators are not here (GPUSCHED_SHARED)")
async def test_definitions_of_operators_are_established(http):
    """JobSet, LeaderWorkerSet, Kubeflow, Ray, Volcano and KAI: each is accepted and served."""
    refused = {}
    for file in SHIPPED:
        for body in load_all_yaml(gzip.decompress(file.read_bytes()).decode()):
            made = await http.post(CRDS, body)
            if made.code != 201:
                refused[file.name] = made.message
                continue
            name = made.body["metadata"]["name"]
            established = (await http.get(f"{CRDS}/{name}")).body["status"]["conditions"]
            states = {c["type"]: c["status"] for c in established}
            if states != {"NamesAccepted": "True", "Established": "True"}:
                refused[file.name] = str(states)
    assert refused == {}


def train(name: str, *templates: object) -> dict[str, object]:
    """Return a Train whose one policy has these templates."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "metadata": {"name": name},
        "spec": {"policies": [{"templates": list(templates), "for": "x"}]},
    }


async def test_a_rule_may_name_a_field_by_a_keyword(http):
    """``namespace`` and its like are fields in rules, plain or escaped, and the rule holds."""
    # given a definition whose rules name fields that are words of the language
    assert (await http.post(CRDS, DEFINITION)).code == 201
    # when objects come with and without such a field
    free = await http.post(TRAINS, train("a", {"metadata": {"name": "x"}}))
    bound = await http.post(TRAINS, train("b", {"metadata": {"name": "x", "namespace": "n"}}))
    # then the rule tells them apart
    assert free.code == 201
    assert bound.code == 422
    assert "namespace cannot be set for VolumeClaimPolicies templates" in bound.message
