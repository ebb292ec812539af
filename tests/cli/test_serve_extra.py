"""`litebert serve` where its extra is not installed."""

from __future__ import annotations

import sys

import pytest

from litebert.cli import main


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("litebert.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr(sys, "argv", ["litebert", "serve"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    message = capsys.readouterr().err
    assert "LB-305" in message
    assert "pip install 'litebert[serve]'" in message
