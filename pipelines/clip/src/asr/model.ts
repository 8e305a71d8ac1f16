// Moonshine (English) on onnxruntime: samples in, text out. The encoder runs once per segment, the decoder once per token.
// Both block the event loop: the encoder for about 120 ms with the longest segment, the decoder for 10 ms per token. An
// abort is noticed between tokens.
import path from "node:path";
import { pathToFileURL } from "node:url";
import { SAMPLE_RATE } from "./audio.ts";
import { packageDirectory, require } from "./packages.ts";

export type ModelName = "tiny" | "base";

/** Layers and size of one attention head; both models have 8 heads. */
const SHAPES = { tiny: { layers: 6, size: 36 }, base: { layers: 8, size: 52 } };
const HEADS = 8;
const FIRST_TOKEN = 1;
const LAST_TOKEN = 2;
/** Fast speech has about 5. A limit is needed because the decoder may repeat itself without end on noise. */
const MAX_TOKENS_PER_SECOND = 6.5;
/** The convolutions of the encoder need 56 ms. */
const MIN_SAMPLES = SAMPLE_RATE / 2;

/** The part of onnxruntime that is used; its own types are absent when it is not installed. */
interface Tensor {
  readonly data: Float32Array;
}
type Tensors = Record<string, Tensor>;
interface Session {
  run(inputs: Tensors): Promise<Tensors>;
}
interface Runtime {
  Tensor: new (type: string, data: Float32Array | BigInt64Array | boolean[], shape: number[]) => Tensor;
  InferenceSession: { create(file: string, options: object): Promise<Session> };
}
interface Tokenizer {
  decode(tokens: number[]): string;
}

export interface Model {
  recognize(samples: Float32Array, signal?: AbortSignal): Promise<string>;
}

const loaded = new Map<ModelName, Promise<Model>>();

/** Loads a model once per process. A failed load is tried again by the next call. */
export function loadModel(name: ModelName): Promise<Model> {
  let model = loaded.get(name);
  if (!model) {
    model = load(name);
    loaded.set(name, model);
    model.catch(() => loaded.delete(name));
  }
  return model;
}

async function load(name: ModelName): Promise<Model> {
  const runtime = require(packageDirectory("onnxruntime-node")!) as Runtime;
  const weights = path.join(packageDirectory("@usefulsensors/moonshine-js")!, "dist/model", name, "quantized");
  // One thread: a second one saves little on matrices of this size, and the other slots of the worker need it.
  const options = { executionProviders: ["cpu"], intraOpNumThreads: 1, interOpNumThreads: 1 };
  const encoder = await runtime.InferenceSession.create(path.join(weights, "encoder_model.onnx"), options);
  const decoder = await runtime.InferenceSession.create(path.join(weights, "decoder_model_merged.onnx"), options);
  const file = path.join(packageDirectory("llama-tokenizer-js")!, "llama-tokenizer.js");
  const { default: tokenizer } = (await import(pathToFileURL(file).href)) as { default: Tokenizer };

  return {
    async recognize(samples, signal) {
      const tokens = await decode({ runtime, encoder, decoder, ...SHAPES[name] }, samples, signal);
      return tokenizer.decode([FIRST_TOKEN, ...tokens]).trim();
    },
  };
}

interface Network {
  runtime: Runtime;
  encoder: Session;
  decoder: Session;
  layers: number;
  size: number;
}

async function decode(network: Network, samples: Float32Array, signal?: AbortSignal): Promise<number[]> {
  const { Tensor } = network.runtime;
  const input = new Float32Array(Math.max(samples.length, MIN_SAMPLES));
  input.set(samples);
  const { last_hidden_state: sound } = await network.encoder.run({
    input_values: new Tensor("float32", input, [1, input.length]),
  });
  const tokens: number[] = [];
  const maxTokens = Math.ceil((input.length / SAMPLE_RATE) * MAX_TOKENS_PER_SECOND);
  let past = emptyPast(network);
  for (let last = FIRST_TOKEN; tokens.length < maxTokens; tokens.push(last)) {
    signal?.throwIfAborted();
    const { logits, ...present } = await network.decoder.run({
      input_ids: new Tensor("int64", BigInt64Array.of(BigInt(last)), [1, 1]),
      encoder_hidden_states: sound!,
      use_cache_branch: new Tensor("bool", [tokens.length > 0], [1]),
      ...past,
    });
    last = indexOfMax(logits!.data);
    if (last === LAST_TOKEN) break;
    past = nextPast(past, present, tokens.length === 0);
  }
  return tokens;
}

/** Names the decoder's memory of earlier tokens and of the sound. There is none before the first token. */
function emptyPast({ runtime, layers, size }: Network): Tensors {
  const past: Tensors = {};
  for (let layer = 0; layer < layers; layer++) {
    for (const part of ["decoder.key", "decoder.value", "encoder.key", "encoder.value"]) {
      past[`past_key_values.${layer}.${part}`] = new runtime.Tensor("float32", new Float32Array(0), [
        0,
        HEADS,
        1,
        size,
      ]);
    }
  }
  return past;
}

/** What refers to the sound is computed with the first token only, and kept. */
function nextPast(past: Tensors, present: Tensors, first: boolean): Tensors {
  return Object.fromEntries(
    Object.entries(past).map(([name, before]) => {
      const keep = !first && name.includes(".encoder.");
      return [name, keep ? before : present[name.replace("past_key_values", "present")]!];
    }),
  );
}

function indexOfMax(values: Float32Array): number {
  let max = 0;
  for (let index = 1; index < values.length; index++) if (values[index]! > values[max]!) max = index;
  return max;
}
