"""Reads Stage documents strictly: what is not understood refuses the Stage, by name and field."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import purejq
import yaml

from gpusched.devcluster.apimachinery.json_values import pack_value
from gpusched.devcluster.apimachinery.yaml_text import load_all_documents
from gpusched.devcluster.stages.expressions import compile_cel, compile_jq
from gpusched.devcluster.stages.model import (
    ApplyStep,
    CelTest,
    DeleteStep,
    EqualTest,
    EventStep,
    FinalizersStep,
    JqTest,
    KwokStage,
    PatchStep,
    PatchType,
    StageDelay,
    StageError,
    StageExpression,
    Step,
    Test,
)
from gpusched.devcluster.stages.templates import execution
from gpusched.devcluster.stages.templates.functions import known_functions
from gpusched.devcluster.stages.templates.parser import TemplateError

API_GROUP: Final = "kwok.x-k8s.io"
_PATCH_TYPES: Final[dict[str, PatchType]] = {
    "json": "json",
    "merge": "merge",
    "strategic": "strategic",
}
_SPEC_KEYS: Final = frozenset(
    {
        "resourceRef",
        "selector",
        "weight",
        "weightFrom",
        "delay",
        "next",
        "steps",
        "immediateNextStage",
    }
)


def _checked(mapping: Any, known: Iterable[str], where: str) -> dict[str, Any]:
    if mapping is None:
        return {}
    if not isinstance(mapping, dict):
        raise StageError(f"{where} must be a mapping")
    unknown = sorted(set(mapping) - set(known))
    if unknown:
        raise StageError(
            f"{where}.{unknown[0]} is not supported; known: {', '.join(sorted(known))}"
        )
    return mapping


def _expression(value: Any, where: str) -> StageExpression | None:
    if value is None:
        return None
    fields = _checked(value, {"expressionFrom", "jq", "cel"}, where)
    try:
        if "cel" in fields:
            text = str(_checked(fields["cel"], {"expression"}, f"{where}.cel").get("expression"))
            compile_cel(text)
            return StageExpression("cel", text)
        inner = fields.get("jq")
        text = fields.get("expressionFrom") or _checked(inner, {"expression"}, where)["expression"]
        compile_jq(text)
    except (ValueError, KeyError, purejq.JqError, purejq.JqParseError) as fault:
        raise StageError(f"{where} holds no usable expression: {fault}") from fault
    return StageExpression("jq", text)


def _test(value: Any, where: str) -> Test:
    fields = _checked(value, {"key", "operator", "values", "jq", "cel"}, where)
    if "cel" in fields:
        source = _checked(fields["cel"], {"expression"}, f"{where}.cel").get("expression")
        expression = _expression({"cel": {"expression": source}}, where)
        assert expression is not None
        return CelTest(expression.text)
    fields = _checked(fields.get("jq", fields), {"key", "operator", "values", "expression"}, where)
    key = fields.get("key") or fields.get("expression")
    operator = fields.get("operator")
    values = fields.get("values") or []
    if operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
        raise StageError(f"{where}.operator is {operator!r}: use In, NotIn, Exists or DoesNotExist")
    if bool(values) != (operator in {"In", "NotIn"}):
        raise StageError(f"{where}.values must be given with In and NotIn, and only with them")
    _expression({"expressionFrom": key}, where)
    return JqTest(str(key), operator, frozenset(str(value) for value in values))


def _selector(value: Any, where: str) -> tuple[Test, ...]:
    fields = _checked(value, {"matchLabels", "matchAnnotations", "matchExpressions"}, where)
    tests: list[Test] = [
        EqualTest("labels", key, text) for key, text in (fields.get("matchLabels") or {}).items()
    ]
    tests += [
        EqualTest("annotations", key, text)
        for key, text in (fields.get("matchAnnotations") or {}).items()
    ]
    for at, test in enumerate(fields.get("matchExpressions") or []):
        tests.append(_test(test, f"{where}.matchExpressions[{at}]"))
    return tuple(tests)


def _delay(value: Any, where: str) -> StageDelay | None:
    if value is None:
        return None
    known = {
        "durationMilliseconds",
        "durationFrom",
        "jitterDurationMilliseconds",
        "jitterDurationFrom",
    }
    fields = _checked(value, known, where)
    return StageDelay(
        duration_ms=fields.get("durationMilliseconds"),
        duration_from=_expression(fields.get("durationFrom"), f"{where}.durationFrom"),
        jitter_ms=fields.get("jitterDurationMilliseconds"),
        jitter_from=_expression(fields.get("jitterDurationFrom"), f"{where}.jitterDurationFrom"),
    )


def _template(text: Any, kind: str, where: str) -> str:
    if not isinstance(text, str):
        raise StageError(f"{where} must be the text of a template")
    try:
        parsed = execution.parse_cached(text)
    except TemplateError as fault:
        raise StageError(f"{where}: {fault}") from fault
    unknown = parsed.functions - known_functions(kind) - execution.LANGUAGE_FUNCTIONS
    if unknown:
        raise StageError(f"{where} calls {min(unknown)}, which is not a function for {kind} here")
    return text


def _patch(value: Any, kind: str, where: str) -> PatchStep:
    fields = _checked(value, {"subresource", "root", "template", "type"}, where)
    named = fields.get("type")
    if named is not None and named not in _PATCH_TYPES:
        raise StageError(f"{where}.type is {named!r}: use json, merge or strategic")
    return PatchStep(
        template=_template(fields.get("template"), kind, f"{where}.template"),
        root=fields.get("root") or "",
        subresource=fields.get("subresource") or "",
        type=None if named is None else _PATCH_TYPES[named],
    )


def _event(value: Any, where: str) -> EventStep:
    fields = _checked(value, {"type", "reason", "message"}, where)
    return EventStep(
        fields.get("type") or "Normal", fields.get("reason") or "", fields.get("message") or ""
    )


def _finalizers(value: Any, where: str) -> FinalizersStep:
    fields = _checked(value, {"add", "remove", "empty"}, where)

    def names(key: str) -> tuple[str, ...]:
        return tuple(item["value"] for item in fields.get(key) or [])

    return FinalizersStep(names("add"), names("remove"), bool(fields.get("empty")))


def _next(value: Any, kind: str) -> list[Step]:
    where = "spec.next"
    known = {"event", "finalizers", "patches", "statusTemplate", "statusSubresource", "delete"}
    fields = _checked(value, known, where)
    steps: list[Step] = []
    if fields.get("event"):
        steps.append(_event(fields["event"], f"{where}.event"))
    if fields.get("finalizers"):
        steps.append(_finalizers(fields["finalizers"], f"{where}.finalizers"))
    for at, patch in enumerate(fields.get("patches") or []):
        steps.append(_patch(patch, kind, f"{where}.patches[{at}]"))
    if fields.get("statusTemplate") and not fields.get("patches"):
        template = _template(fields["statusTemplate"], kind, f"{where}.statusTemplate")
        subresource = fields.get("statusSubresource", "status")
        steps.append(PatchStep(template, root="status", subresource=subresource))
    if fields.get("delete"):
        steps.append(DeleteStep())
    return steps


def _steps(values: Any, kind: str) -> list[Step]:
    steps: list[Step] = []
    for at, value in enumerate(values or []):
        where = f"spec.steps[{at}]"
        fields = _checked(value, {"event", "finalizers", "patch", "apply", "delete"}, where)
        if fields.get("event"):
            steps.append(_event(fields["event"], f"{where}.event"))
        if fields.get("finalizers"):
            steps.append(_finalizers(fields["finalizers"], f"{where}.finalizers"))
        if fields.get("patch"):
            steps.append(_patch(fields["patch"], kind, f"{where}.patch"))
        if fields.get("apply"):
            steps.append(_apply(fields["apply"], kind, f"{where}.apply"))
        if fields.get("delete"):
            steps.append(DeleteStep())
    return steps


def _apply(value: Any, kind: str, where: str) -> ApplyStep:
    fields = _checked(value, {"subresource", "template", "type"}, where)
    named = fields.get("type")
    if named is not None and named not in _PATCH_TYPES:
        raise StageError(f"{where}.type is {named!r}: use json, merge or strategic")
    template = _template(fields.get("template"), kind, f"{where}.template")
    return ApplyStep(
        template, fields.get("subresource") or "", _PATCH_TYPES[named] if named else "apply"
    )


def read_stage(document: dict[str, Any]) -> KwokStage | None:
    """A Stage out of its decoded document; None when it has no selector and so matches nothing.

    Raises:
        StageError: the document cannot be used.
    """
    name = (document.get("metadata") or {}).get("name", "")
    packed = pack_value(document.get("spec"))
    try:
        return _stage(name, document.get("spec")) if packed is None else _read_packed(name, packed)
    except StageError as fault:
        raise StageError(f"Stage {name!r}: {fault}") from fault


@functools.lru_cache(maxsize=64)  # each new cluster of a process has the same Stages
def _read_packed(name: str, spec: bytes) -> KwokStage | None:
    return _stage(name, msgspec.msgpack.decode(spec))


def _stage(name: str, value: Any) -> KwokStage | None:
    spec = _checked(value, _SPEC_KEYS, "spec")
    reference = _checked(spec.get("resourceRef"), {"apiGroup", "kind"}, "spec.resourceRef")
    kind = reference.get("kind")
    if not isinstance(kind, str) or not kind:
        raise StageError("spec.resourceRef.kind is missing")
    if "selector" not in spec or spec["selector"] is None:
        return None
    steps = [*_next(spec.get("next"), kind), *_steps(spec.get("steps"), kind)]
    return KwokStage(
        name=name,
        group_version=reference.get("apiGroup") or "v1",
        kind=kind,
        tests=_selector(spec["selector"], "spec.selector"),
        steps=tuple(steps),
        weight=spec.get("weight") or 0,
        weight_from=_expression(spec.get("weightFrom"), "spec.weightFrom"),
        delay=_delay(spec.get("delay"), "spec.delay"),
        immediate_next=bool(spec.get("immediateNextStage")),
    )


def load_stages(paths: Iterable[Path]) -> list[KwokStage]:
    """All Stages in YAML files and folders of such, in name order; other kinds are passed over.

    Raises:
        StageError: a file cannot be read as YAML or holds an unusable Stage.
    """
    read = [read_stage(document) for document in stage_documents(paths)]
    return sorted((one for one in read if one is not None), key=lambda one: one.name)


def stage_documents(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The Stage documents of YAML files and folders of such, the last one of each name.

    Raises:
        StageError: a file cannot be read, is not YAML, or there is no Stage at all.
    """
    found: dict[str, dict[str, Any]] = {}
    given = list(paths)
    for path in given:
        files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        for document in (one for file in files for one in _documents(file)):
            found[(document.get("metadata") or {}).get("name", "")] = document
    if not found:
        raise StageError(f"no Stage of {API_GROUP} in {', '.join(map(str, given))}")
    return [found[name] for name in sorted(found)]


def _documents(file: Path) -> list[dict[str, Any]]:
    try:
        read = load_all_documents(file.read_text(encoding="utf-8"))
    except OSError as fault:
        raise StageError(f"{file} cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise StageError(f"{file.name} is not YAML: it is no UTF-8 text") from fault
    except yaml.YAMLError as fault:
        raise StageError(f"{file.name} is not YAML: {fault}") from fault
    return [
        document
        for document in read
        if isinstance(document, dict)
        and document.get("kind") == "Stage"
        and str(document.get("apiVersion", "")).startswith(f"{API_GROUP}/")
    ]
