// The page in a browser, with the compiled pipeline under a real worker: a file is uploaded, clipped by ffmpeg and played.
import path from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { describeInBrowser, useBrowser } from "../../../../test/support/server/browser.ts";
import { pageChecks } from "../../../kit/test/support/page-checks.ts";
import { setUpClips } from "../support/clips.ts";
import { makeVideo, programsForTests } from "../support/programs.ts";

const programs = await programsForTests();
if (typeof programs === "string") console.warn(`The clip on the page is not made: ${programs}`);
const setup = await setUpClips({ app: { base: "/clip/" } });
const browser = useBrowser();
const { expectGoodPage, takeScreenshot } = pageChecks("clip-made");

(typeof programs === "string" ? describe.skip : describeInBrowser)("a clip from the upload to the player", () => {
  it("is cut, followed by frames per second and time left, and played", { timeout: 180_000 }, async () => {
    const file = path.join(setup.folder, "test picture.mp4");
    makeVideo(programs as Exclude<typeof programs, string>, file, { seconds: 30, size: "1280x720" });
    const worker = setup.worker();
    onTestFinished(() => worker.stop());
    const opened = await browser.visit({ origin: setup.origin });
    const { page } = opened;
    await opened.goto("/clip/");
    await page.getByLabel("Choose a file").setInputFiles(file);
    await page.getByLabel("End of the range").focus();
    await page.keyboard.press("End");
    await page.getByLabel("Start", { exact: true }).fill("0:02.5");
    await page.getByRole("button", { name: "WebM" }).click();
    await page.getByRole("button", { name: "Make the clip" }).click();
    await page.getByRole("heading", { level: 1, name: "test picture.mp4" }).waitFor();
    await worker.start();
    await page.getByText(/^Running: .*\d+ frames per second, \d+ s left$/).waitFor({ timeout: 60_000 });
    await page.locator(".stages").getByText("Cut, running").waitFor();
    await takeScreenshot(opened, "running");
    await page.locator(".page-head").getByText("ready", { exact: true }).waitFor({ timeout: 120_000 });
    await page.locator(".line .message").getByText("Clip ready").waitFor();
    const look = (expression: string) => page.evaluate(`document.querySelector("video").${expression}`);
    await expect.poll(() => look("duration"), { timeout: 10_000 }).toBeCloseTo(27.5, 0);
    await look("play()");
    await expect.poll(() => look("currentTime"), { timeout: 10_000 }).toBeGreaterThan(0.2);
    await look("pause()");
    await expectGoodPage(opened, "ready");
    await page.getByRole("link", { name: "Clips" }).click();
    const picture = page.locator(".clip-card img");
    await picture.waitFor();
    await expect.poll(() => page.evaluate('document.querySelector(".clip-card img").naturalWidth')).toBe(480);
    await expectGoodPage(opened, "list");
  });
});
