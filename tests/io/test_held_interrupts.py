"""Processes are begun whole, or not at all, whenever a Ctrl-C comes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection

import pytest

from gpusched.cli.shell.interrupts import sigterm_as_ctrl_c
from gpusched.io.workers.held_interrupts import held_interrupts


@pytest.fixture
def other_thread():
    """A thread that takes signals, as those of numerical libraries do."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_heard_after_the_start(other_thread, number):
    """Another thread takes the signal at once: Python would raise in the middle."""
    told = []

    def begin() -> None:
        with held_interrupts():
            os.kill(os.getpid(), number)
            signal.sigtimedwait([signal.SIGUSR1], 0.05)  # time for whoever takes it
            told.append("begun")
        told.append("not heard")

    with sigterm_as_ctrl_c(), pytest.raises(KeyboardInterrupt):
        begin()
    assert told == ["begun"]


def test_nothing_is_left_of_it_afterwards():
    """Handlers and mask are as before, also where what is done inside fails."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(OSError, match="no more"), held_interrupts():
        raise OSError("no more processes")
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def _tell_mask(pipe: Connection) -> None:
    pipe.send(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, set())))


def test_what_begins_there_hears_no_ctrl_c():
    """It is for the parent, which ends them. SIGTERM they do hear."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with held_interrupts():
        process = context.Process(target=_tell_mask, args=(theirs,))
        process.start()
        theirs.close()
    assert ours.recv() == [signal.SIGINT]
    process.join()
    ours.close()
