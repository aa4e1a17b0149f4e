"""Validating and mutating admission policies and their bindings: what they must say to be stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpusched.cel.values import KEYWORDS
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import key_errors, subdomain_problems
from gpusched.devcluster.apimachinery.selector_validation import selector_errors
from gpusched.devcluster.registry.policy.cel_policies import (
    NOTE,
    TEXT,
    TRUTH,
    PolicyExpression,
    compile_expression_of_policy,
    compile_mutation,
    compiled_variables,
    variable_types,
)
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_FAILURE: Final = ("Fail", "Ignore")
_MATCH: Final = ("Equivalent", "Exact")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTABLE: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_REINVOCATION: Final = ("IfNeeded", "Never")
_PATCH_TYPES: Final = ("ApplyConfiguration", "JSONPatch")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_NOT_FOUND: Final = ("Deny", "Allow")
_CONDITIONS_MAX: Final = 64
_NOTES_MAX: Final = 20
_NOTE_BYTES_MAX: Final = 5 * 1024
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


class AdmissionPolicyStrategy(Strategy):
    """Policies: their expressions must compile before they are stored."""

    generation = True
    has_status = True
    needs_version = True
    knows_all = True

    def default(self, obj: Obj) -> None:
        """Refuse what cannot be evaluated, and match other versions of a kind as well."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        _default_match(spec.get("matchConstraints"))

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check what is matched, and compile every expression."""
        spec = obj["spec"]
        return [*_common_errors(spec), *_rules(spec, obj["metadata"].get("name") or "")]


class MutatingPolicyStrategy(Strategy):
    """Policies that change what is written, by JSON patches alone."""

    generation = True
    needs_version = True
    knows_all = True

    def default(self, obj: Obj) -> None:
        """Run once, refuse what cannot be evaluated, and match other versions of a kind as well.

        Raises:
            StatusError: 501 for mutations by ApplyConfiguration.
        """
        spec = obj.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        spec.setdefault("reinvocationPolicy", "Never")
        _default_match(spec.get("matchConstraints"))
        for i, mutation in enumerate(spec.get("mutations") or ()):
            if mutation.get("patchType") == "ApplyConfiguration":
                raise status.not_implemented(
                    "patchType ApplyConfiguration (write the change as JSONPatch, which is the only one here)",
                    field=f"spec.mutations[{i}].patchType",
                )

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check what is matched, and compile every expression."""
        spec = obj["spec"]
        errors = _common_errors(spec, operations=_MUTABLE)
        errors += _one_of("spec.reinvocationPolicy", spec["reinvocationPolicy"], _REINVOCATION)
        return [*errors, *_mutations(spec)]


def _common_errors(spec: Obj, operations: tuple[str, ...] = _OPERATIONS) -> list[FieldError]:
    errors = _one_of("spec.failurePolicy", spec["failurePolicy"], _FAILURE)
    errors += _param_kind(spec.get("paramKind"))
    constraints = spec.get("matchConstraints")
    if constraints is None:
        errors.append(required("spec.matchConstraints"))
    else:
        errors += _match_errors(constraints, "spec.matchConstraints", operations)
        if not constraints.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
    errors += _conditions(spec)
    errors += _variables(spec)
    return errors


class MutatingBindingStrategy(Strategy):
    """Bindings: they put a policy in force, with parameters and for some requests."""

    generation = True
    needs_version = True
    knows_all = True

    def default(self, obj: Obj) -> None:
        """Match other versions of a kind as well."""
        _default_match(obj.setdefault("spec", {}).get("matchResources"))

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check the reference to the policy, its parameters and what it is about."""
        spec = obj["spec"]
        errors: list[FieldError] = []
        name = spec.get("policyName") or ""
        if not name:
            errors.append(required("spec.policyName"))
        elif problems := subdomain_problems(name):
            errors += [invalid("spec.policyName", name, problem) for problem in problems]
        errors += _param_ref(spec.get("paramRef"))
        if spec.get("matchResources") is not None:
            errors += _match_errors(spec["matchResources"], "spec.matchResources")
        return errors


class AdmissionBindingStrategy(MutatingBindingStrategy):
    """Bindings of validating policies, which say as well what is done about what they refuse."""

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check the reference to the policy and what is done about what it refuses."""
        return [*super().validate(obj), *_actions(obj["spec"].get("validationActions") or ())]


def _default_match(match: Obj | None) -> None:
    if match is None:
        return
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for rule in (*(match.get("resourceRules") or ()), *(match.get("excludeResourceRules") or ())):
        rule.setdefault("scope", "*")


def _one_of(at: str, value: str, known: tuple[str, ...]) -> list[FieldError]:
    return [] if value in known else [not_supported(at, value, known)]


# -- what is matched -----------------------------------------------------------------------------


def _match_errors(
    match: Obj, at: str, operations: tuple[str, ...] = _OPERATIONS
) -> Iterator[FieldError]:
    yield from _one_of(f"{at}.matchPolicy", match["matchPolicy"], _MATCH)
    for key in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(match[key], f"{at}.{key}")
    for key in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(match.get(key) or ()):
            yield from _rule_errors(rule, f"{at}.{key}[{i}]", operations)


def _rule_errors(rule: Obj, at: str, known: tuple[str, ...]) -> Iterator[FieldError]:
    names = rule.get("resourceNames") or ()
    for i, name in enumerate(names):
        if name in names[:i]:
            yield duplicate(f"{at}.resourceNames[{i}]", name)
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{at}.operations")
    if len(operations) > 1 and "*" in operations:
        why = "if '*' is present, must not specify other operations"
        yield invalid(f"{at}.operations", operations, why)
    for i, operation in enumerate(operations):
        yield from _one_of(f"{at}.operations[{i}]", operation, known)
    for key, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(key) or []
        if not values:
            yield required(f"{at}.{key}")
        if len(values) > 1 and "*" in values:
            yield invalid(
                f"{at}.{key}", values, f"if '*' is present, must not specify other {what}"
            )
        if key == "apiVersions":
            yield from (required(f"{at}.{key}[{i}]") for i, v in enumerate(values) if not v)
    yield from _resources(rule.get("resources") or [], f"{at}.resources")
    yield from _one_of(f"{at}.scope", rule["scope"], _SCOPES)


def _resources(resources: list[str], at: str) -> Iterator[FieldError]:
    if not resources:
        yield required(at)
    all_of: set[str] = set()
    of_all: set[str] = set()
    for i, resource in enumerate(resources):
        if not resource:
            yield required(f"{at}[{i}]")
            continue
        plural, slash, sub = resource.partition("/")
        if not slash:
            continue
        for held, whole in ((plural in all_of, f"{plural}/*"), (sub in of_all, f"*/{sub}")):
            if held:
                why = f"if '{whole}' is present, must not specify {resource}"
                yield invalid(f"{at}[{i}]", resource, why)
        if sub == "*":
            all_of.add(plural)
        if plural == "*":
            of_all.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(at, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and any("/" not in r and r != "*" for r in resources):
        why = "if '*' is present, must not specify other resources without subresources"
        yield invalid(at, resources, why)


# -- what is run ---------------------------------------------------------------------------------


def _fault(expression: PolicyExpression, at: str) -> list[FieldError]:
    return [invalid(at, expression.text, expression.fault)] if expression.run is None else []


def _conditions(spec: Obj) -> Iterator[FieldError]:
    conditions = spec.get("matchConditions") or ()
    at = "spec.matchConditions"
    if len(conditions) > _CONDITIONS_MAX:
        yield too_many(at, len(conditions), _CONDITIONS_MAX)
    known = variable_types(params=bool(spec.get("paramKind")), authorizer=True, variables=None)
    names: set[str] = set()
    for i, condition in enumerate(conditions):
        text, name = (condition.get("expression") or "").strip(), condition.get("name") or ""
        if not text:
            yield required(f"{at}[{i}].expression")
        else:
            yield from _fault(
                compile_expression_of_policy(text, known, TRUTH), f"{at}[{i}].expression"
            )
        if not name:
            yield required(f"{at}[{i}].name")
            continue
        yield from key_errors(name, f"{at}[{i}].name")
        if name in names:
            yield duplicate(f"{at}[{i}].name", name)
        names.add(name)


def _variables(spec: Obj) -> Iterator[FieldError]:
    raw = spec.get("variables") or ()
    for i, variable in enumerate(raw):
        at, name = f"spec.variables[{i}]", variable.get("name") or ""
        if not name.strip():
            yield required(f"{at}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in KEYWORDS:
            yield invalid(f"{at}.name", name, "must be a valid CEL identifier")
        if not (variable.get("expression") or "").strip():
            yield required(f"{at}.expression", "expression is not specified")
    if all(v.get("name") and (v.get("expression") or "").strip() for v in raw):
        for i, expression in enumerate(compiled_variables(spec).values()):
            yield from _fault(expression, f"spec.variables[{i}].expression")


def _rules(spec: Obj, name: str) -> Iterator[FieldError]:
    validations = spec.get("validations") or ()
    notes = spec.get("auditAnnotations") or ()
    if not validations and not notes:
        why = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", why)
        yield required("spec.auditAnnotations", why)
        return
    params = bool(spec.get("paramKind"))
    variables = {v.get("name"): v for v in spec.get("variables") or ()}
    types = {n: e.type for n, e in _sound(spec).items()} if variables else None
    known = variable_types(params=params, authorizer=True, variables=types)
    said = variable_types(params=params, authorizer=False, variables=types)
    for i, validation in enumerate(validations):
        yield from _validation(validation, f"spec.validations[{i}]", known=known, said=said)
    yield from _notes(notes, name, known=known)


def _mutations(spec: Obj) -> Iterator[FieldError]:
    mutations = spec.get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    types = {n: e.type for n, e in _sound(spec).items()} if spec.get("variables") else None
    known = variable_types(params=bool(spec.get("paramKind")), authorizer=True, variables=types)
    for i, mutation in enumerate(mutations):
        at, kind = f"spec.mutations[{i}]", mutation.get("patchType") or ""
        yield from (
            _one_of(f"{at}.patchType", kind, _PATCH_TYPES)
            if kind
            else [required(f"{at}.patchType")]
        )
        text = (mutation.get("jsonPatch") or {}).get("expression") or ""
        if not text.strip():
            yield required(f"{at}.jsonPatch.expression", "expression is not specified")
        else:
            yield from _fault(compile_mutation(text, known), f"{at}.jsonPatch.expression")


def _sound(spec: Obj) -> dict[str, PolicyExpression]:
    """The variables that can be compiled at all."""
    sound = [v for v in spec.get("variables") or () if v.get("name") and v.get("expression")]
    return compiled_variables({**spec, "variables": sound})


def _validation(raw: Obj, at: str, *, known: Obj, said: Obj) -> Iterator[FieldError]:
    text, message = raw.get("expression") or "", raw.get("message") or ""
    if not text.strip():
        yield required(f"{at}.expression", "expression is not specified")
    else:
        yield from _fault(compile_expression_of_policy(text, known, TRUTH), f"{at}.expression")
    telling = raw.get("messageExpression") or ""
    if telling and not telling.strip():
        yield invalid(f"{at}.messageExpression", telling, "must be non-empty if specified")
    elif telling:
        yield from _fault(
            compile_expression_of_policy(telling, said, TEXT), f"{at}.messageExpression"
        )
    if message and not message.strip():
        yield invalid(f"{at}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        yield invalid(f"{at}.message", message, "must not contain line breaks")
    if raw.get("reason") is not None:
        yield from _one_of(f"{at}.reason", raw["reason"], _REASONS)


def _notes(notes: Iterable[Obj], policy: str, *, known: Obj) -> Iterator[FieldError]:
    notes = list(notes)
    at = "spec.auditAnnotations"
    if len(notes) > _NOTES_MAX:
        yield invalid(at, notes, f"must not have more than {_NOTES_MAX} auditAnnotations")
    keys: set[str] = set()
    for i, note in enumerate(notes):
        key, text = note.get("key") or "", (note.get("valueExpression") or "").strip()
        if policy:
            yield from key_errors(f"{policy}/{key}", f"{at}[{i}].key")
        else:
            yield invalid(f"{at}[{i}].key", key, "requires metadata.name be non-empty")
        place = f"{at}[{i}].valueExpression"
        if not text:
            yield required(place, "valueExpression is not specified")
        elif len(text.encode()) > _NOTE_BYTES_MAX:
            yield required(place, f"must not exceed {_NOTE_BYTES_MAX} bytes in length")
        else:
            yield from _fault(compile_expression_of_policy(text, known, NOTE), place)
        if key in keys:
            yield duplicate(f"{at}[{i}].key", key)
        keys.add(key)


# -- parameters and actions ----------------------------------------------------------------------


def _param_kind(kind: Obj | None) -> Iterator[FieldError]:
    if kind is None:
        return
    at = "spec.paramKind"
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    if not version:
        yield required(f"{at}.apiVersion")
    elif version.count("/") > 1:
        yield invalid(f"{at}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, number = version.rpartition("/")
        if group and (problems := subdomain_problems(group)):
            yield invalid(f"{at}.apiVersion", group, ",".join(problems))
        if not number:
            yield invalid(f"{at}.apiVersion", version, "version must be specified")
        elif not _LABEL.fullmatch(number):
            yield invalid(f"{at}.apiVersion", number, _LABEL_TEXT)
    if not name:
        yield required(f"{at}.kind")
    elif not _LABEL.fullmatch(name.lower()):
        why = f"may have mixed case, but should otherwise match: {_LABEL_TEXT}"
        yield invalid(f"{at}.kind", name, why)


def _param_ref(ref: Obj | None) -> Iterator[FieldError]:
    if ref is None:
        return
    at = "spec.paramRef"
    name, selector = ref.get("name") or "", ref.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name and selector is not None:
        yield forbidden(f"{at}.name", exclusive)
    if selector is not None:
        yield from selector_errors(selector, f"{at}.selector")
        if name:
            yield forbidden(f"{at}.selector", exclusive)
    if not name and selector is None:
        yield required(at, "one of name or selector must be specified")
    action = ref.get("parameterNotFoundAction") or ""
    if not action:
        yield required(f"{at}.parameterNotFoundAction")
    elif action not in _NOT_FOUND:
        yield not_supported(f"{at}.parameterNotFoundAction", action, _NOT_FOUND)


def _actions(actions: Iterable[str]) -> Iterator[FieldError]:
    actions, at = list(actions), "spec.validationActions"
    for i, action in enumerate(actions):
        yield from _one_of(f"{at}[{i}]", action, _ACTIONS)
        if action in actions[:i]:
            yield duplicate(f"{at}[{i}]", action)
    if "Deny" in actions and "Warn" in actions:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)"
        )
        yield invalid(at, actions, why)
    if not actions:
        yield required(at, "at least one validation action is required")
