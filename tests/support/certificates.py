"""Certificates for a TLS server and its clients, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

DAYS = "2"


class Authority:
    """One that signs; each certificate is a pair of files in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate, self._key = folder / "ca.crt", folder / "ca.key"
        _openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-subj", "/CN=the tests",
            "-keyout", self._key, "-out", self.certificate,
        )  # fmt: skip

    def issue(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for a host, or for a client."""
        key, request, certificate = (self._folder / f"{name}.{ending}" for ending in ("key", "csr", "crt"))
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        names = self._folder / f"{name}.ext"
        names.write_text(f"subjectAltName={'IP' if name[0].isdigit() else 'DNS'}:{name}\n")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
            "-days", DAYS, "-extfile", names, "-out", certificate,
        )  # fmt: skip
        return certificate, key


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
