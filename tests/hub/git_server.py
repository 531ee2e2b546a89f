"""A git host on this machine, over https: git's own http-backend for git, and the batch interface for Git LFS."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import json
import os
import re
import shutil
import ssl
import subprocess
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

#: Who may write, and who may only read.
WRITER, READER = ("ann", "s3cret:/@"), ("bob", "p4ssword")
_LFS = "application/vnd.git-lfs+json"
Handle = Callable[["Handler"], None]


def backend() -> str | None:
    """Return git's program for serving over http, if there is one."""
    git = shutil.which("git")
    if git is None:
        return None
    folder = subprocess.run([git, "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    return shutil.which(f"{folder}/git-http-backend")


@dataclass
class Host:
    """What the server hands out, and how.

    Attributes:
        root: The folder of the repositories, ``org/name.git`` each.
        port: Where it listens.
        requests: Method and path of each request, in their order.
        logins: Names of the users that requests came with.
        troubles: Patterns of ``METHOD /path`` and what answers in place of the server.
        private: Whether reading needs a login.
        lfs: Whether there is LFS.
        sent: sha256 of each large file that was sent.
    """

    root: Path
    port: int = 0
    requests: list[str] = field(default_factory=list)
    logins: set[str] = field(default_factory=set)
    troubles: list[tuple[str, Handle]] = field(default_factory=list)
    private: bool = False
    lfs: bool = True
    sent: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The place, without a login."""
        return f"git+https://127.0.0.1:{self.port}"

    def address_of(self, login: tuple[str, str]) -> str:
        """Return the place with a login."""
        from urllib.parse import quote

        return f"git+https://{login[0]}:{quote(login[1], safe='')}@127.0.0.1:{self.port}"

    def make(self, repo: str) -> Path:
        """Make an empty repository."""
        folder = self.root / f"{repo}.git"
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(folder)], check=True)
        subprocess.run(["git", "-C", str(folder), "config", "uploadpack.allowFilter", "true"], check=True)
        return folder

    def large(self, repo: str, digest: str) -> Path:
        """Return where a large file is kept."""
        return self.root / f"{repo}.git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest


class Handler(BaseHTTPRequestHandler):
    """Answers git and git-lfs."""

    protocol_version = "HTTP/1.1"
    host: Host

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None: ...

    def body(self) -> bytes:
        """Read what was sent."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def reply(self, status: int, content: bytes = b"", **headers: str) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def fail(self) -> None:
        """Answer that the server has trouble."""
        self.body()
        self.reply(500)

    def user(self) -> str | None:
        """Return who asks; None for a stranger."""
        for name, password in (WRITER, READER):
            if self.headers.get("Authorization") == f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}":
                return name
        return None

    def serve(self) -> None:
        """Do what is asked for."""
        path = urlsplit(self.path).path
        writes = path.endswith("/git-receive-pack") or "service=git-receive-pack" in self.path or self.command == "PUT"
        content = self.body()
        asked = json.loads(content) if path.endswith("/objects/batch") else {}
        writes = writes or asked.get("operation") == "upload"
        if (writes or self.host.private) and self.user() is None:
            self.reply(401, WWW_Authenticate='Basic realm="git"')
        elif writes and self.user() != WRITER[0]:
            self.reply(403, b"you may not write")
        elif "/info/lfs/" in path:
            self._lfs(path, content, asked)
        else:
            self._git(path, content)

    def _answer(self) -> None:
        line = f"{self.command} {self.path}"
        self.host.requests.append(line)
        if self.user() is not None:
            self.host.logins.add(str(self.user()))
        for pattern, trouble in self.host.troubles:
            if re.search(pattern, line):
                trouble(self)
                return
        self.serve()

    def _lfs(self, path: str, content: bytes, asked: dict[str, Any]) -> None:
        repo = path.removeprefix("/").partition(".git/")[0]
        if not self.host.lfs or not (self.host.root / f"{repo}.git").is_dir():
            self.reply(404)
            return
        if asked:
            objects = [self._offer(repo, asked["operation"], one["oid"], one["size"]) for one in asked["objects"]]
            answer = json.dumps({"transfer": "basic", "objects": objects}).encode()
            self.reply(200, answer, Content_Type=_LFS)
            return
        digest = path.rpartition("/")[2]
        place = self.host.large(repo, digest)
        if self.command == "PUT":
            if hashlib.sha256(content).hexdigest() != digest:
                self.reply(422)
                return
            self.host.sent.append(digest)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            self.reply(200)
        elif place.is_file():
            self.reply(200, place.read_bytes(), Content_Type="application/octet-stream")
        else:
            self.reply(404)

    def _offer(self, repo: str, operation: str, digest: str, size: int) -> dict[str, Any]:
        there = self.host.large(repo, digest).is_file()
        url = f"https://127.0.0.1:{self.host.port}/{repo}.git/info/lfs/{digest}"
        one: dict[str, Any] = {"oid": digest, "size": size, "authenticated": False}
        if operation == "download" and not there:
            return {**one, "error": {"code": 404, "message": "Object does not exist"}}
        if operation == "upload" and there:
            return one
        header = {"Authorization": value} if (value := self.headers.get("Authorization")) else {}
        return {**one, "actions": {operation: {"href": url, "header": header}}}

    def _git(self, path: str, content: bytes) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.host.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": urlsplit(self.path).query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(content)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        if self.user() is not None:
            environment["REMOTE_USER"] = str(self.user())
        done = subprocess.run([str(backend())], input=content, capture_output=True, env=environment, check=False)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
        status = int(fields.pop("Status", "200").split(" ")[0])
        self.reply(status, answer, **{name.replace("-", "_"): value for name, value in fields.items()})


@dataclass
class Running:
    """A server that listens.

    Attributes:
        host: What it hands out.
        certificate: The file that a client has to trust.
        stop: Ends it.
    """

    host: Host
    certificate: Path
    stop: Callable[[], None]


def run(root: Path, certificate: tuple[Path, Path]) -> Running:
    """Start a server for the repositories below a folder.

    Args:
        root: The folder.
        certificate: Files of a certificate for 127.0.0.1, and of its key.
    """
    host = Host(root)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"host": host}))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    host.port = server.server_port
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return Running(host, certificate[0], stop)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that vouches for itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return certificate, secret
