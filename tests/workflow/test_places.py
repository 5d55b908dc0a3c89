"""The project's folder may have any name that Snakemake itself can live with."""

from __future__ import annotations

import pytest
from workflow_runs import make_project

pytestmark = pytest.mark.workflow


@pytest.mark.parametrize(
    "name", ['a:b c\'$d "q"', "two\nlines", "-dash é", "l" * 140 + "/" + "m" * 140, "a%b#c;d&e*[f]"]
)
def test_the_host_is_read_in_a_folder_of_any_name(tmp_path, name):
    assert make_project(tmp_path / name).planned("health") == {"health": 1, "total": 1}


def test_a_name_that_snakemake_would_fill_in_is_refused_in_one_line(tmp_path):
    text = make_project(tmp_path / "{contract}").snakemake("-n", check=False)
    assert "Traceback" not in text
    assert "takes braces in a folder's name for wildcards; rename it, or clone elsewhere" in text
