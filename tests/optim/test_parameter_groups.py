"""Who decays and adapts, told by name; and the optimizer a configuration builds."""

import pytest
import torch

from litebert.config import AlbertConfig, OptimConfig
from litebert.nn import AlbertForPretraining
from litebert.optim import AdamW, Lamb, build_optimizer, parameter_groups


@pytest.mark.parametrize(
    ("name", "is_excluded"),
    [
        ("attention.0.query.weight", False),
        ("attention.0.query.bias", True),
        ("attention.0.norm.weight", True),
        ("final_norm.weight", True),
        ("norm.weight", True),
        ("layernorm.weight", True),
        ("normaliser.weight", False),
        ("masked_lm.bias", True),
        ("bert/embeddings/LayerNorm/gamma", True),
        ("albert_layers.0.full_layer_layer_norm.weight", True),
        ("cls/predictions/output_bias", True),
        ("embedding.word.weight", False),
    ],
)
def test_norms_and_biases_neither_decay_nor_adapt(name: str, is_excluded: bool) -> None:
    (group,) = parameter_groups([(name, torch.nn.Parameter(torch.ones(2)))], weight_decay=0.01)

    assert group["weight_decay"] == (0.0 if is_excluded else 0.01)
    assert group["is_adapted"] is not is_excluded


def test_every_matrix_of_the_model_decays_and_no_vector_does() -> None:
    model = AlbertForPretraining(
        AlbertConfig(vocab_size=10, hidden_size=8, num_attention_heads=2, intermediate_size=16)
    )

    optimizer = build_optimizer(OptimConfig(), model.named_parameters())

    kept, excluded = optimizer.param_groups
    assert {parameter.dim() for parameter in kept["params"]} == {2}
    assert {parameter.dim() for parameter in excluded["params"]} == {1}
    names = [name for name, _ in model.named_parameters()]
    assert sorted(kept["param_names"] + excluded["param_names"]) == sorted(names)


def test_query_key_and_value_are_three_variables_with_a_ratio_each() -> None:
    model = AlbertForPretraining(AlbertConfig(vocab_size=10, hidden_size=8, num_attention_heads=2))

    kept, _ = parameter_groups(model.named_parameters(), weight_decay=0.01)

    names = [name.split(".")[-2] for name, _ in kept["params"]]
    assert {"query", "key", "value"} <= set(names)


@pytest.mark.parametrize(("name", "kind"), [("lamb", Lamb), ("adamw", AdamW)])
def test_a_configuration_builds_its_optimizer_with_all_its_settings(
    name: str, kind: type[torch.optim.Optimizer]
) -> None:
    config = OptimConfig(name=name, learning_rate=0.5, weight_decay=0.2, beta1=0.7, beta2=0.8, epsilon=1e-3)

    optimizer = build_optimizer(config, torch.nn.Linear(2, 2).named_parameters())

    assert type(optimizer) is kind
    wanted = {"lr": 0.5, "betas": (0.7, 0.8), "eps": 1e-3}
    kept, excluded = optimizer.param_groups
    assert kept.items() >= {**wanted, "weight_decay": 0.2}.items()
    assert excluded.items() >= {**wanted, "weight_decay": 0.0}.items()
