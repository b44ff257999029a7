"""`KafkaSecurity`: users with passwords (SASL/PLAIN), or with tokens that nobody has signed, who may do only what an ACL allows; with TLS if there are
certificates.

Clients then need a certificate, too: any that the CA has signed, for example the broker's.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TypeAlias

from devstack.mongodb.security import ADMINISTRATOR, TlsFiles

ClientSettings: TypeAlias = dict[str, str | int | float | bool]
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class KafkaSecurity:
    """`users`: names, besides the administrator's, who may do everything."""

    def __init__(self, users: Iterable[str] = (), tls: TlsFiles | None = None) -> None:
        self._tls = tls
        self.passwords = {name: secrets.token_hex(12) for name in (ADMINISTRATOR, *users)}

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self._tls is not None else "SASL_PLAINTEXT"

    @property
    def properties(self) -> dict[str, str]:
        own = f'username="{ADMINISTRATOR}" password="{self.passwords[ADMINISTRATOR]}"'
        users = " ".join(f'user_{name}="{password}"' for name, password in self.passwords.items())
        found = {
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": f"{_PLAIN} {own} {users};",
            "listener.name.client.oauthbearer.sasl.jaas.config": f'{_OAUTH} unsecuredLoginStringClaim_sub="{ADMINISTRATOR}";',
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{ADMINISTRATOR};User:ANONYMOUS",  # anonymous is the controller's listener
        }
        if self._tls is not None:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._tls.certificate_and_key),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._tls.ca),
                "ssl.client.auth": "required",
            }
        return found

    @property
    def client(self) -> ClientSettings:
        """The settings of a client of the administrator."""
        return self.client_of(ADMINISTRATOR)

    def client_of(self, user: str) -> ClientSettings:
        found: ClientSettings = {
            "security.protocol": self.protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": self.passwords[user],
        }
        if self._tls is not None:
            own = str(self._tls.certificate_and_key)
            found |= {"ssl.ca.location": str(self._tls.ca), "ssl.certificate.location": own, "ssl.key.location": own}
        return found
