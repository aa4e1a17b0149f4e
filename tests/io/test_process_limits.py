"""Limits of the whole process, each looked at in a process of its own."""

from __future__ import annotations

import subprocess
import sys

from gpusched.base import limits

_LISTING = """
import gc
from gpusched.io.observe import process_limits
process_limits.collect_no_garbage_yet()
cluster = [[number] for number in range(100_000)]
print(gc.get_threshold()[0], any(each["collections"] for each in gc.get_stats()[2:]))
process_limits.leave_objects_alone()
print(*gc.get_threshold()[:2], gc.get_freeze_count() > len(cluster), len(gc.get_objects()) < 1_000)
"""


def test_what_was_listed_is_not_walked_again():
    """Given a cluster of many objects, the collector rests until it is there and never looks at it later."""
    done = subprocess.run(
        [sys.executable, "-c", _LISTING], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        *(str(limits.COLLECT_WHILE_LISTING_AFTER_OBJECTS), "False"),
        *(str(limits.COLLECT_AFTER_OBJECTS), str(limits.COLLECT_OLDER_AFTER), "True", "True"),
    ]
