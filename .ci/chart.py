"""The templates of the Helm chart in manifests/helm, made from the manifests that kustomize applies.

    python .ci/chart.py            writes templates/ and files/ anew; `make chart` calls it
    python .ci/chart.py record     also lets helm render the cases, for the tests (needs helm 3 on PATH)

chart_edits.yaml names texts of manifests and what stands in their place in the template. A text that a
manifest does not have exactly once is an error, so that no change of a manifest is lost on the way.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "manifests" / "helm"
CASES: Final = ROOT / "tests" / "shipped" / "manifests" / "chart_cases.yaml"
RECORDING: Final = CASES.with_name("chart_recording.json")
NAMESPACE: Final = "gpusched-system"
KEEP: Final = "helm.sh/resource-policy"
"""The annotation by which helm leaves an object where it is when the chart is uninstalled."""
KUBERNETES: Final = "1.36.0"
"""For which the cases are rendered."""
MADE: Final = ("templates", "files")
"""Folders of the chart that are written anew; what else is there is written by hand."""
BY_HAND: Final = ("_helpers.tpl", "NOTES.txt")
"""Files in templates/ that are written by hand."""

_LABEL: Final = "  labels:\n    app.kubernetes.io/name: gpusched\n"
_KEPT: Final = f"  annotations:\n    {KEEP}: keep\n{_LABEL}"
_MONITORING: Final = (
    "kubernetes.io/metadata.name: monitoring",
    "kubernetes.io/metadata.name: {{ .Values.networkPolicy.monitoringNamespace }}",
)

WHEN: Final = {
    "shards/fence.yaml": 'and .Values.policies.enabled (include "gpusched.shards" .)',
    "shards/": 'include "gpusched.shards" .',
    "policies/fence.yaml": 'and .Values.policies.enabled (not (include "gpusched.shards" .))',
    "namespace.yaml": ".Values.namespace.create",
    "crds/": ".Values.crds.create",
    "priorityclass.yaml": ".Values.priorityClass.create",
    "rbac-adapters.yaml": ".Values.rbac.adapters",
    "rbac-users.yaml": ".Values.rbac.users",
    "policies/": ".Values.policies.enabled",
    "policies-other-projects/": ".Values.policies.otherProjects",
    "policies-stamp/": ".Values.policies.stampUsers",
    "networkpolicy.yaml": ".Values.networkPolicy.enabled",
    "monitoring/service": ".Values.monitoring.serviceMonitor",
    "view.yaml": ".Values.view.enabled",
    "pdb.yaml": "gt (int .Values.replicas) 1",
}
"""By file or folder of the manifests, the condition under which the chart has its objects."""

EACH: Final = {"deployment.yaml": "gpusched.deployment"}
"""Templates that are made once for each shard, or once where there are none, and what they are called by."""
SHARDED: Final = """\
{{{{- define "{name}" -}}}}
{text}{{{{- end }}}}
{{{{- range $order := include "gpusched.shardOrders" . | fromJsonArray }}}}
---
{{{{ include "{name}" (merge (dict "order" $order) $) }}}}
{{{{- end }}}}
"""

EDITS: Final[dict[str, list[dict[str, str]]]] = yaml.safe_load(
    Path(__file__).with_name("chart_edits.yaml").read_text(encoding="utf-8")
)
"""By file of the manifests, texts and what ``becomes`` of them."""

MONITORED: Final = """\
{{- if .Values.monitoring.rules }}
# For the operator of Prometheus; files/alerts.yaml says what fires when.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gpusched
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: gpusched
    {{- with .Values.monitoring.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- .Files.Get "files/alerts.yaml" | nindent 2 }}
{{- end }}
---
{{- if .Values.monitoring.dashboards }}
# Grafana's sidecar loads ConfigMaps with this label.
apiVersion: v1
kind: ConfigMap
metadata:
  name: gpusched-dashboards
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: gpusched
    grafana_dashboard: "1"
data:
  {{- (.Files.Glob "files/dashboards/*.json").AsConfig | nindent 2 }}
{{- end }}
"""
CONFIGURATION: Final = """\
# The ConfigMap that the Deployment mounts at /etc/gpusched.
apiVersion: v1
kind: ConfigMap
metadata:
  name: gpusched
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: gpusched
data:
  gpusched.yaml: |
    {{- include "gpusched.configuration" . | nindent 4 }}
  gpu-layouts.yaml: |
    {{- .Values.gpuLayouts | default (.Files.Get "files/gpu-layouts.yaml") | nindent 4 }}
"""


class ChartError(Exception):
    """The manifests are not what the edits expect."""


def sources() -> list[str]:
    """Files of the manifests of which the chart has a template, in the order of kustomize."""
    found = []
    folder = ROOT / "manifests"
    apart = ("policies-other-projects", "policies-stamp")
    shards = ("shards/leases.yaml", "shards/rbac.yaml", "shards/fence.yaml")
    more = (*apart, *shards, "monitoring/service.yaml", "monitoring/servicemonitor.yaml")
    for entry in (*_resources(folder), *more):
        if (folder / entry).is_file():
            found.append(entry)
        elif entry != "../conf":
            found += [f"{entry}/{name}" for name in _resources(folder / entry)]
    return found


def _resources(folder: Path) -> list[str]:
    text = (folder / "kustomization.yaml").read_text(encoding="utf-8")
    listed: list[str] = yaml.safe_load(text)["resources"]
    return listed


def template(name: str) -> str:
    """The template of one manifest.

    Raises:
        ChartError: an edit does not fit.
    """
    text = (ROOT / "manifests" / name).read_text(encoding="utf-8")
    if "{{" in text:
        raise ChartError(f"manifests/{name} holds two opening braces, which helm would read")
    for edit in EDITS.get(name, ()):
        before = edit["text"]
        if text.count(before) != 1:
            raise ChartError(
                f"manifests/{name} has this text {text.count(before)} times, not once; "
                f"correct .ci/chart_edits.yaml: {before!r}"
            )
        text = text.replace(before, edit["becomes"])
    if name == "networkpolicy.yaml":
        text = text.replace(*_MONITORING)
    if name in {"lease.yaml", "shards/leases.yaml"} or name.startswith("crds/"):
        text = text.replace(_LABEL, _KEPT)
    text = text.replace(NAMESPACE, "{{ .Release.Namespace }}")
    if name in EACH:
        text = SHARDED.format(name=EACH[name], text=text)
    when = next((rule for place, rule in WHEN.items() if name.startswith(place)), "")
    return f"{{{{- if {when} }}}}\n{text}{{{{- end }}}}\n" if when else text


def contents() -> dict[str, str]:
    """All files that are made, by their names in the chart."""
    made = {f"templates/{name}": template(name) for name in sources()}
    made["templates/configuration.yaml"] = CONFIGURATION
    made["templates/monitoring/rules-and-dashboards.yaml"] = MONITORED
    for name in ("gpusched.yaml", "gpu-layouts.yaml"):
        made[f"files/{name}"] = (ROOT / "conf" / name).read_text(encoding="utf-8")
    monitoring = ROOT / "manifests" / "monitoring"
    for file in (monitoring / "alerts.yaml", *sorted(monitoring.glob("dashboards/*.json"))):
        text = file.read_text(encoding="utf-8")
        made[f"files/{file.relative_to(monitoring).as_posix()}"] = text
    return made


def present() -> dict[str, str]:
    """All files of the chart that should have been made, as they are."""
    found = {}
    for folder in MADE:
        for file in sorted((CHART / folder).rglob("*")):
            if file.is_file() and file.name not in BY_HAND:
                found[file.relative_to(CHART).as_posix()] = file.read_text(encoding="utf-8")
    return found


def write() -> None:
    """Make the chart's files anew; those of manifests that are gone go."""
    made = contents()
    for name in present().keys() - made.keys():
        (CHART / name).unlink()
    for name, text in made.items():
        file = CHART / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


# -- what helm makes of it -----------------------------------------------------------------------
def chart_digest() -> str:
    """Of every file of the chart and of the cases: a recording is of exactly these."""
    digest = hashlib.sha256(CASES.read_bytes())
    for file in sorted(CHART.rglob("*")):
        if file.is_file():
            digest.update(f"\n{file.relative_to(CHART).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def cases() -> dict[str, dict[str, Any]]:
    """Values by the name of the case; the first has the default ones."""
    read: dict[str, dict[str, Any]] = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    return read


def key_of(item: dict[str, Any]) -> str:
    """Kind, namespace and name of an object."""
    metadata = item["metadata"]
    return "/".join((item["kind"], metadata.get("namespace", ""), metadata["name"]))


def object_digest(item: dict[str, Any]) -> str:
    """Of an object's content, whatever the order of its members."""
    return hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:16]


def documents(text: str) -> Iterator[dict[str, Any]]:
    """Objects of YAML text."""
    return (each for each in yaml.safe_load_all(text) if each)


def render(case: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    """What helm makes of a case: objects by key, and the sentence by which it refuses."""
    helm = shutil.which("helm")
    if helm is None:
        raise ChartError(
            "helm is not on PATH: GOBIN=$HOME/bin go install helm.sh/helm/v3/cmd/helm@v3.22.0"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as values:
        yaml.safe_dump(case.get("values") or {}, values)
        values.flush()
        done = subprocess.run(  # noqa: S603 - a program that is on PATH, and files of ours
            [
                helm, "template", "gpusched", str(CHART), "--values", values.name,
                "--namespace", case.get("namespace", NAMESPACE), "--kube-version", KUBERNETES,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        lines = [each.strip() for each in done.stderr.splitlines() if each.strip()]
        return {}, " ".join(each for each in lines if not each.startswith("Use --debug"))
    found = list(documents(done.stdout))
    made = {key_of(item): item for item in found}
    if len(made) != len(found):
        raise ChartError("an object is rendered twice")
    return made, ""


def recording() -> dict[str, Any]:
    """What helm makes of every case: digests for the first one, and what differs for the others."""
    told: dict[str, Any] = {"chart": chart_digest(), "cases": {}}
    usual: dict[str, dict[str, Any]] = {}
    for name, case in cases().items():
        made, refused = render(case)
        if not usual:
            if refused:
                raise ChartError(refused)
            usual = made
            told["objects"] = {key: object_digest(item) for key, item in sorted(made.items())}
        told["cases"][name] = {"refused": refused} if refused else differences(usual, made)
    return told


def differences(
    usual: dict[str, dict[str, Any]], made: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Keys of objects that are not there, and objects that are new or not the same."""
    return {
        "without": sorted(usual.keys() - made.keys()),
        "with": [made[key] for key in sorted(made) if usual.get(key) != made[key]],
    }


def main(words: list[str]) -> int:
    """Write the chart, and record on request."""
    try:
        write()
        if words == ["record"]:
            text = json.dumps(recording(), indent=1, sort_keys=True)
            RECORDING.write_text(text + "\n", encoding="utf-8")
    except ChartError as error:
        sys.stderr.write(f"chart: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
