"""The lab under load: it says that it is busy, and waits for nobody for ever."""

import http.client
import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from cclp.server.limits import MOST_AT_ONCE
from tests import children

SERVER = """
import sys, time
from cclp.lab import playground, server
from cclp.server import limits
limits.HEAD_SECONDS = limits.BODY_SECONDS = float(sys.argv[1])
descend, pause = playground.descend, float(sys.argv[2])
playground.descend = lambda *arguments: time.sleep(pause) or descend(*arguments)
server.serve(None, None, 0, lambda address: print(address, flush=True))
"""


class Lab(NamedTuple):
    process: children.Child
    host: str
    port: int

    def ask(self, path: str, body: object) -> tuple[int, dict[str, object]]:
        with closing(http.client.HTTPConnection(self.host, self.port)) as connection:
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def scene(self) -> dict[str, object]:
        status, scene = self.ask("/layout", {"points": 20})
        assert status == 200
        return scene

    def resident(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])


def start(seconds: float, pause: float) -> Lab:
    command = [sys.executable, "-c", SERVER, str(seconds), str(pause)]
    process = children.start(command, env=children.environment())
    assert process.stdout is not None
    address = urlsplit(process.stdout.readline().strip())
    assert address.hostname
    assert address.port
    return Lab(process, address.hostname, address.port)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with children.ended():
        yield start(0.5, 0.0)


def said(lab: Lab) -> str:
    """All that the server has written, at its end."""
    lab.process.terminate()
    return lab.process.communicate(timeout=60)[1]


def test_more_frames_than_can_be_made_are_answered_by_busy() -> None:
    with children.ended():
        lab = start(10, 1.0)
        scene = lab.scene()
        count = 3 * MOST_AT_ONCE
        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(lambda _: lab.ask("/frame", {"scene": scene}), range(count)))
        busy = [content for status, content in answers if status == 503]
        assert 0 < len(busy) < count
        assert busy[0] == {"error": "busy: try again"}
        assert {status for status, _ in answers} == {200, 503}
        assert lab.ask("/frame", {"scene": scene})[0] == 200  # slots are given back


def test_heads_and_bodies_have_to_come_in_time(lab: Lab) -> None:
    head = f"POST /frame HTTP/1.1\r\nhost: {lab.host}:{lab.port}\r\n"
    for begin, answer in (
        ("", b""),
        (head, b""),
        (f"{head}content-length: 100\r\n\r\n{{", b"HTTP/1.1 408 "),
    ):
        with socket.create_connection((lab.host, lab.port), timeout=30) as client:
            client.sendall(begin.encode())
            assert client.recv(13) == answer  # nothing: closed


def test_a_kept_connection_has_no_more_time(lab: Lab) -> None:
    request = f"GET /about HTTP/1.1\r\nhost: {lab.host}:{lab.port}\r\n"
    with socket.create_connection((lab.host, lab.port), timeout=30) as client:
        client.sendall(f"{request}\r\n".encode())
        assert client.recv(10_000).startswith(b"HTTP/1.1 200")
        client.sendall(request.encode())
        while client.recv(10_000):  # until it is closed
            pass


def test_clients_that_leave_are_no_errors(lab: Lab) -> None:
    scene = json.dumps({"scene": lab.scene()})
    head = f"POST /frame HTTP/1.1\r\nhost: {lab.host}:{lab.port}\r\n"
    for _ in range(20):
        for body in (scene[:50], scene):
            with socket.create_connection((lab.host, lab.port)) as client:
                client.sendall(f"{head}content-length: {len(scene)}\r\n\r\n{body}".encode())
    statuses = []
    while 200 not in statuses:  # busy as long as it computes what nobody waits for
        statuses.append(lab.ask("/layout", {"points": 20})[0])
        assert set(statuses) <= {200, 503}
        time.sleep(0.1)
    assert said(lab) == ""


def test_memory_stays_as_it_is(lab: Lab) -> None:
    request = {"scene": lab.scene()}

    def ask(count: int) -> int:
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda _: lab.ask("/frame", request)[0], range(count)))
        assert set(answers) == {200}
        return lab.resident()

    before = ask(200)
    assert ask(400) < 1.05 * before
