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

from ml_collections import ConfigDict, FieldReference
from ml_collections.config_dict import placeholder


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = 'pretraining'  # or a kind of fine-tuning problem, set by configs/finetune.py
    config.seed = 0  # seed of the parameters, the data order, masks and dropout
    # Folder for everything the run writes. Rerun the same command to resume.
    config.workdir = 'runs/base'

    # Text, tokenizer, and how examples are made from documents.
    config.data = ConfigDict(
        dict(
            # 'sample', 'text:GLOB', 'jsonl:GLOB', 'parquet:GLOB', 'hf:FOLDER',
            # 'tfds:NAME/CONFIG'; options after ';'.
            sources=('tfds:wiki40b/en',),
            # Folder of the tokenized text; prepared if missing. If the command line names an
            # existing corpus, its settings of the text need not be repeated.
            corpus='corpora/wiki40b_en',
            # 'train:KIND:SIZE' (wordpiece, bytebpe, unigram, sentencepiece-bpe) or the path of a
            # vocab.txt, tokenizer.json or SentencePiece model.
            tokenizer='train:wordpiece:30522',
            lowercase=True,  # lowercase the text
            # Strip accents and vowel signs; default: WordPiece does if it lowercases, as in BERT.
            strip_accents=placeholder(bool),
            held_out_fraction=0.005,  # share of the documents used for evaluation only
            language_alpha=1.0,  # language shares ∝ (share of examples)^alpha; XLM-R: 0.3
            tokenizer_language_alpha=1.0,  # the same for the text that trains the tokenizer
            tokenizer_characters=67_108_864,  # maximum length of that text, drawn as random lines
            max_bad_share=0.05,  # tolerated share of unusable files, and of bad lines in a file
            # Processes that tokenize the text; default: one per core that may be used.
            prepare_workers=placeholder(int),
            # Compare an existing corpus with its digests at the start, about a second for 0.5 GB;
            # False: only the sizes of its files.
            verify_corpus=True,
            # Local cache of a corpus in a bucket (gs://, s3://).
            cache_folder='~/.cache/bert_jax/blocks',
            cache_gigabytes=50.0,  # maximum size of that folder; fastest if it holds the corpus
            # 'pairs' (for nsp), 'ordered_pairs' (for sop), 'single' segments, 'two_segments' of
            # contiguous text in 90 % of the rows (ELECTRA), or whole sentences as in RoBERTa:
            # 'full_sentences' (across documents), 'doc_sentences' (within documents).
            segments='pairs',
            pack=False,  # True: several short examples per row, which cannot attend to each other
            short_sequence_probability=0.1,  # share of examples with a shorter, random length
            faithful_negatives=False,  # True: draw pairs as the published code (docs/fidelity.md)
            reading_threads=2,  # threads that assemble batches
        )
    )
    # Unset sizes come from the architecture or from the weights in `init_from`.
    config.model = ConfigDict(
        dict(
            # a name in bert_jax/models/architectures; None: the architecture of init_from
            architecture=FieldReference('bert_base'),
            hidden_size=placeholder(int),  # width of the hidden states
            num_layers=placeholder(int),  # number of encoder layers
            num_heads=placeholder(int),  # default: hidden_size / 64
            intermediate_size=placeholder(int),  # feed-forward width; default: 4 · hidden_size
            embedding_size=placeholder(int),  # width of the embeddings if not hidden_size
            max_position_embeddings=placeholder(int),  # longest sequence in tokens
            type_vocab_size=placeholder(int),  # number of segment types
            hidden_act=placeholder(str),  # 'gelu' (exact) or 'gelu_tanh' (original code)
            layer_norm_eps=placeholder(float),  # added to the variance in layer normalization
            hidden_dropout=placeholder(float),  # probability
            attention_dropout=placeholder(float),  # probability
            initializer_range=placeholder(float),  # standard deviation of initial weights
            encoder=placeholder(str),  # kind of encoder; default 'transformer'
            pooler=placeholder(bool),  # whether there is a pooled state
            mask_decoder=placeholder(bool),  # DeBERTa: absolute positions only for predicting masks
            global_theta=placeholder(float),  # ModernBERT: rotary base of the global layers
        )
    )
    # Initial weights: a run, a checkpoint or a Hugging Face folder; '' = random. Tokens missing
    # from its vocabulary start as the mean of their subwords.
    config.init_from = ''
    config.init_positions = 'tile'  # or 'interpolate': how to extend position embeddings
    # Precision, memory and kernels.
    config.compute = ConfigDict(
        dict(
            dtype='bfloat16',  # of activations and matrix products; parameters are float32
            float32_residual=False,  # True: sums of residual connections in float32
            scan_layers=False,  # True: compile one layer instead of all; compiles faster
            remat=False,  # True: recompute layers in the backward pass; less memory, more time
            # 'cudnn' (NVIDIA), 'flash' (TPU) or 'xla'; 'auto': the first that can run the model
            attention_kernel='auto',
        )
    )
    # Weight of each objective in the loss; 0 = off.
    config.objectives = ConfigDict(
        dict(
            mlm=1.0,  # masked language modeling; with rtd it trains the generator
            nsp=1.0,  # next sentence prediction; data.segments='pairs'
            sop=0.0,  # sentence order prediction; data.segments='ordered_pairs'
            sbo=0.0,  # span boundary objective; masking.scheme='spans' or 'anchored_spans'
            rtd=0.0,  # replaced token detection, together with mlm; published: 50
            clm=0.0,  # causal language modeling; needs memory for logits at every position
            permutation=0.0,  # detect sentences out of order
            deletion=0.0,  # detect where tokens were deleted, and predict them
            insertion=0.0,  # detect inserted tokens
            substitution=0.0,  # detect tokens replaced at random
        )
    )
    # Which tokens are hidden, and by what.
    config.masking = ConfigDict(
        dict(
            rate=0.15,  # share of the tokens to choose; training.max_predictions must allow it
            per_sequence=True,  # choose `rate` of each packed sequence; False: of the whole row
            mask=0.8,  # share of the chosen tokens that become [MASK]
            random=0.1,  # share of the chosen tokens that become random tokens; the rest is kept
            replacement='uniform',  # random tokens; 'unigram': by their frequency
            unknown=True,  # whether [UNK] may be chosen: in BERT, ALBERT, ELECTRA, not in DeBERTa
            # 'tokens', 'whole_words', 'ngrams' (ALBERT), 'spans' (SpanBERT's paper) or
            # 'anchored_spans' (SpanBERT's code).
            scheme='tokens',
            # Which tokens start a word: 'marks' of the vocabulary; 'punctuation': also punctuation
            # (DeBERTa); 'albert': also all but English letters.
            word_starts='marks',
            # Words in scripts without spaces: 'subwords' or 'characters'; 'refuse' such text.
            unspaced='refuse',
            span_p=0.2,  # p of the geometric distribution of span lengths
            longest_span=10,  # words
            longest_ngram=3,  # words
        )
    )
    # Options of the objective sbo.
    config.sbo = ConfigDict(
        dict(
            position_size=200,  # width of the embedding of a token's position in its span
            max_targets=20,  # predicted tokens per span
        )
    )
    # Options of the objective rtd.
    config.rtd = ConfigDict(
        dict(
            generator_width=0.25,  # factor on width and heads; ELECTRA small 1/4, base 1/3
            generator_depth=1.0,  # factor on layers; DeBERTaV3: 0.5 at full width
            # Embeddings: 'gdes', separate gradients and norms (DeBERTaV3); 'disentangled', separate
            # gradients of token embeddings.
            sharing='tied',
            temperature=1.0,  # of the generator's samples
        )
    )
    # Options of the objectives permutation, deletion, insertion and substitution: share of tokens.
    config.editing = ConfigDict(
        dict(
            permutation=0.5,  # share of the examples whose sentences are reordered
            deletion=0.15,  # tokens that are deleted
            insertion=0.15,  # tokens that are inserted, per token of the text
            substitution=0.15,  # tokens that are replaced at random
        )
    )
    # Length of training: one value for each stage, or one for all stages.
    config.training = ConfigDict(
        dict(
            # Of each stage. One value counts for each stage: 1000 is 2000 steps in two stages.
            steps=(900_000, 100_000),
            sequence_length=(128, 512),  # tokens per sequence, special tokens included
            batch_size=(256, 256),  # sequences per step, over all devices and micro-batches
            accumulation=(1,),  # micro-batches per step: less memory, same result
            max_predictions=(20, 76),  # maximum number of masked tokens per sequence
        )
    )
    config.optimizer = ConfigDict(
        dict(
            # Adam without bias correction; or 'adamw', 'stable_adamw', 'lamb' as in its paper,
            # 'albert_lamb' as in ALBERT's code.
            name='bert_adam',
            beta1=0.9,  # decay per step of the mean of gradients
            beta2=0.999,  # decay per step of the mean of squared gradients
            eps=1e-6,  # added to the root of the mean of squared gradients
            weight_decay=0.01,  # share of each parameter, times the learning rate, removed per step
            decay_exclude=('bias', 'norm'),  # patterns of parameters without weight decay
            clip_norm=1.0,  # global gradient norm; 0 = off
        )
    )
    config.schedule = ConfigDict(
        dict(
            name='bert_linear',  # or 'linear', 'cosine', 'sqrt', 'constant'
            learning_rate=1e-4,  # peak
            end_learning_rate=0.0,  # after the last step
            warmup_steps=placeholder(int),  # default: warmup_fraction of the run; 0 = no warmup
            warmup_fraction=10_000 / 1_000_000,  # share of the run; BERT: 10k of 1M steps
            decay_steps=0,  # decay over the last steps only, constant before; 0 = after the warmup
        )
    )
    # Which layers are trained, and at which learning rate; mostly used with init_from.
    config.transfer = ConfigDict(
        dict(
            # 'full', or parameter-efficient tuning of the model at init_from: 'lora', 'houlsby',
            # 'pfeiffer', 'parallel', 'prefix', 'prompt', 'bitfit', 'ia3', 'mam' (docs/tuning.md).
            # The keys up to per_layer are settings of these methods; None: as published.
            method='full',
            rank=placeholder(int),  # lora
            alpha=placeholder(float),  # lora: updates are multiplied by alpha / rank
            # lora: of query, key, value, attention_output, feedforward_input, feedforward_output
            targets=placeholder(tuple),
            bottleneck=placeholder(int),  # houlsby, pfeiffer, parallel, mam: inner width
            scale=placeholder(float),  # parallel, mam: factor on what is added
            length=placeholder(int),  # prefix, prompt, mam: number of vectors
            biases=placeholder(str),  # bitfit: 'all' or 'query_and_intermediate'
            per_layer=placeholder(bool),  # False: ALBERT's layers share the added parameters too
            train_pooler=False,  # with a method: train the pooler of init_from too
            trainable='all',  # 'heads', or 'last:2': the heads and the last 2 layers
            layer_decay=1.0,  # factor on the rate per layer below the heads; ELECTRA 0.8
            faithful_layer_decay=False,  # True: applied twice to the last layer (ELECTRA's code)
            unfreeze_every_steps=0,  # gradual unfreezing: one more layer after this many steps
            unfreeze_every_fraction=0.0,  # share of the run, instead of unfreeze_every_steps
            reinit_layers=0,  # last layers of init_from to reinitialize, with the pooler
        )
    )
    # Devices per mesh axis; -1 = all remaining devices.
    config.mesh = ConfigDict(dict(data=-1, fsdp=1, tensor=1))
    # Logical axis name → mesh axis; axes that are not listed are replicated.
    config.sharding_rules = (
        ('batch', ('data', 'fsdp')),
        ('vocab', 'tensor'),
        ('mlp', 'tensor'),
        ('heads', 'tensor'),
        ('embed', 'fsdp'),
    )
    # Evaluation on held-out documents.
    config.evaluation = ConfigDict(
        dict(
            every_steps=10_000,  # steps between evaluations
            steps=(),  # further steps at which to evaluate, such as (0, 100, 1000); 0: before any
            examples=10_240,  # examples per evaluation
            cloze_examples=8,  # examples with predictions in the model card
            # Metric that selects the checkpoint to keep and return, such as 'mlm_accuracy';
            # '' = the last one.
            best='',
            patience=0,  # early stopping: evaluations without improvement; 0 = off
            # What else every evaluation measures (docs/linguistic_evaluation.md).
            linguistic=dict(
                pairs=(),  # files or globs of minimal pairs with BLiMP's columns
                pairs_per_paradigm=20,  # maximum; fewer if max_share requires it
                # CoNLL-U files or globs for a linear part-of-speech probe of the last layer
                treebank=(),
                sentences=600,  # evenly spaced sentences of the treebank, every third for testing
                isotropy=False,  # mean cosine of two tokens in each layer
                max_share=0.03,  # maximum share of the operations of the training
            ),
        )
    )
    config.checkpoint = ConfigDict(
        dict(
            every_steps=5_000,  # steps between checkpoints
            keep=3,  # number of most recent checkpoints to keep
        )
    )
    config.logging = ConfigDict(
        dict(
            every_steps=100,  # steps between lines of metrics.jsonl
            wandb='',  # project of Weights & Biases to record the run in; '' = none
            profile_steps=(),  # first and last step of a trace in WORKDIR/profile, such as (10, 12)
        )
    )
    # Several runs in one command, compared by evaluation.best or the first metric.
    config.sweep = ConfigDict(
        dict(
            seeds=(),  # one run per seed; () = the seed of this config
            learning_rates=(),  # one run per rate; () = the rate of this config
            ranks=(),  # with transfer.method='lora': one run per rank; () = transfer.rank
            vmap=False,  # with transfer.method: train all runs at once over one frozen model
        )
    )
    # Skip steps whose gradient norm exceeds this factor times its running mean; 0 = off. Steps
    # with a loss or gradient that is not finite are always skipped.
    config.spike_factor = 0.0
    # Stop the run after this many skipped steps in a row, or after more in all if they are over a
    # tenth of the steps so far.
    config.max_skipped_in_row = 10
    config.debug = ConfigDict(
        dict(
            batch=0,  # N > 0: print the decoded batch of step N and exit
        )
    )
    return config.lock()
