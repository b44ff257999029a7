"""A client that gets its tokens from an endpoint (OAUTHBEARER) writes and reads like one with a password."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

from changefeed.errors import SinkRefused
from devstack.kafka.broker import KafkaBroker
from devstack.kafka.security import KafkaSecurity
from devstack.mongodb.security import ADMINISTRATOR
from tests.component.sink.kafka.feed import KafkaFeed
from tests.component.sink.vocabulary import A, insert

_CLIENT = "Basic " + base64.b64encode(b"sluice:secret").decode()


class _Tokens(BaseHTTPRequestHandler):
    """Gives a token without a signature, which a broker takes if nothing else is configured, to the client that it knows."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        known = self.headers.get("Authorization") == _CLIENT and "grant_type=client_credentials" in body
        now = int(time.time())
        claims = {"sub": ADMINISTRATOR, "iat": now, "exp": now + 3600, "scope": "kafka"}
        token = ".".join((*map(_encoded, ({"alg": "none"}, claims)), ""))
        answer = (
            {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
            if known
            else {"error": "invalid_client"}
        )
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None: ...


def _encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()


def test_a_client_with_tokens_writes_and_another_is_refused(
    own_kafka: Callable[..., KafkaBroker], endpoint: str
) -> None:
    broker = own_kafka(security=KafkaSecurity())
    query = f"sasl=OAUTHBEARER&tokenEndpoint={quote(endpoint, safe='')}&tokenScope=kafka"
    feed = KafkaFeed(broker, query, user="sluice:secret@")
    feed.claim()
    feed.window([insert(A, 1, 1)])
    assert len(feed.rows()) == 1
    with pytest.raises(SinkRefused, match=r"Failed to acquire SASL OAUTHBEARER token.*check user"):
        KafkaFeed(broker, query, user="sluice:wrong@").sink.check()
