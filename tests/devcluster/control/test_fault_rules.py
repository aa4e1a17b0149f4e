"""Rules: what they match, when they fire, and how mistakes in them are told."""

import pytest

from gpusched.base.errors import ConfigError
from gpusched.devcluster.control.active_faults import ActiveFaults
from gpusched.devcluster.control.fault_file import load_faults
from gpusched.devcluster.control.fault_rules import FaultRuleError, RequestFacts, parse_rules

BIND = RequestFacts(verb="create", path="/p", resource="pods/binding", namespace="a", name="x-1")


def faults(*rules, seed=1):
    return ActiveFaults(seed, parse_rules(list(rules)))


def fired(many, count, facts=BIND, now=0.0):
    return [n for n in range(1, count + 1) if many.meet(facts, now).fault is not None]


def rule(when=None, match=None, **fault):
    return {"match": match or {}, "when": when or {}, "fault": fault or {"type": "lost"}}


@pytest.mark.parametrize(
    ("when", "hits"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"nth": 3}, [3]),
        ({"every": 2}, [2, 4, 6]),
        ({"first": 2}, [1, 2]),
        ({"every": 2, "first": 4}, [2, 4]),
        ({"rate": 0}, []),
    ],
)
def test_a_rule_fires_at_its_requests(when, hits):
    """nth, every, first and rate count matching requests from 1 and hold together."""
    assert fired(faults(rule(when)), 6) == hits


def test_only_matching_requests_count():
    """Each list of a match narrows; a pattern fits whole values."""
    match = {"verbs": ["create"], "resources": ["pods/*"], "namespaces": ["a"], "names": ["x-*"]}
    many = faults(rule({"nth": 1}, match))
    for other in ({"verb": "get"}, {"resource": "pods"}, {"namespace": "b"}, {"name": "y"}):
        facts = RequestFacts(**{"verb": "create", "path": "/p",
            "resource": "pods/binding", "namespace": "a", "name": "x-1", **other})  # fmt: skip
        assert many.meet(facts, 0).fault is None
    assert fired(many, 2) == [1]
    assert many.counters() == [{"name": "rule-1", "type": "lost", "matched": 2, "fired": 1}]


def test_a_rule_holds_between_its_times():
    """From is included, until is not."""
    many = faults(rule({"from": 10, "until": 20}))
    assert [many.meet(BIND, t).fault is not None for t in (9.9, 10, 19.9, 20)] == [
        False, True, True, False,
    ]  # fmt: skip


def test_draws_come_from_the_seed_and_one_rule_shifts_no_other():
    """Same seed, same requests, same faults, whatever other rules stand beside."""
    alone = {"name": "a", **rule({"rate": 0.5})}
    other = {"name": "b", **rule({"rate": 0.5}, type="delay", seconds=[0, 1])}
    assert fired(faults(alone), 50) == fired(faults(other, alone), 50)
    assert fired(faults(alone), 50) != fired(faults(alone, seed=2), 50)
    assert 10 < len(fired(faults(alone), 50)) < 40


def test_delays_add_up_and_the_first_other_fault_is_the_one():
    """A later rule still counts what it matched."""
    many = faults(
        rule(type="delay", seconds=1),
        rule(type="status", code=409),
        rule(type="status", code=500),
        rule(type="delay", seconds=2),
    )
    met = many.meet(BIND, 0)
    assert (met.delay_s, met.fault.code, met.rule) == (3, 409, "rule-2")
    assert [c["fired"] for c in many.counters()] == [1, 1, 0, 1]
    assert [c["matched"] for c in many.counters()] == [1, 1, 1, 1]


def test_a_fault_of_watches_leaves_other_verbs_alone():
    """Drop strikes watches only, truncate everything but watches."""
    many = faults(rule(type="drop"), rule(type="truncate"))
    assert many.meet(RequestFacts(verb="watch", path="/p"), 0).fault.type == "drop"
    assert many.meet(BIND, 0).fault.type == "truncate"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({}, "rules[0]: has no fault"),
        ({"fault": {"type": "flood"}}, "rules[0].fault.type: type must be one of delay, status"),
        ({"fault": {"type": "delay"}}, "rules[0].fault: needs seconds"),
        ({"fault": {"type": "delay", "seconds": [2, 1]}}, "seconds: goes from 2 down to 1"),
        ({"fault": {"type": "delay", "seconds": float("nan")}}, "must be a number from 0 to 3600"),
        ({"fault": {"type": "status", "code": 418}}, "code: must be one of 401, 403, 404, 409, 422, 429, 500, 503"),
        ({"fault": {"type": "lost", "after": 1}}, "fault.after: is no known key; known: type, appl"),
        ({"fault": {"type": "lag"}}, "rules[0].fault: needs either seconds or versions"),
        (rule({"rate": 2}), "rules[0].when.rate: must be a number from 0 to 1, not 2"),
        (rule({"nth": True}), "rules[0].when.nth: must be a whole number from 1"),
        (rule({"from": 5, "until": 5}), "rules[0].when.until: must be above from, which is 5"),
        (rule(match={"verbs": ["eat"]}), "rules[0].match.verbs[0]: 'eat' is none of get, list"),
        (rule(match={"names": "x"}), "rules[0].match.names: must be a list of texts, not a text"),
        (rule(match={"verbs": ["get"]}, type="drop"), "match.verbs: drop strikes only watch"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(bad, why):
    """Path, what is wrong, what would be right."""
    with pytest.raises(FaultRuleError) as raised:
        parse_rules([bad])
    assert why in str(raised.value)


GOOD = """apiVersion: devcluster.gpusched.io/v1alpha1
kind: FaultSchedule
rules:
- name: lost binds
  match: {verbs: [create], resources: [pods/binding]}
  fault: {type: lost, applied: true}
  when: {rate: 0.25, from: 10, until: 60}
- fault:
    type: delay
    seconds: [0.1, 2]
"""


def test_a_file_holds_the_same_rules(tmp_path):
    """A FaultSchedule reads as the list of rules that the endpoint takes."""
    path = tmp_path / "f.yaml"
    path.write_text(GOOD)
    first, second = load_faults(path)
    assert (first.name, first.fault.applied, first.when.rate) == ("lost binds", True, 0.25)
    assert (second.name, second.fault.seconds) == ("rule-2", (0.1, 2.0))


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("kind: FaultSchedule", "kind: Faults", 2, "kind: must be FaultSchedule"),
        ("applied: true", "applied: yep", 6, "rules[0].fault.applied: must be true or false"),
        ("rate: 0.25", "rat: 0.25", 7, "rules[0].when.rat: is no known key"),
        ("    seconds: [0.1, 2]", "    seconds: [0.1, x]", 10, "rules[1].fault.seconds[1]: must"),
        ("    type: delay", "    type: delay\n    type: lost", 10, "given twice, first on line 9"),
        ("rules:", "rules: [", 4, ""),
        ("name: lost binds", "name: &n lost binds\n  x: *n", 5, "aliases are not read here"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path, old, new, line, why):
    """FILE:LINE: the place and what is wrong."""
    path = tmp_path / "f.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as raised:
        load_faults(path)
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert why in str(raised.value)
