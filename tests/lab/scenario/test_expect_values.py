"""Paths lead where kubectl's do; numbers are compared as numbers, texts as texts."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.lab.scenario.judge.comparison import comparison_holds
from gpusched.lab.scenario.judge.json_path import parse_path, values_at_path
from gpusched.lab.scenario.model.scenario import Comparator, Comparison

OBJ: dict[str, Any] = {
    "metadata": {"annotations": {"gpusched.io/slots": "0,1", "a.b": "c"}},
    "status": {
        "succeeded": 2, "none": None,
        "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".status.succeeded", [2]),
        ("status.succeeded", [2]),
        ("{.status.succeeded}", [2]),
        ("$.status.succeeded", [2]),
        (".metadata.annotations['gpusched.io/slots']", ["0,1"]),
        (r".metadata.annotations.gpusched\.io/slots", ["0,1"]),
        ('.metadata["annotations"]["a.b"]', ["c"]),
        (".status.conditions[*].type", ["A", "B"]),
        (".status.conditions[-1].status", ["False"]),
        (".metadata.annotations.*", ["0,1", "c"]),
        (".status.conditions[7].type", []),
        (".status.none", []),
        (".status.succeeded.more", []),
    ],
)
def test_paths(path: str, found: list[Any]) -> None:
    """What is not there is nothing, and no error."""
    assert values_at_path(OBJ, parse_path(path)) == found


@pytest.mark.parametrize("path", ["", "{}", ".a[", ".a[x]", ".a..b", ".a b", ".a[?(@.b==1)]"])
def test_paths_that_are_not_understood_are_refused(path: str) -> None:
    """With the part that is not."""
    with pytest.raises(ValueError, match="path"):
        parse_path(path)


@pytest.mark.parametrize(
    ("test", "wanted", "values", "so"),
    [
        (Comparator.EQUALS, 2.0, [2], True),
        (Comparator.EQUALS, "2", [2], True),
        (Comparator.EQUALS, 2.0, ["2"], True),
        (Comparator.EQUALS, "1024Mi", ["1Gi"], True),
        (Comparator.EQUALS, "500m", [0.5], True),
        (Comparator.EQUALS, "90s", ["1m30s"], True),
        (Comparator.AT_LEAST, "1m", ["90s"], True),
        (Comparator.AT_MOST, "8Gi", ["16Gi"], False),
        (Comparator.ABOVE, 9.0, ["10"], True),
        (Comparator.BELOW, "b", ["a"], True),
        (Comparator.EQUALS, True, ["True"], True),
        (Comparator.EQUALS, "true", [True], True),
        (Comparator.EQUALS, 1.0, [True], False),
        (Comparator.NOT, "a", ["b"], True),
        (Comparator.NOT, "a", [], True),
        (Comparator.EQUALS, "a", [], False),
        (Comparator.AT_LEAST, 0.0, [], False),
        (Comparator.CONTAINS, "ell", ["hello"], True),
        (Comparator.CONTAINS, "B", ["A", "B"], True),
        (Comparator.CONTAINS, 2.0, [[1, 2]], True),
        (Comparator.CONTAINS, "a", [{"a": 1}], True),
        (Comparator.MATCHES, "^h.*o$", ["hello"], True),
        (Comparator.EQUALS, "True", ["True", "False"], False),
        (Comparator.EQUALS, "a/b", ["a/b"], True),
        (Comparator.EQUALS, "1/0", ["1/0"], True),
    ],
)
def test_comparisons(test: Comparator, wanted: Any, values: list[Any], so: bool) -> None:
    """Quantities, durations, truth, texts; of several values each must be so."""
    assert comparison_holds(Comparison(test, wanted), values) is so
