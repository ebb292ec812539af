"""Models of transformers: folders of any age are imported (bit for bit:
tests/contract), pickles never run, and `litebert.optimize` gives the same numbers with
our engine behind a model in memory.
"""

import copy
import inspect
import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import litebert
from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import read_config
from litebert.folder.doubts import doubts
from litebert.hub import packaged_model
from litebert.interop.huggingface import EngineForward, import_model, read_torch_file
from litebert.nn import Batch
from litebert.tokenizer import Tokenizer, train_tokenizer
from tests.contract import shell
from tests.memory import memory_below
from tests.networks import random_model


def save_model(name: str, folder: Path, **changes: object) -> hf.PreTrainedModel:
    """Save a small model as transformers saves it, all weights random."""
    shape = {"vocab_size": 36, "max_position_embeddings": 40} | changes
    model = random_model(name, **shape)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["archive", "stream", "shards", "float16", "bfloat16"])
def test_weights_of_every_format_become_one_file_of_float32(
    tmp_path: Path, kind: str
) -> None:
    source = tmp_path / "in"
    output = tmp_path / "out"
    model = save_model("AlbertForPreTraining", source)
    if kind.startswith(("float", "bfloat")):
        model.to(getattr(torch, kind)).save_pretrained(source)
    saved = load_file(source / "model.safetensors")
    expected = {name: tensor.float() for name, tensor in saved.items()}
    if kind == "shards":
        model.save_pretrained(source, max_shard_size="9KB")
        assert len(list(source.glob("*.safetensors"))) > 1
    elif kind in ("archive", "stream"):
        (source / "model.safetensors").unlink()
        is_archive = kind == "archive"
        torch.save(
            model.state_dict(),
            source / "pytorch_model.bin",
            _use_new_zipfile_serialization=is_archive,
        )
        with pytest.raises(
            LitebertError,
            match=r"LB-742[\s\S]*programs[\s\S]*no code in it is run[\s\S]*-pickle$",
        ):
            import_model(source, output)
        assert not output.exists()
    import_model(source, output, legacy_pickle=True)
    tensors = load_file(output / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    for name, tensor in expected.items():
        assert torch.equal(tensors[name], tensor), name


def test_a_missing_sentence_order_head_is_reported(tmp_path: Path) -> None:
    save_model("AlbertForPreTraining", tmp_path / "in", hidden_act="gelu")
    path = tmp_path / "in/model.safetensors"
    tensors = load_file(path)
    for name in ("sop_classifier.classifier.weight", "sop_classifier.classifier.bias"):
        del tensors[name]
    save_file(tensors | {"lm.extra": torch.ones(1)}, path, metadata={"format": "pt"})
    report = import_model(tmp_path / "in", tmp_path / "out")
    assert report.architecture == "AlbertForMaskedLM"
    assert report.missing == (
        "sentence_order.classifier.bias",
        "sentence_order.classifier.weight",
    )
    assert report.unused == ("lm.extra",)
    assert "no sentence-order head" in report.notes[0]
    assert "erf" in report.notes[1]


def test_settings_that_are_known_to_be_wrong_are_overruled(tmp_path: Path) -> None:
    save_model("AlbertModel", tmp_path / "in", hidden_act="gelu")
    chosen = import_model(tmp_path / "in", tmp_path / "kept", activation="gelu")
    assert not any("gelu" in note for note in chosen.notes)
    import_model(tmp_path / "in", tmp_path / "out", activation="gelu_new")
    assert read_config(tmp_path / "out").hidden_act == "gelu_new"
    xlarge = AlbertConfig(hidden_size=2048, num_attention_heads=32, hidden_act="gelu")
    notes = doubts(xlarge)
    assert "--activation" in notes["hidden_act"]
    assert "set it to 16" in notes["num_attention_heads"]
    assert doubts(AlbertConfig()) == {}
    # a BERT's gelu is what it says
    assert doubts(AlbertConfig(hidden_act="gelu", sharing="none")) == {}


@pytest.mark.parametrize("is_bare", [True, False])
def test_a_vocabulary_or_a_pipeline_becomes_a_complete_folder(
    tmp_path: Path, is_bare: bool
) -> None:
    save_model("AlbertModel", tmp_path / "in", vocab_size=36 if is_bare else 30)
    lines = ["the cat sat on the mat", "a dog ran after the cat"] * 9
    made = Tokenizer.from_model(train_tokenizer(lines, vocab_size=30))
    made.save(tmp_path / "made")
    if is_bare:
        shutil.copy(tmp_path / "made/spiece.model", tmp_path / "in")
    else:
        hf.AlbertTokenizer.from_pretrained(tmp_path / "made").save_pretrained(
            tmp_path / "in"
        )
        assert not (tmp_path / "in/spiece.model").exists()
    report = import_model(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out/spiece.model").is_file()
    tokenizer = Tokenizer.load(tmp_path / "out")
    if is_bare:
        assert tokenizer.hash == made.hash
    assert tokenizer.encode_ids(lines) == made.encode_ids(lines)

    reference = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    expected = reference("a cat", "the dog")["input_ids"]
    assert tokenizer.encode("a cat", "the dog").ids == expected
    assert reference.model_max_length == 40
    assert ("the tokenizer has 30 pieces, the network 36" in report.notes) == is_bare


def test_the_command_reports_what_is_missing_and_leaves_nothing_of_a_damaged_folder(
    tmp_path: Path,
) -> None:
    save_model("AlbertForMaskedLM", tmp_path / "in")
    words = ("import", "huggingface", tmp_path / "in", "--output", tmp_path / "out")
    (tmp_path / "in/tokenizer.json").write_text('{"model": ')
    assert shell.litebert(*words).code == 3
    assert not (tmp_path / "out").exists()
    (tmp_path / "in/tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    shown = shell.litebert(*words, "--json").ok
    assert shown.json["architecture"] == "AlbertForMaskedLM"
    assert "no pooler" in shown.stderr
    assert "a kind that ALBERT does not use: add spiece.model" in shown.stderr
    shell.assert_error(shell.litebert(*words), 1, "LB-619")


# --- old files of torch.save: whatever is in them besides tensors is never run --------

BASE = torch.arange(12.0).reshape(3, 4)


def _saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _archive(pickled: bytes) -> bytes:
    """Put any pickle where torch.save puts the state dict."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", pickled)
        archive.writestr("model/version", "3\n")
    return file.getvalue()


def _stream(pickled: bytes) -> bytes:
    """Put any pickle where torch before 1.6 put the state dict."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    head = (
        pickle.dumps(value, protocol=2)
        for value in (0x1950A86A20F9469CFC6C, 1001, system)
    )
    return b"".join(head) + pickled + pickle.dumps([], protocol=2)


class Payload:
    """An object whose pickle calls something."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call[0], self.call[1:]


def _payloads(touched: Path) -> dict[str, bytes]:
    """Return pickles that create a file when they are run."""
    shell = f"touch {touched}"
    code = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    run = pickle.dumps(Payload(os.system, shell), protocol=2)
    return {
        "reduce": run,
        "stack global": pickle.dumps(Payload(os.system, shell), protocol=4),
        "eval": pickle.dumps({"w": Payload(eval, code)}, protocol=2),
        "inst": b"(S'%b'\nios\nsystem\n." % shell.encode(),
        "obj": b"(cos\nsystem\nS'%b'\no." % shell.encode(),
        "hidden below": run[:-1] + b"0}.",
    }


def _read(data: bytes, folder: Path) -> dict[str, torch.Tensor]:
    path = folder / "pytorch_model.bin"
    path.write_bytes(data)
    return read_torch_file(path)


@pytest.mark.parametrize("container", [_archive, _stream, bytes])
def test_no_payload_is_run(tmp_path: Path, container: Callable[[bytes], bytes]) -> None:
    for name, payload in _payloads(tmp_path / "ran").items():
        with pytest.raises(DamagedError, match="LB-731"):
            _read(container(payload), tmp_path)
        assert not (tmp_path / "ran").exists(), name


def test_control_unpickling_runs_the_payloads(tmp_path: Path) -> None:
    for name, payload in _payloads(tmp_path / "ran").items():
        pickle.loads(payload)
        assert (tmp_path / "ran").exists(), name
        (tmp_path / "ran").unlink()


def _packed(data: bytes) -> bytes:
    """Compress the entries of an archive."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for entry in old.infolist():
            archive.writestr(entry.filename, old.read(entry))
    return file.getvalue()


REFUSED = {
    "not a dictionary": _saved(["w"]),
    "no tensor": _saved({}),
    "more than tensors": _saved({"w": BASE, "epoch": 3}),
    "one number in 2^50 places": _saved({"w": torch.zeros(1).expand(1 << 50)}),
    "on no device": _saved({"w": torch.empty(1 << 40, device="meta")}),
    "sparse": _saved({"w": BASE.to_sparse()}),
    "a bomb": _packed(_saved({"w": torch.zeros(16 << 20)})),
    "many lists": _archive(b"\x80\x02" + b"]" * 250_000 + b"."),
    "nothing": b"",
    "another format": b"no such format",
    **{
        f"{start!r}, then 4 GB of zeros": start
        for start in (b"PK\x03\x04", b"\x80\x02", b"\x80\x02]")
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_without_a_state_dict_is_refused_in_little_memory(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(REFUSED[name])
    if "4 GB" in name:
        os.truncate(path, 4 << 30)  # sparse: it takes no room
    with memory_below(64 << 20), pytest.raises(DamagedError, match="LB-731"):
        read_torch_file(path)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_changed_bytes_give_the_tensors_or_an_error(
    tmp_path_factory, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(_saved({"w": BASE}))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        read = _read(bytes(data), tmp_path_factory.getbasetemp())
    except DamagedError:
        return
    assert all(torch.equal(tensor, BASE) for tensor in read.values())


# --- models in memory -----------------------------------------------------------------

HEADS = (
    "Model",
    "ForPreTraining",
    "ForMaskedLM",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
MODELS = [(f"{family}{head}", {}) for family in ("Albert", "Bert") for head in HEADS]
MODELS.append(
    (
        "AlbertModel",
        {"num_hidden_groups": 3, "inner_group_num": 2, "embedding_size": 32},
    )
)


def _inputs() -> dict[str, Tensor]:
    ids = torch.randint(5, 90, (4, 12), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(12) < torch.tensor([12, 5, 9, 1])[:, None]).long()
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": mask * (torch.arange(12) >= 4),
    }


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Return a function that tells whether the engine has run since the last call."""
    calls = list[int]()
    original = Batch.from_padded
    monkeypatch.setattr(
        Batch, "from_padded", lambda *rows: calls.append(1) or original(*rows)
    )
    return lambda: bool([calls.pop() for _ in list(calls)])


@pytest.mark.parametrize(("name", "changes"), MODELS)
@torch.no_grad()
def test_every_head_gives_equal_outputs(
    name: str, changes: dict[str, int], used: Callable[[], bool]
) -> None:
    model = random_model(name, **changes)
    inputs = _inputs()
    expected = model(**inputs)
    mask = inputs["attention_mask"].bool()
    # without a mask, and as a tuple
    expected_tuple = model(inputs["input_ids"], return_dict=False)
    litebert.optimize(model)
    output = model(**inputs)
    output_tuple = model(inputs["input_ids"], return_dict=False)
    assert used()
    assert type(output) is type(expected)
    assert output.keys() == expected.keys()
    assert isinstance(output_tuple, tuple)
    # of outputs with a row per token, the real tokens
    for key, value in expected.items():
        rows = mask if value.shape[:2] == mask.shape else slice(None)
        torch.testing.assert_close(
            output[key][rows], value[rows], atol=1e-5, rtol=0, msg=key
        )
    for tensor, value in zip(output_tuple, expected_tuple, strict=True):
        torch.testing.assert_close(tensor, value, atol=1e-5, rtol=0)


@torch.no_grad()
def test_outputs_in_bf16_are_near(used: Callable[[], bool]) -> None:
    model = random_model("AlbertModel")
    inputs = _inputs()
    expected = model(**inputs).pooler_output
    output = litebert.optimize(model, precision="bf16")(**inputs).pooler_output
    assert used()
    assert output.dtype == torch.float32
    assert 1e-5 < torch.dist(output, expected) / expected.norm() < 0.01


@torch.no_grad()
def test_calls_that_the_engine_does_not_support_go_to_the_original(
    used: Callable[[], bool],
) -> None:
    model = litebert.optimize(random_model("AlbertModel"))
    inputs = _inputs()
    for unsupported, change in (
        # padding on the left
        ({name: values.flip(1) for name, values in inputs.items()}, None),
        # one row for all
        (inputs | {"token_type_ids": torch.zeros(1, 12, dtype=torch.int64)}, None),
        (
            {"inputs_embeds": model.embeddings.word_embeddings(inputs["input_ids"])},
            None,
        ),
        (inputs | {"output_attentions": True}, None),
        (inputs | {"output_hidden_states": True}, None),
        (inputs, model.bfloat16),
        (inputs, lambda: model.encoder.register_forward_hook(lambda *_: None)),
    ):
        model(**inputs)
        assert used()
        if change:
            change()
        output = model(**unsupported)
        expected = model.forward.original(**unsupported)
        assert not used()
        assert output.keys() == expected.keys()
        assert torch.equal(output.pooler_output, expected.pooler_output)
        model.float()


def test_training_and_gradients_are_those_of_the_original(
    used: Callable[[], bool],
) -> None:
    model = random_model("AlbertForSequenceClassification")
    inputs = _inputs()
    twin = copy.deepcopy(model)
    litebert.optimize(model)
    labels = torch.tensor([0, 1, 0, 1])
    for network in (model.train(), twin.train()):
        torch.manual_seed(1)
        network(**inputs, labels=labels).loss.backward()
    assert not used()
    expected = {name: parameter.grad for name, parameter in twin.named_parameters()}
    for name, parameter in model.named_parameters():
        if expected[name] is None:
            assert parameter.grad is None, name
        else:
            assert torch.equal(parameter.grad, expected[name]), name


@torch.no_grad()
def test_new_weights_take_effect_at_once_and_a_copy_has_its_own(
    used: Callable[[], bool],
) -> None:
    model = litebert.optimize(random_model("AlbertModel"))
    inputs = _inputs()
    before = model(**inputs)[1]
    twin = copy.deepcopy(model)
    for parameter in twin.parameters():
        parameter.zero_()
    assert torch.equal(model(**inputs)[1], before)
    assert not twin(**inputs)[1].any()
    for parameter in model.parameters():
        parameter.mul_(1.1)
    assert used()
    after = model(**inputs)[1]
    assert used()
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(
        after, model.forward.original(**inputs)[1], atol=1e-5, rtol=0
    )


@torch.no_grad()
def test_pipelines_and_sentence_transformers_run_on_the_engine(
    used: Callable[[], bool],
) -> None:
    from sentence_transformers import SentenceTransformer

    texts = [
        "The cat sat on the [MASK].",
        "Paris is the [MASK] of a much larger country.",
    ]
    pipe = hf.pipeline(
        "fill-mask", model=str(packaged_model()), batch_size=2, device="cpu"
    )
    expected = pipe(texts)
    litebert.optimize(pipe)
    for answers, references in zip(pipe(texts), expected, strict=True):
        for answer, reference in zip(answers, references, strict=True):
            assert answer["token"] == reference["token"]
            assert answer["score"] == pytest.approx(reference["score"], abs=1e-5)
    assert used()
    model = SentenceTransformer(str(packaged_model()), device="cpu")
    vectors = model.encode(texts)
    litebert.optimize(model)
    assert abs(model.encode(texts) - vectors).max() < 1e-5
    assert used()


def test_optimize_keeps_the_signature_can_be_repeated_and_refuses_other_models() -> (
    None
):
    model = random_model("BertModel")
    expected = inspect.signature(model.forward)
    litebert.optimize(litebert.optimize(model))
    assert inspect.signature(model.forward) == expected
    assert not isinstance(model.forward.original, EngineForward)
    for no_model in (nn.Linear(2, 2), "albert-base-v2"):
        with pytest.raises(LitebertError, match="LB-871"):
            litebert.optimize(no_model)
