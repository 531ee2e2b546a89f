"""Who may sign by Sigstore: an identity that an issuer vouches for."""

from __future__ import annotations

from kernelyard.errors import InputError
from kernelyard.records import record

__all__ = ["GITHUB_ACTIONS", "KERNELS_COMMUNITY", "Identity"]

GITHUB_ACTIONS = "https://token.actions.githubusercontent.com"
_COMMUNITY = "https://github.com/huggingface/kernels-community"


@record(frozen=True, slots=True)
class Identity:
    """Who may sign. The issuer and all that is given besides must be what the certificate says.

    Attributes:
        issuer: Address of the service that vouches for the signer.
        subject: A mail address, or the address of a workflow.
        repository: Address of the repository whose workflow signed.
        workflow: Address of the workflow that signed, with its reference:
            ``https://github.com/org/name/.github/workflows/build.yaml@refs/heads/main``.
    """

    issuer: str
    subject: str | None = None
    repository: str | None = None
    workflow: str | None = None

    def __post_init__(self) -> None:
        if not self.issuer or not (self.subject or self.repository or self.workflow):
            # Anybody can have an issuer vouch for them.
            what = "an identity needs an issuer and at least one of subject, repository and workflow"
            raise InputError("KY534", what, hint="name the repository whose workflow signs")

    def __str__(self) -> str:
        """Return it as messages name it."""
        return self.subject or self.workflow or self.repository or self.issuer


#: The workflows that sign the kernels of the organisation kernels-community on the Hugging Face Hub.
KERNELS_COMMUNITY = tuple(
    Identity(
        GITHUB_ACTIONS,
        repository=_COMMUNITY,
        workflow=f"{_COMMUNITY}/.github/workflows/{name}.yaml@refs/heads/main",
    )
    for name in ("build", "build-mac", "build-windows", "sign-old-builds")
)
