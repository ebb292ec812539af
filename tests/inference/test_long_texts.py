"""A text of megabytes takes memory for itself, not for all that is worked out of it."""

import subprocess
import sys

import pytest

import litebert
from litebert.errors import LitebertError
from litebert.inference.model import MAX_CHARACTERS

MEASURE = """
import sys
from pathlib import Path
import torch
import litebert
from litebert.config import HeadConfig
from litebert.inference import Model
from litebert.nn import AlbertForTask
verb, kind, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
packaged = litebert.load()
sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 1}
config = packaged.network.config.model_copy(update=sizes | {"num_hidden_layers": 1})
torch.manual_seed(1)
model = Model(AlbertForTask(config, HeadConfig(kind=kind)), packaged.tokenizer)
text = "Anna walked to the house; there she found nothing but \\u201cballs\\u201d.\\n"
call = {"answer": lambda t: model.answer("Who?", t), "embed": model.embed}[verb]
call(text * 99)
long = text * (size // len(text))
status = Path("/proc/self/status")
before = int(status.read_text().split("VmRSS:")[1].split()[0])
Path("/proc/self/clear_refs").write_text("5")
call(long)
print(int(status.read_text().split("VmHWM:")[1].split()[0]) - before)
"""


@pytest.mark.parametrize(
    ("verb", "kind", "size"),
    [
        ("embed", "question-answering", 10_000_000),
        ("answer", "question-answering", 2_500_000),
        pytest.param("answer", "question-answering", 10_000_000, marks=pytest.mark.slow),
        pytest.param("answer", "conditional-question-answering", 10_000_000, marks=pytest.mark.slow),
    ],
)
def test_a_long_text_takes_at_most_64_megabytes_more(verb: str, kind: str, size: int) -> None:
    command = [sys.executable, "-c", MEASURE, verb, kind, str(size)]
    kilobytes = int(subprocess.check_output(command))
    assert kilobytes * 1_024 < 62_500_000, "beyond the text itself"


def test_where_the_answer_grows_with_the_text_a_longer_one_is_refused() -> None:
    model = litebert.load()
    for verb in (model.fill, model.score, model.order):
        with pytest.raises(LitebertError, match=r"LB-935[\s\S]*1,000,001 characters"):
            verb("a" * (MAX_CHARACTERS + 1))
    with pytest.raises(LitebertError, match="LB-610"):  # the longest that is read
        model.fill("a" * MAX_CHARACTERS)
