"""Where the installed commands begin: Ctrl-C ends them without a word while Python still loads the rest.

Nothing is imported here that takes time.
"""

from __future__ import annotations

import os
import signal
from importlib import import_module

INTERRUPTED = 130
"""What a shell reports of a program that Ctrl-C ended."""


def main() -> int:
    """``gpusched`` and ``kubectl-gpusched``: run the command that was typed; its exit status."""
    listens = _end_at_ctrl_c()
    command = import_module("gpusched.cli.main")  # Ctrl-C may come meanwhile
    try:
        _raise_at_ctrl_c(listens)
        status: int = command.main()
    except KeyboardInterrupt:  # between two of its precautions
        status = INTERRUPTED
    finally:
        _end_at_ctrl_c()
    return status


def complete_for_kubectl() -> int:
    """``kubectl_complete-gpusched``: kubectl runs it with the words, the last of which is completed."""
    _end_at_ctrl_c()
    completion = import_module("gpusched.cli.shell.completion")
    status: int = completion.complete_for_kubectl()
    return status


def _end_at_ctrl_c() -> bool:
    """Have Ctrl-C end the process; False where it does not listen, as what a shell starts in the background."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, _end)
    return True


def _raise_at_ctrl_c(listens: bool) -> None:
    """As Python has it, where the process listens."""
    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_signal: int, _frame: object) -> None:
    os._exit(INTERRUPTED)
