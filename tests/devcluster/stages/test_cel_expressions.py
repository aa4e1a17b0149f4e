"""CEL of Stages: what an expression sees of its object, and KWOK's own functions."""

from datetime import UTC, datetime, timedelta

import pytest

from gpusched.devcluster.stages import load
from gpusched.devcluster.stages.expressions import ExpressionInput, compile_cel
from gpusched.devcluster.stages.model import StageError

NOW = 1_767_229_200.5
CREATED = 1_767_225_600.0
OBJECT = {
    "apiVersion": "example.com/v1",
    "kind": "Example",
    "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"count": 3, "share": 2.5, "list": [1, 2, 3], "unset": None},
}


def subject(rand=None):
    return ExpressionInput(OBJECT, now=NOW, rand=rand)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("self.kind", "Example"),
        ("self.spec.count == 3.0", True),
        ("self.spec.count > self.spec.share", True),
        ("self.spec.list.filter(x, x > 1)", [2, 3]),
        ("self.spec.unset == null", True),
        ("has(self.status)", False),
        ("Now()", datetime.fromtimestamp(NOW, UTC)),
        ("Now() - timestamp(self.metadata.creationTimestamp)", timedelta(seconds=3600.5)),
        ("UnixSecond(timestamp(self.metadata.creationTimestamp))", CREATED),
        ("SinceSecond(timestamp(self.metadata.creationTimestamp)) > 3600.0", True),
        ("Now().getFullYear()", 2026),
    ],
)
def test_an_expression_has_a_value(text, want):
    assert subject().cel(text) == (want, True)


@pytest.mark.parametrize(
    "text",
    [
        "self.status.phase", "self.spec.list[7]", "1 / 0", "self.spec.share + self.spec.count",
        "UnixSecond(self.metadata.name)", "SinceSecond(1)", "Now(1)",
        "timestamp(self.metadata.name)", "self.spec.count && true",
    ],
)  # fmt: skip
def test_an_expression_that_fails_on_the_object_has_none(text):
    assert subject().cel(text) == (None, False)


def test_draws_come_from_the_caller():
    assert subject(rand=lambda: 0.25).cel("Rand() < 0.5") == (True, True)
    assert subject().cel("Rand() < 0.5") == (None, False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.", "Syntax error"),
        ("Later()", "undeclared reference to 'Later'"),
        ("pod.spec", "undeclared reference to 'pod'"),
        ("has(self)", "invalid argument to has"),
    ],
)
def test_an_expression_that_can_never_have_a_value_refuses_its_stage(text, why):
    with pytest.raises(ValueError, match=why):
        compile_cel(text)
    stage = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "s"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [{"cel": {"expression": text}}]},
            "next": {},
        },
    }
    with pytest.raises(StageError, match="holds no usable expression"):
        load.read_stage(stage)
