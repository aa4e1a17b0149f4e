"""The example of two shards: what differs from one daemon, and that daemons with its rights alone get along."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from gpusched.base.installed_files import path

MANIFESTS = path("manifests")
SHARDS = ("north", "south")


def load(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8")))


def test_each_deployment_is_that_of_one_daemon_but_for_its_shard():
    """Given the Deployment of the whole cluster, those of shards differ in name, label, replicas and --shard."""
    (one,) = load("deployment.yaml")
    for shard, found in zip(SHARDS, load("shards/deployments.yaml"), strict=True):
        (other,) = {*SHARDS} - {shard}
        expected = copy.deepcopy(one)
        expected["metadata"]["name"] = f"gpusched-{shard}"
        expected["spec"]["replicas"] = 1
        expected["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] = shard
        expected["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/instance"] = shard
        arguments = expected["spec"]["template"]["spec"]["containers"][0]["args"]
        arguments[3:3] = ["--shard", f"{shard},{other}"]
        assert found == expected


def test_rights_name_what_is_there():
    """Given the Role, its Leases and the ConfigMap are made beside it."""
    made = {(each["kind"], each["metadata"]["name"]) for each in load("shards/leases.yaml")}
    role = load("shards/rbac.yaml")[0]
    named = {
        ({"leases": "Lease", "configmaps": "ConfigMap"}[rule["resources"][0]], name)
        for rule in role["rules"]
        for name in rule["resourceNames"]
    }
    assert named == made
    assert {tuple(rule["verbs"]) for rule in role["rules"]} == {("get", "update")}


def test_the_folder_lists_its_files():
    """Given the kustomization, no file of the folder is left out."""
    files = {each.name for each in (MANIFESTS / "shards").glob("*.yaml")} - {"kustomization.yaml"}
    assert {*load("shards/kustomization.yaml")[0]["resources"]} == files


def test_the_fence_knows_the_lease_of_each_shard():
    """Given the policy, it names these Leases and has a binding for each, and else compares as that of one daemon does."""
    policy, *bindings = load("shards/fence.yaml")
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    leases = [f"gpusched-{shard}" for shard in SHARDS]
    assert variables["leases"] == str(leases)
    assert [each["spec"]["paramRef"]["name"] for each in bindings] == leases

    one, binding = load("policies/fence.yaml")
    assert {(each["name"], each["expression"]) for each in one["spec"]["variables"]} <= {
        *variables.items()
    }
    for key in ("failurePolicy", "paramKind", "matchConstraints", "matchConditions"):
        assert policy["spec"][key] == one["spec"][key]
    for other in bindings:
        assert other["spec"]["validationActions"] == binding["spec"]["validationActions"]
        assert other["spec"]["paramRef"]["parameterNotFoundAction"] == "Deny"
    compares = policy["spec"]["validations"][1]["expression"]
    assert compares.endswith(f"|| {one['spec']['validations'][0]['expression']}")
