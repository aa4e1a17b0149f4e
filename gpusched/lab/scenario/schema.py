"""The JSON Schema of scenario files, for editors: ``python -m gpusched.lab.scenario.schema``.

Made of the same table of fields as the reader, so that the two cannot differ. What hangs by
several fields at once, or by other files, only the reader knows.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from gpusched.lab.scenario.expansion.nodes import AMOUNTS
from gpusched.lab.scenario.file import fields
from gpusched.lab.scenario.file.expectation_fields import FORMS, TABLE
from gpusched.lab.scenario.file.objects import QUEUE, kind_definition
from gpusched.lab.scenario.file.value_types import QuantityType, Schema
from gpusched.lab.scenario.file.workload_fields import NAME, WORKLOAD
from gpusched.lab.scenario.model.scenario import KIND

FILE: Final = "kwok-scenarios/scenario.schema.json"
_DEFINED: Final = (fields.NODES, fields.ENTRY, WORKLOAD, *FORMS.values(), TABLE)
_KEPT: Final = frozenset({"type", "description", "properties", "items", "required", "enum",
    "minimum", "maximum", "minLength", "maxLength", "maxItems", "maxProperties", "pattern",
    "additionalProperties", "anyOf"})  # fmt: skip


def scenario_schema() -> Schema:
    """The whole schema, draft 2020-12."""
    definitions = {table.schema_id: table.definition() for table in _DEFINED}
    definitions["queue"] = _queue()
    scenario = fields.SCENARIO.definition()
    spec = scenario["properties"]["spec"]["properties"]
    spec["queues"]["items"] = {"$ref": "#/$defs/queue"}
    is_one = {"properties": {"kind": {"const": KIND}}, "required": ["kind"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Scenario of gpusched",
        "description": "A cluster, a timeline and what is expected of it; or an object beside it.",
        "type": "object",
        "if": is_one,
        "then": scenario,
        "else": {"required": ["apiVersion", "kind"]},
        "$defs": definitions,
    }


def _queue() -> Schema:
    """A queue in short: the fields of its spec beside its name."""
    found = _plain(kind_definition(QUEUE))
    name = {"description": fields.QUEUE_NAME.doc, **NAME.schema()}
    properties: dict[str, Any] = {"name": name, **found["properties"]}
    for key in (*AMOUNTS, "guarantee"):
        properties[key] = {
            "description": properties[key]["description"],
            "anyOf": [
                {"description": "So many GPUs.", "type": "number", "minimum": 0},
                properties[key],
            ],
        }
    return {
        "type": "object",
        "properties": properties,
        "required": ["name"],
        "additionalProperties": False,
    }


def _plain(part: Any) -> Any:
    """A schema of a definition without what only Kubernetes understands; unknown keys refused."""
    if part.get("x-kubernetes-int-or-string"):
        return QuantityType().schema()
    found: Schema = {}
    for key, value in part.items():
        if key not in _KEPT:
            continue
        if key == "properties":
            found[key] = {name: _plain(inner) for name, inner in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            found[key] = _plain(value)
        else:
            found[key] = value
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def schema_text() -> str:
    """The schema as the file has it."""
    return json.dumps(scenario_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
