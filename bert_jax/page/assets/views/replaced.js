/* Replaced-token detection (ELECTRA): which tokens do not belong in the text. */
'use strict';

class ReplacedView {
  constructor(app) {
    this.app = app;
    this.id = 'replaced';
    this.title = 'Replaced tokens';
    this.usesText = true;
    this.status = statusLine();
    this.results = element('div');
    this.panel = [this.status, this.results];
  }

  async update(isWanted) {
    const { model, text } = this.app;
    const { tokens, isCut } = model.tokens(text);
    const output = await model.run(model.layOut([tokens]), isWanted);
    if (output === null) return;
    this.results.replaceChildren();
    if (!tokens.length) {
      this.status.textContent = 'Type a text.';
      return;
    }
    const logits = model.heads.replaced(output.states.at(-1)).slice(1, -1);
    const shares = logits.map((logit) => 1 / (1 + Math.exp(-logit)));
    const names = tokens.map(({ id }) => model.tokenizer.surface(id).text);
    const [most] = topK(shares, 1);
    this.status.textContent = `${this.app.cutNote(isCut)}Most probably replaced: “${names[most]}”, ${percent(shares[most])}.`;
    const rows = names.map((name, index) => ({ name, share: shares[index] }));
    this.results.append(barList('Probability that a token was replaced', rows));
  }
}
