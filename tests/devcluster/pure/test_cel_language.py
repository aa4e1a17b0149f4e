"""The language of rules: what expressions give, and what keeps them from being used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.cel.syntax import CelSyntaxError, parse_expression
from gpusched.devcluster.registry.custom.cel_rules import RulesRefused, compile_rules
from gpusched.devcluster.schema.schema import structural

FIELDS = {
    "n": {"type": "integer"},
    "s": {"type": "string"},
    "l": {"type": "array", "items": {"type": "integer"}},
    "ss": {"type": "array", "items": {"type": "string"}},
    "m": {"type": "object", "additionalProperties": {"type": "string"}},
    "d": {"type": "string", "format": "duration"},
    "t": {"type": "string", "format": "date-time"},
    "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "any": {"x-kubernetes-int-or-string": True},
}
VALUE = {
    "n": 3,
    "s": "Hello World",
    "l": [1, 2, 3],
    "ss": ["a", "b"],
    "m": {"k": "v"},
    "d": "1h30m",
    "t": "2024-01-01T00:00:00Z",
    "o": {},
    "any": "x",
}


def errors(rule, value=VALUE, **more):
    spec = {
        "type": "object",
        "properties": FIELDS,
        "x-kubernetes-validations": [{"rule": rule, **more}],
    }
    rules = compile_rules(structural({"type": "object", "properties": {"spec": spec}}))
    return rules.check({"spec": value})


@pytest.mark.parametrize(
    "rule",
    [
        "self.?o.?x.orValue(5) == 5",
        "!self.?o.?x.hasValue()",
        "optional.of(1).optMap(v, v + 1).value() == 2",
        "optional.of(1).optFlatMap(v, optional.none()).orValue(7) == 7",
        "{?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
        "[1, ?optional.none()] == [1]",
        "self.l[?9].orValue(4) == 4",
        "cel.bind(x, self.n, x * x == 9)",
        "sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1])",
        "!sets.intersects([1], [2])",
        "self.m.transformList(k, v, k + v) == ['kv']",
        "self.l.transformList(i, v, v > 1, i + v) == [3, 5]",
        "self.m.transformMap(k, v, v + '!') == {'k': 'v!'}",
        "self.m.transformMapEntry(k, v, {v: k}) == {'v': 'k'}",
        "self.l.all(i, v, v > i) && self.l.exists(i, v, v == i + 1)",
        "self.l.existsOne(i, v, v == 3)",
        "url('https://a.b:80/p?q=1').getHost() == 'a.b:80'",
        "url('https://a.b:80/p?q=1').getHostname() == 'a.b'",
        "url('https://a.b/p?q=1').getQuery() == {'q': ['1']} && !isURL('a b')",
        "ip('127.0.0.1').isLoopback() && ip('::1').family() == 6 && !isIP('1.2.3')",
        "cidr('10.0.0.0/8').containsIP('10.1.1.1')",
        "cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))",
        "cidr('10.1.2.3/8').masked().ip() == ip('10.0.0.0')",
        "quantity('1Gi').isGreaterThan(quantity('500Mi')) && !isQuantity('x')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && !isSemver('v1')",
        "'%s is %d'.format(['a', 3]) == 'a is 3'",
        "math.greatest(1, 2) == 2 && math.least([3, 1]) == 1",
        "base64.decode('aGk=') == b'hi'",
        "[3, 1].sort() == [1, 3] && [[1], [2]].flatten() == [1, 2] && [1, 1].distinct() == [1]",
        "duration('1.000001s') > duration('1s') && self.d == duration('90m')",
        "self.t.getFullYear() == 2024 && self.t.getDayOfWeek('UTC') == 1",
        "self.t - duration('24h') == timestamp('2023-12-31T00:00:00Z')",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7u / 2u == 3u && 1.0 / 0.0 > 1.0",
        "type(self.n) == int && type('a') == string",
        "false && 1 / 0 == 1 || true",
        "(1 / 0 == 1 || true) && !(1 / 0 == 1 && false)",
        "self.l.exists(x, x / (x - 1) > 1)",
        "r'\\d' == '\\\\d' && 'a\\tb'.size() == 3 && b'\\x41' == b'A'",
        "self.ss.all(ip, ip.startsWith('a') || ip.startsWith('b'))",
    ],
)
def test_expressions_that_hold(rule):
    """Optionals, binding, two-variable loops, addresses, sets, numbers, times, texts."""
    assert errors(rule) == []


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("self.n > 'a'", "1:8: found no matching overload for '_>_' applied to '(int, string)'"),
        ("1 == 1.0", "1:3: found no matching overload for '_==_' applied to '(int, double)'"),
        ("self.l + 1 == 2", "'_+_' applied to '(list(int), int)'"),
        ("self.m[1] == 'a'", "1:7: found no matching overload for '_[_]'"),
        ("self.n.startsWith('a')", "overload for 'startsWith' applied to 'int.(string)'"),
        ("!self.n", "1:1: found no matching overload for '!_' applied to '(int)'"),
        ("self.nope == 1", "1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"),
        ("self.s.x == 1", "type 'string' does not support field selection"),
        ("nope == 1", "1:1: undeclared reference to 'nope' (in container '')"),
        ("nope(1)", "1:5: undeclared reference to 'nope' (in container '')"),
        ("self.n.all(x, x)", "expression of type 'int' cannot be range of a comprehension"),
        ("self.s", "cel expression must evaluate to a bool"),
        ("self.n ? true : false", "'_?_:_'"),
    ],
)
def test_expressions_that_no_type_allows(rule, why):
    """A definition is refused with the place in the text."""
    with pytest.raises(RulesRefused) as refusal:
        errors(rule)
    assert why in refusal.value.errors[0].text


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("self.l[5] == 1", "index out of bounds: 5 evaluating rule: self.l[5] == 1"),
        ("self.m['z'] == 'a'", "no such key: z evaluating rule: self.m['z'] == 'a'"),
        ("1 / (self.n - 3) == 1", "division by zero evaluating rule: 1 / (self.n - 3) == 1"),
        ("9223372036854775807 + 1 == 0", "integer overflow evaluating rule: 92"),
        ("ip(self.s) == ip('::1')", "parse error during conversion from string"),
        (
            "self.any > 1",
            (
                "'no such overload': call arguments did not match a supported operator, function or "
                "macro signature for rule: self.any > 1"
            ),
        ),
    ],
)
def test_expressions_that_fail_while_they_run(rule, why):
    """The error and the rule are told in place of a message."""
    assert why in errors(rule)[0].text


def test_a_message_of_the_wrong_type_is_refused():
    """A message expression gives a text."""
    with pytest.raises(RulesRefused) as refusal:
        errors("self.n > 5", messageExpression="self.n")
    assert "messageExpression must evaluate to a string" in refusal.value.errors[0].text


def test_entries_of_maps_are_told_by_their_key():
    """A rule on the values of a map names the key in brackets."""
    values = {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'ok'"}]}
    labels = {"type": "object", "additionalProperties": values}
    rules = compile_rules(structural({"type": "object", "properties": {"labels": labels}}))
    assert [e.field for e in rules.check({"labels": {"a": "ok", "b": "bad"}})] == ["labels[b]"]


@given(st.text(alphabet="selfa.?[]{}()+-*/%!=<>&|:,'\"\\ 0123u`n", max_size=30))
def test_any_text_is_read_or_refused(text):
    """The reader ends in a tree or in its own error."""
    try:
        parse_expression(text)
    except CelSyntaxError:
        return


def test_deep_nesting_is_refused():
    """Nesting beyond the limit is an error and not a crash."""
    with pytest.raises(CelSyntaxError):
        parse_expression("(" * 5000 + "1" + ")" * 5000)
    with pytest.raises(CelSyntaxError):
        parse_expression("!" * 5000 + "true")
    with pytest.raises(RulesRefused):
        errors("+".join(["1"] * 5000) + " == 5000")
