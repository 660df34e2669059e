/* The text appears token by token, in the order in which a masked language model writes it. */
'use strict';

const STEP_PAUSE = 60; // milliseconds, so that a step can be seen
const MOST_NEW_TOKENS = 200;

class UnmaskingView {
  constructor(app) {
    this.app = app;
    this.id = 'unmasking';
    this.title = 'Write';
    this.usesText = true;
    this.usesMask = true;
    const refresh = debounce(() => app.refresh(), 150);
    const number = (value, attributes) =>
      element('input', { type: 'number', min: 0, value, oninput: refresh, ...attributes });
    this.newTokens = number(12, { max: MOST_NEW_TOKENS, step: 1 });
    this.temperature = number(1, { max: 5, step: 0.1 });
    this.order = element(
      'select',
      { onchange: refresh },
      ...ORDERS.map((name) => element('option', {}, name)),
    );
    this.status = statusLine();
    this.written = element('p', { class: 'written' });
    this.panel = [
      element(
        'div',
        { class: 'fields' },
        labeled('New tokens after the text', this.newTokens),
        labeled('Temperature', this.temperature),
        labeled('Order', this.order),
        element('button', { type: 'button', onclick: () => app.refresh() }, 'Write again'),
      ),
      this.status,
      this.written,
      element(
        'p',
        { class: 'note' },
        'Each step fills one mask and sees all the others. [MASK:5] is a gap of five tokens. The ' +
          'darker a token, the later it was written. Temperature 0 takes the most probable tokens.',
      ),
    ];
  }

  async update(isWanted) {
    const { model, text } = this.app;
    const newTokens = Math.min(MOST_NEW_TOKENS, Math.max(0, Math.floor(+this.newTokens.value || 0)));
    const temperature = Math.max(0, +this.temperature.value || 0);
    const { ids, isCut } = withGaps(model, text, newTokens);
    const mask = model.tokenizer.description.mask_id;
    const total = ids.filter((id) => id === mask).length;
    const steps = new Map();
    this.show(ids, steps, total);
    this.status.textContent = total
      ? `${this.app.cutNote(isCut)}Writing ${total} tokens …`
      : 'Type a text with a mask, or set the number of new tokens.';
    for await (const filled of unmask(model, ids, temperature, this.order.value, isWanted)) {
      steps.set(filled.index, { number: steps.size + 1, share: filled.share });
      this.show(ids, steps, total);
      await new Promise((resolve) => setTimeout(resolve, STEP_PAUSE));
      if (!isWanted()) return;
    }
    if (total && steps.size === total) {
      this.status.textContent = `${this.app.cutNote(isCut)}Wrote ${total} tokens in ${total} steps.`;
    }
  }

  /** Show the text, with a box for every hidden token. */
  show(ids, steps, total) {
    const { tokenizer } = this.app.model;
    const parts = ids.flatMap((id, index) => {
      const isHidden = id === tokenizer.description.mask_id;
      const { text, joins } = isHidden ? { text: '▢', joins: false } : tokenizer.surface(id);
      const step = steps.get(index);
      const attributes = step
        ? {
            class: step.number === steps.size && steps.size < total ? 'newest' : 'new',
            style: `--step: ${Math.round((100 * step.number) / total)}%`,
            title: `step ${step.number}, probability ${percent(step.share)}`,
          }
        : { class: isHidden ? 'hidden-token' : null };
      return [joins || !index ? '' : ' ', element('span', attributes, text)];
    });
    this.written.replaceChildren(...parts);
  }
}
