"""Pods whose slots cannot be believed are named in the log, and many of them do not fill it."""

from __future__ import annotations

from collections import Counter

import pytest

from gpusched.io.observe.device_events import SlotEvents
from gpusched.testing import entities


class Noted:
    """Events that were to be written."""

    def __init__(self):
        self.notes = []

    def record(self, note):
        """See ``EventSink``."""
        self.notes.append(note)


@pytest.mark.parametrize(("pods", "lines"), [(1, 1), (100, 100), (1_000, 103)])
def test_the_log_names_a_hundred_and_then_as_their_number_doubles(caplog, pods, lines):
    """Given so many pods with doubtful slots, then so many lines; each has its event and is counted."""
    noted, counted = Noted(), Counter()
    events = SlotEvents(noted, lambda kind, field: counted.update([(kind, field)]))
    pod = entities.pod("p", entities.pod_class(gpus=1), node="n")
    for _ in range(pods):
        events.record(pod, "others have them")
    assert sum("cannot be believed" in each.message for each in caplog.records) == lines
    assert len(noted.notes) == counted.total() == pods
