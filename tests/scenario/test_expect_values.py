"""Paths lead where kubectl's do; numbers are compared as numbers, texts as texts."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.scenario.comparing import holds
from gpusched.scenario.json_paths import find, parse_path
from gpusched.scenario.model import Comparison, Test

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
    assert find(OBJ, parse_path(path)) == found


@pytest.mark.parametrize("path", ["", "{}", ".a[", ".a[x]", ".a..b", ".a b", ".a[?(@.b==1)]"])
def test_paths_that_are_not_understood_are_refused(path: str) -> None:
    """With the part that is not."""
    with pytest.raises(ValueError, match="path"):
        parse_path(path)


@pytest.mark.parametrize(
    ("test", "wanted", "values", "so"),
    [
        (Test.EQUALS, 2.0, [2], True),
        (Test.EQUALS, "2", [2], True),
        (Test.EQUALS, 2.0, ["2"], True),
        (Test.EQUALS, "1024Mi", ["1Gi"], True),
        (Test.EQUALS, "500m", [0.5], True),
        (Test.EQUALS, "90s", ["1m30s"], True),
        (Test.AT_LEAST, "1m", ["90s"], True),
        (Test.AT_MOST, "8Gi", ["16Gi"], False),
        (Test.ABOVE, 9.0, ["10"], True),
        (Test.BELOW, "b", ["a"], True),
        (Test.EQUALS, True, ["True"], True),
        (Test.EQUALS, "true", [True], True),
        (Test.EQUALS, 1.0, [True], False),
        (Test.NOT, "a", ["b"], True),
        (Test.NOT, "a", [], True),
        (Test.EQUALS, "a", [], False),
        (Test.AT_LEAST, 0.0, [], False),
        (Test.CONTAINS, "ell", ["hello"], True),
        (Test.CONTAINS, "B", ["A", "B"], True),
        (Test.CONTAINS, 2.0, [[1, 2]], True),
        (Test.CONTAINS, "a", [{"a": 1}], True),
        (Test.MATCHES, "^h.*o$", ["hello"], True),
        (Test.EQUALS, "True", ["True", "False"], False),
        (Test.EQUALS, "a/b", ["a/b"], True),
        (Test.EQUALS, "1/0", ["1/0"], True),
    ],
)
def test_comparisons(test: Test, wanted: Any, values: list[Any], so: bool) -> None:
    """Quantities, durations, truth, texts; of several values each must be so."""
    assert holds(Comparison(test, wanted), values) is so
