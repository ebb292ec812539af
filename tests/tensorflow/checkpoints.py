"""Write tiny checkpoints with real TensorFlow, each with its contents as .npz.

python tests/tensorflow/checkpoints.py tests/interop/google/fixtures

The names are those that google-research/albert gives its variables (issues 29 and 243
list them). Numbers are multiples of 1/64 that bfloat16 holds exactly.
"""

import json
import sys
from pathlib import Path

import numpy as np

VOCAB = 40
EMBED = 8
HIDDEN = 16
INTERMEDIATE = 24
POSITIONS = 12
LABELS = 3
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "down_scale_factor": 1,
    "embedding_size": EMBED,
    "gap_size": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "inner_group_num": 1,
    "intermediate_size": INTERMEDIATE,
    "layers_to_keep": [],
    "max_position_embeddings": POSITIONS,
    "net_structure_type": 0,
    "num_attention_heads": 4,
    "num_hidden_groups": 1,
    "num_hidden_layers": 4,
    "num_memory_blocks": 0,
    "type_vocab_size": 2,
    "vocab_size": VOCAB,
}


# ---- variables: their names and shapes -----------------------------------------------


def dense(name, rows, columns):
    return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}


def norm(name, size):
    return {f"{name}/beta": (size,), f"{name}/gamma": (size,)}


def block(name):
    shapes = {}
    for part in ("self/query", "self/key", "self/value", "output/dense"):
        shapes |= dense(f"{name}/attention_1/{part}", HIDDEN, HIDDEN)
    shapes |= norm(f"{name}/LayerNorm", HIDDEN)
    shapes |= dense(f"{name}/ffn_1/intermediate/dense", HIDDEN, INTERMEDIATE)
    shapes |= dense(f"{name}/ffn_1/intermediate/output/dense", INTERMEDIATE, HIDDEN)
    shapes |= norm(f"{name}/LayerNorm_1", HIDDEN)
    return shapes


def encoder(groups=1, inner=1, size=EMBED):
    shapes = {
        "bert/embeddings/word_embeddings": (VOCAB, size),
        "bert/embeddings/token_type_embeddings": (2, size),
        "bert/embeddings/position_embeddings": (POSITIONS, size),
    }
    shapes |= norm("bert/embeddings/LayerNorm", size)
    if size != HIDDEN:
        shapes |= dense("bert/encoder/embedding_hidden_mapping_in", size, HIDDEN)
    for group in range(groups):
        for layer in range(inner):
            name = f"bert/encoder/transformer/group_{group}/inner_group_{layer}"
            shapes |= block(name)
    shapes |= dense("bert/pooler/dense", HIDDEN, HIDDEN)
    return shapes


def output(scope, rows):
    return {f"{scope}output_weights": (rows, HIDDEN), f"{scope}output_bias": (rows,)}


SENTENCE_ORDER = "cls/seq_relationship/"


def pretraining_heads(size=EMBED):
    transform = "cls/predictions/transform"
    shapes = dense(f"{transform}/dense", HIDDEN, size)
    shapes |= norm(f"{transform}/LayerNorm", size)
    shapes["cls/predictions/output_bias"] = (VOCAB,)
    shapes |= output(SENTENCE_ORDER, 2)
    return shapes


def conditional_spans():
    shapes = dense("start_logits/dense", HIDDEN, 1)
    shapes |= dense("end_logits/dense_0", 2 * HIDDEN, HIDDEN)
    shapes |= norm("end_logits/LayerNorm", HIDDEN)
    shapes |= dense("end_logits/dense_1", HIDDEN, 1)
    shapes |= dense("answer_class/dense_0", 2 * HIDDEN, HIDDEN)
    shapes["answer_class/dense_1/kernel"] = (HIDDEN, 1)
    return shapes


def with_slots(shapes):
    """Add Adam's two averages of every variable."""
    slots = {}
    for name, shape in shapes.items():
        slots[f"{name}/adam_m"] = shape
        slots[f"{name}/adam_v"] = shape
    return shapes | slots


def as_module(shapes):
    """Name variables as the modules on TF-Hub do, which have no sentence-order head."""
    return {
        f"module/{name}": shape
        for name, shape in shapes.items()
        if not name.startswith(SENTENCE_ORDER)
    }


def drawn(shapes, seed, dtype="float32"):
    """Draw the numbers of every variable, and add its type."""
    generator = np.random.default_rng(seed)
    variables = {}
    for name, shape in shapes.items():
        numbers = generator.integers(-127, 128, shape) / 64
        variables[name] = (numbers.astype(np.float32), dtype)
    return variables


# ---- files ---------------------------------------------------------------------------


def write(
    folder, variables, *, name="model.ckpt-best", devices=1, step=None, config=CONFIG
):
    """Save variables from a TF1 graph on a number of devices, and so in as many data
    files.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    variables = dict(variables)
    if step is not None:
        variables["global_step"] = (np.int64(step), "int64")
    folder.mkdir(parents=True)
    with tf.Graph().as_default():
        for number, (key, (values, dtype)) in enumerate(sorted(variables.items())):
            with tf.device(f"/cpu:{(number + number // 3) % devices}"):
                start = tf.cast(values, dtype)
                v1.get_variable(key, initializer=start, use_resource=False)
        saver = v1.train.Saver(sharded=devices > 1, save_relative_paths=True)
        settings = v1.ConfigProto(device_count={"CPU": devices})
        with v1.Session(config=settings) as session:
            session.run(v1.global_variables_initializer())
            saver.save(session, str(folder / name), write_meta_graph=False)
    np.savez_compressed(
        folder / "expected.npz",
        **{key: values for key, (values, _) in variables.items()},
    )
    if config is not None:
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        (folder / "albert_config.json").write_text(text)


def write_special(folder):
    """Save what must be refused: a sliced variable, the first format, objects of
    TF2.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    for name in ("sliced", "first_format", "objects"):
        (folder / name).mkdir(parents=True)
    with tf.Graph().as_default():
        slices = v1.fixed_size_partitioner(2)
        initial = v1.zeros_initializer()
        words = "bert/embeddings/word_embeddings"
        v1.get_variable(
            words, [4, 3], initializer=initial, partitioner=slices, use_resource=False
        )
        v1.get_variable("whole", [2], initializer=initial, use_resource=False)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            path = folder / "sliced" / "model.ckpt"
            v1.train.Saver().save(session, str(path), write_meta_graph=False)
            path = folder / "first_format" / "model.ckpt"
            v1.train.Saver(write_version=1).save(
                session, str(path), write_meta_graph=False
            )
    tf.train.Checkpoint(weight=tf.Variable([1.0])).write(
        str(folder / "objects" / "model.ckpt")
    )
    for state in folder.rglob("checkpoint"):
        state.unlink()


def write_pretrained(target):
    """Write encoders with the heads of pretraining."""
    shapes = encoder() | pretraining_heads()
    write(target / "pretraining", drawn(with_slots(shapes), 1), devices=3, step=7)

    config = CONFIG | {"num_hidden_groups": 2, "inner_group_num": 2}
    variables = drawn(encoder(2, 2) | pretraining_heads(), 2, "bfloat16")
    write(target / "groups_bfloat16", variables, devices=2, step=0, config=config)

    config = CONFIG | {"embedding_size": HIDDEN, "hidden_act": "relu"}
    variables = drawn(encoder(size=HIDDEN) | pretraining_heads(HIDDEN), 3)
    write(target / "equal_sizes", variables, step=0, config=config)


def write_fine_tuned(target):
    """Write encoders with the head of a task."""
    heads = {
        "labels": output("", LABELS),
        "one_output": output("", 1),
        "spans": output("cls/squad/", 2),
        "conditional_spans": conditional_spans(),
    }
    for seed, (name, head) in enumerate(heads.items(), 4):
        write(target / name, drawn(encoder() | head, seed), step=100)


def write_hub_module(folder):
    """Write a module as TF-Hub has it."""
    shapes = as_module(encoder() | pretraining_heads())
    variables = folder / "variables"
    write(variables, drawn(shapes, 9), name="variables")
    assets = folder / "assets"
    assets.mkdir()
    (variables / "albert_config.json").rename(assets / "albert_config.json")
    (variables / "expected.npz").rename(folder / "expected.npz")


def write_types(folder):
    """Write the same numbers in every type."""
    numbers = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    types = ("float16", "float32", "float64", "bfloat16", "int32", "int64")
    write(folder, {dtype: (numbers, dtype) for dtype in types}, config=None)


def write_all(target):
    """Write every fixture into a new folder."""
    write_pretrained(target)
    write_fine_tuned(target)
    write_hub_module(target / "hub")
    write_types(target / "kinds")
    write_special(target)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
