"""The nginx and systemd examples of docs/serving.md and the Dockerfile, with names of this machine put in."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.served import serve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of nginx, configured as the page says, in front of a server."""
    if not (nginx := shutil.which("nginx")):
        pytest.skip("nginx is not installed")
    place = tmp_path_factory.mktemp("nginx")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made = subprocess.run(
        ["openssl", *words, "-keyout", place / "key.pem", "-out", place / "cert.pem"], capture_output=True
    )
    assert made.returncode == 0, made.stderr
    command = [sys.executable, "-m", "litebert", "serve", "--port", "0", "--threads", "1"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    port = next(found[1] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
    outer = _free_port()
    block = _block("nginx").replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("443 ssl", f"127.0.0.1:{outer} ssl")
    certificate = f"ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;"
    configuration = f"""
        pid {place}/pid; error_log {place}/error.log;
        events {{}}
        http {{
          access_log off; {certificate}
          client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/f;
          uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
          {block}
        }}"""
    (place / "nginx.conf").write_text(configuration)
    running = subprocess.Popen([nginx, "-c", place / "nginx.conf", "-g", "daemon off;"])
    try:
        deadline = time.monotonic() + 60
        while _status(f"https://127.0.0.1:{outer}/ready") != 200:
            assert time.monotonic() < deadline, (place / "error.log").read_text()
            time.sleep(0.1)
        yield f"https://127.0.0.1:{outer}"
    finally:
        running.terminate()
        server.terminate()
        running.wait(30)
        server.wait(30)
        server.stderr.close()


def _status(url: str, body: bytes | None = None) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_nginx_hands_requests_on_and_keeps_the_metrics_inside(proxy: str) -> None:
    asked = json.dumps({"text": "The cat sat on the [MASK]."}).encode()
    assert [_status(f"{proxy}/v1/fill", asked) for _ in range(3)] == [200, 200, 200]
    assert _status(f"{proxy}/") == 200
    assert _status(f"{proxy}/metrics") == 403
    assert _status(f"{proxy}/v1/fill", b" " * 3_000_000) == 413


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if not (systemd := shutil.which("systemd-analyze")):
        pytest.skip("systemd is not installed")
    litebert = shutil.which("litebert") or str(Path(sys.executable).with_name("litebert"))
    unit = tmp_path / "litebert.service"
    unit.write_text(_block("ini").replace("/opt/litebert/bin/litebert", litebert))
    done = subprocess.run([systemd, "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), done
    unit.write_text(unit.read_text().replace("Restart=always", "Restart=sometimes"))
    assert "sometimes" in subprocess.run([systemd, "verify", unit], capture_output=True, text=True).stderr


def test_what_the_dockerfile_starts_answers_its_health_check_and_ends_on_sigterm() -> None:
    """What it installs is tested by tests/test_wheel.py; no container runtime is needed here."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    check, start = (json.loads(found) for found in re.findall(r"(?m)^(?:HEALTHCHECK|ENTRYPOINT) .*?(\[.*\])$", text))
    assert start[:2] == ["litebert", "serve"]
    with serve(*start[2:]) as server:
        server.wait_for("litebert is ready")
        check[0], check[2] = sys.executable, check[2].replace("8000", str(server.port))
        assert subprocess.run(check).returncode == 0
        check[2] = check[2].replace("/ready", "/nothing")
        assert subprocess.run(check, capture_output=True).returncode == 1
    assert server.process.returncode == 0
