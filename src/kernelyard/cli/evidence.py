"""How commands print what speaks for a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["evidence_lines"]


def evidence_lines(evidence: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what speaks for a kernel, in lines with a title.

    Args:
        evidence: From :mod:`kernelyard.load.trust.evidence`.
    """
    for one in evidence["signatures"]:
        holds = {True: "holds", False: "does not hold", None: "not verified"}[one["holds"]]
        known = [*(["seen before"] if one["seen"] else []), *(f"named by {file}" for file in one["named-by"])]
        yield "signed-by", f"{one['key']}: {holds}; {', '.join(known) or 'a key that nobody here has named'}"
    for name, said in evidence.get("variants", {}).items():
        if said["signed"]:
            whom = f"one of {', '.join(said['by'])}" if said.get("by") else said.get("why", "")
            yield "sigstore", f"{name}: {'holds' if said['holds'] else 'not verified'}: {whom}"
    for one in evidence["policies"]:
        yield "policy", f"{one['file']} asks for {' or '.join(one['asks-for']) or 'no evidence'}"
    consent = evidence["consent"]
    given = {True: "not needed", False: "needed", None: "not known"}[consent["given"]]
    yield "consent", f"{'forbidden' if consent['forbidden'] else given}: {consent['why']}"
