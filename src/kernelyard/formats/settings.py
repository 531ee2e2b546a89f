"""``kernelyard.toml``, or ``[tool.kernelyard]`` in ``pyproject.toml``: what is of Kernelyard alone in a project.

``build.toml`` stays readable by others. Specification: ``docs/formats/settings.md``.
"""

from __future__ import annotations

from kernelyard.formats.floor import FLOORS
from kernelyard.formats.matrix import MatrixRules, matrix_rules
from kernelyard.formats.policy import SETTINGS, Policy, policy_of
from kernelyard.formats.publisher import Word, words_of
from kernelyard.formats.tables import Problems, Table
from kernelyard.formats.toml_document import parse_toml
from kernelyard.records import record

__all__ = ["Settings", "read_settings"]


@record(frozen=True, slots=True)
class Settings:
    """What a project sets.

    Attributes:
        floor: The oldest system that builds are to run on, ``manylinux_2_34``; None for the usual one.
        matrix: What is laid over the matrix; None where nothing is.
        trust: Whose kernels may be loaded; None where nothing is said. The loader finds and reads it by itself.
        variants: What the publisher says of variants.
    """

    floor: str | None = None
    matrix: MatrixRules | None = None
    trust: Policy | None = None
    variants: tuple[Word, ...] = ()


def read_settings(
    text: str, *, path: str, within: tuple[str, ...] = (), known: MatrixRules | None = None
) -> Settings | None:
    """Read the settings of a project.

    Args:
        text: The file's content.
        path: Where it stands, for messages.
        within: The tables that they stand in: ``("tool", "kernelyard")``.
        known: What versions and platforms there are that the matrix may name; None lets it name any.

    Returns:
        None where the file has no such table.

    Raises:
        ManifestError: They have mistakes; all that could be found are in ``errors``.
    """
    problems = Problems(path, text)
    members = parse_toml(text, path=path)
    for name in within[:-1]:
        members = members.get(name, {}) if isinstance(members, dict) else {}
    if within and (not isinstance(members, dict) or within[-1] not in members):
        return None
    table = Table(members, within[:-1], problems).table(within[-1]) if within else Table(members, (), problems)
    settings = _settings(table, known) if table is not None else None
    problems.raise_any()
    return settings


def _settings(table: Table, known: MatrixRules | None) -> Settings:
    floor = table.take("floor", str)
    if floor is not None:
        floor = table.one_of((*table.key, "floor"), floor, FLOORS, "floor")
    matrix = table.table("matrix")
    rules = matrix_rules(matrix, known) if matrix is not None else None
    variants = table.table("variants")
    words = words_of(variants) if variants is not None else ()
    for member in SETTINGS:
        table.expect(member)  # also what kernels the project uses, which is read where they are locked
    trust = table.table("trust")
    policy = policy_of(trust) if trust is not None else None
    table.finish()
    return Settings(floor, rules, policy, words)
