/* Views of masked-language models: fillings of masks, and the log-odds of two fillings. */
'use strict';

const GUESSES = 10;
const FIRST_FILLINGS = ['result', 'name'];

/** The most probable tokens at every mask of the text. */
class FillMaskView {
  constructor(app) {
    this.app = app;
    this.id = 'fill-mask';
    this.title = 'Fill mask';
    this.usesText = true;
    this.usesMask = true;
    this.status = statusLine();
    this.results = element('div', { class: 'columns' });
    this.panel = [this.status, this.results];
  }

  async update(isWanted) {
    const { model, text } = this.app;
    const { tokens, isCut } = model.tokens(text);
    const mask = model.tokenizer.description.mask_id;
    const masks = tokens.flatMap((token, index) => (token.id === mask ? [index] : []));
    if (!masks.length) return this.offerWords(tokens, text, isCut);
    const output = await model.run(model.layOut([tokens]), isWanted);
    if (output === null) return;
    const lists = masks.map((index, number) => {
      const shares = softmax(model.maskedLogits(output, index + 1));
      return this.guesses(tokens[index], number, shares);
    });
    this.status.textContent = this.app.cutNote(isCut) + this.summary(lists);
    replaceContents(this.results, ...lists.map(({ list }) => list));
  }

  summary(lists) {
    const first = lists.map(({ best }) => `“${best}”`).join(', ');
    return `Most probable: ${first}. Choose a token to put it into the text.`;
  }

  /** The list of one mask, and its first guess. */
  guesses(token, number, shares) {
    const { model, text } = this.app;
    const rows = topK(shares, GUESSES).map((id) => {
      const surface = model.tokenizer.surface(id);
      return {
        ...surface,
        name: surface.joins ? `##${surface.text}` : surface.text,
        share: shares[id],
      };
    });
    const choose = (index) => {
      const { text: filling, joins } = rows[index];
      const start = joins ? text.slice(0, token.start).trimEnd().length : token.start;
      this.app.replaceText(start, token.end, filling);
    };
    const list = element(
      'section',
      {},
      element('h2', {}, `Mask ${number + 1}: `, markedText(text, token.start, token.end, 20)),
      barList(`Guesses for mask ${number + 1}`, rows, choose),
    );
    return { list, best: rows[0].name };
  }

  /** Offer every word to hide, for a text without a mask. */
  offerWords(tokens, text, isCut) {
    const { model } = this.app;
    const words = rowWords(model, tokens, text).slice(1, -1);
    const hide = (index) => {
      this.app.replaceText(words[index].start, words[index].stop, model.tokenizer.maskToken);
    };
    this.status.textContent = words.length
      ? `${this.app.cutNote(isCut)}There is no mask. Choose a word to hide:`
      : 'Type a text with a mask.';
    replaceContents(this.results, wordButtons('Hide a word', words, -1, hide));
  }
}

/** Which of two fillings of the first mask is more probable, and by how much. */
class LogOddsView {
  constructor(app) {
    this.app = app;
    this.id = 'log-odds';
    this.title = 'Log-odds';
    this.usesText = true;
    this.usesMask = true;
    const refresh = debounce(() => app.refresh(), 150);
    this.inputs = FIRST_FILLINGS.map((value) =>
      element('input', { type: 'text', value, oninput: refresh }),
    );
    this.status = statusLine();
    this.results = element('div');
    this.panel = [
      element(
        'div',
        { class: 'fields' },
        labeled('Filling A', this.inputs[0]),
        labeled('Filling B', this.inputs[1]),
      ),
      this.status,
      this.results,
      element(
        'p',
        { class: 'note' },
        'log p(A) − log p(B) at the first mask, in nats. A filling of several subwords has the ' +
          'sum of their log probabilities, each given the subwords before it.',
      ),
    ];
  }

  async update(isWanted) {
    const { model, text } = this.app;
    const { tokens, isCut } = model.tokens(text);
    const mask = model.tokenizer.description.mask_id;
    const masked = tokens.findIndex((token) => token.id === mask);
    const before = text.slice(0, tokens[masked]?.start);
    const fillings = this.inputs.map((input) => this.subwords(input.value.trim(), before));
    this.results.replaceChildren();
    if (masked < 0 || fillings.some((ids) => !ids.length)) {
      this.status.textContent = 'Type a text with a mask, and two fillings.';
      return;
    }
    const row = model.layOut([tokens]);
    const logs = [];
    for (const filling of fillings) {
      const log = await model.logProbability(row, masked + 1, filling, isWanted);
      if (log === null) return;
      logs.push(log);
    }
    this.show(logs, fillings, isCut);
  }

  /** Token ids of a filling, encoded with a space before it if the mask has one. */
  subwords(filling, before) {
    if (!filling) return [];
    const space = /\p{White_Space}$/u.test(before) ? ' ' : '';
    return this.app.model.tokenizer.encode(space + filling).map((token) => token.id);
  }

  show(logs, fillings, isCut) {
    const [a, b] = this.inputs.map((input) => input.value.trim());
    const odds = logs[0] - logs[1];
    const [more, less] = odds < 0 ? [b, a] : [a, b];
    const factor = Math.exp(Math.abs(odds));
    const times = factor < 1e6 ? factor.toPrecision(3) : factor.toExponential(1);
    this.status.textContent =
      `${this.app.cutNote(isCut)}Log-odds ${signed(odds)} nats: “${more}” is ` +
      `${times} times as probable as “${less}”.`;
    const { tokenizer } = this.app.model;
    const rows = [a, b].map((name, i) => {
      const pieces =
        fillings[i].length > 1 ? `${fillings[i].map((id) => tokenizer.token(id)).join(' ')}, ` : '';
      return { name: `${name} (${pieces}${signed(logs[i])} nats)`, share: Math.exp(logs[i]) };
    });
    this.results.replaceChildren(barList('Probability of each filling', rows));
  }
}
