"""The manifests keep what the published contract and the security rules promise."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpusched.base.installed_files import path
from gpusched.config.gpu_layouts import load_shipped_layouts
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT
from gpusched.io.serve.announcement import view_lease

MANIFESTS = path("manifests")
CONF = path("conf")
WIDE_OPEN = {"secrets", "configmaps", "tokenreviews", "subjectaccessreviews"}


def load(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def one(name: str, kind: str) -> dict[str, Any]:
    (found,) = [doc for doc in load(name) if doc["kind"] == kind]
    return found


def pod_spec() -> dict[str, Any]:
    return one("deployment.yaml", "Deployment")["spec"]["template"]["spec"]


def rules() -> Iterator[dict[str, Any]]:
    for file in ("rbac.yaml", "rbac-users.yaml"):
        for doc in load(file):
            yield from doc.get("rules", ())


_FOLDERS_OF_POLICIES = ("policies", "policies-other-projects", "policies-stamp")
_APART = {"examples", "helm", "monitoring", "shards", *_FOLDERS_OF_POLICIES}
"""Folders that are applied by themselves; helm, monitoring and shards have their own tests."""


def test_kustomization_names_every_manifest():
    """No manifest can be forgotten: examples and policies apart, which have a list of their own."""
    listed = set(load("kustomization.yaml")[0]["resources"])
    present = {
        str(file.relative_to(MANIFESTS))
        for file in MANIFESTS.rglob("*.yaml")
        if file.name != "kustomization.yaml" and file.relative_to(MANIFESTS).parts[0] not in _APART
    }
    assert listed == present | {"../conf", "policies"}
    for folder in _FOLDERS_OF_POLICIES:
        files = {file.name for file in (MANIFESTS / folder).glob("*.yaml")}
        assert {
            "kustomization.yaml",
            *load(f"{folder}/kustomization.yaml")[0]["resources"],
        } == files


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_renders_everything_in_an_order_that_applies():
    """What `kubectl apply -k` sends is complete, and a namespace comes before what is in it."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(MANIFESTS)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    docs = list(yaml.safe_load_all(done.stdout))
    kinds = [doc["kind"] for doc in docs]
    assert kinds[0] == "Namespace"
    assert kinds.count("CustomResourceDefinition") == 4
    assert "Queue" not in kinds
    (config,) = [doc for doc in docs if doc["kind"] == "ConfigMap"]
    assert config["metadata"]["name"] == "gpusched"
    assert config["data"] == {
        name: (CONF / name).read_text() for name in ("gpusched.yaml", "gpu-layouts.yaml")
    }
    homes = {doc["metadata"].get("namespace", "gpusched-system") for doc in docs}
    assert homes == {"gpusched-system"}


def test_no_role_holds_more_than_it_should():
    """No wildcard, no secrets, no way to gain rights, no deletion of pods, no write to nodes."""
    for rule in rules():
        resources, verbs = set(rule["resources"]), set(rule["verbs"])
        assert not {"escalate", "bind", "impersonate"} & verbs
        assert not WIDE_OPEN & resources
        assert "*" not in resources | verbs | set(rule["apiGroups"])
        assert "nonResourceURLs" not in rule
        if "nodes" in resources:
            assert verbs == {"list", "watch"}
        if "pods" in resources:
            assert verbs == {"get", "list", "watch"}


DAEMON_RIGHTS = {
    ("", "pods"): {"get", "list", "watch"},
    ("", "pods/binding"): {"create"},
    ("", "pods/eviction"): {"create"},
    ("", "pods/status"): {"patch"},
    ("", "nodes"): {"list", "watch"},
    ("", "namespaces"): {"list", "watch"},
    ("batch", "jobs"): {"list", "watch", "patch"},
    ("scheduling.k8s.io", "priorityclasses"): {"list", "watch"},
    ("", "resourcequotas"): {"list", "watch"},
    ("policy", "poddisruptionbudgets"): {"list", "watch"},
    ("", "persistentvolumeclaims"): {"list", "watch", "patch"},
    ("", "persistentvolumes"): {"list", "watch", "patch"},
    ("storage.k8s.io", "storageclasses"): {"list", "watch"},
    ("scheduling.gpusched.io", "podgroups"): {"get", "list", "watch", "patch"},
    ("scheduling.gpusched.io", "queues"): {"list", "watch"},
    ("scheduling.gpusched.io", "topologies"): {"list", "watch"},
    ("scheduling.gpusched.io", "reservations"): {"list", "watch"},
    ("scheduling.gpusched.io", "podgroups/status"): {"patch"},
    ("scheduling.gpusched.io", "queues/status"): {"patch"},
    ("scheduling.gpusched.io", "topologies/status"): {"patch"},
    ("scheduling.gpusched.io", "reservations/status"): {"patch"},
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {"get"},
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {"get"},
    ("events.k8s.io", "events"): {"create", "patch"},
}


def test_the_daemon_holds_exactly_the_published_rights():
    """The table of rights in the security notes and the ClusterRole are the same."""
    granted: dict[tuple[str, str], set[str]] = {}
    for rule in one("rbac.yaml", "ClusterRole")["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                assert (group, resource) not in granted, "granted twice"
                granted[group, resource] = set(rule["verbs"])
    assert granted == DAEMON_RIGHTS


def test_the_daemon_touches_three_leases_only():
    """Leadership, the copy of the seal's key, where the view is: in its own namespace; the manifest brings them."""
    role = one("rbac.yaml", "Role")
    lease, copy, view = load("lease.yaml")
    assert role["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [each["metadata"]["name"] for each in (lease, copy, view)],
            "verbs": ["get", "update"],
        }
    ]
    assert role["metadata"]["namespace"] == lease["metadata"]["namespace"] == "gpusched-system"
    election = load_file(str(CONF / "gpusched.yaml")).leader_election
    assert election.lease_name == lease["metadata"]["name"]
    assert election.lease_namespace == lease["metadata"]["namespace"]
    assert copy["metadata"]["name"] == f"{election.lease_name}-seal"
    assert view["metadata"]["name"] == view_lease(election.lease_name)
    for each in (lease, copy, view):
        assert each["spec"] == {}, "a second apply must not undo what the leader wrote"
        assert "annotations" not in each["metadata"]


def test_people_find_the_view_and_may_read_nothing_else_there():
    """Who is known may read one Lease and reach one Service; the daemon may review tokens and rights."""
    service, reviews, role, binding = load("view.yaml")
    (container,) = pod_spec()["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert service["spec"]["selector"] == {"app.kubernetes.io/name": "gpusched"}
    assert reviews["roleRef"]["name"] == "system:auth-delegator"
    assert [each["name"] for each in reviews["subjects"]] == ["gpusched"]
    lease, proxy = role["rules"]
    assert (lease["resourceNames"], lease["verbs"]) == (["gpusched-view"], ["get"])
    assert proxy["resources"] == ["services/proxy"]
    assert {name.partition(":")[0] for name in proxy["resourceNames"]} == {
        service["metadata"]["name"]
    }
    assert proxy["verbs"] == ["get", "create"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == ["system:authenticated"]


def test_bindings_point_at_roles_and_accounts_that_exist():
    """Each binding joins a role and the service account of the same file."""
    docs = load("rbac.yaml")
    made = {(doc["kind"], doc["metadata"]["name"]) for doc in docs}
    bindings = [doc for doc in docs if doc["kind"].endswith("Binding")]
    assert len(bindings) == 2
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in made
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["name"]) in made
            assert subject["namespace"] == "gpusched-system"


def test_users_roles_join_the_built_in_ones():
    """Pod groups come with the roles view and edit; writing queues does not."""
    roles = {doc["metadata"]["name"]: doc for doc in load("rbac-users.yaml")}
    aggregate = "rbac.authorization.k8s.io/aggregate-to-"
    assert roles["gpusched-view"]["metadata"]["labels"][aggregate + "view"] == "true"
    assert roles["gpusched-edit"]["metadata"]["labels"][aggregate + "edit"] == "true"
    for role in roles.values():
        joins = {key for key in role["metadata"]["labels"] if key.startswith(aggregate)}
        for rule in role["rules"]:
            writes = set(rule["verbs"]) - {"get", "list", "watch"}
            if aggregate + "view" in joins:
                assert not writes
            if joins:
                assert not (
                    writes and {"queues", "topologies", "reservations"} & set(rule["resources"])
                )


def test_the_pod_is_locked_down():
    """Not root, nothing writable but /tmp, no capabilities, default seccomp, limits set."""
    pod = pod_spec()
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["limits"]) >= {"cpu", "memory"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
    assert writable == {"/tmp", "/var/lib/gpusched"}
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


def test_the_token_is_short_lived():
    """No automatic token; the mounted one ends after at most an hour and is renewed."""
    pod = pod_spec()
    assert pod["automountServiceAccountToken"] is False
    assert one("rbac.yaml", "ServiceAccount")["automountServiceAccountToken"] is False
    sources = [s for v in pod["volumes"] for s in v.get("projected", {}).get("sources", ())]
    (token,) = [s["serviceAccountToken"] for s in sources if "serviceAccountToken" in s]
    assert 600 <= token["expirationSeconds"] <= 3600


def test_two_replicas_that_other_schedulers_place():
    """It does not schedule itself, has its own priority, and never loses both replicas to a drain."""
    deployment = one("deployment.yaml", "Deployment")
    pod = pod_spec()
    assert deployment["spec"]["replicas"] == 2
    assert pod["schedulerName"] == "default-scheduler"
    assert (
        pod["priorityClassName"] == one("priorityclass.yaml", "PriorityClass")["metadata"]["name"]
    )
    assert "podAntiAffinity" in pod["affinity"]
    assert pod["topologySpreadConstraints"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        one("pdb.yaml", "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        load("networkpolicy.yaml")[1]["spec"]["podSelector"]["matchLabels"],
        pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_probes_and_policy_meet_the_port():
    """Probes ask the published endpoints, on the port that the network policy opens."""
    (container,) = pod_spec()["containers"]
    port, view = container["ports"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": port["name"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    deny, allow = (doc["spec"] for doc in load("networkpolicy.yaml"))
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert [p["port"] for p in allow["ingress"][0]["ports"]] == [port["containerPort"]] == [8080]
    assert [p["port"] for p in allow["ingress"][1]["ports"]] == [view["containerPort"]] == [8081]


def test_the_pod_finds_its_configuration_and_itself():
    """The ConfigMap made from conf/ is mounted where the arguments say, and the pod knows its uid."""
    pod = pod_spec()
    (container,) = pod["containers"]
    assert container["args"] == [
        "run", "--config", "/etc/gpusched/gpusched.yaml",
        "--history", "/var/lib/gpusched/history.db",
    ]  # fmt: skip
    (generated,) = yaml.safe_load((CONF / "kustomization.yaml").read_text())["configMapGenerator"]
    (config,) = [v for v in pod["volumes"] if v["name"] == "config"]
    assert config["configMap"]["name"] == generated["name"]
    assert {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"]} == {
        "POD_NAME": "metadata.name",
        "POD_UID": "metadata.uid",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
    }


def test_the_shipped_configuration_is_the_default():
    """conf/gpusched.yaml is readable and says what holds without any file."""
    assert load_file(str(CONF / "gpusched.yaml")) == DEFAULT


def test_every_key_of_the_configuration_is_explained():
    """A comment stands above every key and every plugin of conf/gpusched.yaml."""
    lines = (CONF / "gpusched.yaml").read_text().splitlines()
    bare = {
        "- plugins:",
        "limits:",
        "clientConnection:",
        "placement:",
        "cycle:",
        "leaderElection:",
    }  # their parts are explained one by one
    for before, line in zip(["", *lines], lines, strict=False):
        text = line.strip()
        if text and not text.startswith("#") and text not in bare:
            assert before.strip().startswith("#"), line


def test_gpu_layouts_are_believed_and_of_common_machines():
    """The shipped catalogue is read as the daemon reads it, and knows the common machines."""
    catalogue = load_shipped_layouts()
    assert len(catalogue.layouts) > 40
    eight = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200")
    for name in (*eight, "AMD_Instinct_MI300X_OAM", "HL-225", "HL-325L"):
        assert catalogue.layouts[name].islands == (tuple(range(8)),), name
    for name in ("NVIDIA-GB200", "NVIDIA-GB300"):
        assert catalogue.layouts[name].islands == (tuple(range(4)),), name
    assert catalogue.layouts["nvlink-pairs"].islands == ((0, 1), (2, 3), (4, 5), (6, 7))
    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
    assert catalogue.layouts["Tesla-V100-SXM2-32GB"].islands == halves
    nested = (((0, 1), (2, 3)), ((4, 5), (6, 7)))
    assert catalogue.layouts["NVIDIA-H100-NVL"].islands == nested
