"""The house rules that a machine can check (STYLE.md)."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import litebert
from litebert.errors import in_python

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_no_module_is_a_catch_all() -> None:
    assert {path.stem for path in SOURCES}.isdisjoint(
        {"utils", "util", "helpers", "helper", "common", "misc"}
    )


def test_every_folder_of_tests_is_a_package_or_has_its_row() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tests = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    packages = {path.parent.name for path in (ROOT / "src/litebert").glob("*/*.py")}
    for folder in tests - packages:
        assert f"| `tests/{folder}` |" in table, folder


def _writes(call: ast.Call) -> bool:
    """Return whether a call writes a file without going through `files`."""
    called = ast.unparse(call.func)
    is_raw = called == "os.open" and not re.search(
        "O_RDONLY|devnull", ast.unparse(call)
    )
    words = [
        node.value
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    is_mode = any(
        set(word) <= set("rwaxbt+") and set(word) & set("wax+") for word in words
    )
    writers = r"(?!files\.).*\.(write_text|write_bytes|touch)|(.+\.)?save_file|(np|numpy|torch)\.save\w*|shutil\.copy\w*"  # noqa: E501
    return is_raw or bool(
        re.fullmatch(writers, called)
        or (is_mode and re.search(r"\b(open|ZipFile)$", called))
    )


WRITING = [
    "open(path, 'wb')",
    "path.write_text(text)",
    "path.open('w')",
    "np.save(path, x)",
    "save_file(x, path)",
]
WRITING += [
    "shutil.copyfile(path, to)",
    "zipfile.ZipFile(path, 'w')",
    "os.open(path, os.O_WRONLY)",
    "path.touch()",
]


def test_only_files_opens_for_writing() -> None:
    assert all(_writes(ast.parse(code, mode="eval").body) for code in WRITING)
    calls = [
        (p, n)
        for p in SOURCES
        for n in ast.walk(ast.parse(p.read_text("utf-8")))
        if isinstance(n, ast.Call)
    ]
    offenders = {
        str(path.relative_to(ROOT / "src/litebert"))
        for path, call in calls
        if _writes(call)
    }
    # the last in memory
    chapters = {"files/locking.py", "files/staging.py", "files/writing.py"}
    assert offenders == chapters | {"corpus/shards.py", "tasks/named/glue.py"}


# what Windows lacks: modules, and attributes of `os` and `signal`
NOT_ON_WINDOWS = re.compile(
    r"fcntl|grp|pwd|resource|termios|pty|syslog"
    r"|os\.(fork\w*|get[eu]\w*id|getpg\w+|killpg|mkfifo|nice|pread|p?readv|pwritev?|sched_\w+"
    r"|setsid|statvfs|sysconf|uname|wait\w*|O_(CLOEXEC|DIRECTORY|NOFOLLOW|NONBLOCK))"
    r"|signal\.SIG(ALRM|BUS|CHLD|CONT|HUP|KILL|PIPE|QUIT|STOP|TSTP|USR[12]|WINCH)"
    r"|signal\.(alarm|pause|pthread_\w+|setitimer|sigwait)|.*\.add_signal_handler"
)


def _lacking_on_windows(tree: ast.AST) -> set[str]:
    """Return the names in a module that Windows lacks."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    return {name for name in names if NOT_ON_WINDOWS.fullmatch(name)}


def test_few_modules_name_what_windows_lacks() -> None:
    wrong = ("import fcntl", "from resource import x", "os.fork()", "signal.SIGHUP")
    assert all(_lacking_on_windows(ast.parse(code)) for code in wrong)
    modules = {
        str(path.relative_to(ROOT / "src/litebert"))
        for path in SOURCES
        if _lacking_on_windows(ast.parse(path.read_text("utf-8")))
    }
    # each asks first whether the system has it
    assert modules == {"cpu.py", "files/locking.py", "system.py"}


def test_benchmarks_import_names_that_exist() -> None:
    """No test runs the benchmarks: they have an environment of their own."""
    gone = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in sorted((ROOT / "benchmarks").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        and str(node.module).split(".")[0] == "litebert"
        for alias in node.names
        if not hasattr(importlib.import_module(str(node.module)), alias.name)
    ]
    assert gone == []


def test_every_command_that_an_error_or_page_names_exists() -> None:
    from litebert.cli import COMMANDS
    from litebert.plugins import VERBS

    pages = [*SOURCES, ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":  # a sentence may begin with the name, too
            text = "\n".join(re.findall(r"(?s)```.*?```|`[^`\n]+`", text))
        for verb in re.findall(r"(?m)(?:^|[\"'`])litebert ([a-z]+)(?=[ \"'`\n])", text):
            assert verb in {*COMMANDS, *VERBS}, f"{path}: litebert {verb}"


def test_the_page_of_errors_has_a_row_for_each_code_of_the_code() -> None:
    command = "from write_errors import page; print(page(), end='')"
    shown = subprocess.check_output(
        [sys.executable, "-c", command], cwd=ROOT / "docs", text=True
    )
    assert (ROOT / "docs/errors.md").read_text("utf-8") == shown
    codes = re.findall(r"(?m)^\| (LB-\d{3}) \|", shown)
    raised = set[str]()
    for path in SOURCES:
        raised |= set(re.findall(r"LB-\d{3}", path.read_text("utf-8")))
    assert len(codes) == len(set(codes))
    assert set(codes) == raised - {"LB-000"}  # of examples


def test_advice_is_a_call_in_python_with_parameters_that_exist() -> None:
    calls = set[str]()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = _literal(node)
            advice = in_python(text)
            if text.startswith("litebert ") and advice.startswith(
                ("litebert.", "help(litebert.")
            ):
                calls.add(advice)
            assert advice.startswith("litebert ") or " --name" not in advice
    assert len(calls) > 5
    for advice in calls:
        call = ast.parse(advice, mode="eval").body
        assert isinstance(call, ast.Call), advice
        name = ast.unparse(call.func)
        if name == "help":
            name = ast.unparse(call.args[0])
        verb = name.rpartition(".")[2]
        is_method = ".load(" in name
        function = getattr(litebert.Model if is_method else litebert, verb)
        known = inspect.signature(function).parameters
        assert {keyword.arg for keyword in call.keywords} <= set(known), advice


def _literal(node: ast.AST) -> str:
    """Return a string, with NAME for each value that is filled in; empty for other
    nodes.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [
        "NAME" if not isinstance(x, ast.Constant) else x.value for x in node.values
    ]
    return "".join(parts)


def test_the_citation_and_the_container_name_the_version_that_is_built() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {litebert.__version__}\n" in citation
    serving = (ROOT / "docs" / "serving.md").read_text("utf-8")
    tags = re.findall(r"\blitebert:(\d[\d.]*)", serving)
    assert len(tags) >= 3
    assert set(tags) == {litebert.__version__}


WORKFLOWS = {
    "vendor.github-workflows": sorted((ROOT / ".github/workflows").glob("*.yml")),
    "vendor.github-issue-forms": [
        ROOT / ".github/ISSUE_TEMPLATE" / name for name in ("bug.yml", "idea.yml")
    ],
    "vendor.github-issue-config": [ROOT / ".github/ISSUE_TEMPLATE/config.yml"],
}
"""The files that the repository's host reads, by the schema that it publishes."""


@pytest.mark.parametrize("schema", WORKFLOWS)
def test_workflows_and_issue_forms_are_valid(schema: str) -> None:
    assert WORKFLOWS[schema]
    command = ["-m", "check_jsonschema", "--builtin-schema", schema]
    files = [str(path) for path in WORKFLOWS[schema]]
    done = subprocess.run(
        [sys.executable, *command, *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_workflows_only_run_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for path in WORKFLOWS["vendor.github-workflows"]:
        for target in re.findall(r"run: make ([\w-]+)", path.read_text("utf-8")):
            assert f"\n{target}: " in makefile, target
