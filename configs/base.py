"""BERT-base as published (Devlin et al. 2019; google-research/bert), and the one full list of keys.

    python -m bert_jax.main --config=configs/base.py

English Wikipedia by default (wiki40b/en through TFDS); any text with
--config.data.sources="('text:/my/*.txt',)". 1M steps of 256 sequences: days on 8 GPUs or a TPU
slice. Every key can be set on the command line: --config.stages.steps="(9000, 1000)". The other
configs hold only what they change.
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = 'pretraining'
    config.seed = 0  # of parameters, data order, masks and dropout
    config.workdir = (
        'runs/base'  # everything the run writes; the same command goes on where it stopped
    )

    config.data = ConfigDict(
        dict(
            # Text: 'docstrings', 'text:GLOB', 'jsonl:GLOB', 'tfds:NAME/CONFIG'; options after ';'.
            sources=('tfds:wiki40b/en',),
            corpus='corpora/wiki40b_en',  # the tokenized text; prepared when it is not there
            tokenizer='train:wordpiece:30522',  # or the path of a vocab.txt or tokenizer.json
            lowercase=True,
            held_out_fraction=0.005,  # of the documents
            language_alpha=1.0,  # shares of languages ∝ (share of the text)^alpha; XLM-R: 0.3
            tokenizer_language_alpha=1.0,  # the same of the text that a tokenizer is trained on
            prepare_workers=8,  # processes
            # 'pairs' (for nsp), 'ordered_pairs' (for sop), 'single', or whole sentences as in
            # RoBERTa: 'full_sentences' (over the ends of documents), 'doc_sentences'.
            segments='pairs',
            pack=False,  # True: several short examples in a row, each for itself
            short_sequence_probability=0.1,
            faithful_negatives=False,  # True: random partners as drawn by the original code
            reading_threads=2,
        )
    )
    config.model = ConfigDict(
        dict(
            architecture='bert_base',  # or another of bert_jax/models/architectures/
            # What is not set is as the architecture has it, or the weights of init_from.
            hidden_size=placeholder(int),
            num_layers=placeholder(int),
            num_heads=placeholder(int),  # hidden_size / 64
            intermediate_size=placeholder(int),  # 4 · hidden_size
            embedding_size=placeholder(int),
            max_position_embeddings=placeholder(int),
            type_vocab_size=placeholder(int),
            hidden_act=placeholder(str),  # 'gelu' exact, 'gelu_tanh' the original code's
            layer_norm_eps=placeholder(float),
            hidden_dropout=placeholder(float),
            attention_dropout=placeholder(float),
            initializer_range=placeholder(float),
            mask_decoder=placeholder(bool),  # DeBERTa's, with absolute positions, before mlm
        )
    )
    # Weights to begin with instead of random ones: a run, a checkpoint or a Hugging Face folder.
    # Tokens it lacks begin as the mean of their pieces.
    config.init_from = ''
    config.init_positions = 'tile'  # or 'interpolate': how it gets more positions
    config.compute = ConfigDict(
        dict(
            dtype='bfloat16',  # of activations and matrix products; parameters are float32
            scan_layers=False,  # one compiled layer: compiles faster
            remat=False,  # recompute each layer in the backward pass: less memory, more time
            attention_kernel='xla',  # 'cudnn' (NVIDIA GPUs), 'flash' (TPUs): no attention_dropout
        )
    )
    config.objectives = ConfigDict(
        dict(  # weights of the loss terms; 0 = absent
            mlm=1.0,  # masked tokens; with rtd: of its generator
            nsp=1.0,  # next sentence; segments='pairs'
            sop=0.0,  # sentence order; segments='ordered_pairs'
            sbo=0.0,  # span boundaries; masking.scheme='spans'
            rtd=0.0,  # replaced tokens, beside mlm; published: 50
            clm=0.0,  # next token, left to right; logits for every position: much memory
            permutation=0.0,  # sentences out of order
            deletion=0.0,  # where tokens were deleted, and which
            insertion=0.0,  # inserted tokens
            substitution=0.0,  # tokens replaced at random
        )
    )
    config.masking = ConfigDict(
        dict(
            rate=0.15,  # of the real tokens
            mask=0.8,  # of the chosen become [MASK]
            random=0.1,  # of the chosen become a random token; the rest stays
            replacement='uniform',  # as the original code; 'unigram': by frequency (textbook)
            scheme='tokens',  # 'whole_words', 'spans' (SpanBERT), 'ngrams' (ALBERT)
            span_p=0.2,  # of the geometric distribution of span lengths
            longest_span=10,  # words
            longest_ngram=3,  # words
        )
    )
    config.sbo = ConfigDict(
        dict(
            position_size=200,  # features of the embedding of a token's place in its span
            max_targets=20,  # tokens of a span asked for
        )
    )
    config.rtd = ConfigDict(
        dict(
            generator_width=0.25,  # of the encoder's features and heads; published: 1/4, base 1/3
            generator_depth=1.0,  # of its layers; DeBERTa-v3: 0.5, at full width
            sharing='tied',  # embeddings; 'disentangled': gradients apart (DeBERTa-v3)
            temperature=1.0,  # of the generator's samples
        )
    )
    config.editing = ConfigDict(
        dict(  # shares of the tokens; of permutation the share of the examples
            permutation=0.5,
            deletion=0.15,
            insertion=0.15,
            substitution=0.15,
        )
    )
    config.stages = ConfigDict(
        dict(  # one entry a stage; 90 % of the steps at length 128, 10 % at 512
            steps=(900_000, 100_000),
            sequence_length=(128, 512),  # tokens
            batch_size=(256, 256),  # sequences, over all devices and accumulation steps
            accumulation=(1, 1),  # micro-batches a step: less memory, same result
            max_predictions=(20, 76),  # masked positions a sequence at most
        )
    )
    config.optimizer = ConfigDict(
        dict(
            name='bert_adam',  # no bias correction; 'adamw', 'lamb', 'stable_adamw'
            beta1=0.9,
            beta2=0.999,
            eps=1e-6,
            weight_decay=0.01,
            decay_exclude=('bias', 'norm'),  # patterns of parameter names
            clip_norm=1.0,  # global; 0 = never
        )
    )
    config.schedule = ConfigDict(
        dict(
            name='bert_linear',  # 'linear', 'cosine', 'sqrt', 'constant'
            learning_rate=1e-4,
            end_learning_rate=0.0,
            warmup_steps=10_000,
            warmup_fraction=0.0,  # of the run, in place of warmup_steps
            decay_steps=0,  # over the last so many steps, constant before; 0: from the warmup on
        )
    )
    config.transfer = ConfigDict(
        dict(  # what is trained and how fast, counted from the heads; mostly with init_from
            trainable='all',  # 'heads' alone, 'last:2': the heads and the last 2 layers
            layer_decay=1.0,  # of the rate from layer to layer; ELECTRA 0.8, ULMFiT 1 / 2.6
            faithful_layer_decay=False,  # True: twice in the last layer, as ELECTRA's code has it
            unfreeze_every_steps=0,  # gradually: first the heads, then another layer every so many
            unfreeze_every_fraction=0.0,  # of the run, in place of unfreeze_every_steps
            reinit_layers=0,  # of init_from's last layers, with the pooler: begin them afresh
        )
    )
    config.mesh = ConfigDict(dict(data=-1, fsdp=1, tensor=1))  # devices an axis; -1 = the rest
    config.sharding_rules = (  # logical axis name → mesh axis; unnamed axes are on every device
        ('batch', ('data', 'fsdp')),
        ('vocab', 'tensor'),
        ('mlp', 'tensor'),
        ('heads', 'tensor'),
        ('embed', 'fsdp'),
    )
    config.evaluation = ConfigDict(
        dict(  # on held-out documents
            every_steps=10_000,
            examples=10_240,
            cloze_examples=8,
            # A metric such as 'mlm_accuracy', or '' for none: the checkpoint with the best value is
            # kept, and the run ends with its parameters.
            best='',
            patience=0,  # stop after so many evaluations without a better one; 0: never
        )
    )
    config.checkpoint = ConfigDict(dict(every_steps=5_000, keep=3))
    config.logging = ConfigDict(dict(every_steps=100))
    config.sweep = ConfigDict(
        dict(  # a run of each, compared by evaluation.best or the first metric; () = this config's
            seeds=(),
            learning_rates=(),
        )
    )
    # A step whose loss or gradient is not finite is skipped; so is one whose gradient norm is above
    # spike_factor times its running mean (0 = never). After so many in a row the run stops.
    config.spike_factor = 0.0
    config.max_skipped_in_row = 10
    config.debug = ConfigDict(dict(batch=0))  # N: print the batch of step N, decoded, and stop
    return config.lock()
