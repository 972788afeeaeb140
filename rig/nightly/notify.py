"""Tells people about the morning: a command, a mail, a webhook. What is told comes from the night; to whom and with
which secrets from the environment, never from a file of the project or a command line that others can read.

    RIG_NOTIFY_COMMAND   argument list as a shell would split it, run without a shell; Markdown on stdin
    RIG_NOTIFY_MAIL      recipients, separated by commas; RIG_MAIL_SERVER host:port, RIG_MAIL_FROM,
                         RIG_MAIL_USER and RIG_MAIL_PASSWORD (then STARTTLS is required)
    RIG_NOTIFY_WEBHOOK   URL that gets a JSON object {title, headline, text, exit_code}; RIG_WEBHOOK_TOKEN as bearer
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rig.deadline import Deadline
from rig.errors import InternalError, RigError

NOTIFY_S: Final = 30.0
"""For each way."""


@dataclass(frozen=True)
class Message:
    """title: subject. text: Markdown. html: for mails. exit_code: that of the night."""

    title: str
    headline: str
    text: str
    html: str
    exit_code: int


def notify(message: Message, environment: Mapping[str, str]) -> list[str]:
    """Use every way that the environment names; returns what went wrong, since no way may hinder another."""
    ways: tuple[tuple[str, Callable[[Message, Mapping[str, str], Deadline], None]], ...] = (
        ("RIG_NOTIFY_COMMAND", by_command),
        ("RIG_NOTIFY_MAIL", by_mail),
        ("RIG_NOTIFY_WEBHOOK", by_webhook),
    )
    troubles = []
    for name, way in ways:
        if environment.get(name):
            try:
                way(message, environment, Deadline.after(NOTIFY_S))
            except RigError as error:
                troubles.append(f"{name}: {error.what}")
            except Exception as error:  # noqa: BLE001 - the night is over: nothing here may change how it ended
                # Its text may hold what the environment keeps secret.
                troubles.append(f"{name}: it failed ({type(error).__name__})")
    return troubles


def by_command(message: Message, environment: Mapping[str, str], deadline: Deadline) -> None:
    """The hook gets RIG_TITLE, RIG_HEADLINE and RIG_EXIT_CODE beside its stdin. Raises InternalError if it fails."""
    try:
        argv = shlex.split(environment["RIG_NOTIFY_COMMAND"])
        told = {"RIG_TITLE": message.title, "RIG_HEADLINE": message.headline, "RIG_EXIT_CODE": str(message.exit_code)}
        done = subprocess.run(
            argv,
            input=message.text.encode(),
            env={**environment, **told},
            capture_output=True,
            timeout=deadline.left(),
            check=False,
        )
    except (OSError, ValueError, IndexError) as error:
        raise InternalError(f"cannot run the hook: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise InternalError(f"the hook took longer than {deadline.budget_s:g} s and was killed") from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise InternalError(f"the hook ended with status {done.returncode}: {words[-1] if words else 'no word'}")


def by_mail(message: Message, environment: Mapping[str, str], deadline: Deadline) -> None:
    """Text with the page as its HTML alternative. Raises InternalError with the server's words."""
    import smtplib
    import ssl
    from email.errors import MessageError
    from email.message import EmailMessage

    mail = EmailMessage()
    mail["Subject"] = " ".join(f"{message.title}: {message.headline}".split())[:180]
    for name, given in (
        ("From", environment.get("RIG_MAIL_FROM", "rig@localhost")),
        ("To", environment["RIG_NOTIFY_MAIL"]),
    ):
        try:
            mail[name] = given.strip()
        except (ValueError, IndexError, AttributeError, MessageError) as error:  # its parser has no error of its own
            raise InternalError(f"{given.strip()!r} is no address") from error
    mail.set_content(message.text)
    mail.add_alternative(message.html, subtype="html")
    server_name = environment.get("RIG_MAIL_SERVER", "localhost:25")
    host, _, port = server_name.partition(":")
    if port and not (port.isascii() and port.isdecimal()):
        raise InternalError(f"RIG_MAIL_SERVER={server_name} is not host:port")
    user, password = environment.get("RIG_MAIL_USER"), environment.get("RIG_MAIL_PASSWORD")
    try:
        with smtplib.SMTP(host, int(port or 25), timeout=max(0.1, deadline.left())) as server:
            if user and password:
                server.starttls(context=ssl.create_default_context())
                server.login(user, password)
            server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise InternalError(f"the mail was not taken by {host}: {error}") from error


def by_webhook(message: Message, environment: Mapping[str, str], deadline: Deadline) -> None:
    """POST of JSON. Raises InternalError unless the answer is 2xx; neither token nor address, which may be as secret,
    is in its message.
    """
    import urllib.error
    import urllib.request
    from http.client import HTTPException, InvalidURL

    url = environment["RIG_NOTIFY_WEBHOOK"].strip()
    if not url.startswith(("https://", "http://")):
        raise InternalError("the address is neither http:// nor https://")
    body = {
        "title": message.title,
        "headline": message.headline,
        "text": message.text,
        "exit_code": message.exit_code,
    }
    headers = {"Content-Type": "application/json"}
    if token := environment.get("RIG_WEBHOOK_TOKEN", "").strip():
        if not (token.isascii() and token.isprintable()):
            raise InternalError("RIG_WEBHOOK_TOKEN holds characters that have no place in a header")
        headers["Authorization"] = f"Bearer {token}"

    class Stay(urllib.request.HTTPRedirectHandler):
        """A redirect could carry the token to somebody else."""

        def redirect_request(self, *_: object) -> None:
            return None

    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.build_opener(Stay).open(request, timeout=max(0.1, deadline.left())):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise InternalError(f"the server answered {error.code}") from error
    except OSError as error:
        raise InternalError(f"it could not be reached: {getattr(error, 'reason', error)}") from error
    except (InvalidURL, ValueError, OverflowError):
        raise InternalError("the address is no URL that can be used") from None
    except HTTPException as error:
        raise InternalError(f"the server does not speak HTTP ({type(error).__name__})") from error
