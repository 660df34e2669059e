/* Attention of every layer and head, between words. */
'use strict';

class AttentionView {
  constructor(app) {
    this.app = app;
    this.id = 'attention';
    this.title = 'Attention';
    this.usesText = true;
    const { num_layers: layers, num_heads: heads } = app.model.architecture;
    this.layer = layers - 1;
    this.head = 0;
    this.word = null;
    this.isReversed = false;
    this.thumbnails = [];
    this.status = statusLine();
    this.words = element('div');
    this.list = element('div');
    this.matrix = element('div');
    this.direction = element(
      'select',
      { onchange: () => this.turn() },
      element('option', { value: 'from' }, 'it attends to'),
      element('option', { value: 'to' }, 'attend to it'),
    );
    this.panel = [
      element('h2', { id: 'heads-title' }, 'All heads: a row for each layer'),
      this.grid(layers, heads),
      element('h2', {}, 'The chosen head'),
      this.status,
      this.words,
      labeled('Show which words', this.direction),
      element('div', { class: 'columns' }, this.list, this.matrix),
    ];
  }

  /** Small pictures of all heads; the arrow keys move between them. */
  grid(layers, heads) {
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        const name = `Layer ${layer + 1}, head ${head + 1}`;
        const choose = () => this.choose(layer, head);
        const canvas = element('canvas');
        const attributes = { type: 'button', role: 'radio', 'aria-label': name, title: name };
        this.thumbnails.push(element('button', { ...attributes, onclick: choose }, canvas));
      }
    }
    const move = (index) => this.choose(Math.floor(index / heads), index % heads);
    withArrowKeys(this.thumbnails, heads, move);
    return element(
      'div',
      {
        class: 'heads',
        role: 'radiogroup',
        'aria-labelledby': 'heads-title',
        style: `--heads:${heads}`,
      },
      ...this.thumbnails,
    );
  }

  choose(layer, head) {
    [this.layer, this.head] = [layer, head];
    this.show();
  }

  turn() {
    this.isReversed = this.direction.value === 'to';
    this.show();
  }

  async update(isWanted) {
    const { model, text } = this.app;
    const { tokens, isCut } = model.tokens(text);
    const output = await model.run(model.layOut([tokens]), isWanted);
    if (output === null) return;
    this.note = this.app.cutNote(isCut);
    this.rowWords = rowWords(model, tokens, text);
    this.word ??= 1 + longestWord(this.rowWords.slice(1, -1), model.tokenizer.maskToken);
    this.word = Math.min(this.word, this.rowWords.length - 1);
    const heads = [...Array(model.architecture.num_heads).keys()];
    this.weights = output.attention.map((attention) =>
      heads.map((head) => wordAttention(attention, head, this.rowWords)),
    );
    this.weights.flat().forEach((weights, index) => {
      drawThumbnail(this.thumbnails[index].firstChild, weights, this.rowWords.length);
    });
    this.show();
  }

  /** Show the chosen word in the chosen head. */
  show() {
    const words = this.rowWords;
    const weights = this.weights[this.layer][this.head];
    const chosen = this.layer * this.app.model.architecture.num_heads + this.head;
    this.thumbnails.forEach((button, index) => {
      button.setAttribute('aria-checked', String(index === chosen));
      button.tabIndex = index === chosen ? 0 : -1;
    });
    const shares = words.map((_, other) =>
      this.isReversed
        ? weights[other * words.length + this.word]
        : weights[this.word * words.length + other],
    );
    this.showWords(shares);
    const name = `Layer ${this.layer + 1}, head ${this.head + 1}`;
    const best = shorten(words[topK(shares, 1)[0]].label, LONGEST_NAME);
    const relation = this.isReversed ? 'is attended to most by' : 'attends most to';
    const label = shorten(words[this.word].label, LONGEST_NAME);
    this.status.textContent = `${this.note}${name}: “${label}” ${relation} “${best}”.`;
    const rows = topK(shares, 8).map((index) => ({
      name: shorten(words[index].label, LONGEST_NAME),
      share: shares[index],
    }));
    this.list.replaceChildren(barList(`Attention, ${name}`, rows));
    const picture = `${name}: rows attend to columns`;
    this.matrix.replaceChildren(attentionMatrix(picture, words, weights, this.word));
  }

  /** The words as buttons, shaded by their attention. */
  showWords(shares) {
    const pick = (index) => {
      this.word = index;
      this.show();
    };
    const row = wordButtons('Choose a word', this.rowWords, this.word, pick);
    row.querySelectorAll('button').forEach((button, index) => {
      button.style.setProperty('--share', Math.sqrt(shares[index]).toFixed(3));
    });
    replaceContents(this.words, row);
  }
}
