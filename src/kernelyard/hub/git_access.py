"""Reaching the repositories of a git hub: how a place is written, and how git is asked about it without surprises.

``git+https://``, ``git+ssh://`` or ``git+file://`` and a place; the repository of a kernel is ``<place>/<org>/<name>``,
or what ``{repo}`` in the place is replaced by.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, Place
from kernelyard.hub.http import without_password
from kernelyard.hub.protocol import check_repo
from kernelyard.hub.refs import Refs

__all__ = ["SCHEMES", "GitPlace", "run_git"]

SCHEMES = ("git+https", "git+ssh", "git+file")
_REPO = "{repo}"
_LINE = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\t(refs/(?:heads|tags)/.+)", re.ASCII)
_HEADS, _TAGS, _YANKED = "refs/heads/", "refs/tags/", "yanked/"
_PEELED = "^{}"
_REMOTE = "kernelyard-hub"
_TIMEOUT_S = 600
#: What git says where a repository is not there. A host may say so too of one that may not be seen.
_NOT_THERE = re.compile(r"does not appear to be a git repository|repository .*not found", re.IGNORECASE)
_REFUSED = re.compile(
    r"could not read (username|password)|authentication failed|permission denied|terminal prompts disabled"
    r"|host key verification failed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class GitPlace:
    """A place of repositories.

    Attributes:
        address: As git takes it, perhaps with a password, perhaps with ``{repo}``.
        scheme: ``https``, ``ssh`` or ``file``.
    """

    address: str
    scheme: str

    @classmethod
    def parse(cls, location: str) -> GitPlace:
        """Read a location such as ``git+https://host/path``.

        Raises:
            InputError: It is none (KY506).
        """
        hint = "write git+https://host/path, git+ssh://user@host/path or git+file:///the/folder"
        scheme, _, rest = location.partition("://")
        scheme = scheme.lower()
        try:
            parts = urlsplit(f"{scheme.removeprefix('git+')}://{rest}")
            malformed = bool(parts.query or parts.fragment) or (parts.port is not None and scheme == "git+file")
        except ValueError:
            malformed = True
        if malformed or scheme not in SCHEMES or not location.isprintable() or location.count(_REPO) > 1:
            raise InputError("KY506", f"not the address of a git hub: {without_password(location)!r}", hint=hint)
        if bool(parts.hostname) == (scheme == "git+file") or (parts.hostname or "").startswith("-"):
            raise InputError("KY506", f"not the address of a git hub: {without_password(location)!r}", hint=hint)
        plain = scheme.removeprefix("git+")
        return cls(f"{plain}://{rest.rstrip('/')}", plain)

    @property
    def location(self) -> str:
        """The place as messages name it, without a password."""
        return f"git+{without_password(self.address)}"

    def repository(self, repo: str) -> str:
        """Return the address of a kernel's repository, as git takes it.

        Raises:
            InputError: The name is none (KY504).
        """
        check_repo(repo)
        url = self.address.replace(_REPO, repo) if _REPO in self.address else f"{self.address}/{repo}"
        # Git would find it by itself, as hosts do; git-lfs does not.
        bare = f"{url}.git"
        return bare if self.scheme == "file" and Path(unquote(urlsplit(bare).path)).is_dir() else url

    def refs(self, repo: str) -> Refs:
        """Return branches, tags and withdrawn releases of a kernel, in one round trip; the reasons are not asked for.

        Raises:
            InputError: The name is none (KY504), or the repository names what is no branch or tag (KY507).
            MissingError: There is no such repository (KY501).
            EnvironmentProblemError: It cannot be reached (KY502), or there is no git (KY502).
        """
        url = self.repository(repo)
        try:
            # By the environment, and under a name that no configuration has: a password is not to be seen among the
            # arguments of processes.
            also = {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"remote.{_REMOTE}.url",
                "GIT_CONFIG_VALUE_0": url,
            }
            told = run_git("ls-remote", "--quiet", _REMOTE, f"{_HEADS}*", f"{_TAGS}*", also=also, cwd=Path("/"))
        except subprocess.CalledProcessError as error:
            raise self.trouble(repo, error.stderr.decode("utf-8", "replace")) from None
        except subprocess.TimeoutExpired:
            raise self.trouble(repo, f"git got no answer within {_TIMEOUT_S} s") from None
        return _refs(repo, told, where=without_password(url))

    def trouble(self, repo: str, said: str) -> MissingError | EnvironmentProblemError:
        """Return what the words of git mean."""
        place = Place(without_password(self.repository(repo)))
        if _REFUSED.search(said):
            hint = "let git log in by itself: a credential helper for https, an agent's key for ssh"
            return EnvironmentProblemError("KY502", "the host of the repository refuses access", hint=hint, place=place)
        if _NOT_THERE.search(said):
            return MissingError("KY501", f"there is no kernel {repo} on this hub", hint="check the name", place=place)
        lines = [without_password(line) for line in said.splitlines() if line.strip()]
        what = f"the repository cannot be read: {lines[-1] if lines else 'git does not say why'}"
        return EnvironmentProblemError("KY502", what, hint="check the address and the network, try again", place=place)


def run_git(
    *arguments: str, stdin: bytes = b"", also: Mapping[str, str] | None = None, cwd: Path | None = None
) -> bytes:
    """Return what git prints. It never asks the user, and no repository that we happen to stand in is meant.

    Args:
        arguments: Of git.
        stdin: What it reads.
        also: What it gets in its environment besides.
        cwd: Where it stands; None for where we do.

    Raises:
        EnvironmentProblemError: There is no git (KY502).
        subprocess.SubprocessError: It fails, or takes too long.
    """
    git = shutil.which("git")
    if git is None:
        raise EnvironmentProblemError("KY502", "a git hub is read by git, which is not there", hint="install git")
    environment = {name: value for name, value in os.environ.items() if name not in _OF_REPOSITORIES}
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        # A host must not lead git to programs (`ext::`) or to files of the user's.
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        **(also or {}),
    }
    if not (environment.get("GIT_SSH_COMMAND") or environment.get("GIT_SSH")):
        environment["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes"
    done = subprocess.run(
        [git, "-c", f"core.hooksPath={os.devnull}", "-c", "credential.interactive=false", *arguments],
        input=stdin,
        capture_output=True,
        check=True,
        env=environment,
        cwd=cwd,
        timeout=_TIMEOUT_S,
    )
    return done.stdout


#: Set where a hook of git runs us; they mean the repository that is committed to.
_OF_REPOSITORIES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)


def _refs(repo: str, told: bytes, *, where: str) -> Refs:
    branches: dict[str, str] = {}
    tags: dict[str, str] = {}
    for line in told.decode("utf-8", "replace").splitlines():
        found = _LINE.fullmatch(line)
        if found is None or not found[2].isprintable():
            raise InputError("KY507", f"not a branch or tag: {line[:80]!r}", place=Place(where))
        id_, name = found.groups()
        if name.startswith(_HEADS):
            branches[name.removeprefix(_HEADS)] = id_
        else:
            # An annotated tag is told twice: the tag's own id, then with ^{} the commit it is at.
            tags[name.removeprefix(_TAGS).removesuffix(_PEELED)] = id_
    yanked = {tag.removeprefix(_YANKED): "" for tag in tags if tag.startswith(_YANKED)}
    releases = {tag: id_ for tag, id_ in tags.items() if not tag.startswith(_YANKED)}
    return Refs(repo, branches, releases, yanked={tag: why for tag, why in yanked.items() if tag in releases})
