"""BERT-base as published (Devlin et al. 2019; google-research/bert), and the list of all keys.

    python -m bert_jax.main --config=configs/base.py

What you get: 12 layers of width 768, masked language modeling and next sentence prediction, 1M
steps of 256 sequences (900k at length 128, 100k at length 512), from English Wikipedia (wiki40b/en
in TFDS). For your own text set --config.data.sources='text:/my/*.txt'.

How long it takes: the full run has not been trained here; expect days on 8 GPUs or a TPU slice.
Tested: hyperparameters, shapes at full size, and a few steps of a shrunk version
(tests/test_configs.py); step time and memory on CPU (experiments/benchmarks).

Every key can be set on the command line, for example --config.training.steps="(9000, 1000)". The
other configs contain only what they change.
"""

from ml_collections import ConfigDict

from bert_jax.config_keys import key, needs, only_with, option_of, overridden_by, section, unless
from bert_jax.corpus.preparation_keys import KEYS

# Tables and functions that a key refers to; they are imported when they are needed.
_SEGMENTS = 'bert_jax.tasks.pretraining.sources:SEGMENTS'
_UNUSED_MASKING = 'bert_jax.tasks.key_conditions:unused_masking'
_UNUSED_HELD_OUT_MASKS = 'bert_jax.tasks.key_conditions:unused_held_out_masks'
_UNUSED_NOISE = 'bert_jax.tasks.key_conditions:unused_noise'
_NO_CLOZE = 'bert_jax.tasks.key_conditions:unused_cloze'
_UNUSED_TRANSFER = 'bert_jax.tasks.key_conditions:unused_transfer'
_ONLY_MUON = only_with('optimizer.name', 'muon')
_SEED = '[0, 4294967295]'


def get_config() -> ConfigDict:
    config = section()
    config.task = key('pretraining', 'or a kind of fine-tuning problem, set by configs/finetune.py')
    config.seed = key(
        0,
        'seed of the parameters, the data order, masks and dropout',
        _SEED,
        unused=overridden_by('sweep.seeds'),
    )
    config.workdir = key(
        'runs/base',
        'Folder for everything the run writes. Rerun the same command to resume.',
        must_be='the name of a folder',
        on_resume='free',
    )
    config.data = section(
        'Text, tokenizer, and how examples are made from documents.',
        sources=key(
            ('tfds:wiki40b/en',),
            "'sample', 'text:GLOB', 'jsonl:GLOB', 'parquet:GLOB', 'hf:FOLDER', "
            "'tfds:NAME/CONFIG'; options after ';'.",
            on_resume='logged',
        ),
        corpus=key(
            'corpora/wiki40b_en',
            'Folder of the tokenized text; prepared if missing. If the command line names an '
            'existing corpus, its settings of the text need not be repeated.',
            must_be='the name of a folder',
            on_resume='free',
        ),
        **KEYS,  # tokenizer, lowercase, strip_accents, held_out_fraction, …
        language_alpha=key(
            1.0,
            'language shares in training ∝ (share of examples)^alpha; XLM-R: 0.3',
            '[0, 1]',
            unused=overridden_by('data.language_alphas'),
        ),
        language_alphas=key(
            (),
            'Values of language_alpha in equal parts of the run, such as (0.7, 0.5, 0.3).',
            '[0, 1]',
            of=float,
        ),
        prepare_workers=key(
            None,
            'Processes that tokenize the text; default: one per core that may be used.',
            kind=int,
            on_resume='free',
        ),
        verify_corpus=key(
            True,
            'Compare an existing corpus with its digests at the start, about a second for 0.5 GB; '
            'False: only the sizes of its files.',
            on_resume='free',
        ),
        cache_folder=key(
            '~/.cache/bert_jax/blocks',
            'Local cache of a corpus in a bucket (gs://, s3://).',
            on_resume='free',
        ),
        cache_gigabytes=key(
            50.0,
            'maximum size of that folder; fastest if it holds the corpus',
            '(0, inf)',
            on_resume='free',
        ),
        segments=key(
            'pairs',
            "'pairs' (for nsp), 'ordered_pairs' (for sop), 'single' segments, 'two_segments' of "
            'contiguous text in 90 % of the rows (ELECTRA), or whole sentences as in RoBERTa: '
            "'full_sentences' (across documents), 'doc_sentences' (within documents).",
            choices=_SEGMENTS,
        ),
        pack=key(False, 'True: several short examples per row, which cannot attend to each other'),
        short_sequence_probability=key(
            0.1,
            'share of examples with a shorter, random length',
            '[0, 1]',
            unused=option_of('data.segments', _SEGMENTS),
        ),
        faithful_negatives=key(
            False,
            'True: draw pairs as the published code (docs/fidelity.md)',
            unused=option_of('data.segments', _SEGMENTS),
        ),
        reading_threads=key(2, 'threads that assemble batches', '[1, inf)', on_resume='free'),
    )
    config.model = section(
        'Unset sizes come from the architecture or from the weights in `init_from`.',
        range='[1, inf)',
        architecture=key(
            'bert_base',
            'a name in bert_jax/models/architectures; None: the architecture of init_from',
            kind=str,
            choices='bert_jax.models.architectures:BUILDERS',
            unused=overridden_by('init_from'),
        ),
        hidden_size=key(None, 'width of the hidden states', kind=int),
        num_layers=key(None, 'number of encoder layers', kind=int),
        num_heads=key(None, 'default: hidden_size / 64', kind=int),
        intermediate_size=key(None, 'feed-forward width; default: 4 · hidden_size', kind=int),
        embedding_size=key(None, 'width of the embeddings if not hidden_size', kind=int),
        max_position_embeddings=key(None, 'longest sequence in tokens', kind=int),
        type_vocab_size=key(None, 'number of segment types', '[0, inf)', kind=int),
        hidden_act=key(
            None,
            "'gelu' (exact), 'gelu_tanh' (original code), 'relu', 'relu_squared', 'silu'",
            kind=str,
        ),
        layer_norm_eps=key(
            None, 'added to the variance in layer normalization', '(0, inf)', kind=float
        ),
        hidden_dropout=key(None, 'probability', '[0, 1)', kind=float),
        attention_dropout=key(None, 'probability', '[0, 1)', kind=float),
        initializer_range=key(
            None, 'standard deviation of initial weights', '(0, inf)', kind=float
        ),
        encoder=key(
            None,
            "kind of encoder; default 'transformer'",
            kind=str,
            choices='bert_jax.models.encoders:ENCODERS',
        ),
        pooler=key(None, 'whether there is a pooled state', kind=bool),
        pair_pooling=key(
            None,
            "what nsp and sop read: the 'pooler', or the state of the 'first' position, [CLS]",
            kind=str,
            choices=('pooler', 'first'),
            unused=needs('objectives.nsp', 'objectives.sop'),
        ),
        positions=key(
            None,
            "position vectors: 'learned', 'offset' (after padding, as in RoBERTa), 'none', or "
            "'mask_decoder' (DeBERTa: only for predicting masks)",
            kind=str,
            choices=('learned', 'mask_decoder', 'none', 'offset'),
        ),
        attention=section(
            'How attention depends on positions.',
            theta=key(
                None, 'base of rotary attention, in ModernBERT of its global layers', kind=float
            ),
            local_theta=key(
                None, 'base of rotary attention in layers with a window', '(0, inf)', kind=float
            ),
            qk_norm=key(None, 'whether queries and keys are normalized', kind=bool),
        ),
        feedforward=key(
            None,
            "'dense', or 'gated': GEGLU, with hidden_act='silu' SwiGLU",
            kind=str,
            choices=('dense', 'gated'),
        ),
        characters=section(
            'Token vectors from characters, of architectures that have them (elmo_characters).',
            size=key(None, "of a character's vector", '[1, inf)', kind=int),
            num_filters=key(
                None, 'of convolutions over 1 to 7 characters; a multiple of 64', kind=int
            ),
            highways=key(None, 'highway layers after the convolutions', kind=int),
        ),
        norms=section(
            'Normalization of states.',
            placement=key(
                None,
                "'post' (after the residual sum), 'pre', 'pre_except_first' or 'both' (before and "
                'after each sublayer)',
                kind=str,
                choices=('post', 'pre', 'pre_except_first', 'both'),
            ),
            function=key(
                None,
                "'layer_norm', 'unbiased_layer_norm' or 'rms_norm'",
                kind=str,
                choices=('layer_norm', 'unbiased_layer_norm', 'rms_norm'),
            ),
        ),
        biases=section(
            'Which projections have biases.',
            attention=key(
                None,
                "'all', 'without_key' or 'none'",
                kind=str,
                choices=('all', 'without_key', 'none'),
            ),
            feed_forward=key(
                None, "'all', 'output' or 'none'", kind=str, choices=('all', 'output', 'none')
            ),
        ),
        prediction=section(
            'Heads that predict tokens.',
            transform=key(None, 'whether a dense layer precedes the vocabulary', kind=bool),
            bias=key(None, 'whether predicted tokens have a bias', kind=bool),
            shift=key(
                None,
                'whether a hidden token is predicted at the position before it; for mntp',
                kind=bool,
            ),
            soft_cap=key(None, 'logits become cap · tanh(logits / cap)', '(0, inf)', kind=float),
        ),
        decoder=section(
            'The decoder of an encoder–decoder.',
            num_layers=key(None, 'number of decoder layers', kind=int),
        ),
        scaled_output_init=key(
            None,
            'whether kernels that write to the residual stream are initialized smaller, by '
            '1 / √(2 num_layers)',
            kind=bool,
        ),
        zero_output_init=key(
            None, 'whether these kernels are initialized with 0; for norms before', kind=bool
        ),
    )
    config.init_from = key(
        '',
        "Initial weights: a run, a checkpoint or a Hugging Face folder; '' = random. Tokens "
        'missing from its vocabulary start as the mean of their subwords.',
        on_resume='logged',
    )
    config.init_positions = key(
        'tile',
        "or 'interpolate': how to extend position embeddings",
        choices=('tile', 'interpolate'),
        unused=needs('init_from'),
    )
    config.init_sizes = key(
        'same',
        "Sizes of init_from: 'same' as here, or 'tile': weights of a narrower or shallower model "
        'are repeated.',
        choices=('same', 'tile'),
        unused=needs('init_from'),
    )
    config.init_decoder = key(
        '',
        "'encoder': add a decoder to the encoder at init_from, with the same weights (bert2bert); "
        "'': init_from as it is.",
        choices=('', 'encoder'),
        unused=needs('init_from'),
    )
    config.compute = section(
        'Precision, memory and kernels.',
        dtype=key(
            'bfloat16',
            "of activations and matrix products, or 'float32'; parameters are float32",
            choices=('bfloat16', 'float32'),
        ),
        float32_residual=key(False, 'True: sums of residual connections in float32'),
        scan_layers=key(False, 'True: compile one layer instead of all; compiles faster'),
        remat=key(
            False,
            'True: recompute layers in the backward pass; less memory, more time',
            on_resume='free',
        ),
        attention_kernel=key(
            'auto',
            "'cudnn' (NVIDIA), 'flash' (TPU) or 'xla'; 'auto': the first that can run the model",
            choices=('auto', 'cudnn', 'flash', 'xla'),
            on_resume='free',
        ),
    )
    config.objectives = section(
        'Weight of each objective in the loss; 0 = off.',
        mlm=key(1.0, 'masked language modeling; with rtd it trains the generator'),
        nsp=key(1.0, "next sentence prediction; data.segments='pairs'"),
        sop=key(0.0, "sentence order prediction; data.segments='ordered_pairs'"),
        sbo=key(0.0, "span boundary objective; masking.scheme='spans' or 'anchored_spans'"),
        rtd=key(0.0, 'replaced token detection, together with mlm; published: 50'),
        clm=key(0.0, 'causal language modeling; needs memory for logits at every position'),
        mntp=key(
            0.0,
            'masked next-token prediction (GPT-BERT); training.max_predictions must be the '
            'sequence length, model.prediction.shift True',
        ),
        ntp=key(0.0, 'prediction of every token in the causal rows of mntp'),
        bilm=key(
            0.0,
            "language modeling in both directions; needs model.architecture='elmo' or "
            "'elmo_characters', and memory for two logits of the vocabulary at every position",
        ),
        plm=key(
            0.0,
            "predict tokens in random order; needs model.architecture='xlnet' (configs/xlnet.py)",
        ),
        diffusion=key(
            0.0,
            'Masked diffusion. If more than training.max_predictions tokens of a row are hidden, '
            'that many of them are predicted, drawn at random.',
        ),
        denoising=key(
            0.0,
            'write a text from its noised form; needs a decoder, as in configs/bart.py, and memory '
            'for logits at every position of the target',
        ),
        permutation=key(0.0, 'detect sentences out of order'),
        deletion=key(0.0, 'detect where tokens were deleted, and predict them'),
        insertion=key(0.0, 'detect inserted tokens'),
        substitution=key(0.0, 'detect tokens replaced at random'),
    )
    config.masking = section(
        'Which tokens are hidden, and by what.',
        unused=_UNUSED_MASKING,
        rate=key(
            0.15, 'share of the tokens to choose; training.max_predictions must allow it', '(0, 1)'
        ),
        end_rate=key(
            None,
            '`rate` at the end of the run, and of all evaluations; default: `rate` does not change',
            '(0, 1)',
            kind=float,
        ),
        rate_change=key(
            'linear',
            "from `rate` to `end_rate`: 'linear', 'cosine', or 'step' at half of the run",
            choices='bert_jax.objectives.masking:RATE_CHANGES',
        ),
        per_sequence=key(True, 'choose `rate` of each packed sequence; False: of the whole row'),
        mask=key(0.8, 'share of the chosen tokens that become [MASK]', '[0, 1]'),
        random=key(
            0.1, 'share of the chosen tokens that become random tokens; the rest is kept', '[0, 1]'
        ),
        replacement=key(
            'uniform',
            "random tokens; 'unigram': by their frequency",
            choices='bert_jax.objectives.corruption:REPLACEMENTS',
        ),
        unknown=key(True, 'whether [UNK] may be chosen: in BERT, ALBERT, ELECTRA, not in DeBERTa'),
        scheme=key(
            'tokens',
            "'tokens', 'whole_words', 'ngrams' (ALBERT), 'spaced_ngrams' (XLNet), 'spans' "
            "(SpanBERT's paper), 'anchored_spans' (SpanBERT's code) or 'adaptive': tokens that are "
            'predicted well are hidden less often (AMLM); needs the objective mlm.',
            choices='bert_jax.objectives.masking_schemes:SCHEMES',
        ),
        word_starts=key(
            'marks',
            "Which tokens start a word: 'marks' of the vocabulary; 'punctuation': also punctuation "
            "(DeBERTa); 'albert': also all but English letters.",
            choices='bert_jax.tokenizers.word_starts:RULES',
        ),
        unspaced=key(
            'refuse',
            "Words in scripts without spaces: 'subwords' or 'characters'; 'refuse' such text.",
            choices='bert_jax.tokenizers.word_starts:UNSPACED_RULES',
        ),
        span_p=key(0.2, 'p of the geometric distribution of span lengths', '(0, 1)'),
        longest_span=key(10, 'words', '[1, inf)'),
        longest_ngram=key(3, 'words', '[1, inf)'),
        adapt_every=key(200, 'steps between updates of the adaptive weights', '[1, inf)'),
    )
    config.mntp = section(
        'Options of the objective mntp.',
        unused=needs('objectives.mntp'),
        causal_share=key(
            1 / 16, 'share of the rows with causal attention, for the objective ntp', '[0, 1]'
        ),
    )
    config.sbo = section(
        'Options of the objective sbo.',
        unused=needs('objectives.sbo'),
        position_size=key(
            200, "width of the embedding of a token's position in its span", '[1, inf)'
        ),
        max_targets=key(20, 'predicted tokens per span', '[1, inf)'),
    )
    config.rtd = section(
        'Options of the objective rtd.',
        unused=needs('objectives.rtd'),
        generator_width=key(
            0.25, 'factor on width and heads; ELECTRA small 1/4, base 1/3', '(0, 1]'
        ),
        generator_depth=key(1.0, 'factor on layers; DeBERTaV3: 0.5 at full width', '(0, 1]'),
        sharing=key(
            'tied',
            "Embeddings: 'gdes', separate gradients and norms (DeBERTaV3); 'disentangled', "
            'separate gradients of token embeddings.',
            choices='bert_jax.objectives.generator:SHARING',
        ),
        temperature=key(1.0, "of the generator's samples"),
    )
    config.plm = section(
        'Options of the objective plm.',
        unused=needs('objectives.plm'),
        block_size=key(
            256,
            'consecutive tokens whose order is drawn together; blocks follow each other',
            '[2, inf)',
        ),
    )
    config.clm = section(
        'Options of the objective clm.',
        unused=needs('objectives.clm'),
        prefix=key(
            0.0,
            'Share of the sequences that begin with a prompt of random length, which all positions '
            'see and which is not predicted (a prefix language model); such a model then reads '
            'prompts in this way',
            '[0, 1]',
        ),
    )
    config.diffusion = section(
        'Options of the objective diffusion.',
        unused=needs('objectives.diffusion'),
        weight=key(
            'bound',
            "'bound': the loss bounds the likelihood; 'uniform': every hidden token counts once",
            choices='bert_jax.objectives.diffusion:WEIGHTS',
        ),
    )
    config.noise = section(
        'Noise of the objective denoising (docs/encoder_decoders.md).',
        unused=_UNUSED_NOISE,
        kind=key(
            'bart',
            "'bart': spans are hidden, sentences permuted; 't5': spans become sentinels, and the "
            "target lists them; 'prefix': the target continues the source",
            choices='bert_jax.objectives.denoising:NOISES',
        ),
        mask=key(0.3, 'bart: share of the words to hide', '[0, 1]'),
        poisson_lambda=key(
            3.0,
            'bart: λ of the Poisson distribution of the words in a span; 0: all have one',
            '[0, 16]',
        ),
        replace_length=key(1, 'bart: masks for a span: 1, or -1: one per token, or 0', '[-1, 1]'),
        whole_words=key(True, 'bart: spans consist of words; False: of tokens'),
        mask_random=key(0.1, 'bart: share of the masks that become random tokens', '[0, 1]'),
        permute_sentences=key(1.0, 'bart: share of the sentences that change places', '[0, 1]'),
        insert=key(0.0, 'bart: inserted masks as a share of the length', '[0, 1]'),
        rotate=key(0.0, 'bart: probability that a text starts at another token', '[0, 1]'),
        density=key(0.15, 't5: share of the tokens to hide', '(0, 1)'),
        mean_span=key(3.0, 't5: mean length of a span in tokens', '[1, inf)'),
    )
    config.editing = section(
        'Options of the objectives permutation, deletion, insertion and substitution: share of '
        'tokens.',
        range='(0, 1)',
        permutation=key(
            0.5,
            'share of the examples whose sentences are reordered',
            unused=needs('objectives.permutation'),
        ),
        deletion=key(0.15, 'tokens that are deleted', unused=needs('objectives.deletion')),
        insertion=key(
            0.15,
            'tokens that are inserted, per token of the text',
            unused=needs('objectives.insertion'),
        ),
        substitution=key(
            0.15, 'tokens that are replaced at random', unused=needs('objectives.substitution')
        ),
    )
    config.training = section(
        'Length of training: one value for each stage, or one for all stages.',
        range='[1, inf)',
        steps=key(
            (900_000, 100_000),
            'Of each stage. One value counts for each stage: 1000 is 2000 steps in two stages.',
            on_resume='last stage',
        ),
        minutes=key(
            0.0,
            'End after this time of training steps, without preparing, compiling, evaluating and '
            'saving; `steps` then are only the shares of the stages and the unit of the schedule. '
            '0: end after `steps`.',
            '[0, inf)',
            on_resume='logged',
        ),
        sequence_length=key((128, 512), 'tokens per sequence, special tokens included'),
        batch_size=key((256, 256), 'sequences per step, over all devices and micro-batches'),
        accumulation=key(
            (1,), 'micro-batches per step: less memory, same result', on_resume='free'
        ),
        batch_ramp=key(
            (),
            'Factors on batch_size at the start of the run, in equal parts of batch_ramp_share, '
            'such as (0.25, 0.5, 0.75).',
            '(0, 1)',
            of=float,
        ),
        batch_ramp_share=key(
            0.5,
            'share of the run before batches are full',
            '(0, 1)',
            unused=needs('training.batch_ramp'),
        ),
        length_ramp=key(
            (),
            'Factors on sequence_length at the start of the run, in equal parts of '
            'length_ramp_share, such as (0.25, 0.5); a batch has more sequences instead.',
            '(0, 1)',
            of=float,
        ),
        length_ramp_share=key(
            0.5,
            'share of the run before sequences are full',
            '(0, 1)',
            unused=needs('training.length_ramp'),
        ),
        max_predictions=key((20, 76), 'maximum number of masked tokens per sequence'),
        z_loss=key(
            0.0,
            'weight of log² Σ exp(logits) of predicted tokens beside their cross-entropy; '
            'GPT-BERT: 1e-4',
            '[0, inf)',
            unused=needs(
                'objectives.mlm',
                'objectives.clm',
                'objectives.plm',
                'objectives.diffusion',
                'objectives.mntp',
                'objectives.ntp',
                'objectives.denoising',
            ),
        ),
    )
    config.optimizer = section(
        name=key(
            'bert_adam',
            "Adam without bias correction; or 'adamw', 'stable_adamw', 'lamb' as in its paper, "
            "'albert_lamb' as in ALBERT's code, 'muon' for the kernels of the layers with 'adamw' "
            'for the other parameters.',
            choices='bert_jax.training.optimizers:DIRECTIONS',
        ),
        beta1=key(0.9, 'decay per step of the mean of gradients', '[0, 1)'),
        beta2=key(0.999, 'decay per step of the mean of squared gradients', '[0, 1)'),
        eps=key(1e-6, 'added to the root of the mean of squared gradients'),
        weight_decay=key(
            0.01, 'share of each parameter, times the learning rate, removed per step'
        ),
        decay_exclude=key(
            ('bias', 'norm'),
            'patterns of parameters without weight decay',
            unused=needs('optimizer.weight_decay'),
        ),
        muon_momentum=key(
            0.95, 'decay per step of the mean of gradients of kernels', '[0, 1)', unused=_ONLY_MUON
        ),
        muon_rate=key(
            1.0,
            'factor on the learning rate of kernels; 1: updates as large as those of AdamW',
            '(0, inf)',
            unused=_ONLY_MUON,
        ),
        clip_norm=key(1.0, 'global gradient norm; 0 = off'),
        ema=key(
            0.0,
            'decay per step of a moving average of the parameters, which is evaluated, loaded and '
            'exported in their place; 0 = off',
            '[0, 1)',
        ),
    )
    config.schedule = section(
        on_resume='logged',
        name=key(
            'bert_linear',
            "or 'linear', 'slanted_triangular', 'cosine', 'sqrt', 'constant'",
            choices='bert_jax.training.schedules:SHAPES',
        ),
        learning_rate=key(1e-4, 'peak', '(0, inf)', unused=overridden_by('sweep.learning_rates')),
        end_learning_rate=key(
            0.0,
            'after the last step',
            unused=unless('schedule.name', 'constant', 'slanted_triangular'),
        ),
        warmup_steps=key(None, 'default: warmup_fraction of the run; 0 = no warmup', kind=int),
        warmup_fraction=key(
            10_000 / 1_000_000,
            'share of the run; BERT: 10k of 1M steps',
            '[0, 1)',
            unused=overridden_by('schedule.warmup_steps'),
        ),
        decay_steps=key(
            0,
            'decay over the last steps only, constant before; 0 = after the warmup',
            unused=unless('schedule.name', 'bert_linear', 'constant'),
        ),
    )
    config.transfer = section(
        'Which layers are trained, and at which learning rate; mostly used with init_from.',
        unused=_UNUSED_TRANSFER,
        method=key(
            'full',
            "'full', or parameter-efficient tuning of the model at init_from: 'lora', 'houlsby', "
            "'pfeiffer', 'parallel', 'prefix', 'prompt', 'bitfit', 'ia3', 'mam' (docs/tuning.md). "
            'The keys up to per_layer are settings of these methods; None: as published.',
        ),
        rank=key(None, 'lora', '[1, inf)', kind=int),
        alpha=key(None, 'lora: updates are multiplied by alpha / rank', '(0, inf)', kind=float),
        targets=key(
            None,
            'lora: of query, key, value, attention_output, feedforward_input, feedforward_output',
            kind=tuple,
        ),
        bottleneck=key(None, 'houlsby, pfeiffer, parallel, mam: inner width', '[1, inf)', kind=int),
        scale=key(None, 'parallel, mam: factor on what is added', '(0, inf)', kind=float),
        length=key(None, 'prefix, prompt, mam: number of vectors', '[1, inf)', kind=int),
        biases=key(None, "bitfit: 'all' or 'query_and_intermediate'", kind=str),
        per_layer=key(None, "False: ALBERT's layers share the added parameters too", kind=bool),
        train_pooler=key(False, 'with a method: train the pooler of init_from too'),
        trainable=key('all', "'heads', or 'last:2': the heads and the last 2 layers"),
        layer_decay=key(1.0, 'factor on the rate per layer below the heads; ELECTRA 0.8', '(0, 1]'),
        faithful_layer_decay=key(False, "True: applied twice to the last layer (ELECTRA's code)"),
        unfreeze_every_steps=key(0, 'gradual unfreezing: one more layer after this many steps'),
        unfreeze_every_fraction=key(
            0.0, 'share of the run, instead of unfreeze_every_steps', '[0, 1)'
        ),
        reinit_layers=key(0, 'last layers of init_from to reinitialize, with the pooler'),
    )
    config.mesh = section(
        'Devices per mesh axis; -1 = all remaining devices.',
        range='[-1, inf)',
        on_resume='free',
        data=key(-1, 'devices among which the batch is divided'),
        fsdp=key(1, 'the same, with the parameters divided too'),
        tensor=key(1, 'devices among which each layer is divided'),
    )
    config.sharding_rules = key(
        (
            ('batch', ('data', 'fsdp')),
            ('vocab', 'tensor'),
            ('mlp', 'tensor'),
            ('heads', 'tensor'),
            ('embed', 'fsdp'),
        ),
        'Logical axis name → mesh axis; axes that are not listed are replicated.',
        on_resume='free',
    )
    config.evaluation = section(
        'Evaluation on held-out documents.',
        on_resume='logged',
        every_steps=key(10_000, 'steps between evaluations'),
        steps=key(
            (), 'further steps at which to evaluate, such as (0, 100, 1000); 0: before any', of=int
        ),
        examples=key(10_240, 'examples per evaluation', '[1, inf)'),
        masking_scheme=key(
            '',
            'masking.scheme of held-out text, so that runs with different masking.scheme can be '
            "compared; '' = as in training",
            choices='bert_jax.objectives.masking_schemes:SCHEMES',
            unused=_UNUSED_HELD_OUT_MASKS,
        ),
        masking_rate=key(
            None,
            'masking.rate of held-out text; default: as at the end of training',
            '(0, 1)',
            kind=float,
            unused=_UNUSED_HELD_OUT_MASKS,
        ),
        cloze_examples=key(
            8,
            'examples with predictions, or samples of masked diffusion, in the model card',
            unused=_NO_CLOZE,
        ),
        best=key(
            '',
            'Metric that selects the checkpoint to keep and return, such as '
            "'mlm_accuracy'; '' = the last one.",
        ),
        patience=key(0, 'early stopping: evaluations without improvement; 0 = off'),
        linguistic=section(
            'What else every evaluation measures (docs/linguistic_evaluation.md).',
            on_resume='logged',
            pairs=key((), "files or globs of minimal pairs with BLiMP's columns"),
            pairs_per_paradigm=key(
                20,
                'maximum; fewer if max_share requires it',
                '[1, inf)',
                unused=needs('evaluation.linguistic.pairs'),
            ),
            treebank=key(
                (), 'CoNLL-U files or globs for a linear part-of-speech probe of the last layer'
            ),
            sentences=key(
                600,
                'evenly spaced sentences of the treebank, every third for testing',
                '[1, inf)',
                unused=needs('evaluation.linguistic.treebank'),
            ),
            isotropy=key(False, 'mean cosine of two tokens in each layer'),
            max_share=key(
                0.03,
                'maximum share of the operations of the training',
                '(0, 1]',
                unused=needs(
                    'evaluation.linguistic.pairs',
                    'evaluation.linguistic.treebank',
                    'evaluation.linguistic.isotropy',
                ),
            ),
        ),
    )
    config.checkpoint = section(
        on_resume='free',
        every_steps=key(5_000, 'steps between checkpoints', unused=overridden_by('sweep.vmap')),
        keep=key(3, 'number of most recent checkpoints to keep', '[1, inf)'),
    )
    config.logging = section(
        on_resume='free',
        every_steps=key(100, 'steps between lines of metrics.jsonl'),
        wandb=key(
            '',
            "project of Weights & Biases to record the run in; '' = none",
            unused=overridden_by('sweep.vmap'),
        ),
        profile_steps=key(
            (),
            'first and last step of a trace in WORKDIR/profile, such as (10, 12)',
            '[1, inf)',
            of=int,
            unused=overridden_by('sweep.vmap'),
        ),
    )
    axes = 'sweep.keys', 'sweep.learning_rates', 'sweep.ranks'
    config.sweep = section(
        'Several runs in one command, compared by evaluation.best or the first metric.',
        keys=key(
            (),
            "Any keys to search, each as 'KEY=A|B|C', 'KEY=LOW..HIGH' or 'KEY=log:LOW..HIGH'; with "
            'sweep.seeds, every setting is trained with every seed.',
        ),
        trials=key(
            0,
            'number of random settings; 0: all combinations',
            unused=needs(*axes),
        ),
        trial_seed=key(0, 'seed of random settings', _SEED, unused=needs('sweep.trials')),
        rungs=key(
            (),
            'Steps at which settings are compared and bad ones are discarded, such '
            'as (500, 1000); (): train all to the end.',
            '[1, inf)',
            of=int,
            unused=needs(*axes),
        ),
        keep=key(
            0.5, 'share of the settings that a rung keeps', '(0, 1)', unused=needs('sweep.rungs')
        ),
        seeds=key((), 'one run per seed; () = the seed of this config', _SEED, of=int),
        learning_rates=key(
            (),
            'the values of schedule.learning_rate, in place of a line in keys',
            '(0, inf)',
            of=float,
        ),
        ranks=key(
            (),
            "with transfer.method='lora': the values of transfer.rank, in place of a line in keys",
            '[1, inf)',
            of=int,
        ),
        vmap=key(
            False,
            'with transfer.method: train all runs at once over one frozen model',
            unused=needs('sweep.seeds', *axes),
        ),
    )
    config.spike_factor = key(
        0.0,
        'Skip steps whose gradient norm exceeds this factor times its running mean; 0 = off. '
        'Steps with a loss or gradient that is not finite are always skipped.',
        on_resume='logged',
    )
    config.max_skipped_in_row = key(
        10,
        'Stop the run after this many skipped steps in a row, or after more in all if they are '
        'over a tenth of the steps so far.',
        '[1, inf)',
        on_resume='logged',
        unused=overridden_by('sweep.vmap'),
    )
    config.debug = section(
        on_resume='free',
        batch=key(0, 'N > 0: print the decoded batch of step N and exit'),
    )
    return config.lock()
