"""ModernBERT-base (Warner et al. 2024, arXiv 2412.13663, section 2 and appendix A): 30 % masking,
StableAdamW, a constant rate that falls with 1 − √t at the end.

python -m bert_jax.main --config=configs/modernbert.py

1.7 T tokens at length 1,024, then 300 B at 8,192, in steps of 4.7 M tokens. As published but for
this: both lengths have one rate (published: 8e-4, then 3e-4) and one rotary base in the global
layers (published: 10,000 at the first length).
"""

from configs import base


def get_config():
    config = base.get_config()
    config.workdir = 'runs/modernbert'
    config.data.corpus = 'corpora/wiki40b_en_bytebpe50368'
    config.data.tokenizer = 'train:bytebpe:50368'
    config.data.lowercase = False
    config.data.segments = 'full_sentences'
    config.model.architecture = 'modernbert_base'
    config.objectives.nsp = 0.0
    config.masking.rate = 0.3
    config.stages.steps = (360_000, 64_000)
    config.stages.sequence_length = (1024, 8192)
    config.stages.batch_size = (4608, 576)
    config.stages.accumulation = (1, 1)
    config.stages.max_predictions = (308, 2458)
    config.optimizer.name = 'stable_adamw'
    config.optimizer.beta2 = 0.98
    config.optimizer.weight_decay = 1e-5
    config.optimizer.clip_norm = 0.0
    config.schedule.name = 'sqrt'
    config.schedule.learning_rate = 8e-4
    config.schedule.warmup_steps = 640
    config.schedule.decay_steps = 10_600
    return config
