"""Training: `pretrain` and `finetune` prepare a run, `loop` trains it, step by step."""
