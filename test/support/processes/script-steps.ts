// Steps of the pipeline `script` (test/fixtures/pipelines/script.mjs), which does what its input says.

type ScriptStep = {
  name: string;
  act: string;
  gate?: string;
};

export const nothing = (name: string): ScriptStep => ({ name, act: "nothing" });

/** Waits until the observer opens the gate. */
export const gated = (name: string, gate: string): ScriptStep => ({ name, act: "gate", gate });

/** Waits at a gate of its attempt: `gate`, a dash and the fencing token. */
export const turnstile = (name: string, gate: string): ScriptStep => ({ name, act: "turnstile", gate });
