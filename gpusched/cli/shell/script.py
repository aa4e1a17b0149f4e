"""``gpusched completion bash|zsh|fish``: the script that a shell reads to complete what is typed."""

from __future__ import annotations

import argparse

from argcomplete.shell_integration import shellcode

from gpusched.cli.command import Subparsers

_SHELLS = ("bash", "zsh", "fish")
_PROGRAMS = ("gpusched", "kubectl-gpusched")


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "completion",
        description="Print what a shell reads to complete commands, options, kinds and names of the "
        "cluster: source <(gpusched completion bash) in ~/.bashrc, the same with zsh in ~/.zshrc, "
        "gpusched completion fish | source in config.fish.",
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=print_script)


def print_script(arguments: argparse.Namespace) -> int:
    """Print the script of one shell."""
    print(shellcode(_PROGRAMS, use_defaults=False, shell=arguments.shell))
    return 0
