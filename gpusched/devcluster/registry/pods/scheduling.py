"""Where a pod may run: selectors, affinity, tolerations, spread, scheduling gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import (
    key_errors,
    label_errors,
    label_name_problems,
    label_value_problems,
    name_errors,
)

Obj = dict[str, Any]

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SET: Final = frozenset({"In", "NotIn"})
_PRESENCE: Final = frozenset({"Exists", "DoesNotExist"})
_ORDER: Final = frozenset({"Gt", "Lt"})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT_MAX: Final = 100
_SET_TEXT: Final = "must be specified when `operator` is 'In' or 'NotIn'"
_PRESENCE_TEXT: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_BOTH_TEXT: Final = "exists in both matchLabelKeys and labelSelector"


def toleration_errors(tolerations: Sequence[Obj], at: str) -> Iterator[FieldError]:
    """Check the tolerations of a pod."""
    for i, toleration in enumerate(tolerations):
        yield from _toleration_errors(toleration, f"{at}[{i}]")


def _toleration_errors(toleration: Obj, at: str) -> Iterator[FieldError]:
    operator = toleration.get("operator") or ""
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    effect = toleration.get("effect") or ""
    if key:
        yield from key_errors(key, f"{at}.key")
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{at}.operator", operator, why)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(f"{at}.effect", effect, why)
    if operator in {"Equal", ""}:
        if problems := label_value_problems(value):
            yield invalid(f"{at}.operator", value, ";".join(problems))
    elif operator == "Exists":
        if value:
            why = "value must be empty when `operator` is 'Exists'"
            yield invalid(f"{at}.operator", value, why)
    else:
        yield not_supported(f"{at}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in EFFECTS:
        yield not_supported(f"{at}.effect", effect, EFFECTS)


def gate_errors(gates: Sequence[Obj], at: str) -> Iterator[FieldError]:
    """Check names of scheduling gates."""
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name") or ""
        yield from key_errors(name, f"{at}[{i}]")
        if name in seen:
            yield duplicate(f"{at}[{i}]", name)
        seen.add(name)


def affinity_errors(affinity: Obj, at: str) -> Iterator[FieldError]:
    """Check node affinity, and affinity and anti-affinity between pods."""
    if (node := affinity.get("nodeAffinity")) is not None:
        yield from _node_affinity_errors(node, f"{at}.nodeAffinity")
    for key in ("podAffinity", "podAntiAffinity"):
        for i, term in enumerate((affinity.get(key) or {}).get(_REQUIRED) or ()):
            yield from _pod_term_errors(term, f"{at}.{key}.{_REQUIRED}[{i}]")
        for i, weighted in enumerate((affinity.get(key) or {}).get(_PREFERRED) or ()):
            here = f"{at}.{key}.{_PREFERRED}[{i}]"
            yield from _weight_errors(weighted, here)
            term = weighted.get("podAffinityTerm") or {}
            yield from _pod_term_errors(term, f"{here}.podAffinityTerm")


def _weight_errors(weighted: Obj, at: str) -> Iterator[FieldError]:
    weight = weighted.get("weight") or 0
    if not 1 <= weight <= _WEIGHT_MAX:
        yield invalid(f"{at}.weight", weight, "must be in the range 1-100")


def _node_affinity_errors(node: Obj, at: str) -> Iterator[FieldError]:
    if (wanted := node.get(_REQUIRED)) is not None:
        terms = wanted.get("nodeSelectorTerms") or ()
        here = f"{at}.{_REQUIRED}.nodeSelectorTerms"
        if not terms:
            yield required(here, "must have at least one node selector term")
        for i, term in enumerate(terms):
            yield from _node_term_errors(term, f"{here}[{i}]", values=True)
    for i, weighted in enumerate(node.get(_PREFERRED) or ()):
        here = f"{at}.{_PREFERRED}[{i}]"
        yield from _weight_errors(weighted, here)
        term = weighted.get("preference") or {}
        yield from _node_term_errors(term, f"{here}.preference", values=False)


def _node_term_errors(term: Obj, at: str, *, values: bool) -> Iterator[FieldError]:
    for i, wanted in enumerate(term.get("matchExpressions") or ()):
        here = f"{at}.matchExpressions[{i}]"
        yield from _operator_errors(wanted, here, numbers=True)
        yield from key_errors(wanted.get("key") or "", f"{here}.key")
        if values:
            yield from _value_errors(wanted, here)
    for i, wanted in enumerate(term.get("matchFields") or ()):
        yield from _node_field_errors(wanted, f"{at}.matchFields[{i}]")


def _operator_errors(wanted: Obj, at: str, *, numbers: bool) -> Iterator[FieldError]:
    operator, values = wanted.get("operator") or "", wanted.get("values") or ()
    if operator in _SET:
        if not values:
            yield required(f"{at}.values", _SET_TEXT)
    elif operator in _PRESENCE:
        if values:
            yield forbidden(f"{at}.values", _PRESENCE_TEXT)
    elif operator in _ORDER and numbers:
        if len(values) != 1:
            why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield required(f"{at}.values", why)
    else:
        yield invalid(f"{at}.operator", operator, "not a valid selector operator")


def _value_errors(wanted: Obj, at: str) -> Iterator[FieldError]:
    for i, value in enumerate(wanted.get("values") or ()):
        for why in label_value_problems(value):
            yield invalid(f"{at}.values[{i}]", value, why)


def _node_field_errors(wanted: Obj, at: str) -> Iterator[FieldError]:
    operator, values = wanted.get("operator") or "", wanted.get("values") or ()
    if operator not in _SET:
        yield invalid(f"{at}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{at}.values", why)
    if wanted.get("key") != "metadata.name":
        yield invalid(f"{at}.key", wanted.get("key") or "", "not a valid field selector key")
        return
    for i, value in enumerate(values):
        yield from name_errors(value, field=f"{at}.values[{i}]")


def selector_errors(selector: Obj | None, at: str) -> Iterator[FieldError]:
    """Check a label selector."""
    if selector is None:
        return
    yield from label_errors(selector.get("matchLabels"), f"{at}.matchLabels")
    for i, wanted in enumerate(selector.get("matchExpressions") or ()):
        here = f"{at}.matchExpressions[{i}]"
        yield from _operator_errors(wanted, here, numbers=False)
        yield from key_errors(wanted.get("key") or "", f"{here}.key")
        yield from _value_errors(wanted, here)


def _pod_term_errors(term: Obj, at: str) -> Iterator[FieldError]:
    selector = term.get("labelSelector")
    yield from selector_errors(selector, f"{at}.labelSelector")
    yield from selector_errors(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in term.get("namespaces") or ():
        for why in label_name_problems(name):
            yield invalid(f"{at}.namespace", name, why)
    match, mismatch = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for part, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            why = "must not be specified when labelSelector is not set"
            yield forbidden(f"{at}.{part}", why)
        elif keys:
            for i, key in enumerate(keys):
                yield from key_errors(key, f"{at}.{part}[{i}]")
    for i, key in enumerate(match):
        if key in mismatch:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{at}.matchLabelKeys[{i}]", key, why)
    topology = term.get("topologyKey") or ""
    if not topology:
        yield required(f"{at}.topologyKey", "can not be empty")
    yield from key_errors(topology, f"{at}.topologyKey")


def spread_errors(constraints: Sequence[Obj], at: str) -> Iterator[FieldError]:
    """Check topology spread constraints."""
    for i, constraint in enumerate(constraints):
        yield from _spread_errors(constraint, f"{at}[{i}]", rest=constraints[i + 1 :])


def _spread_errors(constraint: Obj, at: str, *, rest: Sequence[Obj]) -> Iterator[FieldError]:
    skew = constraint.get("maxSkew") or 0
    if skew <= 0:
        yield invalid(f"{at}.maxSkew", skew, "must be greater than zero")
    topology = constraint.get("topologyKey") or ""
    if not topology:
        yield required(f"{at}.topologyKey", "can not be empty")
    action = constraint.get("whenUnsatisfiable") or ""
    if action not in {"DoNotSchedule", "ScheduleAnyway"}:
        known = ("DoNotSchedule", "ScheduleAnyway")
        yield not_supported(f"{at}.whenUnsatisfiable", action, known)
    pair = (topology, action)
    if any((r.get("topologyKey") or "", r.get("whenUnsatisfiable") or "") == pair for r in rest):
        yield duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{topology}, {action}}}")
    domains = constraint.get("minDomains")
    if domains is not None and domains <= 0:
        yield invalid(f"{at}.minDomains", domains, "must be greater than zero")
    if domains is not None and action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid(f"{at}.minDomains", domains, why)
    for key in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if constraint.get(key) not in {None, "Honor", "Ignore"}:
            yield not_supported(f"{at}.{key}", constraint[key], ("Honor", "Ignore"))
    yield from _match_key_errors(constraint, f"{at}.matchLabelKeys")
    yield from selector_errors(constraint.get("labelSelector"), f"{at}.labelSelector")


def _match_key_errors(constraint: Obj, at: str) -> Iterator[FieldError]:
    keys, selector = constraint.get("matchLabelKeys") or (), constraint.get("labelSelector")
    if not keys:
        return
    if selector is None:
        yield forbidden(at, "must not be specified when labelSelector is not set")
    named = [*((selector or {}).get("matchLabels") or ())]
    # The server has already turned the keys into expressions, and knows its own by their value.
    for i, key in enumerate(keys):
        yield from key_errors(key, f"{at}[{i}]")
        if key in named:
            yield invalid(f"{at}[{i}]", key, _BOTH_TEXT)
