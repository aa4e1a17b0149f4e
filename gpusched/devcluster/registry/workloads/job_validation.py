"""Jobs: counts, completion modes and the policies for failure and success."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    invalid_unquoted,
    not_supported,
    quote_value,
    required,
    too_long,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import (
    annotation_errors,
    key_errors,
    label_errors,
    label_name_problems,
    subdomain_problems,
)
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.registry.pods.scheduling import selector_errors
from gpusched.devcluster.registry.pods.validation import spec_errors

Obj = dict[str, Any]

_MODES: Final = ("NonIndexed", "Indexed")
_COUNTS: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("False", "True", "Unknown")
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
_INDEXES_MAX: Final = 100_000
_LARGE_MAX: Final = 10_000
_RULES_MAX: Final = 20
_CODES_MAX: Final = 255
_MANAGER_MAX: Final = 63
_SUCCEEDED_MAX: Final = 64 * 1024
_INDEXED_TEXT: Final = "requires indexed completion mode"
_NON_NEGATIVE: Final = "must be greater than or equal to 0"


def job_errors(obj: Obj) -> list[FieldError]:
    """Check a new job."""
    return [*_generated_errors(obj), *job_spec_errors(obj["spec"]), *_host_errors(obj)]


def job_spec_errors(spec: Obj) -> list[FieldError]:
    """Check a job's spec, new or changed."""
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    malformed = [*selector_errors(selector, "spec.selector")]
    errors = [
        *_count_errors(spec),
        *_mode_errors(spec),
        *_policy_errors(spec),
        *_template_errors(spec),
        *malformed,
    ]
    if selector is None:
        errors.append(required("spec.selector"))
    elif not malformed and not label_selector_matches(selector, labels):
        why = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels or None, why))
    return errors


def _generated_errors(obj: Obj) -> Iterator[FieldError]:
    """The labels by which a job finds its pods must be its own, unless it chose the selector."""
    spec, meta = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    expected: dict[str, str] = {}
    for prefix in ("", "batch.kubernetes.io/"):
        expected[f"{prefix}controller-uid"] = meta["uid"]
        expected[f"{prefix}job-name"] = meta.get("name", "")
    for key, value in expected.items():
        if labels.get(key) != value:
            at = f"spec.template.metadata.labels[{key}]"
            yield invalid(at, labels, f"must be '{value}'")
    selector = spec.get("selector") or {}
    malformed = [*selector_errors(selector, "spec.selector")]
    if not malformed and not label_selector_matches(selector, expected):
        yield invalid("spec.selector", selector, "`selector` not auto-generated")


def _host_errors(obj: Obj) -> Iterator[FieldError]:
    """Pods of indexed jobs have host names made of the job's name and their index."""
    spec, name = obj["spec"], obj["metadata"].get("name") or ""
    if spec.get("completionMode") != "Indexed" or (spec.get("completions") or 0) <= 0:
        return
    last = f"{name}-{spec['completions'] - 1}"
    if label_name_problems(last):
        why = f"will not able to create pod with invalid DNS label: {last}"
        yield invalid("metadata.name", name, why)


def _count_errors(spec: Obj) -> Iterator[FieldError]:
    for key in _COUNTS:
        if spec.get(key) is not None and spec[key] < 0:
            yield invalid(f"spec.{key}", spec[key], _NON_NEGATIVE)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    manager = spec.get("managedBy")
    if manager is None:
        return
    host, _, path = manager.partition("/")
    if not manager:
        yield required("spec.managedBy")
    elif not host or not path:
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield invalid("spec.managedBy", manager, why)
    else:
        for why in subdomain_problems(host):
            yield invalid("spec.managedBy", host, why)
    if len(manager) > _MANAGER_MAX:
        yield too_long("spec.managedBy", _MANAGER_MAX)


def _mode_errors(spec: Obj) -> Iterator[FieldError]:
    mode = spec.get("completionMode")
    if mode not in _MODES:
        yield not_supported("spec.completionMode", mode, _MODES)
    if mode == "Indexed":
        yield from _indexed_errors(spec)
    elif mode == "NonIndexed":
        for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(key) is not None:
                yield invalid(f"spec.{key}", spec[key], _INDEXED_TEXT)


def _indexed_errors(spec: Obj) -> Iterator[FieldError]:
    completions, parallel = spec.get("completions"), spec.get("parallelism") or 0
    failing = spec.get("maxFailedIndexes")
    if completions is None:
        yield required("spec.completions", "when completion mode is Indexed")
    if parallel > _INDEXES_MAX:
        why = f"must be less than or equal to {_INDEXES_MAX} when completion mode is Indexed"
        yield invalid("spec.parallelism", parallel, why)
    if failing is not None and completions is not None and failing > completions:
        why = "must be less than or equal to completions"
        yield invalid("spec.maxFailedIndexes", failing, why)
    if failing is not None and failing > _INDEXES_MAX:
        why = f"must be less than or equal to {_INDEXES_MAX}"
        yield invalid("spec.maxFailedIndexes", failing, why)
    if (completions or 0) <= _INDEXES_MAX or spec.get("backoffLimitPerIndex") is None:
        return
    why = (
        f"must be less than or equal to {_LARGE_MAX} when completions are above {_INDEXES_MAX} "
        "and used with backoff limit per index"
    )
    if failing is None:
        need = f"must be specified when completions is above {_INDEXES_MAX}"
        yield required("spec.maxFailedIndexes", need)
    if parallel > _LARGE_MAX:
        yield invalid("spec.parallelism", parallel, why)
    if failing is not None and failing > _LARGE_MAX:
        yield invalid("spec.maxFailedIndexes", failing, why)


def _policy_errors(spec: Obj) -> Iterator[FieldError]:
    failure, success = spec.get("podFailurePolicy"), spec.get("successPolicy")
    if failure is not None:
        yield from _failure_policy_errors(failure, spec)
    if success is not None:
        if spec.get("completionMode") != "Indexed":
            yield invalid("spec.successPolicy", printed_policy(success), _INDEXED_TEXT)
        elif spec.get("completions") is not None:
            yield from _success_policy_errors(success, spec["completions"])
    replacement = spec.get("podReplacementPolicy")
    known = ("Failed",) if failure is not None else _REPLACEMENTS
    if replacement not in known:
        yield not_supported("spec.podReplacementPolicy", replacement, known)


def _failure_policy_errors(policy: Obj, spec: Obj) -> Iterator[FieldError]:
    at = "spec.podFailurePolicy.rules"
    rules = policy.get("rules") or ()
    if len(rules) > _RULES_MAX:
        yield too_many(at, len(rules), _RULES_MAX)
    pod = spec["template"].get("spec") or {}
    parts = (pod.get("containers") or (), pod.get("initContainers") or ())
    names = {container.get("name") for part in parts for container in part}
    for i, rule in enumerate(rules):
        yield from _rule_errors(rule, f"{at}[{i}]", spec=spec, names=names)


def _valid_values(values: Sequence[str]) -> str:
    return f"valid values: [{' '.join(quote_value(v) for v in values)}]"


def _rule_errors(rule: Obj, at: str, *, spec: Obj, names: Collection[Any]) -> Iterator[FieldError]:
    action = rule.get("action") or ""
    if not action:
        yield required(f"{at}.action", _valid_values(_ACTIONS))
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            why = "requires the backoffLimitPerIndex to be set"
            yield invalid(f"{at}.action", action, why)
    elif action not in _ACTIONS:
        yield not_supported(f"{at}.action", action, _ACTIONS)
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        yield from _exit_code_errors(codes, f"{at}.onExitCodes", names=names)
    if len(conditions) > _RULES_MAX:
        yield too_many(f"{at}.onPodConditions", len(conditions), _RULES_MAX)
    for i, pattern in enumerate(conditions):
        here = f"{at}.onPodConditions[{i}]"
        yield from key_errors(pattern.get("type") or "", f"{here}.type")
        if not pattern.get("status"):
            yield required(f"{here}.status", _valid_values(_STATUSES))
        elif pattern["status"] not in _STATUSES:
            yield not_supported(f"{here}.status", pattern["status"], _STATUSES)
    if codes is not None and conditions:
        why = "specifying both OnExitCodes and OnPodConditions is not supported"
        yield invalid_unquoted(at, why)
    if codes is None and not conditions:
        why = "specifying one of OnExitCodes and OnPodConditions is required"
        yield invalid_unquoted(at, why)


def _exit_code_errors(codes: Obj, at: str, *, names: Collection[Any]) -> Iterator[FieldError]:
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if not operator:
        yield required(f"{at}.operator", _valid_values(_OPERATORS))
    elif operator not in _OPERATORS:
        yield not_supported(f"{at}.operator", operator, _OPERATORS)
    name = codes.get("containerName")
    if name is not None and name not in names:
        why = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{at}.containerName", name, why)
    if not values:
        yield invalid(f"{at}.values", None, "at least one value is required")
    elif len(values) > _CODES_MAX:
        yield too_many(f"{at}.values", len(values), _CODES_MAX)
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{at}.values[{i}]", value, "must not be 0 for the In operator")
        if value in values[:i]:
            yield duplicate(f"{at}.values[{i}]", value)
    if list(values) != sorted(values):
        yield invalid(f"{at}.values", values, "must be ordered")


def _success_policy_errors(policy: Obj, completions: int) -> Iterator[FieldError]:
    at = "spec.successPolicy.rules"
    rules = policy.get("rules") or ()
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        yield required(at, why)
    if len(rules) > _RULES_MAX:
        yield too_many(at, len(rules), _RULES_MAX)
    for i, rule in enumerate(rules):
        yield from _success_rule_errors(rule, f"{at}[{i}]", completions)


def _success_rule_errors(rule: Obj, at: str, completions: int) -> Iterator[FieldError]:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        why = "at least one of succeededCount or succeededIndexes must be specified"
        yield required(at, why)
    named = 0
    if indexes is not None:
        if len(indexes) > _SUCCEEDED_MAX:
            yield too_long(f"{at}.succeededIndexes", _SUCCEEDED_MAX)
        named, problem = read_intervals(indexes, completions)
        if problem:
            why = f"error parsing succeededIndexes: {problem}"
            yield invalid(f"{at}.succeededIndexes", indexes, why)
    if count is None:
        return
    if count < 0:
        yield invalid(f"{at}.succeededCount", count, _NON_NEGATIVE)
    if count > completions:
        why = f"must be less than or equal to {completions} (the number of specified completions)"
        yield invalid(f"{at}.succeededCount", count, why)
    if indexes is not None and count > named:
        why = (
            f"must be less than or equal to {named} "
            "(the number of indexes in the specified succeededIndexes field)"
        )
        yield invalid(f"{at}.succeededCount", count, why)


def read_intervals(text: str, completions: int) -> tuple[int, str]:
    """Count the indexes of a text such as ``0,2-5``; the second part says what is wrong."""
    total, last = 0, -1
    for interval in text.split(",") if text else ():
        limits = interval.split("-")
        if len(limits) > 2:
            return 0, (
                f"the fragment {quote_value(interval)} violates the requirement that an index interval "
                "can have at most two parts separated by '-'"
            )
        numbers: list[int] = []
        for limit in limits:
            if not (limit.isascii() and limit.isdigit()):
                return 0, f"cannot convert string to integer for index: {quote_value(limit)}"
            if len(limit.lstrip("0")) > 10 or int(limit) >= completions:
                return 0, f"too large index: {quote_value(limit)}"
            numbers.append(int(limit))
        if len(numbers) == 2 and numbers[0] >= numbers[1]:
            return 0, f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}"
        if last >= numbers[0]:
            return 0, f"non-increasing order, previous: {last}, current: {numbers[0]}"
        total, last = total + numbers[-1] - numbers[0] + 1, numbers[-1]
    return total, ""


def _template_errors(spec: Obj) -> Iterator[FieldError]:
    template = spec["template"]
    meta = template.get("metadata") or {}
    yield from label_errors(meta.get("labels"), "spec.template.labels")
    yield from annotation_errors(meta.get("annotations"), "spec.template.annotations")
    yield from spec_errors(template["spec"], "spec.template.spec")
    at, policy = "spec.template.spec.restartPolicy", template["spec"].get("restartPolicy")
    if policy in {"Always", ""}:
        yield required(at, 'valid values: "OnFailure", "Never"')
    elif policy not in {"OnFailure", "Never"}:
        yield not_supported(at, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(at, policy, 'only "Never" is supported when podFailurePolicy is specified')


def printed_policy(policy: Obj | None) -> Any:
    """A policy with the field names of the server's own structures."""
    if policy is None:
        return None
    return {"Rules": [_printed_rule(rule) for rule in policy.get("rules") or ()] or None}


def _printed_rule(rule: Obj) -> Obj:
    if "action" not in rule:
        return {
            "SucceededIndexes": rule.get("succeededIndexes"),
            "SucceededCount": rule.get("succeededCount"),
        }
    codes = rule.get("onExitCodes")
    conditions = [
        {"Type": c.get("type", ""), "Status": c.get("status", "")}
        for c in rule.get("onPodConditions") or ()
    ]
    return {
        "Action": rule["action"],
        "OnExitCodes": codes
        and {
            "ContainerName": codes.get("containerName"),
            "Operator": codes.get("operator", ""),
            "Values": codes.get("values"),
        },
        "OnPodConditions": conditions or None,
    }
