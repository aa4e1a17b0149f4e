"""Fields of our own kinds as their CRDs declare them: what fuzzers draw from needs no other list."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parents[3] / "manifests" / "crds"
DURATION_RULE = "must be a duration"


@cache
def spec_schema(plural: str) -> dict[str, Any]:
    """The schema of ``spec`` of a kind, in its first version."""
    crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text(encoding="utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]
    return found


def spec_paths(plural: str) -> tuple[tuple[str, ...], ...]:
    """Paths of ``spec`` and of all fields in it that stand in no list, in the order of the CRD."""
    return (("spec",), *_paths(spec_schema(plural), ("spec",)))


def _paths(schema: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in schema.get("properties", {}).items():
        yield (*above, name)
        yield from _paths(field, (*above, name))


def durations(plural: str) -> tuple[str, ...]:
    """Names of the fields of ``spec`` itself that hold a duration."""
    return tuple(
        name
        for name, field in spec_schema(plural)["properties"].items()
        if any(
            rule["message"].startswith(DURATION_RULE)
            for rule in field.get("x-kubernetes-validations", ())
        )
    )
