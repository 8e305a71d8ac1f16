// The conformance suite of all providers: what the orchestrator relies on. Each provider has a fixture: processes of this
// host for the local one, a fake API for the others. Whether a machine exists is read from the fixture, not from the provider.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  type Exit,
  type ListedMachine,
  machineName,
  type Provider,
  type ProviderError,
} from "../../src/orchestrator/provider.ts";
import { waitFor } from "../../src/testing/index.ts";
import { cloudRunFixture, flyFixture, kubernetesFixture } from "../support/providers/api-provider-cases.ts";
import {
  FLEET,
  localFixture,
  machineRequest,
  POOL,
  type ProviderFixture,
} from "../support/providers/provider-cases.ts";
import { failure } from "../support/providers/provider-test.ts";

const CANARY = "token-of-the-orchestrator-2f6c";

testProvider("local", async () => localFixture());
testProvider("fly", flyFixture);
testProvider("cloud-run", cloudRunFixture);
testProvider("kubernetes", kubernetesFixture);

function testProvider(name: string, createFixture: () => Promise<ProviderFixture>): void {
  describe(name, () => {
    let fixture: ProviderFixture;
    let provider: Provider;
    const names = async () => (await provider.list()).map((machine) => machine.name);
    const find = async (machineName: string) => (await provider.list()).find(({ name }) => name === machineName);
    /** The time of the fixture. */
    const now = () => Date.now() + fixture.waits().reduce((sum, ms) => sum + ms, 0);
    const isRunning = async (machineName: string) => (await find(machineName))?.state === "running";

    beforeAll(() => {
      process.env.FLY_API_TOKEN = CANARY;
    });
    afterAll(() => {
      delete process.env.FLY_API_TOKEN;
    });
    beforeEach(async () => {
      fixture = await createFixture();
      provider = fixture.provider();
      return () => fixture.close();
    });

    it("has no machines at first", async () => {
      expect(await provider.list()).toEqual([]);
      expect(provider.kind).toBe(name);
    });

    it("starts one machine of this name, also for repeated and concurrent requests", async () => {
      const request = machineRequest(1, { burst: 7 });
      const before = now();
      const [first, second] = await Promise.all([provider.start(request), provider.start(request)]);
      const third = await provider.start(request);
      await waitFor(() => isRunning(request.name));
      expect(fixture.running()).toEqual([request.name]);
      expect(new Set([first.id, second.id, third.id]).size).toBe(1);
      const [listed, ...others] = await provider.list();
      expect(others).toEqual([]);
      expect(listed).toMatchObject({ name: request.name, id: first.id, state: "running" });
      expect(listed!.startedAt!.getTime()).toBeGreaterThan(before - 5000);
      expect(listed!.startedAt!.getTime()).toBeLessThan(now() + 5000);
      expect(listed!.endedAt).toBeUndefined();
    });

    it("passes the requested environment, and no token", async () => {
      const request = machineRequest(1, { burst: 1 });
      await provider.start(request);
      await waitFor(() => fixture.running().length === 1);
      const environment = fixture.readEnvironment(request.name);
      expect(environment).toMatchObject(request.env);
      expect(Object.values(environment).join("\n")).not.toContain(CANARY);
      expect(
        Object.keys(environment).filter((variable) => /TOKEN|GOOGLE_APPLICATION|KUBECONFIG/.test(variable)),
      ).toEqual([]);
    });

    it("reports a burst machine that has ended as gone, with its exit", async () => {
      const request = machineRequest(2, { burst: 3 });
      const { id } = await provider.start(request);
      await waitFor(() => isRunning(request.name));
      await fixture.exit(request.name, 3);
      const listed = await waitFor(async () => {
        const machine = await find(request.name);
        return (machine?.state ?? "gone") === "gone" && { machine };
      });
      const exit: Exit | undefined =
        listed.machine?.exit ?? (await provider.getExitReason?.({ name: request.name, id }));
      expect(exit).toMatchObject({ code: 3 });
      if (listed.machine) checkTimes(listed.machine, now());
      expect(fixture.running()).toEqual([]);
    });

    it("notifies listeners of an exit, if supported", async ({ skip }) => {
      if (!provider.onEnded) return skip("it has no onEnded()");
      const ends: ListedMachine[] = [];
      provider.onEnded((machine) => ends.push(machine));
      const request = machineRequest(1, { burst: 1 });
      await provider.start(request);
      await fixture.exit(request.name, 5);
      await waitFor(() => ends.length > 0);
      expect(ends).toMatchObject([{ name: request.name, state: "gone", exit: { code: 5 } }]);
    });

    it("a prepared machine is stopped, and can be started repeatedly under its name", async ({ skip }) => {
      if (!provider.prepare) return skip("it has no prepare()");
      const request = machineRequest(1);
      const { id } = await provider.prepare(request);
      expect((await provider.prepare(request)).id).toBe(id);
      // A machine that runs when it is created: its worker finds no job.
      if (fixture.running().length > 0) await fixture.exit(request.name, 0);
      await waitFor(async () => (await find(request.name))?.state === "stopped");
      expect(fixture.running()).toEqual([]);
      for (const code of [0, 4]) {
        await provider.start(request);
        await waitFor(() => isRunning(request.name));
        expect(fixture.running()).toEqual([request.name]);
        await fixture.exit(request.name, code);
        const listed = await waitFor(async () => {
          const machine = await find(request.name);
          return machine?.state === "stopped" && machine;
        });
        checkTimes(listed, now());
        const exit = listed.exit ?? (await provider.getExitReason?.(listed));
        expect(exit).toMatchObject({ code });
      }
      expect(await names()).toEqual([request.name]);
    });

    it("removes running, stopped and gone machines, and ignores missing ones", async () => {
      const running = machineRequest(1, { burst: 1 });
      const gone = machineRequest(2, { burst: 2 });
      const ids = [await provider.start(running), await provider.start(gone)];
      await waitFor(async () => (await isRunning(running.name)) && (await isRunning(gone.name)));
      await fixture.exit(gone.name, 0);
      const removed = [running.name, gone.name].map((machine, index) => ({ name: machine, id: ids[index]!.id }));
      if (provider.prepare) {
        const stopped = machineRequest(3);
        removed.push({ name: stopped.name, id: (await provider.prepare(stopped)).id });
        if (fixture.running().includes(stopped.name)) await fixture.exit(stopped.name, 0);
        await waitFor(async () => (await find(stopped.name))?.state === "stopped");
      }
      for (const machine of removed) await provider.remove(machine);
      // Again, and one that never existed.
      for (const machine of [...removed, { name: machineName(FLEET, POOL, 9), id: removed[0]!.id }])
        await provider.remove(machine);
      await waitFor(() => fixture.running().length === 0);
      await waitFor(async () => (await provider.list()).every(({ state }) => state === "gone"));
    });

    it("never lists, starts or removes a machine of another fleet or pool, nor one that only has a matching name", async () => {
      const others = [
        { name: machineName("bbbbbbbb", POOL, 1), fleet: "bbbbbbbb", pool: POOL },
        // A pool whose name, and machine names, have the same prefix.
        { name: machineName(FLEET, "scan-m1", 1), fleet: FLEET, pool: "scan-m1" },
        { name: machineName(FLEET, "scanner", 1), fleet: FLEET, pool: "scanner" },
        // A matching name without tags or with foreign ones.
        { name: machineName(FLEET, POOL, 1) },
        { name: machineName(FLEET, POOL, 2), fleet: "bbbbbbbb", pool: POOL },
        { name: "postgres", fleet: FLEET, pool: POOL },
      ];
      const ids = new Map<string, string>();
      for (const other of others) ids.set(other.name, await fixture.addForeign(other));
      const before = fixture.running().toSorted();
      expect(before).toHaveLength(others.length);
      expect(await provider.list()).toEqual([]);
      for (const other of others) {
        const id = ids.get(other.name)!;
        await provider.remove({ name: other.name, id }).catch(() => {});
        await provider.remove({ name: machineRequest(1).name, id }).catch(() => {});
        await provider.remove({ name: machineRequest(7).name, id }).catch(() => {});
        await provider.getExitReason?.({ name: other.name, id }).catch(() => {});
      }
      expect(fixture.running().toSorted()).toEqual(before);
      const request = machineRequest(5, { burst: 1 });
      await provider.start(request);
      await waitFor(() => isRunning(request.name));
      expect(await names()).toEqual([request.name]);
      expect(fixture.running().toSorted()).toEqual([...before, request.name].toSorted());
    });

    it("fleets and pools in one account list and remove only their own machines", async () => {
      const owners = [{}, { fleet: "bbbbbbbb" }, { pool: "scan-2" }];
      const requests = owners.map((owner) => machineRequest(1, { burst: 1, ...owner }));
      const providers = owners.map((owner) => fixture.provider(owner));
      for (const [index, owned] of providers.entries()) await owned.start(requests[index]!);
      await waitFor(() => fixture.running().length === 3);
      for (const [index, owned] of providers.entries()) {
        const listed = await owned.list();
        expect(listed.map((machine) => machine.name)).toEqual([requests[index]!.name]);
        await owned.remove(listed[0]!);
        await waitFor(() => fixture.running().length === 2 - index);
      }
    });

    it("throws when list() fails, and never returns an empty list instead", async () => {
      const request = machineRequest(1, { burst: 1 });
      await provider.start(request);
      fixture.disconnect();
      expect(await failure(provider.list())).toMatchObject({ name: "ProviderError", kind: "unreachable" });
      expect(await failure(provider.start(machineRequest(2, { burst: 2 })))).toMatchObject({
        kind: "unreachable",
      });
      fixture.repair();
      await waitFor(async () => (await names()).includes(request.name));
    });

    it("a start whose response was lost creates one machine, also when it is repeated", async ({ skip }) => {
      if (!fixture.loseResponse) return skip("it has no API");
      const request = machineRequest(1, { burst: 1 });
      fixture.loseResponse();
      const error = await provider.start(request).then(
        () => undefined,
        (thrown: ProviderError) => thrown,
      );
      // The provider may have found the machine itself.
      if (error) expect(error).toMatchObject({ name: "ProviderError", certain: false });
      fixture.repair();
      await provider.start(request);
      await waitFor(() => isRunning(request.name));
      expect(fixture.running()).toEqual([request.name]);
      expect(await names()).toEqual([request.name]);
    });

    it("fails once with a remedy when the token is rejected, without retries", async ({ skip }) => {
      if (!fixture.rejectToken) return skip("it has no token");
      fixture.rejectToken();
      const before = fixture.calls?.() ?? 0;
      const error = await failure(provider.start(machineRequest(1, { burst: 1 })));
      expect(error).toMatchObject({ kind: "auth", certain: true, retryable: false, code: "PROVIDER_AUTH" });
      expect(error.remedy).toMatch(/\w/);
      expect((fixture.calls?.() ?? 1) - before).toBe(1);
      expect(await failure(provider.list())).toMatchObject({ kind: "auth" });
      fixture.repair();
      expect(await provider.list()).toEqual([]);
    });
  });
}

function checkTimes({ startedAt, endedAt }: ListedMachine, now: number): void {
  if (startedAt && endedAt) expect(endedAt.getTime()).toBeGreaterThanOrEqual(startedAt.getTime());
  for (const time of [startedAt, endedAt]) if (time) expect(Math.abs(now - time.getTime())).toBeLessThan(600_000);
}
