"""What CEL learned for admission policies: rights, optionals with a type, and a bound on cost."""

from __future__ import annotations

import pytest

from gpusched.cel.checker import type_text
from gpusched.cel.compilation import compile_expression
from gpusched.cel.errors import CelError
from gpusched.cel.evaluation import METER, CostExceededError, CostMeter
from gpusched.cel.libraries.authorization import (
    AUTHORIZER,
    AuthorizationDecision,
    AuthorizationQuestion,
    AuthorizerVariable,
    ResourceCheck,
)

TYPES = {"authorizer": AUTHORIZER, "object": "dyn", "names": ("list", "string")}


def kind_of(text: str) -> str:
    """The type of an expression, or the complaint about it."""
    run, kind, why = compile_expression(text, TYPES)
    return type_text(kind) if run is not None else why.split("\n")[0].split(": ", 3)[-1]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("object.?a", "optional_type(dyn)"),
        ("object.?a.b.orValue('')", "dyn"),
        ("names[?0]", "optional_type(string)"),
        ("names[?0].orValue('')", "string"),
        ("names[?0].hasValue()", "bool"),
        ("optional.of(1).value()", "int"),
        ("optional.of('a').optMap(x, size(x)).orValue(0)", "int"),
        ("object.a + 'x'", "string"),
        ("{'a': 1}['a']", "int"),
        ("{'a': 1, 'b': ''}['a']", "dyn"),
        ("authorizer.path('/a').check('get').allowed()", "bool"),
        ("jsonpatch.escapeKey('a/b')", "string"),
        ("authorizer.group('').resource('a').check('b').reason()", "string"),
        ("authorizer.requestResource.check('b').allowed()", "bool"),
    ],
)
def test_types_are_told(text, kind):
    """As cel-go's checker infers them; what a policy must give is compared exactly."""
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "authorizer.group('').check('get')",
        "authorizer.resource('pods')",
        "authorizer.group(1)",
        "authorizer.group('', '')",
        "authorizer.nothing",
        "authorizer.path('/a').check('get').denied()",
        "names.group('')",
    ],
)
def test_questions_about_rights_are_typed(text):
    """A step in the wrong place is refused when the policy is made."""
    run, _, why = compile_expression(text, TYPES)
    assert run is None
    assert why.startswith("compilation failed: ERROR: <input>:1:")


def run(text: str, *, units: int = 1_000_000, **env: object) -> object:
    """The value of an expression within a budget."""
    program, _, why = compile_expression(text, {**TYPES, **dict.fromkeys(env, "dyn")})
    assert program is not None, why
    return program({**env, METER: CostMeter(units)})


def test_a_question_holds_all_that_was_said():
    """Whom it is about, and what of which object in which namespace."""
    asked: list[AuthorizationQuestion] = []

    def decide(question: AuthorizationQuestion) -> AuthorizationDecision:
        asked.append(question)
        return AuthorizationDecision(allowed=True, reason="because")

    root = AuthorizerVariable(decide)
    requested = ResourceCheck(authorizer=root, group="g", resource="r", name="n", namespace="ns")
    root = AuthorizerVariable(decide, requested=requested)
    whole = (
        "authorizer.serviceAccount('ns', 'sa').group('apps').resource('deployments')"
        ".subresource('scale').namespace('team').name('d').check('update')"
    )
    assert run(f"{whole}.allowed() && {whole}.reason() == 'because'", authorizer=root) is True
    assert run("authorizer.requestResource.check('use').errored()", authorizer=root) is False
    assert asked[0] == AuthorizationQuestion(
        verb="update", account=("ns", "sa"), group="apps", resource="deployments",
        subresource="scale", namespace="team", name="d",
    )  # fmt: skip
    assert asked[-1] == AuthorizationQuestion(
        verb="use", group="g", resource="r", namespace="ns", name="n"
    )
    with pytest.raises(CelError, match="path must not be empty"):
        run("authorizer.path(' ').check('get').allowed()", authorizer=root)


def test_loops_texts_and_questions_cost():
    """What repeats is bounded; no ``||`` hides that the budget is used up."""
    loop = "[1, 2, 3].all(a, [1, 2, 3].all(b, a + b > 0))"
    assert run(loop, units=200) is True
    with pytest.raises(CostExceededError):
        run(f"{loop} || true", units=30)
    assert run("object.contains('x')", units=1001, object="y" * 10_000) is False
    with pytest.raises(CostExceededError):
        run("object.contains('x')", units=999, object="y" * 10_000)
    root = AuthorizerVariable(lambda _question: AuthorizationDecision(allowed=True))
    ask = "authorizer.path('/a').check('get').allowed()"
    assert run(f"{ask} && {ask}", authorizer=root) is True
    with pytest.raises(CostExceededError):
        run(f"{ask} && {ask} && {ask}", authorizer=root)


def test_a_key_is_escaped_for_the_path_of_a_patch():
    """As RFC 6901 says, the tilde first."""
    run, _, _ = compile_expression("jsonpatch.escapeKey('a/b~c~1')", {})
    assert run is not None
    assert run({}) == "a~1b~0c~01"
