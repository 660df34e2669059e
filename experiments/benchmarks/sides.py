"""The sides of the benchmarks: a training step with bert_jax and with transformers.

    bert_jax        this project; masked positions are gathered before the vocabulary projection
    bert_jax_dense  the same, with local attention as a mask over whole rows (ModernBERT)
    torch           transformers' BertForPreTraining or ModernBertForMaskedLM as shipped (SDPA,
                    logits for all positions)
    torch_gathered  the same model, with masked positions gathered as in bert_jax
    torch_compiled  torch_gathered with torch.compile

A step is the forward pass, masked-language-model loss, backward pass and AdamW update, on random
tokens; BERT also has dropout 0.1 and the next-sentence loss. The step of bert_jax is the step of
its training loop, which also computes the gradient norm and skips steps that are not finite. In
bfloat16 the torch sides use torch.autocast. All sides use the GPU if there is one. Needs jax,
flax and optax, and torch and transformers for their sides, but neither TensorFlow nor
ml_collections.
"""

import dataclasses
import resource
import types

import numpy as np

from bert_jax.models.visibility import Visibility
from bert_jax.training import runtime


@dataclasses.dataclass(frozen=True)
class Shape:
    """A model with `layers` layers of width `size`, and `batch` sequences of `length` tokens.

    `architecture` is 'bert' or 'modernbert'; an `intermediate` of 0 leaves the architecture's
    width of the feed-forward layers; without `attention_dropout`, attention weights have no dropout
    and BERT can use cuDNN's kernel.
    """

    layers: int
    size: int
    batch: int
    length: int
    predictions: int
    vocabulary: int = 30522
    architecture: str = 'bert'
    intermediate: int = 0
    attention_dropout: bool = True


SHAPES = {
    'tiny': Shape(2, 128, 32, 64, 10, 8000),
    'mini': Shape(4, 256, 32, 128, 20),
    'books': Shape(4, 256, 32, 128, 39, 16_000, 'modernbert', 684),  # configs/books.py
    'mini_512': Shape(4, 256, 8, 512, 76),
    'base': Shape(12, 768, 8, 128, 20),
    'base_512': Shape(12, 768, 2, 512, 76),
    'base_512_no_attention_dropout': Shape(12, 768, 2, 512, 76, attention_dropout=False),
    'base_32': Shape(12, 768, 32, 128, 20),
    'large': Shape(24, 1024, 8, 128, 20),
    'large_512': Shape(24, 1024, 2, 512, 76),
    # Windows of 64 tokens to each side, except in every third layer.
    'modernbert_2048': Shape(6, 768, 1, 2048, 614, 50368, 'modernbert'),
}
TORCH_SIDES = {  # side → (masked positions are gathered, torch.compile is used)
    'torch': (False, False),
    'torch_gathered': (True, False),
    'torch_compiled': (True, True),
}
SIDES = ('bert_jax', 'bert_jax_dense', *TORCH_SIDES)
ADAMW = types.SimpleNamespace(
    name='adamw',
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.01,
    decay_exclude=(),
    clip_norm=0.0,
)


def make_step(side: str, shape: Shape, dtype: str, compute_options: dict):
    """Return two functions: one starts a step and returns its loss, one returns the peak bytes."""
    runtime.keep_freed_memory()
    if side not in TORCH_SIDES:
        if side == 'bert_jax_dense':
            Visibility.is_local = lambda self, length: False
        step = make_bert_jax_step(shape, dtype, compute_options)
        from bert_jax.training import devices

        return step, devices.peak_bytes
    return make_torch_step(shape, dtype, *TORCH_SIDES[side])


def architecture_of(shape: Shape):
    """Return the architecture of this shape."""
    from bert_jax.models import architectures

    sizes = dict(num_layers=shape.layers, hidden_size=shape.size, vocab_size=shape.vocabulary)
    if shape.intermediate:
        sizes['intermediate_size'] = shape.intermediate
    if not shape.attention_dropout:
        sizes['attention_dropout'] = 0.0
    return architectures.build(shape.architecture, **sizes)


def flops_per_step(shape: Shape) -> float:
    """Return the FLOPs of the forward and backward pass, counted by bert_jax/models/model.py.

    Recomputation and the logits of tokens that are not masked do not count.
    """
    from bert_jax.models.flops import training_flops_per_token

    per_token = training_flops_per_token(architecture_of(shape), shape.length, shape.predictions)
    return shape.batch * shape.length * per_token


def make_batch(shape: Shape) -> dict[str, np.ndarray]:
    """Return random tokens without padding and distinct masked positions, int32."""
    rng = np.random.default_rng(0)
    rows = (shape.batch, shape.length)
    is_second = np.arange(shape.length) > shape.length // 2
    return {
        'input_ids': rng.integers(0, shape.vocabulary, rows, np.int32),
        'attention_mask': np.ones(rows, np.int32),
        'token_type_ids': np.tile(is_second, (shape.batch, 1)).astype(np.int32),
        'positions': np.stack(
            [rng.permutation(shape.length)[: shape.predictions] for _ in range(shape.batch)]
        ).astype(np.int32),
        'targets': rng.integers(0, shape.vocabulary, (shape.batch, shape.predictions), np.int32),
        'next_sentence_label': rng.integers(0, 2, shape.batch, np.int32),
    }


def make_bert_jax_step(shape: Shape, dtype: str, compute_options: dict):
    """Return a function that starts a training step and returns its loss."""
    compiled, state, arguments = make_bert_jax_training(shape, dtype, compute_options)

    def step():
        nonlocal state
        state, metrics = compiled(state, *arguments)
        return metrics['loss']

    return step


def make_bert_jax_training(shape: Shape, dtype: str, compute_options: dict):
    """Return the compiled step of the training loop, the first state, and the other arguments."""
    import jax
    from flax import linen as nn

    from bert_jax.averages import Term
    from bert_jax.models.architecture import Compute
    from bert_jax.models.model import Model
    from bert_jax.models.rows import Rows, Targets
    from bert_jax.objectives.mlm import cross_entropy
    from bert_jax.training import optimizers
    from bert_jax.training.state import TrainState
    from bert_jax.training.step import compile_train_step, make_train_step

    runtime.disable_async_dispatch()
    architecture = architecture_of(shape)
    compute = Compute(dtype, **compute_options)

    labels = {'mlm': 'targets'} | ({'nsp': 'next_sentence_label'} if architecture.pooler else {})

    def rows_of(batch):
        return Rows.of(batch).replace(targets=Targets.at(batch['positions']))

    class Task:
        weights = dict.fromkeys(labels, 1.0)

        def terms(self, params, batch, key, train, progress=1.0):
            seeds_B = jax.random.bits(key, (shape.batch,))
            logits = model.apply({'params': params}, rows_of(batch), seeds_B).heads
            losses = {name: cross_entropy(logits[name], batch[labels[name]]) for name in labels}
            return {name: Term(loss.sum(), float(loss.size)) for name, loss in losses.items()}

    batch = jax.device_put(make_batch(shape))
    model = Model(architecture, compute, {name: {} for name in labels})
    optimizer = optimizers.build(ADAMW, lambda step: 1e-4)

    @jax.jit(compiler_options=runtime.compiler_options())
    def init():
        params = nn.unbox(model.init(jax.random.key(0), rows_of(batch)))['params']
        return TrainState(0, 0, 0, params, optimizer.init(params))

    state, arguments = init(), (batch, jax.random.key(0))
    return (
        compile_train_step(make_train_step(Task(), optimizer), state, batch),
        state,
        arguments,
    )


def make_torch_step(shape: Shape, dtype: str, gathered: bool, compiled: bool):
    """Return the two functions of `make_step`."""
    import torch
    import transformers

    sizes = dict(
        vocab_size=shape.vocabulary,
        hidden_size=shape.size,
        num_hidden_layers=shape.layers,
        num_attention_heads=max(1, shape.size // 64),
    )
    if shape.intermediate:
        sizes['intermediate_size'] = shape.intermediate
    is_bert = shape.architecture == 'bert'
    if is_bert:
        sizes = {'intermediate_size': 4 * shape.size} | sizes
        dropout = 0.1 if shape.attention_dropout else 0.0
        config = transformers.BertConfig(**sizes, attention_probs_dropout_prob=dropout)
        model = transformers.BertForPreTraining(config)
    else:
        special = dict.fromkeys(['pad_token_id', 'eos_token_id', 'bos_token_id'], 0)
        config = transformers.ModernBertConfig(**sizes, **special, sparse_prediction=gathered)
        model = transformers.ModernBertForMaskedLM(config)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    model = model.train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batch = {
        key: torch.from_numpy(np.asarray(value, np.int64)).to(device)
        for key, value in make_batch(shape).items()
    }
    names = ['input_ids', 'attention_mask', *(['token_type_ids'] if is_bert else [])]
    inputs = {name: batch[name] for name in names}
    labels = torch.full_like(batch['input_ids'], -100)
    labels.scatter_(1, batch['positions'], batch['targets'])
    cross_entropy = torch.nn.functional.cross_entropy

    def loss_as_shipped():
        pairs = {'next_sentence_label': batch['next_sentence_label']} if is_bert else {}
        return model(**inputs, labels=labels, **pairs).loss

    def loss_gathered():
        output = model.bert(**inputs)
        index = batch['positions'][:, :, None].expand(-1, -1, shape.size)
        hidden = output.last_hidden_state.gather(1, index)
        logits, logits_2 = model.cls(hidden, output.pooler_output)
        return cross_entropy(
            logits.float().flatten(0, 1), batch['targets'].flatten()
        ) + cross_entropy(logits_2.float(), batch['next_sentence_label'])

    compute_loss = loss_gathered if gathered and is_bert else loss_as_shipped
    if compiled:
        compute_loss = torch.compile(compute_loss)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=dtype == 'bfloat16'):
            loss = compute_loss()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def peak_bytes():
        if device == 'cuda':
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    return step, peak_bytes
