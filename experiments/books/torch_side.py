"""Trains the encoder of configs/books.py with transformers: same size, text and recipe.

    python -m experiments.books.torch_side --corpus=books/corpus --steps=1000 --output=runs/torch

The model is a ModernBertForMaskedLM as transformers initializes it, trained by its Trainer and its
collator. Rows are 126 consecutive tokens of the corpus between [CLS] and [SEP]. Rerun the command
to resume. Needs torch, transformers and accelerate.
"""

import argparse
import os
import pathlib

import numpy as np
import torch
import transformers

from bert_jax.corpus.corpus import Corpus
from configs import books


class Rows(torch.utils.data.Dataset):
    """Rows of a split of a corpus: [CLS], consecutive tokens, [SEP]."""

    def __init__(self, corpus: Corpus, tokenizer, length: int):
        self.tokenizer = tokenizer
        self.tokens_per_row = length - 2
        self.shards = [shard.tokens for shard in corpus.split('train').shards]
        rows = [len(tokens) // self.tokens_per_row for tokens in self.shards]
        self.first_row = np.concatenate([[0], np.cumsum(rows)])

    def __len__(self) -> int:
        return int(self.first_row[-1])

    def __getitem__(self, row: int) -> dict[str, list[int]]:
        shard = int(np.searchsorted(self.first_row, row, side='right')) - 1
        start = (row - self.first_row[shard]) * self.tokens_per_row
        tokens = self.shards[shard][start : start + self.tokens_per_row].tolist()
        return {'input_ids': [self.tokenizer.cls_token_id, *tokens, self.tokenizer.sep_token_id]}


def make_tokenizer(corpus: Corpus) -> transformers.PreTrainedTokenizerFast:
    """Return the tokenizer of a corpus, with the names of its special tokens."""
    names = {'cls': '[CLS]', 'sep': '[SEP]', 'pad': '[PAD]', 'unk': '[UNK]', 'mask': '[MASK]'}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=f'{corpus.directory}/tokenizer.json',
        **{f'{name}_token': token for name, token in names.items()},
    )


def make_model(config, tokenizer) -> transformers.ModernBertForMaskedLM:
    """Return a newly initialized model of the size of a config of bert_jax."""
    model, length = config.model, config.training.sequence_length[0]
    return transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(
            vocab_size=len(tokenizer),
            hidden_size=model.hidden_size,
            num_hidden_layers=model.num_layers,
            num_attention_heads=model.num_heads,
            intermediate_size=model.intermediate_size,
            max_position_embeddings=length,
            initializer_range=model.initializer_range,
            global_rope_theta=model.attention.theta,
            pad_token_id=tokenizer.pad_token_id,
            cls_token_id=tokenizer.cls_token_id,
            sep_token_id=tokenizer.sep_token_id,
            bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--corpus', required=True, help='folder of a corpus of bert_jax')
    parser.add_argument('--steps', type=int, required=True)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--output', type=pathlib.Path, required=True)
    flags = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.set_seed(flags.seed)
    config, corpus = books.get_config(), Corpus.open(flags.corpus)
    tokenizer = make_tokenizer(corpus)
    optimizer, schedule, training = config.optimizer, config.schedule, config.training
    arguments = transformers.TrainingArguments(
        output_dir=f'{flags.output}_checkpoints',  # a folder of checkpoints would look like a run
        max_steps=flags.steps,
        seed=flags.seed,
        per_device_train_batch_size=training.batch_size[0],
        learning_rate=schedule.learning_rate,
        lr_scheduler_type=schedule.name,
        warmup_steps=round(schedule.warmup_fraction * flags.steps),
        weight_decay=optimizer.weight_decay,
        adam_beta1=optimizer.beta1,
        adam_beta2=optimizer.beta2,
        adam_epsilon=optimizer.eps,
        max_grad_norm=optimizer.clip_norm,
        logging_steps=50,
        save_steps=250,
        save_total_limit=1,
        report_to='none',
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        model=make_model(config, tokenizer),
        args=arguments,
        train_dataset=Rows(corpus, tokenizer, training.sequence_length[0]),
        data_collator=transformers.DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=config.masking.rate
        ),
    )
    last = transformers.trainer_utils.get_last_checkpoint(arguments.output_dir)
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(str(flags.output))
    tokenizer.save_pretrained(flags.output)


if __name__ == '__main__':
    main()
