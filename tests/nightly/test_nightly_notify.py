"""Command, mail and webhook against servers on the loopback interface, and what each says when it fails."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rig.nightly.notify import Message, notify

MESSAGE = Message("Morning of 2026-01-12", "1 new failing", "# Morning\n\nüber limit\n", "<p>page</p>", 1)
TOKEN = "s3cret-token"


class Hook(HTTPServer):
    """Keeps what it is told."""

    def __init__(self, status: int = 204, location: str = "") -> None:
        hook = self
        self.got: list[tuple[dict[str, str], Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.append((dict(self.headers), json.loads(body)))
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.end_headers()

            def do_GET(self) -> None:
                hook.got.append((dict(self.headers), None))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Hook:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


def test_webhook_gets_the_morning_and_the_token() -> None:
    with Hook() as hook:
        assert notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": hook.url, "RIG_WEBHOOK_TOKEN": TOKEN}) == []
    headers, body = hook.got[0]
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert body == {
        "title": MESSAGE.title,
        "headline": "1 new failing",
        "text": MESSAGE.text,
        "exit_code": 1,
    }


def test_webhook_follows_no_redirect_with_the_token() -> None:
    with Hook() as elsewhere, Hook(302, elsewhere.url) as hook:
        troubles = notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": hook.url, "RIG_WEBHOOK_TOKEN": TOKEN})
    assert troubles == ["RIG_NOTIFY_WEBHOOK: the server answered 302"]
    assert elsewhere.got == []


def test_webhook_trouble_is_told_without_the_secret() -> None:
    with Hook(500) as hook:
        troubles = notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": hook.url, "RIG_WEBHOOK_TOKEN": TOKEN})
    assert troubles == ["RIG_NOTIFY_WEBHOOK: the server answered 500"]
    troubles = notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": hook.url, "RIG_WEBHOOK_TOKEN": TOKEN})
    assert "could not be reached" in troubles[0]
    assert TOKEN not in troubles[0]
    assert "neither http" in notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": "file:///etc/passwd"})[0]


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/s3cret path", "http://rig:s3cret@127.0.0.1:x/", "http://[::1/s3cret"]
)
def test_an_address_that_is_none_is_told_without_it(address: str) -> None:
    assert notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": address}) == [
        "RIG_NOTIFY_WEBHOOK: the address is no URL that can be used"
    ]


def test_a_server_that_talks_something_else_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(b"garbage\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        troubles = notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": f"http://127.0.0.1:{listener.getsockname()[1]}/"})
    assert troubles == ["RIG_NOTIFY_WEBHOOK: the server does not speak HTTP (BadStatusLine)"]


def test_a_token_is_used_without_the_line_end_of_its_file() -> None:
    with Hook() as hook:
        assert notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": hook.url, "RIG_WEBHOOK_TOKEN": f"{TOKEN}\n"}) == []
    assert hook.got[0][0]["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("token", [f"{TOKEN}\r\nX-More: 1", f"{TOKEN}\u043a", f"{TOKEN}\x00"])
def test_a_token_that_no_header_can_carry_is_not_sent_and_not_shown(token: str) -> None:
    with Hook() as hook:
        [trouble] = notify(MESSAGE, {"RIG_NOTIFY_WEBHOOK": hook.url, "RIG_WEBHOOK_TOKEN": token})
    assert trouble == "RIG_NOTIFY_WEBHOOK: RIG_WEBHOOK_TOKEN holds characters that have no place in a header"
    assert hook.got == []


@pytest.mark.parametrize("recipients", ["team lab <", "a@[", "a@lab.example\nBcc: b@lab.example", "\ud800@lab.example"])
def test_recipients_that_are_none_are_told_and_hinder_no_other_way(recipients: str) -> None:
    with Hook() as hook:
        troubles = notify(MESSAGE, {"RIG_NOTIFY_MAIL": recipients, "RIG_NOTIFY_WEBHOOK": hook.url})
    assert troubles == [f"RIG_NOTIFY_MAIL: {recipients!r} is no address"]
    assert len(hook.got) == 1


def test_a_mail_server_without_a_port_number_is_told() -> None:
    environment = {"RIG_NOTIFY_MAIL": "a@lab.example", "RIG_MAIL_SERVER": "127.0.0.1:smtp"}
    assert notify(MESSAGE, environment) == ["RIG_NOTIFY_MAIL: RIG_MAIL_SERVER=127.0.0.1:smtp is not host:port"]


def test_trouble_that_nobody_foresaw_hinders_no_other_way() -> None:
    with Hook() as hook:
        message = replace(MESSAGE, html="\ud800")
        [trouble] = notify(message, {"RIG_NOTIFY_MAIL": "a@lab.example", "RIG_NOTIFY_WEBHOOK": hook.url})
    assert trouble == "RIG_NOTIFY_MAIL: it failed (UnicodeEncodeError)"
    assert len(hook.got) == 1


@pytest.fixture
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """The few commands of RFC 5321 that one mail takes; ends after one client."""
    lines: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client, client.makefile("rw", newline="\r\n", encoding="utf-8") as stream:
            print("220 test", file=stream, flush=True)
            data = False
            for line in stream:
                line = line.rstrip("\r\n")
                lines.append(line)
                if data:
                    data = line != "."
                    if not data:
                        print("250 taken", file=stream, flush=True)
                    continue
                data = line.upper() == "DATA"
                answers = {"DATA": "354 go", "QUIT": "221 bye", "EHLO": "250-test\r\n250 AUTH PLAIN LOGIN"}
                print(answers.get(line.upper()[:4], "250 ok"), file=stream, flush=True)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], lines
    listener.close()
    thread.join(10)


def test_mail_carries_text_and_page(mail_server: tuple[int, list[str]]) -> None:
    port, lines = mail_server
    environment = {
        "RIG_NOTIFY_MAIL": "a@lab.example, b@lab.example",
        "RIG_MAIL_SERVER": f"127.0.0.1:{port}",
        "RIG_MAIL_FROM": "rig@lab.example",
    }
    assert notify(MESSAGE, environment) == []
    text = "\n".join(lines)
    assert "Subject: Morning of 2026-01-12: 1 new failing" in text
    assert "rcpt TO:<b@lab.example>" in text
    assert "<p>page</p>" in text
    assert "text/plain" in text


def test_a_password_is_not_sent_in_the_clear(mail_server: tuple[int, list[str]]) -> None:
    port, lines = mail_server
    environment = {
        "RIG_NOTIFY_MAIL": "a@lab.example",
        "RIG_MAIL_SERVER": f"127.0.0.1:{port}",
        "RIG_MAIL_USER": "rig",
        "RIG_MAIL_PASSWORD": TOKEN,
    }
    troubles = notify(MESSAGE, environment)
    assert "the mail was not taken by 127.0.0.1" in troubles[0]
    assert not [line for line in lines if line.upper().startswith("AUTH")]


def test_command_gets_the_text_and_no_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['RIG_HEADLINE'] + sys.argv[2] + sys.stdin.read())"
    hook = f'{sys.executable} -c "{code}" {out} "$HOME;"'
    assert notify(MESSAGE, {"RIG_NOTIFY_COMMAND": hook}) == []
    assert out.read_text() == f"1 new failing$HOME;{MESSAGE.text}"


def test_one_way_that_fails_does_not_hinder_another() -> None:
    with Hook() as hook:
        environment = {
            "RIG_NOTIFY_COMMAND": f"{sys.executable} -c \"import sys; sys.exit('no chat today')\"",
            "RIG_NOTIFY_WEBHOOK": hook.url,
        }
        troubles = notify(MESSAGE, environment)
    assert troubles == ["RIG_NOTIFY_COMMAND: the hook ended with status 1: no chat today"]
    assert len(hook.got) == 1
    assert "cannot run the hook" in notify(MESSAGE, {"RIG_NOTIFY_COMMAND": "/nowhere/hook"})[0]
    assert notify(MESSAGE, {}) == []
