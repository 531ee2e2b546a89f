"""Reaching the repositories of a git hub: how a place is written, and how the host is asked.

``git+https://``, ``git+ssh://`` or ``git+file://`` and a place; the repository of a kernel is ``<place>/<org>/<name>``,
or what ``{repo}``, or ``{org}`` and ``{name}``, in the place are replaced by.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError, Place
from kernelyard.hub import http
from kernelyard.hub.git_program import run_git
from kernelyard.hub.http import without_password
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.protocol import check_repo
from kernelyard.hub.refs import Refs
from kernelyard.hub.tree import YANKED
from kernelyard.records import record
from kernelyard.store import Store

__all__ = ["REMOTE", "SCHEMES", "GitPlace", "RemoteRefs", "said_by_git", "told"]

SCHEMES = ("git+https", "git+ssh", "git+file")
#: What a repository on a host is called in ours: a name that no settings of a user's are for.
REMOTE = "kernelyard-hub"
_LINE = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\t(refs/(?:heads|tags)/.+)", re.ASCII)
_HEADS, _TAGS = "refs/heads/", "refs/tags/"
_PEELED = "^{}"
_SHA1 = 40
_USER, _PASSWORD, _REFUSED_FILE = (f"KERNELYARD_GIT_{name}" for name in ("USER", "PASSWORD", "REFUSED"))
#: Git asks it by `get`; it tells what stands in the environment, so that no argument of a process is a secret. Once
#: git has said by `erase` that this was refused it says nothing more: git-lfs would ask for ever.
_HELPER = f"""!f() {{
    case "$1" in
        get) test -e "${_REFUSED_FILE}" || printf "username=%s\\npassword=%s\\n" "${_USER}" "${_PASSWORD}" ;;
        erase) : >"${_REFUSED_FILE}" ;;
    esac
}}; f"""
#: How lines begin that do not say what went wrong.
_ASIDE = ("warning:", "hint:", "Downloading", "Uploading", "Errors logged")
#: What git says where a repository is not there. A host may say so too of one that may not be seen.
_NOT_THERE = re.compile(r"does not appear to be a git repository|repository .*not found|No such remote", re.IGNORECASE)
#: Commands that change nothing on the host, and trouble that may be over a moment later.
_READING = frozenset({"ls-remote", "fetch"})
#: What brings fewer bytes a second for so many seconds is broken off: it could go on for years. While a host works on
#: what was pushed, git has it send one byte a second.
_SLOWEST, _ALIVE, _WINDOW_S = 200, 1, 120
_PASSING = re.compile(
    r"returned error: (408|425|429|500|502|503|504)|RPC failed|early EOF|unexpected disconnect|connection reset"
    r"|empty reply|connection timed out|remote end hung up|expected flush after|transfer closed"
    r"|recv (failure|error)|SSL_read|unexpected eof",
    re.IGNORECASE,
)
_LOCKED = re.compile(r"Unable to create '([^']+\.lock)': File exists")
_REFUSED = re.compile(
    r"could not read (username|password)|authentication failed|permission (to .*)?denied|terminal prompts disabled"
    r"|host key verification failed|returned error: (401|403)|authorization error|authentication required"
    r"|credentials for .* not found|access denied|forbidden",
    re.IGNORECASE,
)


@record(frozen=True, slots=True)
class RemoteRefs:
    """What a repository told of its branches and tags.

    Attributes:
        refs: Where they stand.
        tags: Name -> id of the tag itself, which for an annotated one is not that of the commit.
    """

    refs: Refs
    tags: Mapping[str, str] = field(default_factory=dict)


@record(frozen=True, slots=True)
class GitPlace:
    """A place of repositories.

    Attributes:
        address: As git takes it, without a login, perhaps with ``{repo}``.
        scheme: ``https``, ``ssh`` or ``file``.
        login: The user's name and password that stood in the address.
    """

    address: str
    scheme: str
    login: tuple[str, str | None] | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, location: str) -> GitPlace:
        """Read a location such as ``git+https://host/path``.

        Raises:
            InputError: It is none (KY506).
        """
        wrong = InputError(
            "KY506",
            f"not the address of a git hub: {without_password(location)!r}",
            hint="write git+https://host/path, git+ssh://user@host/path or git+file:///the/folder",
        )
        scheme, _, rest = location.partition("://")
        scheme = scheme.lower()
        if scheme not in SCHEMES or not location.isprintable():
            raise wrong
        plain = scheme.removeprefix("git+")
        address = f"{plain}://{rest.rstrip('/')}"
        try:
            parts = urlsplit(address)
            malformed = bool(parts.query or parts.fragment) or (parts.port is not None and plain == "file")
            login = (unquote(parts.username), parts.password) if parts.username is not None else None
        except ValueError:
            raise wrong from None
        host = parts.hostname or ""
        if malformed or bool(host) == (plain == "file") or host.startswith("-") or not _is_pattern(address):
            raise wrong
        if plain != "https":
            # A password of ssh would be seen among the arguments of processes, and ssh does not take one.
            if login is not None and (plain == "file" or login[1] is not None or login[0].startswith("-")):
                raise wrong
            return cls(address, plain)
        if login is None:
            return cls(address, plain)
        user, password = login[0], unquote(login[1]) if login[1] is not None else None
        if not user.isprintable() or not (password or "").isprintable():
            raise wrong
        return cls(f"{plain}://{parts.netloc.rpartition('@')[2]}{parts.path}", plain, (user, password))

    @property
    def location(self) -> str:
        """The place as messages name it, without a login."""
        return f"git+{without_password(self.address)}"

    def repository(self, repo: str) -> str:
        """Return the address of a kernel's repository, as git takes it.

        Raises:
            InputError: The name is none (KY504).
        """
        org, _, name = check_repo(repo).partition("/")
        url = self.address.replace("{repo}", repo).replace("{org}", org).replace("{name}", name)
        if url == self.address:
            url = f"{url}/{repo}"
        # Git would find it by itself, as hosts do; git-lfs does not.
        bare = f"{url}.git"
        return bare if self.scheme == "file" and Path(unquote(urlsplit(bare).path)).is_dir() else url

    def shown(self, repo: str) -> str:
        """Return the address of a kernel's repository, as messages name it."""
        return without_password(self.repository(repo))

    def refs(self, repo: str) -> RemoteRefs:
        """Return branches, tags and withdrawn releases of a kernel, in one round trip; the reasons are not asked for.

        Raises:
            InputError: The name is none (KY504), or the repository names what is no branch or tag (KY507).
            MissingError: There is no such repository (KY501).
            EnvironmentProblemError: As :meth:`run` does.
        """
        told = self.run(repo, "ls-remote", "--quiet", REMOTE, f"{_HEADS}*", f"{_TAGS}*", cwd=Path("/"))
        return _refs(repo, told, where=self.shown(repo))

    def run(
        self,
        repo: str,
        *arguments: str,
        stdin: bytes = b"",
        folder: Path | None = None,
        cwd: Path | None = None,
        silent: bool = False,
    ) -> bytes:
        """Let git ask the host about a repository, which it knows as :data:`REMOTE`; all round trips go through here.

        Args:
            repo: ``org/name``.
            arguments: Of git.
            stdin: What it reads.
            folder: The repository of ours.
            cwd: Where git stands; by default there.
            silent: Whether what it prints is of no use.

        Raises:
            MissingError: There is no such repository (KY501).
            EnvironmentProblemError: The host cannot be reached (KY502) or refuses (KY540), the disk is full (KY301),
                there is no git (KY542), or no host may be asked (KY532).
        """
        name = offline_variable() if self.scheme != "file" else None
        if name is not None:
            hint = "unset it, or ask for what has been loaded before, in the same words"
            what = f"the hub may not be asked: {name} is set"
            raise EnvironmentProblemError("KY532", what, hint=hint, place=Place(self.shown(repo)))
        # A host must not lead git to programs (`ext::`), to files of the user's, or from https to http.
        also = {"GIT_ALLOW_PROTOCOL": self.scheme, **({"GIT_DIR": str(folder)} if folder else {})}
        if self.scheme == "ssh":
            also |= _ssh()
        is_reading = arguments[0] in _READING
        config = self._config(repo, slowest=_SLOWEST if is_reading else _ALIVE)
        with tempfile.TemporaryDirectory() as empty:
            if self.login is not None:
                also |= {_USER: self.login[0], _PASSWORD: self.login[1] or "", _REFUSED_FILE: f"{empty}/refused"}

            def once() -> bytes:
                return run_git(*arguments, stdin=stdin, config=config, also=also, cwd=cwd or folder, silent=silent)

            try:
                # What is only read can be asked for again; of a push nobody knows how far it came.
                return _patiently(once) if is_reading else once()
            except subprocess.CalledProcessError as error:
                failure = self.trouble(repo, error.stderr.decode("utf-8", "replace"))
                raise failure from error

    def work(
        self,
        repo: str,
        folder: Path,
        *arguments: str,
        stdin: bytes = b"",
        also: Mapping[str, str] | None = None,
    ) -> bytes:
        """Let git work on a repository of ours; it knows of no host.

        Args:
            repo: ``org/name``, for messages.
            folder: Our repository.
            arguments: Of git.
            stdin: What it reads.
            also: What it gets in its environment besides.

        Raises:
            MissingError, EnvironmentProblemError: It fails, by its words: KY502, or KY301 where the disk is full.
        """
        try:
            return run_git(*arguments, stdin=stdin, also={"GIT_DIR": str(folder), **(also or {})}, cwd=folder)
        except subprocess.CalledProcessError as error:
            failure = self.trouble(repo, error.stderr.decode("utf-8", "replace"))
            raise failure from error

    def trouble(self, repo: str, said: str) -> MissingError | EnvironmentProblemError:
        """Return what the words of git mean."""
        place = Place(self.shown(repo))
        # What the server's side says comes with this prefix.
        own = "\n".join(line for line in said.splitlines() if not line.startswith("remote:"))
        last = told(said)
        if "no space left on device" in own.lower():
            store = str(Store.default().root)
            is_ours = self.scheme != "file" or store in own
            full = Place(store) if is_ours else place
            hint = "free some space" + (", or point KERNELYARD_CACHE to a larger disk" if is_ours else " there")
            return EnvironmentProblemError("KY301", "the disk is full", hint=hint, place=full)
        locked = _LOCKED.search(said)
        if locked is not None:
            hint = "try again; if it stays and no git is at work there, one was killed: remove that file"
            what = f"another git is changing this, or was killed while it did: {locked[1]}"
            return EnvironmentProblemError("KY510", told(what), hint=hint, place=place)
        if "dubious ownership" in said:
            hint = f"if you trust them: git config --global --add safe.directory {urlsplit(place.path).path}"
            return EnvironmentProblemError("KY540", "the repository is another user's", hint=hint, place=place)
        if _REFUSED.search(said):
            hint = "let git log in by itself: a credential helper for https, an agent's key for ssh"
            what = f"the host of the repository refuses access: {last}"
            return EnvironmentProblemError("KY540", what, hint=hint, place=place)
        if _NOT_THERE.search(said):
            hint = "check the name; the host may also hide what you may not see"
            return MissingError("KY501", f"there is no kernel {repo} on this hub", hint=hint, place=place)
        hint = "check the address and the network, try again"
        if "unadvertised object" in said:
            hint = "let the server speak git's protocol 2 (over ssh: AcceptEnv GIT_PROTOCOL in its sshd_config)"
        return EnvironmentProblemError("KY502", f"the repository cannot be reached: {last}", hint=hint, place=place)

    def _config(self, repo: str, *, slowest: int) -> list[tuple[str, str]]:
        config = [
            (f"remote.{REMOTE}.url", self.repository(repo)),
            # What a fetch leaves out is not missed.
            (f"remote.{REMOTE}.promisor", "true"),
            (f"remote.{REMOTE}.partialclonefilter", "blob:none"),
            ("http.lowSpeedLimit", str(slowest)),
            ("http.lowSpeedTime", str(_WINDOW_S)),
            # Any commit can be asked for by its id.
            ("protocol.version", "2"),
            ("remote.lfsdefault", REMOTE),
            ("lfs.locksverify", "false"),
            ("credential.interactive", "false"),
        ]
        if self.login is not None:
            parts = urlsplit(self.address)
            host = f"credential.{parts.scheme}://{parts.netloc}"
            config.append((f"{host}.username", self.login[0]))
            if self.login[1] is not None:
                # The empty one takes away those of the user's, who has named another login.
                config += [(f"{host}.helper", ""), (f"{host}.helper", _HELPER)]
        return config


def _patiently(ask: Callable[[], bytes]) -> bytes:
    """Return what git says, if need be after trouble that passes."""
    patience = http.PATIENCE
    for number in range(patience.tries - 1):
        try:
            answer = ask()
        except subprocess.CalledProcessError as error:
            if not _PASSING.search(error.stderr.decode("utf-8", "replace")):
                raise
            time.sleep(patience.first_wait_s * 2**number)
            continue
        return answer
    return ask()


def said_by_git(error: KernelyardError) -> str:
    """Return all that git said where that is what an error was made of; nothing for other errors."""
    cause = error.__cause__
    return cause.stderr.decode("utf-8", "replace") if isinstance(cause, subprocess.CalledProcessError) else ""


def told(said: str) -> str:
    """Return the words of git that say what happened, on one line that a terminal can be given."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(_ASIDE)]
    # What follows the first is consequences and advice.
    first = without_password(lines[0]) if lines else "git does not say why"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in first)


def _is_pattern(address: str) -> bool:
    """Whether a kernel's name can be put into an address: at no place, as one, or as two parts."""
    counts = tuple(address.count(one) for one in ("{repo}", "{org}", "{name}"))
    return counts in {(0, 0, 0), (1, 0, 0), (0, 1, 1)}


def _ssh() -> dict[str, str]:
    """Return what keeps ssh from asking the user, unless the user has said how it is to be run."""
    if os.environ.get("GIT_SSH_COMMAND") or os.environ.get("GIT_SSH"):
        return {}
    try:
        run_git("config", "--get", "core.sshCommand", cwd=Path("/"))
    except subprocess.CalledProcessError:
        return {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ServerAliveInterval=30"}
    return {}


def _refs(repo: str, answer: bytes, *, where: str) -> RemoteRefs:
    branches: dict[str, str] = {}
    tags: dict[str, str] = {}
    objects: dict[str, str] = {}
    for line in answer.decode("utf-8", "replace").splitlines():
        found = _LINE.fullmatch(line)
        if found is None or not found[2].isprintable():
            raise InputError("KY507", f"not a branch or tag: {line[:80]!r}", place=Place(where))
        id_, name = found.groups()
        if len(id_) != _SHA1:
            what = "this repository has ids by sha256, which are not read yet"
            raise InputError("KY507", what, hint="make it with the ids that git has by default", place=Place(where))
        if name.startswith(_HEADS):
            branches[name.removeprefix(_HEADS)] = id_
            continue
        # An annotated tag is told twice: the tag's own id, then with ^{} the commit it is at.
        tag = name.removeprefix(_TAGS).removesuffix(_PEELED)
        tags[tag] = id_
        if not name.endswith(_PEELED):
            objects[tag] = id_
    yanked = {tag.removeprefix(YANKED): "" for tag in tags if tag.startswith(YANKED)}
    releases = {tag: id_ for tag, id_ in tags.items() if not tag.startswith(YANKED)}
    yanked = {tag: why for tag, why in yanked.items() if tag in releases}
    return RemoteRefs(Refs(repo, branches, releases, yanked=yanked), objects)
