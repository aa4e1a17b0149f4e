"""Policies and bindings that make no sense, in the order in which a real server was asked."""

from __future__ import annotations

from typing import Any

from .exchanges import BINDINGS, POLICIES, Ask, Conversation, binding, policy, rule_on

FINE = [{"expression": "true"}]


def bad(**spec: Any) -> Ask:
    """A dry run of a policy with that spec."""
    return Ask("POST", f"{POLICIES}?dryRun=All", policy("refused", **spec))


def _names_and_types() -> list[Ask]:
    """Expressions with names that do not exist, or of the wrong type."""
    return [
        bad(validations=[]),
        bad(validations=[{"expression": "object.a =="}]),
        bad(validations=[{"expression": "nobody == 1"}]),
        bad(validations=[{"expression": "'text'"}]),
        bad(validations=[{"expression": "request.nothing == ''"}]),
        bad(validations=[{"expression": "request.name == 1"}]),
        bad(validations=[{"expression": "params.a == 1"}]),
        bad(validations=[{"expression": "variables.a == 1"}]),
        bad(
            validations=[{"expression": "variables.b"}],
            variables=[{"name": "a", "expression": "true"}],
        ),
        bad(validations=FINE, variables=[{"name": "in", "expression": "true"}]),
        bad(validations=FINE, variables=[{"name": "a", "expression": "variables.z"}]),
        bad(validations=[{"expression": "authorizer.group('').check('get').allowed()"}]),
        bad(validations=[{"expression": "authorizer.group(1).resource('a').check('b').allowed()"}]),
        bad(validations=[{"expression": "true", "messageExpression": "1"}]),
        bad(
            validations=[
                {
                    "expression": "true",
                    "messageExpression": "authorizer.path('/a').check('get').reason()",
                }
            ]
        ),
        bad(validations=[{"expression": "true", "messageExpression": "object.data.missing"}]),
    ]


def _unknown_types() -> list[Ask]:
    """Expressions on fields whose type is not known before they are evaluated."""
    return [
        bad(validations=[{"expression": "object.data.missing"}]),
        bad(validations=[{"expression": "object.?a.orValue(true)"}]),
        bad(validations=[{"expression": "object.?a.orValue(true) == true ? object.b : true"}]),
        bad(validations=[{"expression": "[true][0]"}]),
        bad(validations=[{"expression": "object.all(k, true) && object.a"}]),
        bad(validations=[{"expression": "true", "reason": "Unauthorized"}]),
        bad(validations=[{"expression": "authorizer.path('/a').check('get').denied()"}]),
        bad(validations=[{"expression": "oldObject.labels.exists(k, object[k] == '')"}]),
        bad(validations=[{"expression": "true", "messageExpression": "object.a + 'x'"}]),
        bad(validations=[{"expression": "true", "messageExpression": "object.a.join(',')"}]),
        bad(validations=[{"expression": "true", "messageExpression": "object.?a.orValue('')"}]),
        bad(validations=[{"expression": "true", "messageExpression": "['a', 'b'][0]"}]),
        bad(validations=[{"expression": "true", "messageExpression": "{'a': 'b'}['a']"}]),
        bad(
            validations=[
                {"expression": "true", "messageExpression": "['a'].filter(x, x == object.b)[0]"}
            ]
        ),
        bad(validations=[{"expression": "true", "messageExpression": "optional.of('a').value()"}]),
        bad(validations=[{"expression": "true", "messageExpression": "request.?name.orValue('')"}]),
        bad(validations=[{"expression": "true", "messageExpression": "true ? object.a : 'b'"}]),
    ]


def _other_fields() -> list[Ask]:
    """Messages, reasons, conditions, parameters and annotations."""
    return [
        bad(validations=[{"expression": "true", "message": " "}]),
        bad(validations=[{"expression": "true", "message": "a\nb"}]),
        bad(validations=[{"expression": "true", "reason": "Because"}]),
        bad(validations=FINE, failurePolicy="Perhaps"),
        bad(validations=FINE, matchConditions=[{"name": "a b", "expression": "1"}]),
        bad(validations=FINE, matchConditions=[{"name": "a", "expression": "variables.a"}]),
        bad(validations=FINE, paramKind={"apiVersion": "a/b/c", "kind": "X"}),
        bad(validations=FINE, auditAnnotations=[{"key": "a b", "valueExpression": "1"}]),
    ]


def _constraints() -> list[Ask]:
    """Rules that match nothing, or everything in a way that is not allowed."""
    no_rules = policy("refused", validations=FINE)
    no_rules["spec"]["matchConstraints"] = {}
    wild = policy("refused", [rule_on("*", "pods")], validations=FINE)
    wild["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["*", "CREATE", "READ"]
    return [Ask("POST", POLICIES, no_rules), Ask("POST", POLICIES, wild)]


def _bindings() -> list[Ask]:
    """Bindings without actions, with too many, and with parameters that name nothing."""
    ref = {"name": "x", "parameterNotFoundAction": "Deny"}
    found = [
        binding("refused", actions=[]),
        binding("refused", actions=["Deny", "Warn"]),
        binding("refused", actions=["Deny", "Deny", "Shout"]),
        binding("refused", paramRef={"name": "x"}),
        binding("refused", paramRef={**ref, "selector": {}}),
        binding("refused", paramRef={"parameterNotFoundAction": "Deny"}),
        binding("refused", policyName=""),
    ]
    return [Ask("POST", BINDINGS, each) for each in found]


def refused() -> list[Conversation]:
    """Return the one conversation of all these."""
    asks = [*_names_and_types(), *_unknown_types(), *_other_fields(), *_constraints(), *_bindings()]
    return [Conversation("refused", [], asks)]
