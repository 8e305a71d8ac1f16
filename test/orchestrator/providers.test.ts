// One suite for all providers: what the orchestrator relies on, whoever makes the machines. A provider is tried on a stage (support/providers/provider-cases.ts): the processes of
// this computer for the local one, a fake of its API for the others. What is there is asked of the stage, not of the provider.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { machineName } from "../../src/orchestrator/names.ts";
import type { Exit, Provider, ProviderError, SeenMachine } from "../../src/orchestrator/provider.ts";
import { waitFor } from "../../src/testing/index.ts";
import { cloudRunStage, flyStage, kubernetesStage } from "../support/providers/api-provider-cases.ts";
import { FLEET, localStage, orderOf, POOL, type ProviderStage } from "../support/providers/provider-cases.ts";

const CANARY = "token-of-the-orchestrator-2f6c";

conforms("local", async () => localStage());
conforms("fly", flyStage);
conforms("cloud-run", cloudRunStage);
conforms("kubernetes", kubernetesStage);

function conforms(name: string, makeStage: () => Promise<ProviderStage>): void {
  describe(name, () => {
    let stage: ProviderStage;
    let provider: Provider;
    const names = async () => (await provider.list()).map((machine) => machine.name);
    const find = async (one: string) => (await provider.list()).find((machine) => machine.name === one);
    /** What time it is there. */
    const now = () => Date.now() + stage.waits().reduce((sum, ms) => sum + ms, 0);
    const isRunning = async (one: string) => (await find(one))?.state === "running";

    beforeAll(() => {
      process.env.FLY_API_TOKEN = CANARY;
    });
    afterAll(() => {
      delete process.env.FLY_API_TOKEN;
    });
    beforeEach(async () => {
      stage = await makeStage();
      provider = stage.provider();
      return () => stage.close();
    });

    it("has no machines to begin with", async () => {
      expect(await provider.list()).toEqual([]);
      expect(provider.kind).toBe(name);
    });

    it("starts one machine of exactly this name, and no second when asked again, be it at the same time", async () => {
      const order = orderOf(1, { burst: 7 });
      const before = now();
      const [one, two] = await Promise.all([provider.start(order), provider.start(order)]);
      const three = await provider.start(order);
      await waitFor(() => isRunning(order.name));
      expect(stage.running()).toEqual([order.name]);
      expect(new Set([one.id, two.id, three.id]).size).toBe(1);
      const [seen, ...others] = await provider.list();
      expect(others).toEqual([]);
      expect(seen).toMatchObject({ name: order.name, id: one.id, state: "running" });
      expect(seen!.startedAt!.getTime()).toBeGreaterThan(before - 5000);
      expect(seen!.startedAt!.getTime()).toBeLessThan(now() + 5000);
      expect(seen!.endedAt).toBeUndefined();
    });

    it("gives it the environment of its order, and no token", async () => {
      const order = orderOf(1, { burst: 1 });
      await provider.start(order);
      await waitFor(() => stage.running().length === 1);
      const environment = stage.environmentOf(order.name);
      expect(environment).toMatchObject(order.env);
      expect(Object.values(environment).join("\n")).not.toContain(CANARY);
      expect(Object.keys(environment).filter((one) => /TOKEN|GOOGLE_APPLICATION|KUBECONFIG/.test(one))).toEqual([]);
    });

    it("tells of a burst machine that has ended that it is gone for ever, and how it ended", async () => {
      const order = orderOf(2, { burst: 3 });
      const { id } = await provider.start(order);
      await waitFor(() => isRunning(order.name));
      await stage.end(order.name, 3);
      const seen = await waitFor(async () => {
        const machine = await find(order.name);
        return (machine?.state ?? "gone") === "gone" && { machine };
      });
      const exit: Exit | undefined = seen.machine?.exit ?? (await provider.autopsy?.({ name: order.name, id }));
      expect(exit).toMatchObject({ code: 3 });
      if (seen.machine) checkTimes(seen.machine, now());
      expect(stage.running()).toEqual([]);
    });

    it("says at once that one has ended, where it can", async ({ skip }) => {
      if (!provider.onEnded) return skip("it does not learn of ends by itself");
      const ends: SeenMachine[] = [];
      provider.onEnded((machine) => ends.push(machine));
      const order = orderOf(1, { burst: 1 });
      await provider.start(order);
      await stage.end(order.name, 5);
      await waitFor(() => ends.length > 0);
      expect(ends).toMatchObject([{ name: order.name, state: "gone", exit: { code: 5 } }]);
    });

    it("keeps one that was made beforehand: stopped, started, ended, and started again under its name", async ({
      skip,
    }) => {
      if (!provider.prepare) return skip("it makes none beforehand");
      const order = orderOf(1);
      const { id } = await provider.prepare(order);
      expect((await provider.prepare(order)).id).toBe(id);
      // Where it has to run for a moment to be made, its worker finds nothing to do.
      if (stage.running().length > 0) await stage.end(order.name, 0);
      await waitFor(async () => (await find(order.name))?.state === "stopped");
      expect(stage.running()).toEqual([]);
      for (const code of [0, 4]) {
        await provider.start(order);
        await waitFor(() => isRunning(order.name));
        expect(stage.running()).toEqual([order.name]);
        await stage.end(order.name, code);
        const seen = await waitFor(async () => {
          const machine = await find(order.name);
          return machine?.state === "stopped" && machine;
        });
        checkTimes(seen, now());
        const exit = seen.exit ?? (await provider.autopsy?.(seen));
        expect(exit).toMatchObject({ code });
      }
      expect(await names()).toEqual([order.name]);
    });

    it("removes a machine that runs, one that is stopped, one that has gone, and minds none that is not there", async () => {
      const running = orderOf(1, { burst: 1 });
      const gone = orderOf(2, { burst: 2 });
      const ids = [await provider.start(running), await provider.start(gone)];
      await waitFor(async () => (await isRunning(running.name)) && (await isRunning(gone.name)));
      await stage.end(gone.name, 0);
      const removed = [running.name, gone.name].map((one, place) => ({ name: one, id: ids[place]!.id }));
      if (provider.prepare) {
        const stopped = orderOf(3);
        removed.push({ name: stopped.name, id: (await provider.prepare(stopped)).id });
        if (stage.running().includes(stopped.name)) await stage.end(stopped.name, 0);
        await waitFor(async () => (await find(stopped.name))?.state === "stopped");
      }
      for (const machine of removed) await provider.remove(machine);
      // Again, and one that there never was.
      for (const machine of [...removed, { name: machineName(FLEET, POOL, 9), id: removed[0]!.id }])
        await provider.remove(machine);
      await waitFor(() => stage.running().length === 0);
      await waitFor(async () => (await provider.list()).every(({ state }) => state === "gone"));
    });

    it("T47: never lists, starts or removes a machine of another fleet or pool, nor one that only has such a name", async () => {
      const others = [
        { name: machineName("bbbbbbbb", POOL, 1), fleet: "bbbbbbbb", pool: POOL },
        // A pool whose name begins alike, and whose machines so do.
        { name: machineName(FLEET, "scan-m1", 1), fleet: FLEET, pool: "scan-m1" },
        { name: machineName(FLEET, "scanner", 1), fleet: FLEET, pool: "scanner" },
        // Of this name, and not of this fleet: no tag, or another's.
        { name: machineName(FLEET, POOL, 1) },
        { name: machineName(FLEET, POOL, 2), fleet: "bbbbbbbb", pool: POOL },
        { name: "postgres", fleet: FLEET, pool: POOL },
      ];
      const ids = new Map<string, string>();
      for (const other of others) ids.set(other.name, await stage.foreign(other));
      const there = stage.running().toSorted();
      expect(there).toHaveLength(others.length);
      expect(await provider.list()).toEqual([]);
      for (const { name: one } of others) {
        const id = ids.get(one)!;
        await provider.remove({ name: one, id }).catch(() => {});
        await provider.remove({ name: orderOf(1).name, id }).catch(() => {});
        await provider.remove({ name: orderOf(7).name, id }).catch(() => {});
        await provider.autopsy?.({ name: one, id }).catch(() => {});
      }
      expect(stage.running().toSorted()).toEqual(there);
      // Its own is made beside them.
      const order = orderOf(5, { burst: 1 });
      await provider.start(order);
      await waitFor(() => isRunning(order.name));
      expect(await names()).toEqual([order.name]);
      expect(stage.running().toSorted()).toEqual([...there, order.name].toSorted());
    });

    it("T47: two fleets and two pools side by side see and end each its own", async () => {
      const whose = [{}, { fleet: "bbbbbbbb" }, { pool: "scan-2" }];
      const orders = whose.map((one) => orderOf(1, { burst: 1, ...one }));
      const providers = whose.map((one) => stage.provider(one));
      for (const [place, one] of providers.entries()) await one.start(orders[place]!);
      await waitFor(() => stage.running().length === 3);
      for (const [place, one] of providers.entries()) {
        const seen = await one.list();
        expect(seen.map((machine) => machine.name)).toEqual([orders[place]!.name]);
        await one.remove(seen[0]!);
        await waitFor(() => stage.running().length === 2 - place);
      }
    });

    it("throws when it cannot say what is there, and never answers that there is nothing", async () => {
      const order = orderOf(1, { burst: 1 });
      await provider.start(order);
      stage.unplug();
      expect(await troubleOf(provider.list())).toMatchObject({ name: "ProviderError", trouble: "unreachable" });
      expect(await troubleOf(provider.start(orderOf(2, { burst: 2 })))).toMatchObject({ trouble: "unreachable" });
      stage.mend();
      await waitFor(async () => (await names()).includes(order.name));
    });

    it("T44: a start whose answer was lost makes one machine, also when it is asked for again", async ({ skip }) => {
      if (!stage.loseAnswer) return skip("its answers cannot be lost");
      const order = orderOf(1, { burst: 1 });
      stage.loseAnswer();
      const error = await provider.start(order).then(
        () => undefined,
        (thrown: ProviderError) => thrown,
      );
      // It may have found out by itself what has become of it.
      if (error) expect(error).toMatchObject({ name: "ProviderError", certain: false });
      stage.mend();
      await provider.start(order);
      await waitFor(() => isRunning(order.name));
      expect(stage.running()).toEqual([order.name]);
      expect(await names()).toEqual([order.name]);
    });

    it("says that its token is refused, once and with what to do, and tries no more", async ({ skip }) => {
      if (!stage.refuseToken) return skip("it has no token");
      stage.refuseToken();
      const before = stage.calls?.() ?? 0;
      const error = await troubleOf(provider.start(orderOf(1, { burst: 1 })));
      expect(error).toMatchObject({ trouble: "auth", certain: true, retryable: false, code: "PROVIDER_AUTH" });
      expect(error.remedy).toMatch(/\w/);
      expect((stage.calls?.() ?? 1) - before).toBe(1);
      expect(await troubleOf(provider.list())).toMatchObject({ trouble: "auth" });
      stage.mend();
      expect(await provider.list()).toEqual([]);
    });
  });
}

function checkTimes({ startedAt, endedAt }: SeenMachine, now: number): void {
  if (startedAt && endedAt) expect(endedAt.getTime()).toBeGreaterThanOrEqual(startedAt.getTime());
  for (const time of [startedAt, endedAt]) if (time) expect(Math.abs(now - time.getTime())).toBeLessThan(600_000);
}

async function troubleOf(call: Promise<unknown>): Promise<ProviderError & { remedy?: string }> {
  return call.then(
    () => {
      throw new Error("It was not refused");
    },
    (error: ProviderError) => error,
  );
}
