"""What a release says of how it shows itself to a server: by name, never the secret."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from cascade.policy.frozen import Frozen

__all__ = ["Auth", "ClientCertificate"]


class Auth(Frozen):
    """Name where an upstream's bearer token is kept: an environment variable or a file, never the token."""

    env: str | None = Field(default=None, description="Name of the environment variable that holds the token")
    file: str | None = Field(default=None, description="File that holds the token")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("name exactly one of env and file")
        return self


class ClientCertificate(Frozen):
    """Name the files of the certificate that a server asks of its clients."""

    certificate: str = Field(
        min_length=1, description="PEM file of the certificate, and behind it those that lead to its authority"
    )
    key: str = Field(min_length=1, description="PEM file of its private key")
    key_password: str | None = Field(
        default=None, min_length=1, description="File of the password of that key, where it has one"
    )
