"""What was given is told in a sentence, however long it is."""

from __future__ import annotations

import pytest

from gpusched.cli.main import main

LONG = "x" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        f"inputs: [{{name: a, generate: philly, nodes: {LONG}}}]",
        f"inputs: [{{name: a, csv: {LONG}, nodes: 4x8/4}}]",
        f"inputs: [{{name: a, generate: philly}}]\nstatistics: [{LONG}]",
        f"inputs: [{{name: a, generate: philly}}]\nvary: {{walltimes: [{LONG}]}}",
        f"inputs: [{{name: a, generate: philly}}]\nconfigurations: [{{name: b, file: {LONG}}}]",
    ],
)
def test_a_value_of_a_sweep_is_not_repeated_whole(text, tmp_path, capsys):
    """Its begin, its end and its length say which it is."""
    (tmp_path / "s.yaml").write_text(text)
    sweep = ["simulate", "--sweep", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")]
    assert main(sweep) == 78
    told = capsys.readouterr().err
    assert len(told) < 1_500
    assert " characters)" in told


@pytest.mark.parametrize(
    "words",
    [["simulate", "--jobs", LONG], ["get", LONG], [LONG], ["check-config", LONG]],
)
def test_a_word_of_a_command_is_not_repeated_whole(words, capsys):
    """As argparse and others would."""
    with pytest.raises(SystemExit) if words[0] != "check-config" else pytest.MonkeyPatch.context():
        assert main(words) == 78
    assert len(capsys.readouterr().err) < 1_500


@pytest.mark.parametrize(
    "words",
    [
        ["get", "queues", "--kubeconfig", LONG],
        ["snapshot", "--output-file", LONG],
        ["devcluster", "--apply", LONG],
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_no_bug(words, capsys):
    """Whoever looks for the file first."""
    assert main(words) in {2, 78}
    told = capsys.readouterr().err
    assert " characters)" in told
    assert "too long" in told
    assert "bug" not in told
