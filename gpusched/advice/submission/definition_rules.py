"""What the definitions of our own kinds refuse, in the words of the API server.

Read are the definitions that are shipped with this version: those of the cluster may be older.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from gpusched.advice.submission.manifests import read_manifests
from gpusched.base import installed_files
from gpusched.cel.compilation import FAULTS, compile_expression
from gpusched.cel.schema_nodes import join, kind_of
from gpusched.config.yaml_parser import read_file
from gpusched.config.yaml_tree import did_you_mean

Schema = Mapping[str, Any]
_GROUP: Final = "scheduling.gpusched.io"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,),
    "number": (int, float), "boolean": (bool,),
}  # fmt: skip


def definition_faults(obj: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with an object of one of our kinds, one sentence each; nothing of other kinds.

    Args:
        obj: the manifest.
    """
    group, kind = str(obj["apiVersion"]).rpartition("/")[0], str(obj["kind"])
    schema = _schema(kind) if group == _GROUP else None
    if schema is None:
        return
    spec = schema["properties"]["spec"]
    if "spec" in obj:
        yield from _faults(obj["spec"], spec, "spec")
    elif "spec" in schema.get("required", ()):
        yield "spec: Required value"


@cache
def _schema(kind: str) -> Schema | None:
    """The schema of a kind's newest version; None of a kind that is none of ours."""
    for path in sorted(installed_files.path("manifests/crds").glob("*.yaml")):
        for document in read_manifests(read_file(str(path)), path.name):
            spec = document.obj.get("spec") or {}
            if (spec.get("names") or {}).get("kind") == kind:
                schema: Schema = spec["versions"][-1]["schema"]["openAPIV3Schema"]
                return schema
    return None


def _faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if value is None:
        return  # the API server takes it off, or fills in the default
    wanted = schema.get("type", "")
    right = _TYPES.get(wanted)
    if right is not None and (
        not isinstance(value, right) or (isinstance(value, bool) and wanted != "boolean")
    ):
        given = kind_of(value)
        yield f'{path}: Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'
        return
    if isinstance(value, dict):
        yield from _mapping_faults(value, schema, path)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{path}: Too many: {len(value)}: must have at most {schema['maxItems']} items"
            return
        for number, item in enumerate(value):
            yield from _faults(item, schema.get("items") or {}, f"{path}[{number}]")
    else:
        yield from _scalar_faults(value, schema, path)
    yield from _rule_faults(value, schema, path)


def _mapping_faults(value: dict[str, Any], schema: Schema, path: str) -> Iterator[str]:
    fields: Mapping[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for key in schema.get("required", ()):
        if value.get(key) is None:
            yield f"{join(path, key)}: Required value"
    for key, item in value.items():
        if key in fields:
            yield from _faults(item, fields[key], join(path, key))
        elif isinstance(others, dict):
            yield from _faults(item, others, f"{path}[{key}]" if "." in key else join(path, key))
        elif fields and not schema.get("x-kubernetes-preserve-unknown-fields"):
            close = did_you_mean(key, list(fields)).rstrip("?")
            yield f'unknown field "{join(path, key)}"{close}'


def _scalar_faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
    shown = json.dumps(value)
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if low is not None and value < low:
            yield f"{path}: Invalid value: {shown}: {path} in body should be greater than or equal to {low}"
        if high is not None and value > high:
            yield f"{path}: Invalid value: {shown}: {path} in body should be less than or equal to {high}"
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            least = schema["minLength"]
            yield f"{path}: Invalid value: {shown}: {path} in body should be at least {least} chars long"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"{path}: Too long: may not be more than {schema['maxLength']} bytes"
            return
        pattern = schema.get("pattern")
        if pattern and not re.search(pattern, value):
            yield f"{path}: Invalid value: {shown}: {path} in body should match '{pattern}'"
    words = schema.get("enum")
    if words and value not in words:
        known = ", ".join(json.dumps(each) for each in words)
        yield f"{path}: Unsupported value: {shown}: supported values: {known}"


def _rule_faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Rules of a new object: those about what it was before say nothing."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"]:
            continue
        run = _compiled_rule(rule["rule"])
        try:
            holds = run is None or run({"self": value}) is not False
        except FAULTS:
            continue  # a value of a wrong type, which is told already
        if not holds:
            yield f"{path}: Invalid value: {rule.get('message') or rule['rule']}"


@cache
def _compiled_rule(text: str) -> Any:
    run, _, _ = compile_expression(text, {"self": "dyn"})
    return run
