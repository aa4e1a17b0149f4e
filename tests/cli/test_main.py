"""The command line: exit statuses and sentences of the contract."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpusched import __version__
from gpusched.base import limits
from gpusched.base.errors import ClusterUnreachable, ConfigError, InvariantBroken
from gpusched.cli import main as cli
from gpusched.cli import version

KNOWN = ", ".join(cli.COMMANDS)


def exits(*words):
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    return caught.value.code


def test_version_as_text_and_json(capsys):
    """version, API version and solver version, also for programs."""
    assert cli.main(["version"]) == 0
    text = capsys.readouterr().out
    assert __version__ in text
    assert "scheduling.gpusched.io/v1alpha1" in text
    assert cli.main(["version", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == __version__
    assert told["apiVersion"] == "scheduling.gpusched.io/v1alpha1"
    assert told["solver"]["version"] in text


HTTP_SERVERS = {"aiohttp.web", "opentelemetry", "prometheus_client"}
TRACING = {"google.protobuf", "opentelemetry.exporter.otlp", "opentelemetry.sdk.trace"}
OTHERS_ALONE = {"ortools", "kubernetes_asyncio", "jsonschema", "rich", "hypothesis"} | TRACING
NUMBERS = {"numpy", "gpusched.cache.cache", "gpusched.placement"}
SELECTORS = {"gpusched.cel"}
MODULES_MAX = {"run --help": 1_155, "get --help": 560, "explain --help": 590, "hold --help": 440}
"""Modules of a start: each costs half a millisecond."""
NETWORK = {"aiohttp", "asyncio", "yaml", "msgspec"}
TRIALS = {"gpusched.devcluster", "gpusched.lab", "gpusched.testing"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ("version", OTHERS_ALONE | TRIALS | HTTP_SERVERS | NUMBERS | NETWORK),
        ("--help", OTHERS_ALONE | TRIALS | HTTP_SERVERS | NUMBERS | NETWORK),
        ("hold --help", OTHERS_ALONE | TRIALS | HTTP_SERVERS | NUMBERS | SELECTORS),
        ("explain --help", OTHERS_ALONE | TRIALS | HTTP_SERVERS | NUMBERS),
        ("advise --help", OTHERS_ALONE | TRIALS | HTTP_SERVERS | NUMBERS | SELECTORS),
        ("get --help", OTHERS_ALONE | TRIALS | HTTP_SERVERS | NUMBERS),
        ("console --help", OTHERS_ALONE | TRIALS | NUMBERS),
        ("top --help", (OTHERS_ALONE - {"rich"}) | TRIALS | HTTP_SERVERS | NUMBERS),
        ("run --help", OTHERS_ALONE | TRIALS | {"opentelemetry"}),
    ],
)
def test_the_start_is_light(words, heavy):
    """No command imports what only another one uses, or what only a few runs need: the solver, tracing."""
    program = (
        "import contextlib, json, sys\n"
        "from gpusched.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main(sys.argv[1:])\n"
        "json.dump(sorted(sys.modules), sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *words.split()], check=True, capture_output=True, text=True
    )
    imported = set(json.loads(ran.stderr))
    assert "gpusched.cli.main" in imported
    assert sorted(heavy & imported) == []
    assert len(imported) <= MODULES_MAX.get(words, len(imported)), "what is new, and who needs it?"


def test_what_imports_make_is_not_walked():
    """The collector of garbage rests until the modules of a command are there, and runs seldom after that."""
    program = (
        "import gc, sys\n"
        "from gpusched.cli import main, version\n"
        "before = gc.get_stats()[0]['collections']\n"
        "def run(_):\n"
        "    print(gc.get_stats()[0]['collections'] - before, gc.isenabled(), *gc.get_threshold()[:1])\n"
        "    print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000)\n"
        "    return 0\n"
        "version.run = run\n"
        "sys.argv = ['gpusched', 'version']\n"
        "main.main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert ran.stdout.split() == ["0", "True", str(limits.COLLECT_AFTER_OBJECTS), "True", "True"]


def test_help_lists_every_command(capsys):
    """--help names each command of the contract that exists, and nothing else."""
    assert exits("--help") == 0
    text = capsys.readouterr().out
    for name in KNOWN.split(", "):
        assert f"\n    {name}" in text


def test_every_listed_command_is_a_module():
    """What help lists exists."""
    folder = Path(cli.__file__).parent
    for _, place in cli.COMMANDS.values():
        assert (folder / f"{place.replace('.', '/')}.py").is_file()


def without(monkeypatch, missing):
    """Let the import of a module fail as if it were not installed."""

    def refuse(name):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(cli, "import_module", refuse)


def test_a_library_of_an_extra_that_is_missing_is_named(monkeypatch, capsys):
    """An extra installed by halves is the installation's fault, and the sentence says the cure."""
    without(monkeypatch, "rich")
    assert cli.main(["scenario", "run", "x"]) == 78
    assert capsys.readouterr().err == (
        "gpusched: the command scenario needs rich, which is not installed: "
        f'run pip install ".[lab]" in a checkout of gpusched {__version__}\n'
    )


@pytest.mark.parametrize(
    ("command", "missing"), [("scenario", "gpusched.lab.scenario.nowhere"), ("run", "numpy")]
)
def test_a_module_missing_from_what_is_installed_is_a_bug(monkeypatch, capsys, command, missing):
    """An import of ours that leads nowhere, or a daemon without its libraries: no sentence helps."""
    without(monkeypatch, missing)
    assert cli.main([command]) == 70
    assert "this is a bug: ModuleNotFoundError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: COMMAND; see gpusched --help"),
        (["conquer"], f'unknown command "conquer": known are {KNOWN}; see gpusched --help'),
        (
            ["vesion"],
            (
                f'unknown command "vesion": known are {KNOWN}; did you mean "version"; '
                "see gpusched --help"
            ),
        ),
        (
            ["get", "weather"],
            (
                'unknown kind "weather": known are jobs, job, gangs, gang, nodes, node, queues, queue, gq, reservations, reservation, gres, history, priority, podgroups, '
                "podgroup, gpg, devices, device, shards, shard; see gpusched get --help"
            ),
        ),
        (
            ["get", "gq", "-o", "xml"],
            'unknown format "xml": known are json, yaml, name, wide, csv, parquet; see gpusched get --help',
        ),
        (["version", "--loud"], "unrecognized arguments: --loud; see gpusched --help"),
        (
            ["get", "gpg", "-A", "-n", "x"],
            (
                "argument -n/--namespace: not allowed with argument -A/--all-namespaces; "
                "see gpusched get --help"
            ),
        ),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(capsys, words, sentence):
    """Wrong usage names what is known and where help is."""
    assert exits(*words) == 2
    captured = capsys.readouterr()
    assert captured.err == f"gpusched: {sentence}\n"
    assert not captured.out


def test_as_a_kubectl_plugin_it_calls_itself_so(capsys, monkeypatch):
    """Help says what the user typed."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-gpusched", "nope"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "see kubectl gpusched --help" in capsys.readouterr().err


def failing(monkeypatch, error):
    def run(_):
        raise error

    monkeypatch.setattr(version, "run", run)
    return cli.main(["version"])


@pytest.mark.parametrize(
    ("error", "status", "lines"),
    [
        (ConfigError("f:1: one", "f:2: two"), 78, "gpusched: f:1: one\ngpusched: f:2: two\n"),
        (ClusterUnreachable("no answer"), 69, "gpusched: no answer\n"),
        (
            ExceptionGroup("tasks", [ClusterUnreachable("no answer"), ConfigError("f:1: one")]),
            69,
            "gpusched: no answer\n",
        ),
    ],
)
def test_a_fault_has_its_status(capsys, monkeypatch, error, status, lines):
    """Each branch of the error tree is one sentence a problem and its own exit status."""
    assert failing(monkeypatch, error) == status
    assert capsys.readouterr().err == lines


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ZeroDivisionError("1/0\nmore"), "ZeroDivisionError: 1/0 more"),
        (InvariantBroken("slot held twice"), "slot held twice"),
        (
            ExceptionGroup("tasks", [ClusterUnreachable("x"), KeyError("y")]),
            "ExceptionGroup: tasks (2 sub-exceptions)",
        ),
    ],
)
def test_a_bug_leaves_its_story_in_a_file(capsys, monkeypatch, tmp_path, error, what):
    """Status 70, one sentence, and the traceback in a file that the sentence names."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert failing(monkeypatch, error) == 70
    (dump,) = tmp_path.iterdir()
    said = capsys.readouterr().err
    assert said == f"gpusched: this is a bug: {what} (the story is in {dump})\n"
    assert "Traceback (most recent call last)" in dump.read_text()


def test_a_bug_without_a_place_for_files_is_told_on_stderr(capsys, monkeypatch, tmp_path):
    """On a read-only file system the story is not lost."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    assert failing(monkeypatch, ZeroDivisionError("1/0")) == 70
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert "no file could be written" in said


def test_ctrl_c_ends_without_a_traceback(capsys, monkeypatch):
    """An interrupt is no bug."""
    assert failing(monkeypatch, KeyboardInterrupt()) == 130
    assert not capsys.readouterr().err


VERSION = "import sys; from gpusched.cli.main import main; sys.exit(main(['version']))"


def test_a_reader_that_goes_away_is_no_bug():
    """``gpusched ... | head -0`` ends quietly."""
    with subprocess.Popen(
        [sys.executable, "-c", VERSION], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert not process.stderr.read()
        assert process.wait() == 141


@pytest.mark.parametrize(
    ("redirected", "status", "said"),
    [
        (">/dev/full", 2, "the output cannot be written: No space left on device"),
        ("1</dev/null", 2, "the output cannot be written: Bad file descriptor"),
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
    ],
)
def test_output_that_cannot_be_written_is_no_bug(redirected, status, said):
    """Given a standard output that takes nothing, then one sentence says so; where it is closed nothing is printed."""
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {redirected}', sys.executable, VERSION],
        check=False, capture_output=True, text=True, env=buffered,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (status, f"gpusched: {said}\n" if said else "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "the output cannot be written: No space",
        ),
        (OSError(errno.EROFS, "Read-only file system", "x/y"), "x/y cannot be written: Read-only"),
    ],
)
def test_a_disk_that_takes_nothing_is_no_bug(capsys, monkeypatch, error, said):
    """Given a write of any command that fails as the disk is full or read-only, then one sentence says so."""
    assert failing(monkeypatch, error) == 2
    assert capsys.readouterr().err.startswith(f"gpusched: {said}")


def test_an_error_of_the_system_that_is_about_no_output_is_a_bug(monkeypatch, tmp_path):
    """Given a file of ours that is not there, then its story is told."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert failing(monkeypatch, FileNotFoundError(errno.ENOENT, "No such file", "ours")) == 70
