"""Settings of the two listeners: their addresses, TLS, and what a connection may cost."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["ListenerSettings"]


class ListenerSettings(BaseModel):
    """Where the listeners are, and how they are reached."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = Field(default="127.0.0.1", min_length=1, description="Address of the public listener")
    port: int = Field(default=8787, ge=0, le=65535, description="Port of the public listener; 0 picks a free one")
    admin_host: str = Field(default="127.0.0.1", min_length=1, description="Address of the admin listener")
    admin_port: int = Field(default=8788, ge=0, le=65535, description="Port of the admin listener; 0 picks one")
    tls_certificate_file: Path | None = Field(
        default=None,
        description="Certificate of the public listener in PEM, and behind it those that lead to its authority; unset: no TLS",
    )
    tls_key_file: Path | None = Field(default=None, description="Its private key in PEM")
    tls_key_password_file: Path | None = Field(default=None, description="The password of that key, where it has one")
    tls_client_ca_file: Path | None = Field(
        default=None,
        description="Authorities in PEM: every client must show a certificate of one of them; unset: none is asked for",
    )
    admin_tls_certificate_file: Path | None = Field(default=None, description="The same of the admin listener")
    admin_tls_key_file: Path | None = Field(default=None, description="The same of the admin listener")
    admin_tls_key_password_file: Path | None = Field(default=None, description="The same of the admin listener")
    admin_tls_client_ca_file: Path | None = Field(default=None, description="The same of the admin listener")
    max_connections: int = Field(
        default=8192, ge=1, description="Connections of the public listener at a time; more get 503 and are closed"
    )
    max_client_connections: int | None = Field(
        default=None,
        ge=1,
        description="Those of one client's address; unset: no bound. Behind a proxy all have the address of that",
    )

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        for of in ("tls_", "admin_tls_"):
            there = {what for what in _PARTS if getattr(self, f"{of}{what}") is not None}
            if there and not {"certificate_file", "key_file"} <= there:
                raise ValueError(f"{of}certificate_file, {of}key_file: TLS needs both")
        return self


_PARTS = ("certificate_file", "key_file", "key_password_file", "client_ca_file")
