"""Is a build fit to publish? One module per kind of evidence; :func:`check_variant` asks them all."""

from kernelyard.check.evidence import Evidence, Finding, gather
from kernelyard.check.symbols import fitting_torch
from kernelyard.check.unfit import UnfitError
from kernelyard.check.variant import check_variant

__all__ = ["Evidence", "Finding", "UnfitError", "check_variant", "fitting_torch", "gather"]
