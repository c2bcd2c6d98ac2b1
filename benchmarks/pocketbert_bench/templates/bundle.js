// Answers of the bundle beside this file, as `Bundle.predict` gives them in Python.
import { loadAndCompile, loadLiteRt, Tensor } from "@litertjs/core";
import { Tokenizer } from "@huggingface/tokenizers";
import { normalizeExactly } from "./normalizer.js";

const json = async (name) => (await fetch(name)).json();
const [description, tokenizerFile] = await Promise.all([json("bundle.json"), json("tokenizer.json")]);
export const task = description.pairs?.task ?? description.task ?? { kind: "no task" };
const KINDS = ["classification", "multi_label", "regression", "embedding", "several"];

function problem({ outputs, tokenizer: { truncation } }) {
  const other = [task, ...(task.tasks ?? [])].find(({ kind }) => !KINDS.includes(kind));
  if (other) return `the page answers ${KINDS.join(", ")}; received ${other.kind}`;
  const type = outputs.map(({ dtype }) => dtype).find((dtype) => dtype !== "float32");
  if (type) return `LiteRT.js tells no scale of ${type} outputs; export the bundle with float32 outputs`;
  return truncation && `the page cuts the ends of long texts; received truncation ${truncation}`;
}

const reason = problem(description);
if (reason) throw new Error(reason);
await loadLiteRt(new URL("packages/@litertjs/core/wasm/", document.baseURI).href);
const model = await loadAndCompile("model.tflite", { accelerator: "wasm" });
const head = description.pairs ? await loadAndCompile("head.tflite", { accelerator: "wasm" }) : null;
const tokenizer = new Tokenizer(tokenizerFile, {});
normalizeExactly(tokenizer, tokenizerFile);
const padding = tokenizer.token_to_id("[PAD]") ?? tokenizer.token_to_id("<pad>");
const lengths = description.signatures.map(({ length }) => length).sort((first, second) => first - second);
const { embedding } = description.task;
export const longest = Math.min(lengths.at(-1), embedding?.max_length ?? Infinity);
const prompt = new Map(embedding?.prompts).get(embedding?.default_prompt) ?? "";

const tokenOf = (id) => tokenizer.id_to_token(id);

// Ids, segments and tokens of one text, or of a pair, and the number of tokens before the cut. Of a pair, the longer text
// is shortened first.
export function encode(text, pair = null) {
  const words = [text, ...(pair === null ? [] : [pair])].map(
    (part) => tokenizer.encode(part, { add_special_tokens: false }).ids,
  );
  const frame = tokenizer.post_processor.post_process([], pair === null ? null : []);
  const special = frame.tokens.map((token) => tokenizer.token_to_id(token));
  const room = longest - special.length, counts = words.map((ids) => ids.length);
  if (pair === null) counts[0] = Math.min(counts[0], room);
  else if (counts[0] + counts[1] > room) {
    const shorter = Math.min(...counts, Math.floor(room / 2)), other = room - shorter;
    counts.splice(0, 2, ...(counts[0] > counts[1] ? [other, shorter] : [shorter, other]));
  }
  const first = [special[0], ...words[0].slice(0, counts[0]), ...special.slice(1, pair === null ? 2 : -1)];
  const second = pair === null ? [] : [...words[1].slice(0, counts[1]), special.at(-1)];
  const segment = frame.token_type_ids.at(-1);
  const ids = [...first, ...second], count = special.length + words.flat().length;
  return { ids, types: [...first.map(() => 0), ...second.map(() => segment)], count, tokens: ids.map(tokenOf) };
}

async function runFile(file, signature, inputs) {
  const outputs = await file.run(signature, inputs);
  const values = Object.entries(outputs).map(([name, tensor]) => [name, Array.from(tensor.toTypedArray())]);
  // LiteRT.js frees no memory by itself.
  for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) tensor.delete();
  return Object.fromEntries(values);
}

// The outputs by name, and the length of the signature: the shortest that fits.
export async function run({ ids, types }) {
  const length = lengths.find((candidate) => candidate >= ids.length);
  const row = (value) => new Tensor(Int32Array.from({ length }, (_, position) => value(position)), [1, length]);
  const outputs = await runFile(model, `length_${length}`, {
    input_word_ids: row((position) => ids[position] ?? padding),
    input_mask: row((position) => Number(position < ids.length)),
    input_type_ids: row((position) => types[position] ?? 0),
  });
  return { length, outputs };
}

const sigmoid = (logit) => 1 / (1 + Math.exp(-logit));
const named = (labels, values) => Object.fromEntries(labels.map((label, index) => [label, values[index]]));

export function softmax(logits) {
  const powers = logits.map((logit) => Math.exp(logit - Math.max(...logits)));
  const sum = powers.reduce((total, power) => total + power);
  return powers.map((power) => power / sum);
}

function decide({ kind, labels, decisions }, logits) {
  if (kind === "regression") return { score: logits[0] };
  const thresholds = decisions?.thresholds;
  if (kind === "multi_label") {
    const values = logits.map(sigmoid);
    return { labels: labels.filter((_, index) => values[index] >= (thresholds?.[index] ?? 0.5)),
      probabilities: named(labels, values) };
  }
  const values = softmax(logits);
  const margins = thresholds ? values.map((value, index) => value / thresholds[index]) : values;
  const isRejected = Math.max(...values) < (decisions?.reject_below ?? 0);
  return { label: isRejected ? null : labels[margins.indexOf(Math.max(...margins))],
    probabilities: named(labels, values) };
}

function cosine(first, second) {
  const product = (one, other) => one.reduce((sum, value, index) => sum + value * other[index], 0);
  return product(first, second) / (Math.sqrt(product(first, first) * product(second, second)) || 1);
}

// The answer, and the rows that the network read.
export async function predict(text, pair = null) {
  const apart = pair !== null && description.task.kind === "embedding";
  const rows = apart ? [encode(prompt + text), encode(prompt + pair)] : [encode(prompt + text, pair)];
  const results = [];
  for (const row of rows) results.push({ row, ...(await run(row)) });
  const [{ outputs }, other] = results;
  if (head) {
    const vector = ({ embedding: values }) => new Tensor(Float32Array.from(values), [1, values.length]);
    const inputs = { first: vector(outputs), second: vector(other.outputs) };
    return { results, answer: decide(task, (await runFile(head, "head", inputs)).logits) };
  }
  if (task.tasks) {
    const answers = task.tasks.map((part) => [part.name, decide(part, outputs[`${part.name}_logits`])]);
    return { results, answer: Object.fromEntries(answers) };
  }
  if (task.kind !== "embedding") return { results, answer: decide(task, outputs.logits) };
  if (pair === null) return { results, answer: { embedding: outputs.embedding } };
  return { results, answer: { similarity: cosine(outputs.embedding, other.outputs.embedding) } };
}
