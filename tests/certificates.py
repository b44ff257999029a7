"""`Certificates`: a CA, and the certificates that it signed, as PEM files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from devstack.mongodb.security import TlsFiles


class Certificates:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca = directory / "ca.pem"
        self._openssl("req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=test CA", out="ca")

    def issue(self, name: str, *, days: int = 2, names: str = "IP:127.0.0.1,DNS:localhost") -> tuple[Path, Path]:
        """A certificate and its key. With negative days it has expired."""
        extensions = self._directory / "extensions"
        extensions.write_text(f"subjectAltName={names}\n")
        request = self._directory / f"{name}.csr"
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        _run("req", "-nodes", "-newkey", "rsa:2048", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        signing = [
            "-CA",
            str(self.ca),
            "-CAkey",
            str(self.ca.with_suffix(".key")),
            "-CAcreateserial",
            "-days",
            str(days),
        ]
        _run("x509", "-req", "-in", str(request), *signing, "-extfile", str(extensions), "-out", str(cert))
        return cert, key

    def tls(self, name: str) -> TlsFiles:
        """For servers that need certificate and key in one file."""
        cert, key = self.issue(name)
        both = self._directory / f"{name}-both.pem"
        both.write_text(cert.read_text() + key.read_text())
        return TlsFiles(self.ca, both)

    def _openssl(self, *arguments: str, out: str) -> None:
        cert, key = self._directory / f"{out}.pem", self._directory / f"{out}.key"
        _run(*arguments, "-keyout", str(key), "-out", str(cert))


def _run(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
