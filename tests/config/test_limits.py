"""The sections limits and clientConnection: what is read, in which ranges, and what takes a restart."""

from __future__ import annotations

import json

import pytest

from gpusched.base.errors import ConfigError
from gpusched.cli.check_config import _limits_json
from gpusched.config.load import load_config
from gpusched.config.model import DEFAULT, ClientConnectionConfig, LimitsConfig
from gpusched.config.reload import ConfigAdopted, ConfigKept, decide_reload

EVERY = LimitsConfig(
    binds_in_flight=1,
    evictions_in_flight=2,
    status_writes_in_flight=3,
    events_in_flight=4,
    preemptions_in_flight=5,
    preemption_timeout_s=6.0,
    admitted_timeout_s=70.0,
    pod_arrival_timeout_s=8.0,
    repair_timeout_s=9.0,
    reservations=10,
    reservation_window_s=110.0,
    cache_staleness_s=12.0,
    audit_period_s=130.0,
    binds_per_session=140,
    evictions_per_session=15,
    session_work=160_000,
    victim_work=1_700,
    start_estimates=18,
    nomination_timeout_s=190.0,
    move_pause_s=200.0,
    volume_timeout_s=210.0,
    decision_line_rate=22,
)


def test_every_key_is_read() -> None:
    """Given each limit with another value, then each arrives, in seconds or as a number."""
    text = json.dumps({"limits": _limits_json(EVERY)})
    assert load_config(text, source="f.yaml").limits == EVERY


def test_the_client_connection_is_read() -> None:
    """Given half a section, then the rest is as by default."""
    found = load_config("clientConnection: {qps: 50}", source="f.yaml").client_connection
    assert found == ClientConnectionConfig(qps=50, max_connections=96)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "limits: {bindsInFlight: 0}",
            "bindsInFlight must be a whole number from 1 to 1024, not 0",
        ),
        (
            "limits: {bindsInFlight: 1025}",
            "bindsInFlight must be a whole number from 1 to 1024, not 1025",
        ),
        (
            "limits: {admittedTimeout: 1s}",
            'admittedTimeout must be a duration from 10s to 24h, not "1s"',
        ),
        (
            "limits: {cacheStaleness: 1h}",
            'cacheStaleness must be a duration from 5s to 10m, not "1h"',
        ),
        (
            "limits: {sessionWork: 999}",
            "sessionWork must be a whole number from 1000 to 10000000, not 999",
        ),
        (
            "limits: {nominationTimeout: 2h}",
            'nominationTimeout must be a duration from 30s to 1h, not "2h"',
        ),
        (
            "clientConnection: {qps: 1}",
            "qps must be a whole number from 10 to 20000, not 1",
        ),
        (
            "clientConnection: {burst: 9}",
            'unknown key "burst" in clientConnection: known keys are qps, maxConnections',
        ),
        ("limits: 7", "limits must be a mapping, not 7"),
    ],
)
def test_a_value_out_of_range_is_one_sentence(text: str, sentence: str) -> None:
    """Given one mistake, then it is told with its line and the range."""
    with pytest.raises(ConfigError) as caught:
        load_config(text, source="f.yaml")
    assert caught.value.problems == (f"f.yaml:1: {sentence}",)


def test_limits_are_taken_over_by_a_running_daemon() -> None:
    """Given other limits and another rate, then both are adopted; connections take a restart."""
    other = load_config("{limits: {bindsInFlight: 8}, clientConnection: {qps: 50}}", source="f")
    adopted = decide_reload(DEFAULT, other)
    assert isinstance(adopted, ConfigAdopted)
    assert adopted.changed == ("limits", "clientConnection")
    kept = decide_reload(DEFAULT, load_config("clientConnection: {maxConnections: 50}", source="f"))
    assert isinstance(kept, ConfigKept)
    assert kept.problems == (
        "f: clientConnection.maxConnections changed, which takes a restart of the daemon",
    )
