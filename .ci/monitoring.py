"""Dashboards of Grafana and the PrometheusRule, made from .ci/dashboards.yaml and manifests/monitoring/alerts.yaml.

`make chart` calls it. A test compares what it makes with what is there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
PLACE: Final = ROOT / "manifests" / "monitoring"
SOURCE: Final = Path(__file__).with_name("dashboards.yaml")
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_HEIGHT: Final = {"stat": 4, "timeseries": 8, "table": 8}
_WIDTH: Final = {"stat": 6, "timeseries": 12, "table": 12}
_LEADER: Final = re.compile(r"LEADER\(([^()]*)\)")
_RULE_HEAD: Final = """\
# Made of alerts.yaml by `make chart`. Some installations select rules by a label: add theirs.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gpusched
  namespace: gpusched-system
  labels:
    app.kubernetes.io/name: gpusched
spec:
"""


def dashboards() -> dict[str, dict[str, Any]]:
    """The source, by name of the file."""
    read: dict[str, dict[str, Any]] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return read


def alerts() -> list[dict[str, Any]]:
    """All rules for alerts."""
    groups = yaml.safe_load((PLACE / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def query(short: str) -> str:
    """A query as Prometheus takes it: only the leader's rows where it says so."""
    return _LEADER.sub(r"(\1 and on (instance) (gpusched_leader == 1))", short)


def queries(panel: Mapping[str, Any]) -> dict[str, str]:
    """Queries of a panel by legend."""
    return {legend: query(short) for legend, short in panel["queries"].items()}


def dashboard(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The model that Grafana imports.

    Args:
        name: of the file.
        told: its part of the source.
    """
    return {
        "uid": f"gpusched-{name}",
        "title": told["title"],
        "description": told["about"],
        "tags": ["gpusched"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [_datasource(), *(_variable(*each) for each in told.get("variables", {}).items())]
        },
        "links": [
            {
                "type": "dashboards", "title": "gpusched", "tags": ["gpusched"],
                "asDropdown": True, "includeVars": False, "keepTime": True,
            }
        ],
        "panels": _panels(told["panels"]),
    }  # fmt: skip


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(name: str, asked: str) -> dict[str, Any]:
    if asked == "text":
        return {"name": name, "label": name, "type": "textbox", "query": ""}
    several = name != "namespace"
    return {
        "name": name, "label": name, "type": "query", "datasource": DATASOURCE, "query": asked,
        "refresh": 2, "sort": 1, "multi": several, "includeAll": several, "allValue": ".*",
    }  # fmt: skip


def _panels(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Panels from the left to the right and down, each row as high as its highest one."""
    made, left, top, height = [], 0, 0, 0
    for number, panel in enumerate(told, start=1):
        kind = panel.get("kind", "timeseries")
        if left + _WIDTH[kind] > _COLUMNS or _HEIGHT[kind] < height:
            left, top, height = 0, top + height, 0
        place = {"x": left, "y": top, "w": _WIDTH[kind], "h": _HEIGHT[kind]}
        left, height = left + _WIDTH[kind], max(height, _HEIGHT[kind])
        made.append(_panel(panel, kind, number) | {"gridPos": place})
    return made


def _panel(panel: Mapping[str, Any], kind: str, number: int) -> dict[str, Any]:
    table = kind == "table"
    return {
        "id": number,
        "type": kind,
        "title": panel["title"],
        "description": panel["means"],
        "datasource": DATASOURCE,
        "fieldConfig": {
            "defaults": {"unit": panel.get("unit", "short"), "min": 0, "noValue": "none"},
            "overrides": [],
        },
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if kind == "stat" else {},
        "targets": [
            {
                "refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": expr,
                "legendFormat": legend, "instant": table, "range": not table,
            } | ({"format": "table"} if table else {})
            for index, (legend, expr) in enumerate(queries(panel).items())
        ],
    }  # fmt: skip


def contents() -> dict[str, str]:
    """All files that are made, by their names below manifests/monitoring."""
    made = {
        f"dashboards/{name}.json": json.dumps(dashboard(name, told), indent=1) + "\n"
        for name, told in dashboards().items()
    }
    text = (PLACE / "alerts.yaml").read_text(encoding="utf-8")
    rules = text[text.index("groups:") :]
    made["prometheusrule.yaml"] = _RULE_HEAD + "".join(
        f"  {line}" if line.strip() else line for line in rules.splitlines(keepends=True)
    )
    return made


def write() -> None:
    """Make the files anew."""
    for name, text in contents().items():
        file = PLACE / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
    sys.exit(0)
