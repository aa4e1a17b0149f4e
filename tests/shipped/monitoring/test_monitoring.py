"""What is shipped for monitoring: alerts that fire as they should, runbooks, dashboards in one piece."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.ci_scripts import ROOT, ci_script

monitoring = ci_script("monitoring")
ALERTS = monitoring.PLACE / "alerts.yaml"
CASES = Path(__file__).with_name("alerts_test.yaml")
DASHBOARDS = sorted((monitoring.PLACE / "dashboards").glob("*.json"))
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


def promtool(
    folder: Path, *words: str, alerts: str = "", cases: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run promtool in a folder with the rules, or with others, and their cases, or a part of them."""
    (folder / "alerts.yaml").write_text(alerts or ALERTS.read_text())
    (folder / CASES.name).write_text(cases or CASES.read_text())
    return subprocess.run(
        ["promtool", *words], cwd=folder, capture_output=True, text=True, check=False
    )


@NEEDS_PROMTOOL
def test_every_rule_is_one(tmp_path):
    """As Prometheus reads it."""
    done = promtool(tmp_path, "check", "rules", "alerts.yaml")
    assert done.returncode == 0, done.stderr
    assert f"{len(monitoring.alerts())} rules found" in done.stdout


@NEEDS_PROMTOOL
def test_alerts_fire_where_they_should_and_nowhere_else(tmp_path):
    """Each with its labels and sentences, after its time, and silent while all is well."""
    done = promtool(tmp_path, "test", "rules", CASES.name)
    assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("sum(gpusched_leader) == 0", "sum(gpusched_leaders) == 0"),
        ("> 2.5", "> 25"),
        (" and on (instance) (gpusched_leader == 1)", ""),
    ],
)
def test_a_rule_that_is_wrong_is_found(tmp_path, text, other):
    """A misspelt metric, another bound, a standby that counts: the cases tell."""
    about = {rule["alert"] for rule in monitoring.alerts() if text in rule["expr"]}
    whole = yaml.load(CASES.read_text(), yaml.BaseLoader)  # 0x90 is a text
    whole["tests"] = [
        test
        for test in whole["tests"]
        if any(case["alertname"] in about for case in test["alert_rule_test"])
    ]
    told = {"cases": yaml.safe_dump(whole)}
    assert promtool(tmp_path, "test", "rules", CASES.name, **told).returncode == 0
    wrong = ALERTS.read_text().replace(text, other)
    assert promtool(tmp_path, "test", "rules", CASES.name, alerts=wrong, **told).returncode == 1


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    """A rule without either says nothing about itself."""
    cases = [
        case
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    alerts = {rule["alert"] for rule in monitoring.alerts()}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts


def test_every_alert_has_a_runbook():
    """With what it means, how to look and what to do, under the anchor that the alert names."""
    text = (ROOT / "docs" / "runbooks.md").read_text()
    sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", text))
    assert list(sections) == [rule["alert"] for rule in monitoring.alerts()]
    for rule in monitoring.alerts():
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        body = sections[rule["alert"]]
        assert [part for part in ("**Means.**", "**Look.**", "**Do.**") if part not in body] == []


def test_what_is_made_is_there():
    """`make chart` makes dashboards and the PrometheusRule; nobody edits them."""
    made = monitoring.contents()
    assert {name: (monitoring.PLACE / name).read_text() for name in made} == made
    assert {f"dashboards/{file.name}" for file in DASHBOARDS} == set(made) - {"prometheusrule.yaml"}


def test_both_forms_of_the_rules_hold_the_same():
    """For Prometheus alone, and for its operator."""
    rule = yaml.safe_load((monitoring.PLACE / "prometheusrule.yaml").read_text())
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())


def test_the_kustomization_names_every_file():
    """No dashboard and no manifest is forgotten."""
    told = yaml.safe_load((monitoring.PLACE / "kustomization.yaml").read_text())
    (dashboards,) = told["configMapGenerator"]
    listed = {*told["resources"], *dashboards["files"], "kustomization.yaml", "alerts.yaml"}
    present = {
        file.relative_to(monitoring.PLACE).as_posix()
        for file in monitoring.PLACE.rglob("*")
        if file.is_file()
    }
    assert listed == present


def test_the_monitor_finds_the_service_and_the_service_the_pods():
    """Labels, names of ports and the port of the daemon's container agree."""

    def load(name: str) -> dict:
        return yaml.safe_load((ROOT / "manifests" / name).read_text())

    service, monitor = load("monitoring/service.yaml"), load("monitoring/servicemonitor.yaml")
    template = load("deployment.yaml")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    assert port["targetPort"] in {each["name"] for each in container["ports"]}
    assert monitor["spec"]["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_can_be_imported(file):
    """Panels have titles of their own, places that do not overlap, queries and what they mean."""
    told = json.loads(file.read_text())
    assert told["uid"] == f"gpusched-{file.stem}"
    variables = {each["name"] for each in told["templating"]["list"]}
    panels = told["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["description"], panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        for target in panel["targets"]:
            used = set(re.findall(r"\$\{?(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, target["expr"]
            assert target["expr"].count("(") == target["expr"].count(")")
            assert "LEADER" not in target["expr"]
