from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.project.sources import read_project
from kernelyard.publish.card import files_for_people

pytest.importorskip("jinja2")


@pytest.fixture
def project(sample: Callable[[str], Path]) -> Path:
    return sample("img2gray")


def filled(project: Path, text: str) -> str:
    (project / "CARD.md").write_text(text)
    found = files_for_people(read_project(project), "me/gray", project / "torch-ext" / "img2gray")
    return found["README.md"].read_text()


def test_a_plain_card_is_taken_as_it_is_and_benchmarks_go_along(project: Path) -> None:
    (project / "benchmarks").mkdir(exist_ok=True)
    for name in ("benchmark.py", "benchmark_large.py", "plot.py"):
        (project / "benchmarks" / name).write_text("")
    (project / "CARD.md").write_text("# gray\n")
    found = files_for_people(read_project(project), "me/gray", project)
    names = ["README.md", "benchmarks/benchmark.py", "benchmarks/benchmark_large.py"]
    assert sorted(found) == names
    assert found["README.md"] == project / "CARD.md"
    (project / "CARD.md").unlink()
    assert sorted(files_for_people(read_project(project), "me/gray", project)) == names[1:]


def test_a_template_is_filled_as_kernel_builder_fills_it(project: Path) -> None:
    text = "{{ repo_id }} {{ version }} {{ license }}\n{% for name in functions %}\n- {{ name }}\n{% endfor %}\nend\n"
    assert filled(project, text) == "me/gray 1 apache-2.0\n- img2gray\nend\n"
    assert filled(project, "{% if layers %}layers{% else %}none{% endif %}{{ upstream or '' }}\n") == "none\n"


@pytest.mark.parametrize(("text", "line"), [("# gray\n{% if %}\n", 2), ("{{ 1 | nothing }}\n", 1)])
def test_a_template_that_cannot_be_filled_is_refused_at_its_line(project: Path, text: str, line: int) -> None:
    with pytest.raises(InputError) as caught:
        filled(project, text)
    assert caught.value.code == "KY527"
    assert caught.value.place is not None
    assert (Path(caught.value.place.path).name, caught.value.place.line) == ("CARD.md", line)
