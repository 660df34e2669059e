/* Runs the scripts of a page in node: node run_page.js PAGE CALLS, a JSON file with a list of
   {"name": one of `functions`, "arguments": [...]}; prints the list of results. */
'use strict';

const fs = require('node:fs');
const vm = require('node:vm');

const [page, calls] = process.argv.slice(2);
const html = fs.readFileSync(page, 'utf8');
const element = (id) => html.match(new RegExp(`<script[^>]*id="${id}"[^>]*>([^]*?)</script>`))[1];
vm.runInThisContext(element('code'));
const exported = vm.runInThisContext(
  '({ Model, decodeBase64, logSoftmax, topK, rowWords, wordAttention, principalComponents,' +
    ' withGaps, unmask, classify, regress, chooseLabels, regressTargets, choose, tag, labelSpans, answer })',
);
const model = new exported.Model(
  JSON.parse(element('description')),
  exported.decodeBase64(element('weights').trim()),
);

async function encode(text) {
  const { tokens } = model.tokens(text);
  const row = model.layOut([tokens]);
  return { tokens, row, output: await model.run(row) };
}

const functions = {
  tokens: (texts) => texts.map((text) => model.tokenizer.encode(text)),
  ids: (texts) => texts.map((text) => model.tokenizer.encode(text).map((token) => token.id)),
  surfaces: (ids) => ids.map((id) => model.tokenizer.surface(id)),
  logits: async (text) => {
    const { row, output } = await encode(text);
    return row.ids.map((_, position) => Array.from(model.maskedLogits(output, position)));
  },
  states: async (text) => (await encode(text)).output.states.map((own) => Array.from(own)),
  attention: async (text) => (await encode(text)).output.attention.map((own) => Array.from(own)),
  replaced: async (text) => {
    const { output } = await encode(text);
    return Array.from(model.heads.replaced(output.states.at(-1)));
  },
  wordAttention: async (text) => {
    const { tokens, output } = await encode(text);
    const words = exported.rowWords(model, tokens, text);
    const heads = [...Array(model.architecture.num_heads).keys()];
    return {
      words,
      weights: output.attention.map((own) =>
        heads.map((head) => Array.from(exported.wordAttention(own, head, words))),
      ),
    };
  },
  logProbability: (text, position, filling) => {
    const row = model.layOut([model.tokens(text).tokens]);
    return model.logProbability(row, position, filling);
  },
  milliseconds: async (text, repeats) => {
    const times = [];
    for (let i = 0; i < repeats; i++) {
      model.cache.clear();
      const start = performance.now();
      const { row, output } = await encode(text);
      if (model.has('mlm')) model.maskedLogits(output, 1);
      times.push([performance.now() - start, row.ids.length]);
    }
    return times;
  },
  unmask: async (text, newTokens, temperature, order) => {
    const { ids, isCut } = exported.withGaps(model, text, newTokens);
    const steps = [];
    for await (const { index, id, share } of exported.unmask(
      model,
      ids,
      temperature,
      order,
      () => true,
    )) {
      steps.push({ index, id, share });
    }
    return { ids, steps, isCut };
  },
  principalComponents: (vectors) =>
    exported.principalComponents(vectors.map((own) => Float32Array.from(own))),
};
for (const name of ['classify', 'regress', 'chooseLabels', 'regressTargets', 'choose', 'tag', 'labelSpans', 'answer']) {
  functions[name] = (...inputs) => exported[name](model, ...inputs);
}

async function main() {
  const results = [];
  for (const call of JSON.parse(fs.readFileSync(calls, 'utf8'))) {
    const result = await functions[call.name](...call.arguments);
    results.push(ArrayBuffer.isView(result) ? Array.from(result) : result);
  }
  process.stdout.write(
    JSON.stringify(results, (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value)),
  );
}

main();
