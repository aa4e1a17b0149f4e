"""Limits of users and budgets of a Queue that make no sense are told by the field and what is wrong."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.api.meta.identity import Creator, InvalidObject, read_creator
from gpusched.api.queue.decode_limits import decode_budget, decode_user_limits
from gpusched.api.queue.wire import WireBudget, WireUserLimits


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"gpuHours": "-1"}, "spec.budget.gpuHours: '-1' is negative"),
        ({"gpuHours": "many"}, "spec.budget.gpuHours: 'many' is not a quantity"),
        ({"gpuHours": "1e60"}, "is more than any machine has"),
        ({"gpuHours": 1, "period": "1m"}, "'1m' is not whole seconds from 1h to 8784h"),
        ({"gpuHours": 1, "period": "9999h"}, "is not whole seconds from 1h to 8784h"),
        ({"gpuHours": 1, "period": "Year"}, "it is Day, Week, Month or a duration"),
        ({"gpuHours": 1, "rolloverPercent": 101}, "101 is more than 100 percent"),
        ({"gpuHours": 1, "gpuHoursPerUser": "x"}, "spec.budget.gpuHoursPerUser"),
    ],
)
def test_an_absurd_budget_is_told(budget, said):
    with pytest.raises(InvalidObject) as wrong:
        decode_budget(msgspec.convert(budget, WireBudget))
    assert said in f"{wrong.value.field}: {wrong.value.why}"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"perUser": {"resources": {"nvidia.com/gpu": "-1"}}}, "userLimits.perUser.resources"),
        ({"users": [{"name": "a"}, {"name": "a"}]}, "'a' is empty or there twice"),
        ({"groups": [{"maxRunning": 1}]}, "spec.userLimits.groups[].name"),
    ],
)
def test_limits_that_make_no_sense_are_told(limits, said):
    with pytest.raises(InvalidObject) as wrong:
        decode_user_limits(msgspec.convert(limits, WireUserLimits))
    assert said in f"{wrong.value.field}: {wrong.value.why}"


def test_names_of_users_are_bounded():
    """What cannot be the name of a user or group counts as none."""
    assert read_creator("ann", "ml,,ops,ml") == Creator("ann", ("ml", "ops"))
    assert read_creator("x" * 257, "ml") == Creator()
    assert read_creator("a\nb", None) == Creator()
    assert read_creator(None, "ml") == Creator()
    many = ",".join(f"g{number}" for number in range(1_000))
    assert len(read_creator("ann", many).groups) == 256
