"""Training a network, in runs that can be stopped and resumed.

`pretrain` and `finetune` prepare a run and build what is trained; `loop` trains it, with
a `step` for each batch, a `clock` or a `pace`, a `log` and its checkpoints; `run` begins
or resumes it, in a `session`. The first weights of a pretraining are those of `weights`,
which may begin with a `local_start`, or as a `student` of a teacher.
"""
