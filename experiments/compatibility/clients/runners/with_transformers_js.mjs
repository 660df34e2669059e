// transformers.js: the class of a task, on the texts that the folder's tokenizer encodes.
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const folder = path.resolve(process.argv[2]);
const found = createRequire(path.join(process.argv[3], 'x.js')).resolve('@huggingface/transformers');
const library = await import(pathToFileURL(found));
library.env.allowRemoteModels = false;
library.env.localModelPath = path.dirname(folder) + '/';
const signature = JSON.parse(fs.readFileSync(path.join(folder, 'signature.json'), 'utf8'));
const classes = {
    embed: 'AutoModel',
    fill_mask: 'AutoModelForMaskedLM',
    classify: 'AutoModelForSequenceClassification',
    rerank: 'AutoModelForSequenceClassification',
    tag: 'AutoModelForTokenClassification',
    answer: 'AutoModelForQuestionAnswering',
};
const name = path.basename(folder);
const tokenizer = await library.AutoTokenizer.from_pretrained(name);
const model = await library[classes[signature.task]].from_pretrained(name, { dtype: 'fp32' });
const texts = signature.texts.map((text) => (Array.isArray(text) ? text : [text, null]));
const options = { padding: true };
if (texts[0][1] !== null) options.text_pair = texts.map((text) => text[1]);
const inputs = tokenizer(texts.map((text) => text[0]), options);
const outputs = await model(inputs);
const answer = {};
for (const output of Object.keys(signature.outputs)) {
    if (outputs[output]) answer[output] = outputs[output].tolist();
}
console.log(JSON.stringify(answer));
