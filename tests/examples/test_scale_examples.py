"""The files that start training on several machines are well formed and name real options."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from litebert.api.settings import recipe_settings
from litebert.cli import cli

FOLDER = Path(__file__).parents[2] / "examples" / "scale"


def test_scripts_have_no_syntax_error_and_every_option_exists() -> None:
    help_of_torchrun = [sys.executable, "-m", "torch.distributed.run", "--help"]
    launcher = subprocess.run(help_of_torchrun, capture_output=True, text=True, check=True).stdout
    ours = CliRunner().invoke(cli, ["pretrain", "--help"]).output
    for name in ("one-node.sh", "slurm.sbatch", "kubernetes.yaml"):
        text = (FOLDER / name).read_text()
        if not name.endswith("yaml"):
            subprocess.run(["bash", "-n", FOLDER / name], check=True)
        module = re.search(r"-m\s+(?:- )?litebert\s", text)
        assert module
        called, command = text[text.index("torchrun") : module.start()], text[module.start() :]
        for option in re.findall(r"--[a-z-]+", called):
            assert option in launcher or option.replace("-", "_") in launcher, option
        for option in re.findall(r"(?<=[\s\"'])--[a-z-]+", command):
            assert option in ours, option
    recipe_settings("pretrain", "paper-base")


def test_the_job_is_what_kubernetes_expects() -> None:
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    (container,) = spec["template"]["spec"]["containers"]
    assert f"--nnodes={spec['completions']}" in container["args"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
