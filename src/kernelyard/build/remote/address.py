"""The address of a cluster, and what protects the way to it: a worker runs what it is sent."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from kernelyard.errors import InputError, Place
from kernelyard.records import record

__all__ = ["Cluster", "is_protected"]

_URL = re.compile(r"dask://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@?#\[\]]+):(?P<port>[0-9]{1,5})/?", re.ASCII)
_MOST = 65535
_TLS = (
    "tell dask the certificates that the cluster has: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY, or the same in its "
    "configuration; or reach it by 127.0.0.1, through a tunnel of ssh"
)


@record(frozen=True, slots=True)
class Cluster:
    """A scheduler of dask, and how it is spoken to.

    Attributes:
        url: As it was given.
        address: As dask has it: ``tcp://`` on this machine, ``tls://`` elsewhere.
    """

    url: str
    address: str

    @classmethod
    def parse(cls, url: str) -> Cluster:
        """Read ``dask://HOST:PORT``.

        Raises:
            InputError: It is something else (KY451).
        """
        match = _URL.fullmatch(url)
        if match is None or not 0 < int(match["port"]) <= _MOST:
            hint = "write the address of a scheduler of dask, for example --on dask://127.0.0.1:8786"
            raise InputError("KY451", f"not a cluster: {url!r}", hint=hint)
        host, port = match["host"], match["port"]
        return cls(url, f"{'tcp' if _is_here(host) else 'tls'}://{host}:{port}")

    def security(self) -> Any:
        """Return what dask's own configuration says of certificates.

        Raises:
            InputError: It says nothing, and the cluster is not on this machine (KY452).
        """
        from distributed.security import Security

        security = Security()
        certificates = security.get_tls_config_for_role("client")
        if self.address.startswith("tls://") and not (certificates.get("ca_file") and certificates.get("cert")):
            what = "not without TLS: who can send a worker something else, or read what it is sent, has that machine"
            raise InputError("KY452", what, hint=_TLS, place=Place(self.url))
        return security


def is_protected(address: str) -> bool:
    """Whether nobody else can speak at an address of dask, or listen: it has TLS, or is of this machine."""
    scheme, _, rest = address.partition("://")
    return scheme in {"tls", "inproc"} or _is_here(rest.rpartition(":")[0])


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
