"""A small Hugging Face Hub on this machine: what the real `huggingface_hub` asks of repositories of type kernel.

It keeps commits as trees of blobs in memory. Files in LFS are handed out by a second server, as another host would.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKEN, READER, EXPIRED = "hf_writer", "hf_reader", "hf_expired"
#: Files of at least so many bytes, and those of these kinds, go to LFS.
LARGE = 10_000
LFS_NAMES = (".so", ".bin")
PAGE = 20


@dataclass(frozen=True)
class Blob:
    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        content = self.content
        if self.lfs:
            text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(content)}\n"
            content = text.encode()
        return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Commit:
    tree: dict[str, Blob]
    parent: str | None
    title: str

    @property
    def id(self) -> str:
        text = json.dumps([sorted((path, blob.oid) for path, blob in self.tree.items()), self.parent, self.title])
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass
class Repo:
    private: bool = False
    gated: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    pulls: list[str] = field(default_factory=list)

    def add(self, tree: dict[str, Blob], parent: str | None, title: str) -> str:
        commit = Commit(tree, parent, title)
        self.commits[commit.id] = commit
        return commit.id

    def find(self, revision: str) -> str | None:
        for refs in (self.branches, self.tags):
            if revision in refs:
                return refs[revision]
        found = [id_ for id_ in self.commits if id_.startswith(revision)] if len(revision) >= 7 else []
        return found[0] if len(found) == 1 else None

    def put(self, branch: str, files: dict[str, bytes], title: str = "by other tools") -> str:
        """Commit files as some other tool would."""
        parent = self.branches.get(branch) or self.branches.get("main")
        tree = dict(self.commits[parent].tree) if parent else {}
        tree |= {path: Blob(content, is_large(path, len(content))) for path, content in files.items()}
        self.branches[branch] = self.add(tree, parent, title)
        return self.branches[branch]


def is_large(path: str, size: int) -> bool:
    return size >= LARGE or path.endswith(LFS_NAMES)


@dataclass
class Hub:
    """What is on the server, what it was asked, and what goes wrong.

    `troubles` is tried before everything else: a regular expression for "METHOD path", and what answers.
    """

    repos: dict[str, Repo] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    authorizations: list[tuple[str, str | None]] = field(default_factory=list)
    troubles: list[tuple[str, Callable[[Handler], None]]] = field(default_factory=list)
    #: Organisations that are no trusted publishers of kernels, and names that are no organisations.
    untrusted: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    #: Whether small files are handed out behind a redirect on the same host, which does not name the commit again.
    caches: bool = False
    endpoint: str = ""
    cdn: str = ""

    def make(self, repo: str, **settings: Any) -> Repo:
        made = self.repos[repo] = Repo(**settings)
        made.branches["main"] = made.add({".gitattributes": Blob(b"*.so filter=lfs\n", lfs=False)}, None, "initial")
        return made


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is one packet: in two, each would wait for the other side to have confirmed the first.
    wbufsize = -1
    hub: Hub

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.serve()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names are those of http.server

    def serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.body = b""
            while size := int(self.rfile.readline(), 16):
                self.body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            self.body = self.rfile.read(length)
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query)
        said = f"{self.command} {unquote(parts.path)}"
        self.hub.requests.append(said)
        self.hub.authorizations.append((said, self.headers.get("Authorization")))
        for pattern, answer in self.hub.troubles:
            if re.search(pattern, said):
                answer(self)
                return
        for method, pattern, name in ROUTES:
            found = re.fullmatch(pattern, parts.path)
            if found is not None and self.command in method.split("|"):
                groups = {key: unquote(value or "") for key, value in found.groupdict().items()}
                getattr(self, name)(**groups)
                return
        self.error(404)

    def answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    def error(self, status: int, code: str = "", message: str = "", **headers: str) -> None:
        named = {"X-Error-Code": code, "X-Error-Message": message}
        self.answer({"error": message}, status, {key: value for key, value in named.items() if value} | headers)

    @property
    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def repo(self, name: str, *, write: bool = False) -> Repo | None:
        """Return a repository if whoever asks may have it; None once the refusal has been answered."""
        found = self.hub.repos.get(name)
        if self.token not in {None, TOKEN, READER}:
            self.error(401, message="Invalid credentials in Authorization header")
        elif found is None or (found.private and self.token is None):
            self.error(404 if self.token else 401, "RepoNotFound", "Repository not found")
        elif found.gated and self.token != TOKEN:
            self.error(403 if self.token else 401, "GatedRepo", "Access to this kernel is restricted")
        elif write and self.token != TOKEN:
            self.error(403 if self.token else 401, message="You don't have the required permissions")
        else:
            return found
        return None

    def commit_of(self, name: str, revision: str) -> tuple[Repo, str] | None:
        repo = self.repo(name)
        if repo is None:
            return None
        id_ = repo.find(revision)
        if id_ is None:
            self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repo, id_

    def whoami(self) -> None:
        if self.token in {TOKEN, READER}:
            self.answer({"name": "someone", "type": "user", "orgs": []})
        else:
            self.error(401, message="Invalid credentials in Authorization header")

    def create(self) -> None:
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        assert asked["type"] == "kernel"
        if self.token != TOKEN:
            self.error(403 if self.token == READER else 401, message="You don't have the rights to create this")
        elif name in self.hub.repos:
            self.error(409, message="You already created this kernel repo")
        else:
            self.hub.make(name, private=asked.get("visibility") == "private" or asked.get("private") is True)
            self.answer({"url": f"{self.hub.endpoint}/kernels/{name}", "name": name, "id": "1"})

    def yaml(self) -> None:
        self.answer({"errors": [], "warnings": []})

    def overview(self, org: str) -> None:
        if org in self.hub.users:
            self.error(404, message="This organization does not exist")
            return
        trusted = org not in self.hub.untrusted
        self.answer({"name": org, "fullname": org, "avatarUrl": "", "trustedKernelPublisher": trusted})

    def info(self, name: str, revision: str = "") -> None:
        if (found := self.commit_of(name, revision or "main")) is not None:
            repo, id_ = found
            siblings = [{"rfilename": path} for path in repo.commits[id_].tree]
            self.answer({"id": name, "_id": "1", "sha": id_, "private": repo.private, "siblings": siblings})

    def refs(self, name: str) -> None:
        if (repo := self.repo(name)) is not None:

            def listed(kind: str, refs: dict[str, str]) -> list[dict[str, str]]:
                return [{"name": ref, "ref": f"refs/{kind}/{ref}", "targetCommit": id_} for ref, id_ in refs.items()]

            answer = {"branches": listed("heads", repo.branches), "tags": listed("tags", repo.tags), "converts": []}
            self.answer(answer)

    def tree(self, name: str, revision: str, path: str = "") -> None:
        if (found := self.commit_of(name, revision)) is None:
            return
        repo, id_ = found
        prefix = f"{path}/" if path else ""
        inside = {one: blob for one, blob in repo.commits[id_].tree.items() if one.startswith(prefix)}
        if path and not inside:
            self.error(404, "EntryNotFound", f"{path} does not exist", **{"X-Repo-Commit": id_})
            return
        recursive = self.query.get("recursive", ["false"])[0].lower() in {"true", "1"}
        entries: dict[str, dict[str, Any]] = {}
        for one, blob in sorted(inside.items()):
            steps = one.removeprefix(prefix).split("/")
            folders = ["/".join(steps[:count]) for count in range(1, len(steps))]
            for folder in folders if recursive else folders[:1]:
                oid = hashlib.sha1(folder.encode(), usedforsecurity=False).hexdigest()
                entries[prefix + folder] = {"type": "directory", "oid": oid, "size": 0, "path": prefix + folder}
            if recursive or not folders:
                lfs = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": 134}
                entry = {"type": "file", "oid": blob.oid, "size": len(blob.content), "path": one}
                entries[one] = entry | ({"lfs": lfs} if blob.lfs else {})
        first = int(self.query.get("cursor", ["0"])[0])
        page = list(entries.values())[first : first + PAGE]
        headers = {}
        if first + PAGE < len(entries):
            base = f"{self.hub.endpoint}{urlsplit(self.path).path}?recursive={str(recursive).lower()}"
            headers["Link"] = f'<{base}&cursor={first + PAGE}>; rel="next"'
        self.answer(page, headers=headers)

    def commits(self, name: str, revision: str) -> None:
        if (found := self.commit_of(name, revision)) is None:
            return
        repo, id_ = found
        listed = []
        at: str | None = id_
        while at is not None:
            date = "2026-01-01T00:00:00.000Z"
            listed.append({"id": at, "title": repo.commits[at].title, "message": "", "authors": [], "date": date})
            at = repo.commits[at].parent
        self.answer(listed)

    def branch(self, name: str, branch: str) -> None:
        if (repo := self.repo(name, write=True)) is None:
            return
        start = json.loads(self.body or b"{}").get("startingPoint") or "main"
        if branch in repo.branches:
            self.error(409, message="Reference already exists")
        elif (id_ := repo.find(start)) is None:
            self.error(404, "RevisionNotFound", "no such starting point")
        else:
            repo.branches[branch] = id_
            self.answer({}, 201)

    def tag(self, name: str, revision: str) -> None:
        if (repo := self.repo(name, write=True)) is None:
            return
        asked = json.loads(self.body)
        if asked["tag"] in repo.tags:
            self.error(409, message="Tag already exists")
        elif (id_ := repo.find(revision)) is None:
            self.error(404, "RevisionNotFound", "no such revision")
        else:
            repo.tags[asked["tag"]] = id_
            repo.messages[asked["tag"]] = asked.get("message", "")
            self.answer({}, 201)

    def untag(self, name: str, tag: str) -> None:
        if (repo := self.repo(name, write=True)) is None:
            return
        if repo.tags.pop(tag, None) is None:
            self.error(404, "RevisionNotFound", "no such tag")
        else:
            self.answer({})

    def preupload(self, name: str, revision: str) -> None:
        repo = self.repo(name, write=not self.query.get("create_pr"))
        if repo is None:
            return
        id_ = repo.find(revision)
        tree = repo.commits[id_].tree if id_ else {}
        files = []
        for asked in json.loads(self.body)["files"]:
            path, there = asked["path"], tree.get(asked["path"])
            assert len(base64.b64decode(asked["sample"])) == min(512, asked["size"])
            mode = "lfs" if is_large(path, asked["size"]) else "regular"
            oid = None if there is None else there.sha256 if there.lfs else there.oid
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.answer({"files": files})

    def batch(self, name: str) -> None:
        if self.repo(name, write="ref" in json.loads(self.body)) is None:
            return
        objects = []
        for one in json.loads(self.body)["objects"]:
            oid = one["oid"]
            there = oid in self.hub.objects
            actions = {
                "upload": {"href": f"{self.hub.cdn}/upload/{oid}"},
                "verify": {"href": f"{self.hub.endpoint}/verify"},
            }
            objects.append({"oid": oid, "size": one["size"], **({} if there else {"actions": actions})})
        self.answer({"transfer": "basic", "objects": objects})

    def upload(self, oid: str) -> None:
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.hub.objects[oid] = self.body
        self.answer(b"")

    def verify(self) -> None:
        asked = json.loads(self.body)
        assert len(self.hub.objects[asked["oid"]]) == asked["size"]
        self.answer({})

    def commit(self, name: str, revision: str) -> None:
        create_pr = bool(self.query.get("create_pr"))
        repo = self.repo(name, write=not create_pr)
        if repo is None:
            return
        lines = [json.loads(line) for line in self.body.splitlines() if line.strip()]
        header = lines[0]["value"]
        parent = repo.branches.get(revision)
        if parent is None:
            self.error(404, "RevisionNotFound", "no such branch")
            return
        if header.get("parentCommit") not in {None, parent}:
            self.error(412, message="A commit has happened since. Please refresh and try again.")
            return
        tree = dict(repo.commits[parent].tree)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                tree[value["path"]] = Blob(base64.b64decode(value["content"]), lfs=False)
            elif line["key"] == "lfsFile":
                tree[value["path"]] = Blob(self.hub.objects[value["oid"]], lfs=True)
            elif line["key"] == "deletedFile":
                del tree[value["path"]]
            else:
                raise AssertionError(line)
        id_ = repo.add(tree, parent, header["summary"])
        answer: dict[str, Any] = {"success": True, "commitOid": id_}
        if create_pr:
            repo.pulls.append(id_)
            answer["pullRequestUrl"] = f"{self.hub.endpoint}/kernels/{name}/discussions/{len(repo.pulls)}"
        else:
            repo.branches[revision] = id_
        self.answer({**answer, "commitUrl": f"{self.hub.endpoint}/kernels/{name}/commit/{id_}"})

    def resolve(self, name: str, revision: str, path: str) -> None:
        if (found := self.commit_of(name, revision)) is None:
            return
        repo, id_ = found
        blob = repo.commits[id_].tree.get(path)
        headers = {"X-Repo-Commit": id_}
        if blob is None:
            self.error(404, "EntryNotFound", f"{path} does not exist", **headers)
        elif blob.lfs:
            linked = {"X-Linked-Etag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.content))}
            self.hub.objects[blob.sha256] = blob.content
            where = {"Location": f"{self.hub.cdn}/objects/{blob.sha256}", "ETag": f'"{blob.sha256}"'}
            self.answer(b"", 302, {**headers, **linked, **where})
        elif self.hub.caches:
            location = f"/api/resolve-cache/kernels/{name}/{id_}/{quote(path)}"
            self.answer(b"", 307, {**headers, "Location": location})
        else:
            self.answer(blob.content, headers={**headers, "ETag": f'"{blob.oid}"', "Content-Type": "text/plain"})

    def cached(self, name: str, revision: str, path: str) -> None:
        if (repo := self.repo(name)) is not None:
            self.answer(repo.commits[revision].tree[path].content, headers={"Content-Type": "text/plain"})

    def objects(self, oid: str) -> None:
        # A file store that is given a token it does not know refuses, as S3 does.
        if self.headers.get("Authorization"):
            self.error(400, message="two ways to authenticate")
        else:
            self.answer(self.hub.objects[oid], headers={"Content-Type": "application/octet-stream"})

    def harnesses(self) -> None:
        self.answer({})


_KERNEL = r"(?P<name>[^/]+/[^/]+)"
_API = rf"/api/kernels/{_KERNEL}"
ROUTES = (
    ("GET", r"/api/whoami-v2", "whoami"),
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "yaml"),
    ("GET", r"/api/organizations/(?P<org>[^/]+)/overview", "overview"),
    ("GET", r"/api/agent-harnesses", "harnesses"),
    ("GET", _API, "info"),
    ("GET", rf"{_API}/revision/(?P<revision>[^/]+)", "info"),
    ("GET", rf"{_API}/refs", "refs"),
    ("GET", rf"{_API}/tree/(?P<revision>[^/]+)", "tree"),
    ("GET", rf"{_API}/tree/(?P<revision>[^/]+)/(?P<path>.+)", "tree"),
    ("GET", rf"{_API}/commits/(?P<revision>[^/]+)", "commits"),
    ("POST", rf"{_API}/branch/(?P<branch>[^/]+)", "branch"),
    ("POST", rf"{_API}/tag/(?P<revision>[^/]+)", "tag"),
    ("DELETE", rf"{_API}/tag/(?P<tag>[^/]+)", "untag"),
    ("POST", rf"{_API}/preupload/(?P<revision>[^/]+)", "preupload"),
    ("POST", rf"{_API}/commit/(?P<revision>[^/]+)", "commit"),
    ("POST", rf"/kernels/{_KERNEL}\.git/info/lfs/objects/batch", "batch"),
    ("GET|HEAD", rf"/kernels/{_KERNEL}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
    ("GET|HEAD", rf"/api/resolve-cache/kernels/{_KERNEL}/(?P<revision>[^/]+)/(?P<path>.+)", "cached"),
    ("PUT", r"/upload/(?P<oid>[0-9a-f]+)", "upload"),
    ("POST", r"/verify", "verify"),
    ("GET|HEAD", r"/objects/(?P<oid>[0-9a-f]+)", "objects"),
)


@dataclass
class Running:
    """A hub that is being served, on two ports."""

    hub: Hub
    servers: list[ThreadingHTTPServer]

    def stop(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()


def run() -> Running:
    hub = Hub()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer((host, 0), handler) for host in ("127.0.0.1", "127.0.0.1")]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    hub.endpoint, hub.cdn = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    return Running(hub, servers)
