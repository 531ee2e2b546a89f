"""What is published for people beside a kernel: its card as ``README.md``, and its benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernelyard.build.project import WORK_FOLDER
from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.project.sources import Project
from kernelyard.publish.api import read_api

__all__ = ["files_for_people"]

_CARD = "CARD.md"
_LAYERS = "layers"


def files_for_people(project: Project, repo: str, variant: Path) -> Mapping[str, Path]:
    """Return where each file goes, and what it is: ``README.md`` from ``CARD.md``, and ``benchmarks/benchmark*.py``.

    Args:
        project: Whose they are.
        repo: ``org/name``, for a card that is a template.
        variant: The folder of any variant, whose functions a template may list.

    Raises:
        InputError: The card is a template that cannot be filled (KY527).
        EnvironmentProblemError: It is one, and jinja2 is not installed (KY533).
    """
    found = {f"benchmarks/{path.name}": path for path in sorted(project.root.glob("benchmarks/benchmark*.py"))}
    card = project.root / _CARD
    if not card.is_file():
        return found
    text = card.read_text("utf-8")
    if "{{" not in text and "{%" not in text:
        return {**found, "README.md": card}
    filled = project.root / WORK_FOLDER / "card" / "README.md"
    filled.parent.mkdir(parents=True, exist_ok=True)
    filled.write_text(_fill(project, repo, variant, text), "utf-8")
    return {**found, "README.md": filled}


def _fill(project: Project, repo: str, variant: Path, text: str) -> str:
    """Fill a card with the names that kernel-builder gives to templates."""
    place = Place(str(project.root / _CARD))
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import SandboxedEnvironment
    except ImportError:
        what = "the card is a template, which jinja2 fills, and that is not installed"
        raise EnvironmentProblemError("KY533", what, hint="install kernelyard[hf]", place=place) from None
    general = project.manifest.general
    names = [name for name in read_api(variant, general.name).names if "." not in name]
    try:
        return (
            SandboxedEnvironment(trim_blocks=True, keep_trailing_newline=True)
            .from_string(text)
            .render(
                repo_id=repo,
                version=general.version,
                license=general.license.lower(),
                upstream=general.upstream,
                source=general.source,
                functions=[name for name in names if name != _LAYERS],
                layers=[name for name in read_api(variant / _LAYERS, general.name).names if "." not in name]
                if _LAYERS in names
                else [],
                has_benchmark=(project.root / "benchmarks" / "benchmark.py").is_file(),
            )
        )
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        what = f"the card is a template that cannot be filled: {error}"
        hint = "correct it, or write it without {{ and {%"
        raise InputError("KY527", what, hint=hint, place=Place(place.path, line)) from None
