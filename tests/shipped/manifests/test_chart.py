"""The Helm chart is made from the manifests, and helm makes of it what kustomize makes of them.

What helm makes was recorded with the digest of the chart, so that these tests need no helm; where
one is on PATH, the recording is compared with what it makes now.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from gpusched import __version__
from gpusched.config.load import load_config
from tests.ci_scripts import ROOT, ci_script

chart = ci_script("chart")
RECORDED: dict[str, Any] = json.loads(chart.RECORDING.read_text(encoding="utf-8"))
REFUSED = {
    "a value that is misspelt": "'replica' not allowed",
    "a value of another type": "got string, want integer",
    "the scheduler of Kubernetes": "at '/schedulerNames/0'",
    "a digest that is none": "does not match pattern",
    "names that differ": 'has schedulerNames ["b"] and the value schedulerNames is ["a"]: give both',
    "a whole configuration with other names": "give both the same names",
    "a configuration that is no YAML": "configuration is no YAML",
    "shards that are no list": "configuration.shards must be a list",
    "a shard without a name": "each item of configuration.shards needs a name",
}


def rendered(name: str) -> dict[str, dict[str, Any]]:
    """Objects of a case that differ from those of the first one, by kind and name."""
    found = RECORDED["cases"][name]["with"]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def container(name: str) -> dict[str, Any]:
    """The daemon's container."""
    (found,) = rendered(name)["Deployment/gpusched"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_chart_is_made_from_the_manifests():
    """`make chart` writes what differs; nothing in templates/ and files/ is edited by hand."""
    assert chart.present() == chart.contents()


def test_the_recording_is_of_this_chart():
    """Whoever changes the chart, or its cases, lets helm render them again."""
    assert RECORDED["chart"] == chart.chart_digest(), "python .ci/chart.py record, with helm 3"


@pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")
def test_helm_makes_what_was_recorded():
    """And finds nothing in the chart that it would warn of."""
    assert chart.recording() == RECORDED
    lint = ["helm", "lint", "--strict", "--kube-version", chart.KUBERNETES, str(chart.CHART)]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_helm_and_kustomize_make_the_same_objects():
    """Object for object; helm's alone is the annotation that keeps CRDs and Leases."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(ROOT / "manifests")],
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {}
    for item in chart.documents(done.stdout):
        if item["kind"] in {"CustomResourceDefinition", "Lease"}:
            item["metadata"].setdefault("annotations", {})[chart.KEEP] = "keep"
        wanted[chart.key_of(item)] = item
    namespace = wanted.pop("Namespace//gpusched-system")
    assert RECORDED["objects"] == {
        key: chart.object_digest(item) for key, item in sorted(wanted.items())
    }
    assert len(wanted) > 30
    only = RECORDED["cases"]["rendered for kubectl"]
    assert only == {"without": [], "with": [namespace]}


def test_an_object_that_helm_makes_otherwise_is_found():
    """The comparison can fail: one number more is another digest."""
    known = {"Deployment//a": {"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"x": 1}}}
    other = {"Deployment//a": {"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"x": 2}}}
    assert chart.differences(known, known) == {"without": [], "with": []}
    assert chart.differences(known, other)["with"] == list(other.values())
    assert chart.object_digest(known["Deployment//a"]) != chart.object_digest(
        other["Deployment//a"]
    )


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_cannot_be_meant_are_refused(name):
    """With a sentence, before anything is sent to a cluster."""
    assert REFUSED[name] in RECORDED["cases"][name]["refused"]


def test_each_case_is_either_refused_or_rendered():
    """No case is recorded that no test reads."""
    assert {name for name, case in RECORDED["cases"].items() if "refused" in case} == set(REFUSED)
    assert list(RECORDED["cases"]) == sorted(chart.cases())


def test_what_is_switched_off_is_not_there():
    """And one replica has no disruption budget, which would block every drain."""
    kinds = {key.partition("/")[0] for key in RECORDED["cases"]["small"]["without"]}
    assert kinds == {
        "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "NetworkPolicy",
        "PodDisruptionBudget", "PriorityClass", "Role", "RoleBinding", "Service",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    }  # fmt: skip
    assert "Service/gpusched-system/gpusched-view" in RECORDED["cases"]["small"]["without"]
    assert container("small")["args"][1:] == [
        "--config", "/etc/gpusched/gpusched.yaml", "--view", "none",
    ]  # fmt: skip
    spec = rendered("small")["Deployment/gpusched"]["spec"]
    assert spec["replicas"] == 1
    assert "priorityClassName" not in spec["template"]["spec"]
    assert "annotations" not in spec["template"]["metadata"]
    assert "history" not in json.dumps(spec["template"]["spec"])


def test_values_of_the_daemon_arrive():
    """Image, arguments, volumes, resources and where it runs."""
    found = container("elsewhere")
    assert found["image"].startswith("registry.example.com/team/gpusched@sha256:0123")
    assert found["imagePullPolicy"] == "Always"
    assert found["args"][5:] == ["--log-format=json", "--record-decisions=/a folder"]
    assert {"name": "OTEL_TRACES_SAMPLER", "value": "always_off"} in found["env"]
    assert found["resources"]["requests"]["cpu"] == "1"
    assert {"name": "decisions", "mountPath": "/a folder"} in found["volumeMounts"]
    pod = rendered("elsewhere")["Deployment/gpusched"]["spec"]["template"]["spec"]
    assert {"name": "decisions", "emptyDir": {"sizeLimit": "1Gi"}} in pod["volumes"]
    (kept,) = (each for each in pod["volumes"] if each["name"] == "history")
    assert kept["persistentVolumeClaim"] == {"claimName": "what-became-of-gangs"}
    assert "emptyDir" not in kept
    assert pod["nodeSelector"]["pool"] == "system"
    assert pod["tolerations"] == [{"key": "system", "operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_in_another_namespace_nothing_names_the_usual_one():
    """Policies know the daemon by its service account, and that is where the release is."""
    found = rendered("elsewhere")
    comments_left_out = json.dumps(list(found.values()))
    assert "gpusched-system" not in comments_left_out
    fence = json.dumps(found["ValidatingAdmissionPolicy/gpusched-fence"])
    assert "system:serviceaccount:batch:gpusched" in fence
    peers = json.dumps(found["NetworkPolicy/gpusched"])
    assert peers.count("observability") == 2


def test_names_of_schedulers_reach_configuration_and_policies():
    """One value: a name that only one of them had would be a hole."""
    found = rendered("elsewhere")
    config = load_config(
        found["ConfigMap/gpusched"]["data"]["gpusched.yaml"], source="gpusched.yaml"
    )
    assert config.scheduler_names == ("gpusched", "kai-scheduler")
    assert config.cycle.max_period_s == 30
    for policy in ("gpusched-node-name", "gpusched-queues"):
        text = json.dumps(found[f"ValidatingAdmissionPolicy/{policy}"])
        assert "in ['gpusched', 'kai-scheduler']" in text


def test_a_whole_configuration_is_taken_as_it_is():
    """With its comments; layouts of GPUs, too."""
    data = rendered("whole configuration")["ConfigMap/gpusched"]["data"]
    assert data["gpusched.yaml"] == "# ours\ncycle: {maxPeriod: 20s}\n"
    assert data["gpu-layouts.yaml"] == "layouts: {}\n"


def test_shards_of_the_configuration_are_made_as_in_the_example():
    """A Deployment, Leases, rights and a fence for each; those of a daemon of the whole cluster are left out."""
    folder = ROOT / "manifests" / "shards"
    wanted = {}
    for name in ("leases", "rbac", "fence", "deployments"):
        for item in chart.documents((folder / f"{name}.yaml").read_text(encoding="utf-8")):
            if item["kind"] in {"ConfigMap", "Lease"}:
                item["metadata"].setdefault("annotations", {})[chart.KEEP] = "keep"
            wanted[chart.key_of(item)] = item
    made = {chart.key_of(item): item for item in RECORDED["cases"]["shards"]["with"]}
    config = made.pop("ConfigMap/gpusched-system/gpusched")["data"]["gpusched.yaml"]
    assert [each.name for each in load_config(config, source="gpusched.yaml").shards] == [
        "north", "south",
    ]  # fmt: skip
    assert made == wanted
    assert RECORDED["cases"]["shards"]["without"] == [
        "Deployment/gpusched-system/gpusched",
        "PodDisruptionBudget/gpusched-system/gpusched",  # one replica of each
        "ValidatingAdmissionPolicy//gpusched-fence",
        "ValidatingAdmissionPolicyBinding//gpusched-fence",
    ]


def test_each_shard_is_cared_for_by_the_daemons_of_the_next_ones_too():
    """Of three shards, in whichever form the configuration is given."""
    found = rendered("shards in a whole configuration")
    orders = []
    for name in ("a", "b", "c"):
        spec = found[f"Deployment/gpusched-{name}"]["spec"]
        arguments = spec["template"]["spec"]["containers"][0]["args"]
        orders.append(arguments[arguments.index("--shard") + 1])
    assert orders == ["a,b,c", "b,c,a", "c,a,b"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_monitoring_is_the_same_by_both_ways():
    """Monitor, rules with their templates unread, dashboards; labels are helm's alone."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(ROOT / "manifests" / "monitoring")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    wanted = {chart.key_of(item): item for item in chart.documents(done.stdout)}
    made = {chart.key_of(item): item for item in rendered("monitored").values()}
    for kind in ("PrometheusRule", "ServiceMonitor"):
        assert made[f"{kind}/gpusched-system/gpusched"]["metadata"]["labels"].pop("release")
    assert made == wanted


def test_chart_and_program_have_one_version():
    """A release is one thing."""
    told = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (told["version"], told["appVersion"]) == (__version__, __version__)


def test_every_value_has_a_type_and_a_place():
    """Schema and values name the same; a value that no template reads would be a promise."""

    def names(values: Any, schema: Any, path: str = "") -> set[str]:
        if "properties" not in schema:
            return {path}
        assert isinstance(values, dict)
        assert set(schema["properties"]) - {"global"} == set(values), path
        return set().union(
            *(names(values[key], schema["properties"][key], f"{path}.{key}") for key in values)
        )

    values = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
    texts = "".join(
        file.read_text(encoding="utf-8")
        for file in (chart.CHART / "templates").rglob("*")
        if file.is_file()
    )
    read = set(re.findall(r"\.Values((?:\.\w+)+)", texts))
    assert names(values, schema) == read


def test_an_edit_that_does_not_fit_is_an_error(monkeypatch):
    """A manifest that changed under it is told, not rendered as it was."""
    monkeypatch.setitem(chart.EDITS, "pdb.yaml", [{"text": "minAvailable: 2", "becomes": "x"}])
    with pytest.raises(chart.ChartError, match=r"manifests/pdb\.yaml has this text 0 times"):
        chart.template("pdb.yaml")
