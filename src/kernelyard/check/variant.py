"""All checks of one variant."""

from __future__ import annotations

from kernelyard.check.device import check_device_code
from kernelyard.check.evidence import Evidence, Finding
from kernelyard.check.facts import check_facts, check_python_files
from kernelyard.check.files import check_files
from kernelyard.check.linkage import check_linkage
from kernelyard.check.operators import check_operators
from kernelyard.check.symbols import check_symbols

__all__ = ["CHECKS", "check_variant"]

#: Check -> what it looks at, in the order in which findings are reported.
CHECKS = {
    check_files: "files and digest",
    check_symbols: "symbols: floor, Python 3.9, torch",
    check_linkage: "libraries, RUNPATH, stack",
    check_device_code: "device code",
    check_python_files: "Python files",
    check_operators: "operators of Python files",
    check_facts: "facts",
}


def check_variant(evidence: Evidence) -> tuple[Finding, ...]:
    """Return what makes a variant unfit to be published; empty if nothing does."""
    return tuple(finding for check in CHECKS for finding in check(evidence))
