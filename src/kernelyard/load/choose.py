"""The best variant for a system.

Order of preference among the variants that are usable:

1. the backend: CUDA, then ``universal``, then CPU; where CUDA is not usable, CPU before ``universal``;
2. those whose device code serves all visible GPUs before those that serve some of them only;
3. the binding: ``torch`` of exactly this release, then ``torch-stable-abi``, then ``tvm-ffi``, then nothing compiled;
4. the newer framework version (for the stable ABI: the newest floor), then the newer backend version;
5. the name, so that the answer is always the same.

A full-ABI variant goes first because it is there only where somebody built it for this very torch. The public loader
takes the stable ABI first; both run.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelyard.errors import MissingError
from kernelyard.formats.versions import Version
from kernelyard.load.rules import Candidate, Verdict, judge
from kernelyard.load.system import System

__all__ = ["choose", "none_fits"]

_FRAMEWORKS = ("", "torch", "torch-stable-abi", "tvm-ffi", "torch-noarch")


def choose(variants: Iterable[Candidate], system: System, backend: str | None = None) -> tuple[Verdict, ...]:
    """Judge all variants: the usable ones first, the best leading; then the others, the nearest leading.

    Args:
        variants: For example those of an index.
        system: The machine and the interpreter.
        backend: Only variants for this backend will do.
    """
    judged = [(judge(variant, system, backend=backend), variant) for variant in variants]
    has_cuda = any(verdict.usable and variant.facts.backend == "cuda" for verdict, variant in judged)
    accelerated = has_cuda or bool(system.gpus and system.torch is not None and system.torch.cuda is not None)
    judged.sort(key=lambda pair: _rank(*pair, accelerated=accelerated))
    return tuple(verdict for verdict, _ in judged)


def none_fits(what: str, verdicts: Iterable[Verdict]) -> MissingError:
    """Make the error for a kernel none of whose variants is usable: each with its reason, and the nearest cure.

    Args:
        what: The kernel, as the message names it.
        verdicts: In the order of :func:`choose`.
    """
    refused = tuple(verdicts)
    lines = "".join(f"\n  {verdict.variant}: {verdict.reason}" for verdict in refused)
    nearest = next((verdict for verdict in refused if verdict.cure), None)
    hint = f"nearest is {nearest.variant}: {nearest.cure}" if nearest else "build or publish it for this machine"
    return MissingError("KY601", f"{what} has no variant for this machine:{lines or ' none at all'}", hint=hint)


def _rank(verdict: Verdict, variant: Candidate, *, accelerated: bool) -> tuple[object, ...]:
    facts = variant.facts
    if not verdict.usable:
        return (1, -verdict.rules_passed, variant.name)
    backends = ("cuda", "universal", "cpu") if accelerated else ("cuda", "cpu", "universal")
    return (
        0,
        # The backend first: a variant without device code leaves no GPU unserved, and would win by serving none.
        backends.index(facts.backend),
        not verdict.for_all_gpus,
        _FRAMEWORKS.index(facts.framework),
        _descending(facts.framework_version),
        _descending(facts.backend_version),
        variant.name,
    )


def _descending(version: Version | None) -> tuple[int, int]:
    return (-version.major, -version.minor) if version is not None else (1, 0)
