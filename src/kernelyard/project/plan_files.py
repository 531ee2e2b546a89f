"""The author's files of a plan: what is compiled, and what that includes."""

from __future__ import annotations

from collections.abc import Iterable

from kernelyard.project.flag_paths import flag_files, flag_folders
from kernelyard.project.plan import ObjectGroup, VariantPlan
from kernelyard.project.sources import Project

__all__ = ["plan_files", "with_included"]


def plan_files(project: Project, plan: VariantPlan) -> set[str]:
    """Return all that is compiled for a variant and all that it includes, by paths relative to the project.

    A header that the manifest lists counts, whether an ``#include`` of it is seen or not.
    """
    groups = (plan.binding, *plan.groups)
    return {name for group in groups for name in with_included(project, plan, group, (*group.sources, *group.headers))}


def with_included(project: Project, plan: VariantPlan, group: ObjectGroup, sources: Iterable[str]) -> tuple[str, ...]:
    """Return some files of a group and all that they include of the author's, by paths relative to the project."""
    flags = (*group.cxx_flags, *group.device_flags)
    include = (*group.include, *flag_folders(project.root, flags), *plan.binding.include)
    return project.with_includes((*sources, *flag_files(project.root, flags)), include)
