// Moves about signals and about positions in long lists.
import fc from "fast-check";
import { choose, chooseJob, fenced, hasHandle, hasJob, hits, move, settleAll, someHandle } from "./move.ts";

const eventName = fc.constantFrom("go", "go", "stop");
const stepName = fc.constantFrom("one", "two");

const signal = move(
  "signal",
  fc.record({ index: fc.nat(60), name: eventName, again: fc.constantFrom(false, false, false, true) }),
  async (world, { engine, newId }, { index, name, again }) => {
    const waits = [...world.jobs.values()].filter((job) => job.waitingFor === "event");
    const job = waits.length > 0 && index % 3 > 0 ? waits[index % waits.length]! : chooseJob(world, index);
    const id = (again && job.signals.at(-1)?.id) || newId(world.ids++);
    const said = await engine.signal(job.id, name, id);
    if (job.waitingFor === "event" && job.awaits === name) hits.heard += 1;
    return { said, should: world.signal(job, name, id), what: { job: job.id, name, id } };
  },
  hasJob,
);

const look = move(
  "look",
  fc.record({ handle: someHandle, name: eventName, step: stepName, timeout: fc.constantFrom(null, 5000) }),
  async (world, { engine }, { handle: which, name, step, timeout }) => {
    const handle = choose(world, which, (job) => job.steps.size > 0);
    const said = await engine.look(handle, name, step, timeout);
    const should = fenced(world, handle, (job) => world.look(job, name, step, timeout));
    if (should[0] === "timeout") hits.timeouts += 1;
    return { said, should, what: { handle, name, step, timeout } };
  },
  hasHandle,
);

/** As a worker does: it checks for a signal, and settles if there is none. A signal may arrive in between. */
const listen = move(
  "wait for an event",
  fc.record({ handle: someHandle, name: eventName, step: stepName }),
  (world, real, { handle: which, name, step }) => {
    const handle = choose(world, which, (job) => job.steps.get(step)?.kind === "wait");
    const kept = world.jobs.get(handle.job)!.steps.get(step);
    const until = kept?.kind === "wait" && kept.until !== null ? { until: kept.until } : {};
    return settleAll(world, real, [{ ...handle, outcome: "slept", waitingFor: "event", awaits: name, ...until }]);
  },
  hasHandle,
);

const take = move(
  "take",
  fc.record({
    handle: someHandle,
    step: stepName,
    index: fc.nat(3),
    accepted: fc.constantFrom(true, true, true, false),
  }),
  async (world, { engine, newId }, { handle: which, step, index, accepted }) => {
    const handle = choose(world, which, (job) => job.signals.length > 0 && job.steps.get(step)?.kind === "wait");
    const { signals } = world.jobs.get(handle.job)!;
    const id = signals[index % Math.max(1, signals.length)]?.id ?? newId(world.ids++);
    const said = await engine.take(handle, step, id, accepted);
    const should = fenced(world, handle, (job) => world.take(job, step, id, accepted));
    if (should === "taken" || should === "refused") hits[should] += 1;
    return { said, should, what: { handle, step, id, accepted } };
  },
  hasHandle,
);

const savePlace = move(
  "save position",
  fc.record({
    handle: someHandle,
    step: fc.constantFrom("list", "list", "rows"),
    from: fc.constantFrom<("next" | number)[]>("next", "next", 0, 4, 8, 12),
    size: fc.constantFrom(0, 2, 4, 4, 5),
    told: fc.boolean(),
    over: fc.constantFrom(false, false, false, false, true),
    reduced: fc.boolean(),
  }),
  async (world, { engine }, { handle: which, step, from: wanted, size, told, over, reduced }) => {
    const handle = choose(world, which, (job) => job.steps.has(step));
    const kept = world.jobs.get(handle.job)!.steps.get(step);
    const done = kept?.kind === "position" ? kept.done : new Set<number>();
    const from = wanted === "next" ? Math.max(-1, ...done) + 1 : wanted;
    const last = told ? { id: from + size, name: null } : null;
    const call = { from, to: from + size, last, over, value: reduced ? { sum: from + size } : null };
    const said = await engine.savePlace(handle, step, call);
    const should = fenced(world, handle, (job) => world.savePlace(job, step, call));
    if (should === "kept") hits.kept += 1;
    else if (should === "SW005") hits.stalePlaces += 1;
    else if (from > 0 && !done.has(from - 1)) hits.gaps += 1;
    return { said, should, what: { handle, step, ...call } };
  },
  hasHandle,
);

export const eventMoves = [
  signal,
  signal,
  signal,
  look,
  look,
  look,
  listen,
  listen,
  take,
  take,
  take,
  savePlace,
  savePlace,
];
