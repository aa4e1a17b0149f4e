"""What SIGTERM means to commands that play for long."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: a real cluster is tidied up, what happened is kept.

    CI systems and Jobs cancel by SIGTERM, and shells start what goes on in the background with
    SIGINT ignored, which would then be lost.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
