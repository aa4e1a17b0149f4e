"""KWOK's own stages, on KWOK's own examples, have to give KWOK's own results."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.devcluster.stages import load, matching, rendering
from gpusched.devcluster.stages.expressions import ExpressionInput
from gpusched.devcluster.stages.templates import functions

NOW = 1136214245.0  # 2006-01-02T15:04:05Z, the time of the examples
SHARED = Path(os.environ.get("GPUSCHED_SHARED", Path(__file__).parents[4] / "shared"))
INPUTS = sorted((SHARED / "kwok").glob("*/*/testdata/*.input.yaml"))
MEDIA = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def read(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_bytes(), Loader=rendering.TemplateYamlLoader)


def printed(name: str, arguments: tuple[Any, ...]) -> str:
    texts = ", ".join(
        f'"{a}"' if isinstance(a, str) else str(a).lower() if isinstance(a, bool) else str(a)
        for a in arguments
    )
    return f"<{name}({texts})>" if arguments else f"<{name}>"


def named_functions() -> dict[str, Callable[..., Any]]:
    table: dict[str, Callable[..., Any]] = {
        **functions.SPRIG,
        "Quote": functions.quote_text,
        "YAML": functions.as_yaml,
        "NodeConditions": lambda: list(functions.NODE_CONDITIONS),
    }
    for name in ("Now", "StartTime", "Version", "NodeIP", "NodeName", "NodePort", "PodIP"):
        table[name] = lambda *a, n=name: printed(n, a)
    for name in ("NodeIPWith", "PodIPWith"):
        table[name] = lambda *a, n=name: printed(n, a)
    for name in ("NodeIPsWith", "PodIPsWith"):
        table[name] = lambda *a, n=name: [f"<{i} of {printed(n, a)[1:-1]}>" for i in (0, 1)]
    return table


def shown(effect: rendering.Effect | None) -> dict[str, Any]:
    if isinstance(effect, rendering.DeleteEffect):
        return {"kind": "delete"}
    if isinstance(effect, rendering.EventEffect):
        return {
            "kind": "event",
            "message": effect.message,
            "reason": effect.reason,
            "type": effect.type,
        }
    assert effect is not None
    kind = "apply" if isinstance(effect, rendering.ApplyEffect) else "patch"
    one = {"kind": kind, "data": effect.body, "type": MEDIA[effect.type or "merge"]}
    return {**one, **({"subresource": effect.subresource} if effect.subresource else {})}


def played(stage: Any, subject: ExpressionInput) -> dict[str, Any]:
    found: dict[str, Any] = {"stage": stage.name, "weight": matching.stage_weight(stage, subject)}
    bounds = matching.delay_range(stage, subject)
    if bounds is not None:
        found["delay"] = [round(seconds * 1e9) for seconds in dict.fromkeys(bounds)]
    found["next"] = [
        shown(rendering.render_effect(step, subject.obj, named_functions())) for step in stage.steps
    ]
    return found


@pytest.mark.skipif(not INPUTS, reason="KWOK's examples are not here (GPUSCHED_SHARED)")
@pytest.mark.parametrize("path", INPUTS, ids=lambda p: f"{p.parts[-4]}-{p.parts[-3]}-{p.stem}")
def test_stage_plays_as_on_kwok(path: Path) -> None:
    """Given KWOK's stages and object, the same stages match, wait and write the same."""
    stages = load.load_stages(sorted(path.parents[1].glob("*.yaml")))
    obj = read(path)
    want = read(path.with_name(path.name.replace(".input.", ".output.")))

    subject = ExpressionInput(obj, now=NOW)
    kind = [s for s in stages if (s.group_version, s.kind) == (obj["apiVersion"], obj["kind"])]
    found = [played(stage, subject) for stage in matching.matching_stages(kind, subject)]

    assert found == want["stages"]
    assert (
        matching.pick_stage(matching.matching_stages(kind, subject), subject, random.Random(1))
        is not None
    )
