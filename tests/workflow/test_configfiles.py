"""A configuration file that cannot be read is one line, although Snakemake reads it before the workflow does."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest
from workflow_runs import ROOT, make_project

from anchormatrix.errors import ConfigError

check_configfiles = runpy.run_path(str(ROOT / "profiles" / "default" / "check_configfiles.py"))["check_configfiles"]
GOOD = "verdict: {dispersion_pct: 4}\n"


def told(path: Path, content: bytes) -> str:
    good = path.with_name("good.yaml")
    good.write_text(GOOD)
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        check_configfiles(["-n", "matrix_report", "--configfile", str(good), str(path), "--cores", "1"])
    return str(error.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: 1\nb: \xff\n", "f.yaml:2: byte '\\xff' is no UTF-8; expected text in UTF-8; save it as UTF-8"),
        (b"a: 1\nb: x\0y\n", "f.yaml:2: holds the character '\\x00'; expected maps, lists"),
        (b"a: &x\n  b: *x\n", "f.yaml: a.b.b: holds too much, or itself; expected at most 500000 values"),
        (b"[" * 10_000 + b"]" * 10_000, "f.yaml:1: not YAML: exceeded maximum nesting depth"),
        (b"a: 1\nb: " + b"7" * 5000, f"f.yaml:2: not YAML: '{'7' * 40}'… of 5000 characters is not a number"),
        (b"a: 1\nhost: !!python/object:os.system {}\n", "f.yaml:2: not YAML: could not determine a constructor"),
        (b"host: !secret x\n", "f.yaml:1: not YAML: could not determine a constructor for the tag '!secret'"),
        (b"a: 1\na: 2\n", "f.yaml:2: not YAML: key 'a' is given twice"),
        (b"host:\n\tkind: local\n", "f.yaml:2: not YAML: found character that cannot start any token"),
        (b"- a\n", "f.yaml: holds list; expected a map of sections"),
        (b"", "f.yaml: is empty; expected a map of sections; fill it, or leave it out"),
        (b"a: 1\n" * 60_000, "f.yaml: is larger than 256 KiB; expected a few kilobytes of YAML; check which file"),
        (b"a: 2026-13-45\n", "f.yaml: cannot be read by Snakemake (month must be in 1..12)"),
        (b"a: =\n", "f.yaml: cannot be read by Snakemake (Config file is not valid JSON or YAML."),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path, content, words):
    assert told(tmp_path / "f.yaml", content).startswith(words)


def test_what_is_no_file_is_said(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, words in {
        "missing.yaml": "missing.yaml: cannot be read (No such file or directory); expected a YAML file",
        ".": ": is a directory, a pipe or a device; expected a YAML file, which is read more than once",
        "pipe.yaml": "pipe.yaml: is a directory, a pipe or a device",
        "verdict": "verdict: is no file; expected files up to the next option; give targets first",
    }.items():
        with pytest.raises(ConfigError, match=words.replace("(", r"\(").replace(")", r"\)")):
            check_configfiles([f"--configfile={tmp_path / name}"])


def test_files_that_can_be_read_and_none_at_all_are_nobodys_business(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    check_configfiles(["--configfiles", str(tmp_path / "good.yaml"), "--config", "cell=tp1-usp4/anchor"])
    check_configfiles(["matrix_report"])


@pytest.mark.workflow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: \xff", "test.yaml:1: byte '\\xff' is no UTF-8; expected text in UTF-8; save it as UTF-8"),
        (b"verdict: {dispersion_pt: 3}", "verdict: unknown key 'dispersion_pt'; did you mean dispersion_pct?"),
    ],
)
def test_snakemake_says_it_in_one_line(tmp_path, content, words):
    project = make_project(tmp_path / "project")
    (project.folder / "test.yaml").write_bytes(content)
    text = project.snakemake("-n", "matrix_report", "--configfile", "test.yaml", check=False)
    assert text.splitlines()[1:] == [f"snakemake: {words}"]


@pytest.mark.workflow
def test_the_nightly_target_without_its_night_says_what_replaced_it(tmp_path):
    project = make_project(tmp_path / "project")
    text = project.snakemake(
        "-n", "nightly", "--profile", "profiles/nightly", "--config", "matrix={windows: 1}", check=False
    )
    assert text.splitlines()[-1] == (
        "snakemake: night: nightly needs the night; expected night=auto (--config on the command line replaces the"
        " profile's); run scripts/nightly.py, or snakemake --profile profiles/nightly nightly, with --config night=auto"
        " beside whatever else --config is given"
    )
