"""The HTTP server binds what it is told or says why not, and its API page needs no network."""

import re
import socket
import ssl
import threading
from pathlib import Path

import httpx
import psutil
import pytest
from fastapi import FastAPI

from shared import web
from shared.errors import InvalidInput
from tests.support import eventually
from tests.support.local_http import LOCAL_HTTP
from tests.support.webhooks import certificate


def test_a_server_tells_where_it_listens_answers_and_ends() -> None:
    app = FastAPI()
    app.get("/ping")(lambda: "pong")
    server = web.server(app, "127.0.0.1:0")
    before = set(threading.enumerate())
    server.start()
    url = server.url
    assert LOCAL_HTTP.get(f"{url}/ping").json() == "pong"
    server.close()
    eventually(lambda: set(threading.enumerate()) <= before)
    with pytest.raises(httpx.ConnectError):
        LOCAL_HTTP.get(f"{url}/ping")


def test_a_client_that_never_says_goodbye_is_cut_off(tmp_path: Path) -> None:
    certificate_file, key_file = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate_file, key_file)
    server = web.server(FastAPI(), "127.0.0.1:0", tls=tls)
    server.start()
    host, port = server.address
    trusting = ssl.create_default_context(cafile=certificate_file)
    with socket.create_connection((host, port)) as plain, trusting.wrap_socket(plain, server_hostname=host) as client:
        client.sendall(b"GET /nothing HTTP/1.1\r\nHost: it\r\n\r\n")
        assert client.recv(1) == b"H"
        server.close()
        assert not [one for one in psutil.Process().net_connections("tcp") if one.laddr.port == port]


@pytest.mark.parametrize("listen", ["", "8080", "host:80", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(InvalidInput, match="listen"):
        web.server(FastAPI(), listen)


def test_a_port_in_use_is_named() -> None:
    first = web.server(FastAPI(), "127.0.0.1:0")
    address = f"127.0.0.1:{first.address[1]}"
    with pytest.raises(InvalidInput, match=re.escape(address)):
        web.server(FastAPI(), address)
    first.close()


def test_the_api_page_loads_nothing_from_elsewhere_and_quotes_its_title() -> None:
    page = web.docs_page("<b>")
    assert "<b></b>" not in page
    assert "&lt;b&gt; API" in page
    assert not re.search(r"https?://|src=|@import", page)
