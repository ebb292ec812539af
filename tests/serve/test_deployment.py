"""The nginx and systemd examples of docs/serving.md and the Dockerfile, with names of this machine put in."""

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.served import serve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_nginx_hands_requests_on_and_keeps_the_metrics_inside(tmp_path: Path) -> None:
    if not (nginx := shutil.which("nginx")):
        pytest.skip("nginx is not installed")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *words], cwd=tmp_path, capture_output=True, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        outer = free.getsockname()[1]
    trusting = ssl._create_unverified_context()
    with serve() as server:
        block = _block("nginx").replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
        block = block.replace("443 ssl", f"127.0.0.1:{outer} ssl")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        (tmp_path / "nginx.conf").write_text(f"""
            pid pid; error_log error.log;
            events {{}}
            http {{
              access_log off; ssl_certificate cert.pem; ssl_certificate_key key.pem;
              {" ".join(f"{kind}_temp_path {kind};" for kind in kinds)}
              {block}
            }}""")

        def status(path: str, body: object = None) -> int:
            with closing(http.client.HTTPSConnection("127.0.0.1", outer, context=trusting)) as link:
                try:
                    return server.ask(path, body, link=link).status
                except OSError:
                    return 0

        start = [nginx, "-p", tmp_path, "-c", "nginx.conf", "-e", "error.log", "-g", "daemon off;"]
        with subprocess.Popen(start) as running:
            try:
                server.wait_until(lambda: status("/ready") == 200)
                asked = {"text": "The cat sat on the [MASK]."}
                assert [status("/v1/fill", asked) for _ in range(3)] == [200, 200, 200]
                assert [status("/"), status("/metrics")] == [200, 403]
                assert status("/v1/fill", " " * 3_000_000) == 413
            finally:
                running.terminate()


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
        assert server.lines[0] == "no MODEL given: serving the packaged model as litebert\n"
        check[0], check[2] = sys.executable, check[2].replace("8000", str(server.port))
        assert subprocess.run(check).returncode == 0
        check[2] = check[2].replace("/ready", "/nothing")
        assert subprocess.run(check, capture_output=True).returncode == 1
    assert server.process.returncode == 0
