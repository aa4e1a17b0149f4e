"""Limits of the configuration in force in a whole daemon, at its start and after a reload."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.io.write.bind_calls import BindCalls
from tests.daemon.places.test_daemon_volumes import claim, selected, storage_class, uses


@pytest.fixture
def most_binds(monkeypatch):
    """How many bindings were on their way at once, since it was last set to 0."""
    most, now = [0], [0]
    original = BindCalls.bind

    async def counted(*args: Any, **how: Any) -> Any:
        now[0] += 1
        most[0] = max(most[0], now[0])
        try:
            return await original(*args, **how)
        finally:
            now[0] -= 1

    monkeypatch.setattr(BindCalls, "bind", counted)
    return most


def test_bindings_in_flight_follow_the_configuration(play, tmp_path, most_binds):
    """Given 3 bindings in flight, when the file says 6, then the running daemon sends 6."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("limits: {bindsInFlight: 3}\n")

    async def scenario(w: Any) -> None:
        await w.start(nodes=4)
        daemon = w.daemon(config_file=str(file))
        w.gang("first", 16, gpus=1)
        await w.until(lambda: len(w.bound("first")) == 16)
        assert most_binds == [3]

        file.write_text("limits: {bindsInFlight: 6}\n")
        daemon.app.reload()
        await w.until(lambda: daemon.app.cycle.rules.config.limits.binds_in_flight == 6)
        w.gang("second", 16, gpus=1)
        await w.until(lambda: len(w.bound("second")) == 16)
        assert most_binds == [6]

    play(scenario)


def test_the_rate_of_requests_follows_the_configuration(play, tmp_path):
    """Given 4,000 requests a second, when the file says 50, then the limiter gives 50."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("{}\n")

    async def scenario(w: Any) -> None:
        await w.start(nodes=1, stages=False)
        daemon = w.daemon(config_file=str(file))
        await w.until(lambda: daemon.leading)
        assert daemon.app._rate_limiter.rate == 4000
        file.write_text("clientConnection: {qps: 50}\n")
        daemon.app.reload()
        await w.until(lambda: daemon.app._rate_limiter.rate == 50)

    play(scenario)


def test_a_gang_waits_for_volumes_as_long_as_the_configuration_says(play, tmp_path, caplog):
    """Given 30 s, when no volume is made, then the attempt ends, and its message says the time."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("limits: {volumeTimeout: 30s}\n")

    async def scenario(w: Any) -> None:
        await w.start(nodes=1)
        w.daemon(config_file=str(file))
        storage_class(w, "fast")
        claim(w, "data", "fast")
        w.pod("waits", spec=uses("data"))
        await w.until(lambda: selected(w, "data"))
        assert not _volume_faults(caplog)
        await w.until(lambda: _volume_faults(caplog), within=32)
        assert "got no volume within 30 s" in _volume_faults(caplog)[0]

    play(scenario)


def _volume_faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        str(vars(each))
        for each in caplog.records
        if each.message == "a gang gets no volumes or devices"
    ]
